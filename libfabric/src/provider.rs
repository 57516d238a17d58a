//! The plugin's `struct fi_provider`, and its `fi_getinfo(3)`.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr;

use homespun::error::{DomainNameSource, Unmet};
use homespun::flags::InfoFlags;
use homespun::info::{Info, PROVIDER_VERSION, Version};
use homespun::params::{self, OfferedName};
use homespun::{Errno, Error, Fabric, Misuse};
use libc::{c_char, c_int};

use crate::abi::info::FiInfo;
use crate::abi::provider::FiProvider;
use crate::c_misuse::CMisuse;
use crate::edge::{Failure, run_entry_point};
use crate::fabric::open_fabric;
use crate::info::{Extent, malloc_list_for_host, read_info};
use crate::opened::NamedObjects;
use crate::{host, layers, log, offered_name};

/// The newest version of the interface that this provider supports.
const INTERFACE_VERSION: Version = Version::new(2, 6);

/// A `struct fi_provider`.
struct Provider(UnsafeCell<FiProvider>);

// SAFETY: only the host and `fi_prov_ini` write the structure. A host makes one call of
// `fi_prov_ini` at a time, while it loads providers. No other code of the plugin reads or writes
// the structure.
unsafe impl Sync for Provider {}

impl Provider {
    const fn new() -> Provider {
        Provider(UnsafeCell::new(FiProvider {
            version: PROVIDER_VERSION.raw(),
            fi_version: INTERFACE_VERSION.raw(),
            context: layers::NO_CONTEXT,
            name: c"homespun".as_ptr(),
            getinfo: provider_getinfo,
            fabric: open_fabric,
            cleanup,
        }))
    }
}

/// The provider that the host registers.
static PROVIDER: Provider = Provider::new();

/// Identifies the plugin in calls about parameters: the host builds the names of environment
/// variables from the provider's name. Also identifies the plugin in log messages, if homespun is
/// offered under another name.
static IDENTITY: Provider = Provider::new();

/// Returns the plugin's provider to the host. The host looks this function up in the library
/// (`fi_provider(7)`).
///
/// After [`FiProvider::cleanup`] a host may be unloaded. When it is loaded again, it calls this
/// function again.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut FiProvider {
    let provider = PROVIDER.0.get();
    run_entry_point(|| {
        host::find_and_set_current(IDENTITY.0.get());
        let host = host::current();
        if let Some(host) = host {
            host::define_params(&host);
        }
        let name = host::read_params().offered_name;
        offered_name::set_current(name);
        if name == OfferedName::Homespun {
            // The host stores its log filters in the provider that it registers. So log messages
            // must name this provider.
            host::set_log_identity(provider);
        }
        // An application may have any version up to the host's. The host skips a provider whose
        // `fi_version` is below the application's version.
        let host_version = host.map_or(INTERFACE_VERSION, |host| host.version());
        let fi_version = match host_version.major {
            major if major == INTERFACE_VERSION.major => host_version.max(INTERFACE_VERSION),
            _ => INTERFACE_VERSION,
        };
        // SAFETY: see `Provider`.
        unsafe {
            (*provider).name = offered_name::c_name(name).as_ptr();
            (*provider).version = offered_name::provider_version(name).raw();
            (*provider).fi_version = fi_version.raw();
            (*provider).context = layers::context_for_host(host.map(|host| host.version()));
        }
        log::install_or_refresh_subscriber();
        params::warn_of_unknown_variables();
        Ok(provider)
    })
}

extern "C" fn cleanup() {
    // Forget the host even after a panic: the plugin must not call an unloaded host.
    host::forget_libfabric();
    run_entry_point(|| {
        log::install_or_refresh_subscriber();
        Ok(())
    });
}

unsafe extern "C" fn provider_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int {
    run_entry_point(|| {
        if info.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so writable.
        unsafe { info.write(ptr::null_mut()) };
        // SAFETY: the host passes the application's arguments of `fi_getinfo`. The strings are null
        // or valid. The hints are null, or have the layout of the host's `fi_info`.
        let (node, service, named, mut hints) = unsafe {
            (
                read_str(node)?,
                read_str(service)?,
                NamedObjects::from_hints(hints),
                read_hints(hints, version)?,
            )
        };
        if layers::is_layer_request(flags) {
            let provider_name = hints.as_ref().and_then(|hints| hints.fabric.prov_name.as_deref());
            let host_version = host::current().map(|host| host.version());
            if !layers::allows_layering(provider_name, offered_name::current(), host_version) {
                return Err(CMisuse::LayerHints.into());
            }
        }
        let provider_name = hints.as_ref().and_then(|hints| hints.fabric.prov_name.clone());
        if let Some(hints) = &mut hints {
            // The host has already selected the provider by this name, and may have added layers.
            hints.fabric.prov_name = None;
            named.restrict_hints(hints)?;
        }
        let flags = InfoFlags::from_bits_retain(flags);
        let fabric = Fabric::with_params(host::read_params());
        let infos = offered_name::getinfo(&fabric, node, service, flags, hints);
        let infos = infos.inspect_err(|error| {
            // The application gets only an error number. Layers try several hints.
            if is_for_homespun(provider_name.as_deref(), error) && !layers::is_layer_request(flags.bits()) {
                tracing::warn!(%error, "nothing is offered (FI_LOG_LEVEL=info names each refused hint)");
            }
        })?;
        let list = malloc_list_for_host(&infos)?;
        // SAFETY: the list was just made.
        unsafe { named.write_open_objects(&infos, list) };
        // SAFETY: as above.
        unsafe { info.write(list) };
        Ok(0)
    })
}

/// Whether the hints that caused this error may be for homespun: they name no other provider, and none of its
/// fabrics, domains and protocols.
fn is_for_homespun(provider_name: Option<&str>, error: &Error) -> bool {
    if let Some(name) = provider_name {
        return name.to_ascii_lowercase().contains(offered_name::current().as_str());
    }
    match error {
        Error::Misuse(Misuse::NoDomain(missing)) => missing.source != DomainNameSource::Hints,
        Error::Misuse(Misuse::Unmet(unmet)) => {
            !matches!(unmet, Unmet::FabricName | Unmet::DomainName | Unmet::Protocol | Unmet::ProtocolVersion)
        }
        _ => true,
    }
}

/// # Safety
///
/// `hints` is null, or a valid `struct fi_info` with all fields that the plugin knows. The
/// structures that it points to are valid and complete, too.
unsafe fn read_hints(hints: *const FiInfo, version: u32) -> Result<Option<Info>, Failure> {
    if hints.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so valid.
    let mut hints = unsafe { read_info(hints, Extent::Library)? };
    hints.fabric.api_version = Version::from_raw(version);
    Ok(Some(hints))
}

/// # Safety
///
/// `text` is null or a string that ends with a zero byte and outlives the result.
unsafe fn read_str<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a string.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    // No host or service has a name that is not UTF-8.
    Ok(Some(text.map_err(|_| CMisuse::NotUtf8)?))
}
