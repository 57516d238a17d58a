//! Loads libfabric, and calls the functions that it exports.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use homespun::Errno;
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::fi_version;
use homespun_fi::abi::info::{FiFabricAttr, FiInfo};
use libc::{c_char, c_int, c_void};
use thiserror::Error;

use crate::info::InfoList;
use crate::object::Object;

/// The version of the interface that this crate requests. The structures of this crate have the layout of
/// 1.17.
pub const API_VERSION: u32 = fi_version(1, 17);

/// The symbol version of the functions that take the `struct fi_info` of 1.17. A newer libfabric exports
/// these functions in addition to newer versions of them.
const INFO_SYMBOLS: &CStr = c"FABRIC_1.3";

/// The reason why a library cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The library could not be loaded.
    #[error("{0}")]
    NotLoaded(String),
    /// The library lacks a function that applications use.
    #[error("no {0} with the interface of libfabric 1.17")]
    NoSymbol(String),
}

type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut FiInfo);
type DupInfo = unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo;
type OpenFabric = unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;

/// A loaded libfabric. The library stays loaded until the process ends, since its providers leave threads
/// and thread-local data behind.
#[derive(Debug, Clone, Copy)]
pub struct Libfabric {
    getinfo: GetInfo,
    freeinfo: FreeInfo,
    dupinfo: DupInfo,
    fabric: OpenFabric,
    version: Version,
}

impl Libfabric {
    /// Loads libfabric. `name` is a path, or a name that the dynamic loader searches for, such as
    /// `libfabric.so.1`.
    ///
    /// libfabric reads its environment (`FI_PROVIDER_PATH`, `FI_LOG_LEVEL`) at the first
    /// [`getinfo`](Libfabric::getinfo).
    pub fn load(name: impl AsRef<OsStr>) -> Result<Libfabric, LoadError> {
        let unusable = || LoadError::NotLoaded("a path must not contain a zero byte".to_owned());
        let name = CString::new(name.as_ref().as_bytes()).map_err(|_| unusable())?;
        // SAFETY: the name is a C string, and libfabric may be initialised at any time and from any thread.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: after a failure `dlerror` returns a string, which is valid until this thread calls the
            // loader again.
            let error = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(LoadError::NotLoaded(error.to_string_lossy().into_owned()));
        }
        let symbol = |name: &CStr, version: Option<&CStr>| {
            // SAFETY: the library is open, and the names are strings.
            let address = unsafe {
                match version {
                    Some(version) => libc::dlvsym(library, name.as_ptr(), version.as_ptr()),
                    None => libc::dlsym(library, name.as_ptr()),
                }
            };
            let missing = || LoadError::NoSymbol(name.to_string_lossy().into_owned());
            if address.is_null() { Err(missing()) } else { Ok(address) }
        };
        // SAFETY: `rdma/fabric.h` declares the functions with these types, and `symbol` returns no null
        // pointer.
        unsafe {
            use std::mem::transmute;
            Ok(Libfabric {
                getinfo: transmute::<*mut c_void, GetInfo>(symbol(c"fi_getinfo", Some(INFO_SYMBOLS))?),
                freeinfo: transmute::<*mut c_void, FreeInfo>(symbol(c"fi_freeinfo", Some(INFO_SYMBOLS))?),
                dupinfo: transmute::<*mut c_void, DupInfo>(symbol(c"fi_dupinfo", Some(INFO_SYMBOLS))?),
                fabric: transmute::<*mut c_void, OpenFabric>(symbol(c"fi_fabric", Some(c"FABRIC_1.1"))?),
                version: transmute::<*mut c_void, Version>(symbol(c"fi_version", None)?),
            })
        }
    }

    /// `fi_version(3)`: the major and the minor version.
    pub fn version(&self) -> (u16, u16) {
        // SAFETY: the function has no conditions.
        let version = unsafe { (self.version)() };
        ((version >> 16) as u16, version as u16)
    }

    /// `fi_allocinfo(3)`: an empty info with empty attributes, which the caller fills as hints.
    pub fn empty_hints(&self) -> InfoList {
        // SAFETY: for a null pointer the function returns an empty info.
        let info = unsafe { (self.dupinfo)(ptr::null()) };
        // SAFETY: the caller of `fi_dupinfo` has to free the info.
        unsafe { InfoList::from_raw(*self, info) }.expect("memory for hints")
    }

    /// `fi_dupinfo(3)`: a copy of one info, without the rest of its list.
    ///
    /// # Safety
    ///
    /// The info has all its attributes, and its pointers are null or valid.
    pub unsafe fn dupinfo(&self, info: *const FiInfo) -> InfoList {
        // SAFETY: the caller promises a valid info.
        let copy = unsafe { (self.dupinfo)(info) };
        // SAFETY: the caller of `fi_dupinfo` has to free the info.
        unsafe { InfoList::from_raw(*self, copy) }.expect("memory for an info")
    }

    /// `fi_getinfo(3)` for [`API_VERSION`].
    pub fn getinfo(
        &self,
        node: Option<&CStr>,
        service: Option<&CStr>,
        flags: u64,
        hints: Option<&InfoList>,
    ) -> Result<InfoList, Errno> {
        let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        let hints = hints.map_or(ptr::null(), |hints| hints.as_ptr().cast_const());
        let mut list = ptr::null_mut();
        // SAFETY: strings and hints are null or valid, and `list` has room for the result.
        let result =
            unsafe { (self.getinfo)(API_VERSION, text(node), text(service), flags, hints, &raw mut list) };
        check_result(result)?;
        // SAFETY: the caller of `fi_getinfo` has to free the list.
        unsafe { InfoList::from_raw(*self, list) }.ok_or(Errno::ENODATA)
    }

    /// `fi_fabric(3)`: opens the fabric of an info.
    pub fn open_fabric(&self, info: &InfoList) -> Result<Object<FidFabric>, Errno> {
        let attr = info.first().fabric_attr;
        // SAFETY: every info of a list has fabric attributes, which stay valid during the call.
        unsafe { Object::open([], |fabric| (self.fabric)(attr, fabric, ptr::null_mut())) }
    }

    /// `fi_fabric(3)` with any arguments, even invalid ones. Returns the function's result.
    ///
    /// # Safety
    ///
    /// If the library cannot handle an argument, the behaviour is undefined. A test that passes such an
    /// argument must run in a process that may crash.
    pub unsafe fn call_fi_fabric(
        &self,
        attr: *mut FiFabricAttr,
        fabric: *mut *mut FidFabric,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller promises arguments that the library can handle, or a process that may crash.
        unsafe { (self.fabric)(attr, fabric, context) }
    }

    /// `fi_freeinfo(3)`.
    ///
    /// # Safety
    ///
    /// The list comes from this libfabric, and nothing uses it afterwards.
    pub(crate) unsafe fn freeinfo(&self, list: *mut FiInfo) {
        // SAFETY: the caller promises that the list comes from this libfabric and is no longer used.
        unsafe { (self.freeinfo)(list) };
    }
}

/// Converts the result of a C function.
pub(crate) fn check_result(result: c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::new(result.wrapping_neg())) }
}
