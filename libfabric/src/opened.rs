//! The open fabrics and domains, for `fi_getinfo`.
//!
//! An application may name an open object in its hints. It then gets only infos of this object.
//! Each info points to an open fabric and an open domain that fit it, if there are any:
//! `fi_fabric(3)`, "fabric", and `fi_domain(3)`, "domain". If several objects fit, it points to the
//! first.
//!
//! Objects are compared by address and never dereferenced, because hints may name a closed object.

use std::ptr;

use homespun::info::{EndpointType, Info, Progress, ResourceManagement, Threading};
use homespun::limits::KEY_MIN_BYTES;
use homespun::{AddressFormat, Domain, PassiveEndpoint};
use libc::c_void;
use parking_lot::Mutex;

use crate::abi::info::FiInfo;
use crate::c_misuse::CMisuse;
use crate::edge::Failure;
use crate::handles::{self, Handle};
use crate::offered_name::Names;

/// The open objects of each kind, in the order of their opening.
struct Opened {
    fabrics: Vec<OpenFabric>,
    domains: Vec<OpenDomain>,
}

struct OpenFabric {
    at: usize,
    /// The name of the fabric, as the application sees it.
    name: String,
}

/// The state of an open domain.
struct OpenDomain {
    at: usize,
    /// The names of the domain and of its fabric, as the application sees them.
    names: Names,
    format: AddressFormat,
    resource_mgmt: ResourceManagement,
    threading: Threading,
    data_progress: Progress,
    key_size_bytes: usize,
    /// Whether the domain can have connected endpoints, which need locks.
    allows_connections: bool,
}

static OPENED: Mutex<Opened> = Mutex::new(Opened { fabrics: Vec::new(), domains: Vec::new() });

/// Adds a fabric that was opened.
pub(crate) fn add_fabric<T>(fabric: *const T, name: String) {
    OPENED.lock().fabrics.push(OpenFabric { at: fabric.expose_provenance(), name });
}

/// Removes a fabric before it closes.
pub(crate) fn remove_fabric<T>(fabric: *const T) {
    OPENED.lock().fabrics.retain(|open| open.at != fabric.addr());
}

/// Adds a domain that was opened with this info, with locks or without.
pub(crate) fn add_domain<T>(at: *const T, domain: &Domain, names: Names, info: &Info, is_locked: bool) {
    OPENED.lock().domains.push(OpenDomain {
        at: at.expose_provenance(),
        names,
        format: domain.addr_format(),
        resource_mgmt: domain.resource_mgmt(),
        threading: info.domain.threading.unwrap_or(Threading::Safe),
        data_progress: info.domain.data_progress.unwrap_or(Progress::Manual),
        key_size_bytes: domain.key_size_bytes(),
        allows_connections: is_locked,
    });
}

/// Removes a domain before it closes.
pub(crate) fn remove_domain<T>(domain: *const T) {
    OPENED.lock().domains.retain(|open| open.at != domain.addr());
}

/// Writes open objects into the info of a connection request: the request's fabric, and the first
/// domain that can open an endpoint with this info.
///
/// # Safety
///
/// `written` was made from `info`, and the application does not have it yet.
pub(crate) unsafe fn write_open_objects_into_request(
    fabric: *const c_void,
    info: &Info,
    written: *mut FiInfo,
) {
    let named = NamedObjects { fabric: fabric.addr(), ..NamedObjects::default() };
    // SAFETY: the caller promises it.
    unsafe { named.write_open_objects(std::slice::from_ref(info), written) };
}

/// The addresses of the objects that hints name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NamedObjects {
    fabric: usize,
    domain: usize,
    /// A passive endpoint. The new endpoint takes over its address.
    handle: usize,
}

impl NamedObjects {
    /// # Safety
    ///
    /// `hints` is null or valid, and so are its attributes.
    pub(crate) unsafe fn from_hints(hints: *const FiInfo) -> NamedObjects {
        // SAFETY: the caller promises it.
        unsafe {
            let Some(hints) = hints.as_ref() else { return NamedObjects::default() };
            NamedObjects {
                fabric: hints.fabric_attr.as_ref().map_or(0, |attr| attr.fabric.addr()),
                domain: hints.domain_attr.as_ref().map_or(0, |attr| attr.domain.addr()),
                handle: hints.handle.addr(),
            }
        }
    }

