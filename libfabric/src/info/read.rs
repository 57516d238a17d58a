//! Conversion of `struct fi_info` to [`Info`].

use std::ffi::CStr;
use std::slice;

use homespun::Address;
use homespun::flags::{Caps, Mode, OpFlags, Order};
use homespun::info::{
    AvType, DomainAttr, EndpointType, EpAttr, FabricAttr, Info, MrMode, Progress, ResourceManagement, RxAttr,
    Threading, TxAttr, Version, address_format_from_raw,
};
use homespun::mutated;
use libc::{c_char, c_void};

use crate::abi::info::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr};
use crate::c_misuse::CMisuse;
use crate::edge::Failure;
use crate::sockaddr;

/// Which fields the caller's structures have: `fabric(7)`, "ABI changes".
///
/// `fi_getinfo` is a function of libfabric, and libfabric extends the hints of old applications.
/// Other calls are inline functions in headers. They pass the application's structures unchanged,
/// with the fields for which the application was compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    /// At least the fields that the plugin knows.
    Library,
    /// The fields of the interface version that the application asked for.
    Application {
        /// `fi_fabric_attr->api_version`.
        api_version: Version,
    },
}

impl Extent {
    /// Whether the structures have the fields that libfabric 1.5 added, such as authorization keys.
    fn has_key_fields(self) -> bool {
        self.has_fields_of(Version::new(1, 5))
    }

    /// Whether the structures have traffic classes.
    fn has_tclass_field(self) -> bool {
        self.has_fields_of(Version::new(1, 9))
    }

    fn has_fields_of(self, version: Version) -> bool {
        match self {
            Extent::Library => true,
            Extent::Application { api_version } => api_version >= version,
        }
    }
}

/// Reads an info of C code. A null attribute counts as unspecified.
///
/// # Errors
///
/// EINVAL for an unreadable address. ENODATA for a value that homespun does not know.
///
/// # Safety
///
/// `info` points to a valid `struct fi_info` with the fields of `extent`. Its pointers, and the
/// pointers in its attributes, are null or valid. The attributes have the fields of `extent`, too.
pub(crate) unsafe fn read_info(info: *const FiInfo, extent: Extent) -> Result<Info, Failure> {
    // SAFETY: reads only fields within the extent. The caller promises that every pointer is null
    // or valid, and null is checked.
    unsafe {
        Ok(Info {
            caps: Caps::from_bits_retain((*info).caps),
            mode: Mode::from_bits_retain((*info).mode),
            addr_format: address_format_from_raw((*info).addr_format)?,
            src_addr: read_address((*info).src_addr, (*info).src_addrlen)?,
            dest_addr: read_address((*info).dest_addr, (*info).dest_addrlen)?,
            tx: read_tx_attr((*info).tx_attr, extent),
            rx: read_rx_attr((*info).rx_attr),
            ep: read_optional_attr((*info).ep_attr, |ep| read_ep(ep, extent))?,
            domain: read_optional_attr((*info).domain_attr, |domain| read_domain(domain, extent))?,
            fabric: read_optional_attr((*info).fabric_attr, |fabric| read_fabric(fabric, extent))?,
        })
    }
}

/// Reads the transmit attributes, which may be null.
///
/// # Safety
///
/// `from` is null or has the fields of `extent`.
pub(crate) unsafe fn read_tx_attr(from: *const FiTxAttr, extent: Extent) -> TxAttr {
    // SAFETY: the caller promises it.
    if from.is_null() { TxAttr::default() } else { unsafe { read_tx(from, extent) } }
}

/// Reads the receive attributes, which may be null.
///
/// # Safety
///
/// `from` is null or valid.
pub(crate) unsafe fn read_rx_attr(from: *const FiRxAttr) -> RxAttr {
    // SAFETY: the caller promises it.
    if from.is_null() { RxAttr::default() } else { unsafe { read_rx(from) } }
}

/// Reads attributes that may be null.
fn read_optional_attr<C, R: Default>(
    from: *const C,
    read: impl FnOnce(*const C) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if from.is_null() { Ok(R::default()) } else { read(from) }
}

/// # Safety
///
/// `from` has the fields of `extent`.
unsafe fn read_tx(from: *const FiTxAttr, extent: Extent) -> TxAttr {
    // SAFETY: the fields are within the extent.
    unsafe {
        TxAttr {
            caps: Caps::from_bits_retain((*from).caps),
            mode: Mode::from_bits_retain((*from).mode),
            op_flags: OpFlags::from_bits_retain((*from).op_flags),
            msg_order: Order::from_bits_retain((*from).msg_order),
            comp_order: Order::from_bits_retain((*from).comp_order),
            inject_size_bytes: (*from).inject_size,
            size_ops: (*from).size,
            iov_limit: (*from).iov_limit,
            rma_iov_limit: (*from).rma_iov_limit,
            tclass: if extent.has_tclass_field() { (*from).tclass } else { 0 },
        }
    }
}

/// # Safety
///
/// `from` is valid.
unsafe fn read_rx(from: *const FiRxAttr) -> RxAttr {
    // SAFETY: the caller promises it.
    unsafe {
        RxAttr {
            caps: Caps::from_bits_retain((*from).caps),
            mode: Mode::from_bits_retain((*from).mode),
            op_flags: OpFlags::from_bits_retain((*from).op_flags),
            msg_order: Order::from_bits_retain((*from).msg_order),
            comp_order: Order::from_bits_retain((*from).comp_order),
            total_buffered_recv_bytes: (*from).total_buffered_recv,
            size_ops: (*from).size,
            iov_limit: (*from).iov_limit,
        }
    }
}

