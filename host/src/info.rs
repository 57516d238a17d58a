//! Lists of `struct fi_info`.

use std::ffi::CStr;

use homespun_fi::abi::info::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr};
use libc::c_char;

use crate::library::Libfabric;

/// Hints, or the answer of [`getinfo`](Libfabric::getinfo). A list is never empty. Dropping it frees all its
/// infos.
#[derive(Debug)]
pub struct InfoList {
    library: Libfabric,
    first: *mut FiInfo,
}

// SAFETY: an info belongs to no thread, and the list is its only owner.
unsafe impl Send for InfoList {}

impl InfoList {
    /// Takes ownership of a list. `None` if the list is empty.
    ///
    /// # Safety
    ///
    /// The list comes from this libfabric, its infos have all their attributes, and nothing else frees it.
    pub unsafe fn from_raw(library: Libfabric, first: *mut FiInfo) -> Option<InfoList> {
        (!first.is_null()).then_some(InfoList { library, first })
    }

    /// The first info, for calls of the C interface.
    pub fn as_ptr(&self) -> *mut FiInfo {
        self.first
    }

    /// The first info.
    pub fn first(&self) -> &FiInfo {
        // SAFETY: the list is not empty, and is valid as long as `self`.
        unsafe { &*self.first }
    }

    /// The first info, mutable.
    pub fn first_mut(&mut self) -> &mut FiInfo {
        // SAFETY: the list is not empty and is valid as long as `self`, which is borrowed exclusively.
        unsafe { &mut *self.first }
    }

    /// All infos in their order.
    pub fn iter(&self) -> impl Iterator<Item = &FiInfo> {
        // SAFETY: every info of the list is valid as long as `self`.
        std::iter::successors(Some(self.first()), |info| unsafe { info.next.as_ref() })
    }

    /// A list with a copy of the first info for which `is_wanted` is true.
    pub fn find_copy(&self, is_wanted: impl FnMut(&&FiInfo) -> bool) -> Option<InfoList> {
        let found = self.iter().find(is_wanted)?;
        // SAFETY: the info is valid as long as `self`.
        Some(unsafe { self.library.dupinfo(found) })
    }

    /// The provider's name in the first info, such as `tcp;ofi_rxm`.
    pub fn provider_name(&self) -> Option<&str> {
        // SAFETY: the name is null, or a string that belongs to the list.
        let name = unsafe { (*self.first().fabric_attr).prov_name.as_ref().map(|name| CStr::from_ptr(name)) };
        name.and_then(|name| name.to_str().ok())
    }

    /// Sets the provider's name, in hints.
    pub fn set_provider_name(&mut self, name: &CStr) {
        set_text(&mut self.fabric_attr_mut().prov_name, name);
    }

    /// Sets the domain's name, in hints.
    pub fn set_domain_name(&mut self, name: &CStr) {
        set_text(&mut self.domain_attr_mut().name, name);
    }

    /// The transmit attributes of the first info.
    pub fn tx_attr_mut(&mut self) -> &mut FiTxAttr {
        // SAFETY: every info has these attributes, and `self` is borrowed exclusively.
        unsafe { &mut *self.first().tx_attr }
    }

    /// The receive attributes of the first info.
    pub fn rx_attr_mut(&mut self) -> &mut FiRxAttr {
        // SAFETY: as above.
        unsafe { &mut *self.first().rx_attr }
    }

    /// The endpoint attributes of the first info.
    pub fn ep_attr_mut(&mut self) -> &mut FiEpAttr {
        // SAFETY: as above.
        unsafe { &mut *self.first().ep_attr }
    }

    /// The domain attributes of the first info.
    pub fn domain_attr_mut(&mut self) -> &mut FiDomainAttr {
        // SAFETY: as above.
        unsafe { &mut *self.first().domain_attr }
    }

    /// The fabric attributes of the first info.
    pub fn fabric_attr_mut(&mut self) -> &mut FiFabricAttr {
        // SAFETY: as above.
        unsafe { &mut *self.first().fabric_attr }
    }
}

/// Replaces a text of an info.
fn set_text(place: &mut *mut c_char, text: &CStr) {
    // SAFETY: the old text is null or comes from `malloc`. The copy comes from `malloc` too, and the list
    // becomes its owner.
    unsafe {
        libc::free(place.cast());
        *place = libc::strdup(text.as_ptr());
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: the list comes from this libfabric, and this is its only owner.
        unsafe { self.library.freeinfo(self.first) };
    }
}
