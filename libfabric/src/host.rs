//! The host: the libfabric that loaded the plugin, and its functions for providers.
//!
//! The plugin imports no symbols from libfabric, because it must load even if libfabric's symbols
//! are not visible to it. It looks up libfabric's functions at run time. If there are none, it
//! works without a host.

use std::ffi::{CStr, CString};
use std::ptr::{self, NonNull};

use homespun::info::Version;
use homespun::params::{PARAMS, Param, Params};
use libc::{c_char, c_int, c_void};
use parking_lot::RwLock;

use crate::abi::FI_PARAM_STRING;
use crate::abi::provider::FiProvider;

type FiVersion = unsafe extern "C" fn() -> u32;
type FiLogEnabled = unsafe extern "C" fn(*const FiProvider, u32, u32) -> c_int;
type FiParamDefine = unsafe extern "C" fn(*const FiProvider, *const c_char, u32, *const c_char, ...) -> c_int;
type FiParamGet = unsafe extern "C" fn(*const FiProvider, *const c_char, *mut c_void) -> c_int;
type FiLog = unsafe extern "C" fn(*const FiProvider, u32, u32, *const c_char, c_int, *const c_char, ...);

/// Functions of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    /// Identifies the plugin in calls about parameters.
    provider: *const FiProvider,
    /// Identifies the plugin in log messages.
    log_provider: *const FiProvider,
    fi_version: FiVersion,
    fi_log_enabled: FiLogEnabled,
    fi_log: FiLog,
    fi_param_define: FiParamDefine,
    fi_param_get: FiParamGet,
}

// SAFETY: any thread may call the functions, and the provider is only passed to them.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// The current host, or `None` before `fi_prov_ini` and after `cleanup`. After `cleanup` the host
/// may be unloaded, and loaded again at another address.
static HOST: RwLock<Option<Host>> = RwLock::new(None);

/// Looks up the libfabric that loaded the plugin, and makes it the current host. `provider`
/// identifies the plugin to the host.
pub(crate) fn find_and_set_current(provider: *const FiProvider) {
    *HOST.write() = Host::from_loaded_libfabric(provider);
}

/// Identifies the plugin by `provider` in log messages from now on.
pub(crate) fn set_log_identity(provider: *const FiProvider) {
    if let Some(host) = &mut *HOST.write() {
        host.log_provider = provider;
    }
}

/// Forgets the host.
pub(crate) fn forget_libfabric() {
    *HOST.write() = None;
}

/// Returns a copy of the current host, if there is one. With a copy, no lock is held while the
/// host's code runs.
pub(crate) fn current() -> Option<Host> {
    *HOST.read()
}

/// Registers the parameters with the host.
pub(crate) fn define_params(host: &Host) {
    for param in PARAMS {
        host.define_param(param);
    }
}

/// Returns the values of the parameters from the host, or without a host from the environment. The
/// host may also read its configuration file.
pub(crate) fn read_params() -> Params {
    match current() {
        Some(host) => Params::from_lookup(|param| host.param_value(param)),
        None => Params::from_env(),
    }
}

impl Host {
    fn from_loaded_libfabric(provider: *const FiProvider) -> Option<Host> {
        let library = Library::find_loaded(c"libfabric.so.1")?;
        // SAFETY: the functions have had these types since 1.0.
        unsafe {
            Some(Host {
                provider,
                log_provider: provider,
                fi_version: std::mem::transmute::<Symbol, FiVersion>(library.symbol(c"fi_version")?),
                fi_log_enabled: std::mem::transmute::<Symbol, FiLogEnabled>(
                    library.symbol(c"fi_log_enabled")?,
                ),
                fi_log: std::mem::transmute::<Symbol, FiLog>(library.symbol(c"fi_log")?),
                fi_param_define: std::mem::transmute::<Symbol, FiParamDefine>(
                    library.symbol(c"fi_param_define")?,
                ),
                fi_param_get: std::mem::transmute::<Symbol, FiParamGet>(library.symbol(c"fi_param_get")?),
            })
        }
    }

    /// Returns the version of the host's interface.
    pub(crate) fn version(&self) -> Version {
        // SAFETY: the host is loaded, since it called the plugin.
        Version::from_raw(unsafe { (self.fi_version)() })
    }

    /// Defines every parameter as a string, even a number. Otherwise the host would turn an invalid
    /// number into 0 without an error.
    fn define_param(&self, param: &Param) {
        let (Ok(name), Ok(help)) = (CString::new(param.name), CString::new(param.help)) else { return };
        // SAFETY: the host is loaded, since it called the plugin; the format takes one string, and
        // gets one. The host copies its arguments.
        unsafe {
            let (name, help) = (name.as_ptr(), help.as_ptr());
            (self.fi_param_define)(self.provider, name, FI_PARAM_STRING, c"%s".as_ptr(), help);
        }
    }

    fn param_value(&self, param: &Param) -> Option<String> {
        let name = CString::new(param.name).ok()?;
        let mut value: *const c_char = ptr::null();
        // SAFETY: the host is loaded; the parameter is defined as a string, so the host writes a
        // pointer.
        let result = unsafe { (self.fi_param_get)(self.provider, name.as_ptr(), (&raw mut value).cast()) };
        if result != 0 || value.is_null() {
            return None;
        }
        // SAFETY: not null, so a string. It is copied at once, before another thread changes the
        // environment.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// Whether the host wants messages of this level and subsystem.
    pub(crate) fn is_log_enabled(&self, level: u32, subsystem: u32) -> bool {
        // SAFETY: the host is loaded until it calls `cleanup`, and knows this level and subsystem.
        unsafe { (self.fi_log_enabled)(self.log_provider, level, subsystem) != 0 }
    }

    /// Writes one line to the host's log.
    pub(crate) fn log(&self, level: u32, subsystem: u32, function: &CStr, line: u32, message: &CStr) {
        let line = c_int::try_from(line).unwrap_or(0);
        // SAFETY: as above; the format takes one string, and gets one.
        unsafe {
            let (function, message) = (function.as_ptr(), message.as_ptr());
            (self.fi_log)(self.log_provider, level, subsystem, function, line, c"%s\n".as_ptr(), message);
        }
    }
}

/// The address of a symbol.
type Symbol = NonNull<c_void>;

/// A library that the process has loaded.
struct Library(NonNull<c_void>);

impl Library {
    fn find_loaded(name: &CStr) -> Option<Library> {
        // SAFETY: the call loads no library, and only finds a loaded one.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(Library)
    }

    fn symbol(&self, name: &CStr) -> Option<Symbol> {
        // SAFETY: the handle is open.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

impl Drop for Library {
    /// Releases the reference that the look-up took. The reference would keep the host loaded.
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this is its last use. The host itself keeps the library
        // loaded.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}