    /// Restricts hints to infos of the objects that the hints name.
    ///
    /// # Errors
    ///
    /// ENODATA if a named object is not open, or if no info of the objects can meet the hints.
    pub(crate) fn restrict_hints(self, hints: &mut Info) -> Result<(), Failure> {
        if let Some((passive, names)) = self.passive_endpoint() {
            restrict_to_passive(passive.info(), &names, hints)?;
        }
        let opened = OPENED.lock();
        if self.fabric != 0 {
            let fabric = opened.fabrics.iter().find(|open| open.at == self.fabric);
            restrict_name(&mut hints.fabric.name, &fabric.ok_or(CMisuse::FabricNotOpen)?.name)
                .ok_or(CMisuse::NotOfFabric)?;
        }
        if self.domain == 0 {
            return Ok(());
        }
        let Some(domain) = opened.domains.iter().find(|open| open.at == self.domain) else {
            return Err(CMisuse::DomainNotOpen.into());
        };
        restrict_name(&mut hints.fabric.name, &domain.names.fabric).ok_or(CMisuse::NotOfDomain)?;
        restrict_name(&mut hints.domain.name, &domain.names.domain).ok_or(CMisuse::NotOfDomain)?;
        let is_another = hints.addr_format.is_some_and(|format| format != domain.format)
            || hints.domain.resource_mgmt.is_some_and(|asked| asked != domain.resource_mgmt)
            || hints.domain.threading.is_some_and(|asked| !domain.supports_threading(asked))
            || hints.domain.data_progress.is_some_and(|asked| asked != domain.data_progress)
            || (KEY_MIN_BYTES..domain.key_size_bytes).contains(&hints.domain.mr_key_size_bytes)
            || (hints.endpoint_type().is_connected() && !domain.allows_connections);
        if is_another {
            return Err(CMisuse::NotOfDomain.into());
        }
        hints.addr_format = Some(domain.format);
        hints.domain.resource_mgmt = Some(domain.resource_mgmt);
        hints.domain.threading.get_or_insert(domain.threading);
        hints.domain.data_progress = Some(domain.data_progress);
        hints.domain.mr_key_size_bytes = domain.key_size_bytes;
        if !domain.allows_connections {
            hints.ep.ep_type = Some(EndpointType::Rdm);
        }
        Ok(())
    }

    /// Returns the passive endpoint that the hints name, with the names of its fabric and domain.
    /// Returns `None` for any other handle.
    fn passive_endpoint(self) -> Option<(PassiveEndpoint, Names)> {
        match handles::lookup_handle(ptr::without_provenance(self.handle)) {
            Some(Handle::PassiveEndpoint(passive, names)) => Some((passive, names)),
            _ => None,
        }
    }

    /// Writes into each info of an answer the first open fabric and the first open domain that fit
    /// the info. If the hints named an object, only this object is written.
    ///
    /// # Safety
    ///
    /// `list` was made from `infos`, and the application does not have it yet.
    pub(crate) unsafe fn write_open_objects(self, infos: &[Info], list: *mut FiInfo) {
        let handle = self.passive_endpoint().map(|_| self.handle);
        let opened = OPENED.lock();
        let mut next = list;
        for info in infos {
            let fabric = opened.fabrics.iter().find(|open| {
                info.fabric.name.as_ref() == Some(&open.name) && (self.fabric == 0 || open.at == self.fabric)
            });
            let domain = opened
                .domains
                .iter()
                .find(|open| open.is_usable_for(info) && (self.domain == 0 || open.at == self.domain));
            // SAFETY: the caller promises that the list has an entry for each info, with all
            // attributes.
            unsafe {
                (*(*next).fabric_attr).fabric = to_pointer(fabric.map(|open| open.at));
                (*(*next).domain_attr).domain = to_pointer(domain.map(|open| open.at));
                (*next).handle = to_pointer(handle).cast();
                next = (*next).next;
            }
        }
    }
}

/// Sets the hint `asked` to `name`. Returns `None` if the hint was another name.
fn restrict_name(asked: &mut Option<String>, name: &str) -> Option<()> {
    let is_met = asked.as_ref().is_none_or(|asked| asked.eq_ignore_ascii_case(name));
    *asked = Some(name.to_owned());
    is_met.then_some(())
}

/// Restricts hints that name a passive endpoint. Allows only infos of connected endpoints that have
/// the passive endpoint's fabric, domain and address format.
///
/// # Errors
///
/// ENODATA if the hints ask for another endpoint type, fabric, domain or format.
fn restrict_to_passive(passive: &Info, names: &Names, hints: &mut Info) -> Result<(), Failure> {
    let is_another = hints.ep.ep_type.is_some_and(|asked| !asked.is_connected())
        || hints.addr_format.is_some() && hints.addr_format != passive.addr_format;
    if is_another {
        return Err(CMisuse::NotOfPassive.into());
    }
    restrict_name(&mut hints.fabric.name, &names.fabric).ok_or(CMisuse::NotOfPassive)?;
    restrict_name(&mut hints.domain.name, &names.domain).ok_or(CMisuse::NotOfPassive)?;
    hints.ep.ep_type = Some(EndpointType::Msg);
    hints.addr_format = passive.addr_format;
    Ok(())
}

impl OpenDomain {
    /// Whether the domain can open an endpoint with this info.
    fn is_usable_for(&self, info: &Info) -> bool {
        info.domain.name.as_ref() == Some(&self.names.domain)
            && info.fabric.name.as_ref() == Some(&self.names.fabric)
            && info.addr_format == Some(self.format)
            && info.domain.resource_mgmt == Some(self.resource_mgmt)
            && info.domain.threading.is_some_and(|threading| self.supports_threading(threading))
            && info.domain.data_progress == Some(self.data_progress)
            && info.domain.mr_key_size_bytes >= self.key_size_bytes
            && (self.allows_connections || !info.endpoint_type().is_connected())
    }

    /// Whether the domain supports this threading level. A domain without locks supports only
    /// `FI_THREAD_DOMAIN`.
    fn supports_threading(&self, threading: Threading) -> bool {
        self.threading != Threading::Domain || threading == Threading::Domain
    }
}

/// Returns the pointer that C code has to the object at address `at`. Returns null for `None`.
fn to_pointer(at: Option<usize>) -> *mut c_void {
    at.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}