/// # Safety
///
/// `from` has the fields of `extent`, and its key is valid.
unsafe fn read_ep(from: *const FiEpAttr, extent: Extent) -> Result<EpAttr, Failure> {
    // SAFETY: the fields are within the extent.
    unsafe {
        Ok(EpAttr {
            ep_type: match (*from).r#type {
                4.. if mutated!("fi_endpoint/socket-endpoints") => None,
                ep_type => EndpointType::from_raw(ep_type)?,
            },
            protocol: (*from).protocol,
            protocol_version: (*from).protocol_version,
            max_msg_size_bytes: (*from).max_msg_size,
            msg_prefix_size_bytes: (*from).msg_prefix_size,
            max_order_raw_size_bytes: (*from).max_order_raw_size,
            max_order_war_size_bytes: (*from).max_order_war_size,
            max_order_waw_size_bytes: (*from).max_order_waw_size,
            mem_tag_format: (*from).mem_tag_format,
            tx_ctx_cnt: (*from).tx_ctx_cnt,
            rx_ctx_cnt: (*from).rx_ctx_cnt,
            auth_key: if extent.has_key_fields() {
                read_auth_key((*from).auth_key, (*from).auth_key_size)?
            } else {
                Vec::new()
            },
        })
    }
}

/// # Safety
///
/// `from` has the fields of `extent`, and its name and key are valid.
unsafe fn read_domain(from: *const FiDomainAttr, extent: Extent) -> Result<DomainAttr, Failure> {
    // SAFETY: the fields exist in every version of the structure.
    let mut domain = unsafe {
        DomainAttr {
            name: read_string((*from).name)?,
            threading: Threading::from_raw((*from).threading)?,
            control_progress: Progress::from_raw((*from).control_progress)?,
            data_progress: Progress::from_raw((*from).data_progress)?,
            // An unknown number is no request: the answer says what there is.
            resource_mgmt: ResourceManagement::from_raw((*from).resource_mgmt).unwrap_or_default(),
            av_type: AvType::from_raw((*from).av_type).unwrap_or_default(),
            mr_mode: MrMode::from_bits_retain((*from).mr_mode.cast_unsigned()),
            mr_key_size_bytes: (*from).mr_key_size,
            cq_data_size_bytes: (*from).cq_data_size,
            cq_cnt: (*from).cq_cnt,
            ep_cnt: (*from).ep_cnt,
            tx_ctx_cnt: (*from).tx_ctx_cnt,
            rx_ctx_cnt: (*from).rx_ctx_cnt,
            max_ep_tx_ctx: (*from).max_ep_tx_ctx,
            max_ep_rx_ctx: (*from).max_ep_rx_ctx,
            max_ep_stx_ctx: (*from).max_ep_stx_ctx,
            max_ep_srx_ctx: (*from).max_ep_srx_ctx,
            ..DomainAttr::default()
        }
    };
    if extent.has_key_fields() {
        // SAFETY: the fields are within the extent.
        unsafe {
            domain.cntr_cnt = (*from).cntr_cnt;
            domain.mr_iov_limit = (*from).mr_iov_limit;
            domain.caps = Caps::from_bits_retain((*from).caps);
            domain.mode = Mode::from_bits_retain((*from).mode);
            domain.auth_key = read_auth_key((*from).auth_key, (*from).auth_key_size)?;
            domain.max_err_data_bytes = (*from).max_err_data;
            domain.mr_cnt = (*from).mr_cnt;
        }
    }
    if extent.has_tclass_field() {
        // SAFETY: the field is within the extent.
        domain.tclass = unsafe { (*from).tclass };
    }
    Ok(domain)
}

/// # Safety
///
/// `from` has the fields of `extent`, and its names are valid.
unsafe fn read_fabric(from: *const FiFabricAttr, extent: Extent) -> Result<FabricAttr, Failure> {
    // SAFETY: the fields are within the extent.
    unsafe {
        Ok(FabricAttr {
            name: read_string((*from).name)?,
            prov_name: read_string((*from).prov_name)?,
            prov_version: Version::from_raw((*from).prov_version),
            // The same version added this field and the authorization keys.
            api_version: if extent.has_key_fields() {
                Version::from_raw((*from).api_version)
            } else {
                Version::default()
            },
        })
    }
}

/// # Safety
///
/// `from` is null or a string that ends with a zero byte.
pub(crate) unsafe fn read_string(from: *const c_char) -> Result<Option<String>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a string.
    let text = unsafe { CStr::from_ptr(from) };
    // All of homespun's names are UTF-8, so no other name matches.
    let text = text.to_str().map_err(|_| CMisuse::NotUtf8)?;
    Ok(Some(text.to_owned()))
}

/// # Safety
///
/// `from` is null or readable for `len_bytes`.
unsafe fn read_address(from: *const c_void, len_bytes: usize) -> Result<Option<Address>, Failure> {
    if from.is_null() || len_bytes == 0 {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    unsafe { sockaddr::read(from, len_bytes) }.map(Some)
}

/// # Safety
///
/// `from` is null or readable for `len_bytes`.
unsafe fn read_auth_key(from: *const u8, len_bytes: usize) -> Result<Vec<u8>, Failure> {
    match (from.is_null(), len_bytes) {
        (_, 0) => Ok(Vec::new()),
        // Since 1.20 a size without a key means keys in the address vector.
        (true, _) => Err(CMisuse::VectorAuthorization.into()),
        // SAFETY: the caller promises it.
        (false, _) => Ok(unsafe { slice::from_raw_parts(from, len_bytes) }.to_vec()),
    }
}
