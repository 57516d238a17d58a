//! Conversion of [`Info`] to `struct fi_info`, in memory that libfabric frees.

use std::ptr::{self, NonNull};

use homespun::info::{
    AvType, DomainAttr, EndpointType, EpAttr, FabricAttr, Info, Progress, ResourceManagement, RxAttr,
    Threading, TxAttr, address_format_raw,
};
use homespun::{Address, Errno};
use libc::{c_char, c_void};

use crate::abi::info::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr};
use crate::edge::Failure;
use crate::offered_name;
use crate::sockaddr::CAddress;

/// How many zeroed bytes follow each structure. A newer host reads fields there that the plugin
/// does not know, and zero means "unspecified" or "none".
const GROWTH_RESERVE_BYTES: usize = 256;

/// Allocates a list of infos with `malloc`. The host owns the list, and frees it with
/// `fi_freeinfo`.
///
/// # Errors
///
/// ENODATA for an empty list, ENOMEM.
pub(crate) fn malloc_list_for_host(infos: &[Info]) -> Result<*mut FiInfo, Failure> {
    Ok(malloc_list(infos)?.into_raw())
}

/// Allocates the info of a connection request. Also writes the provider's name: the host writes the
/// name only into infos of `fi_getinfo`.
///
/// # Errors
///
/// ENOMEM.
pub(crate) fn malloc_request_info(info: &Info) -> Result<InfoList, Failure> {
    let list = malloc_list(std::slice::from_ref(info))?;
    let name = malloc_c_string(Some(offered_name::current().as_str()))?;
    // SAFETY: the info was just made, with all attributes. The list frees the name.
    unsafe { (*(*list.head).fabric_attr).prov_name = name };
    Ok(list)
}

fn malloc_list(infos: &[Info]) -> Result<InfoList, Failure> {
    let mut list = InfoList { head: ptr::null_mut() };
    // Build the list from its end. Each info joins the list before it is filled, so the list frees
    // it if an allocation fails.
    for info in infos.iter().rev() {
        let entry: NonNull<FiInfo> = allocate_zeroed()?;
        // SAFETY: `entry` is a fresh, zeroed `fi_info`.
        unsafe { (*entry.as_ptr()).next = list.head };
        list.head = entry.as_ptr();
        // SAFETY: as above.
        unsafe { write_info(info, list.head)? };
    }
    if list.head.is_null() {
        return Err(Errno::ENODATA.into());
    }
    Ok(list)
}

/// A list of infos that the plugin still owns. Its drop frees them.
pub(crate) struct InfoList {
    head: *mut FiInfo,
}

// SAFETY: the list owns its infos.
unsafe impl Send for InfoList {}

impl InfoList {
    /// Returns the first info.
    pub(crate) fn head(&self) -> *mut FiInfo {
        self.head
    }

    /// Passes the list to the caller, which frees it by `fi_freeinfo`.
    pub(crate) fn into_raw(mut self) -> *mut FiInfo {
        std::mem::replace(&mut self.head, ptr::null_mut())
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        while !self.head.is_null() {
            // SAFETY: `malloc_list` made the infos: all their pointers are null or come from
            // `malloc`, and the list still owns them.
            unsafe {
                let info = self.head;
                self.head = (*info).next;
                if !(*info).ep_attr.is_null() {
                    free((*(*info).ep_attr).auth_key);
                }
                if !(*info).domain_attr.is_null() {
                    free((*(*info).domain_attr).name);
                    free((*(*info).domain_attr).auth_key);
                }
                if !(*info).fabric_attr.is_null() {
                    free((*(*info).fabric_attr).name);
                    free((*(*info).fabric_attr).prov_name);
                }
                free((*info).src_addr);
                free((*info).dest_addr);
                free((*info).tx_attr);
                free((*info).rx_attr);
                free((*info).ep_attr);
                free((*info).domain_attr);
                free((*info).fabric_attr);
                free(info);
            }
        }
    }
}

/// # Safety
///
/// `to` is a zeroed `fi_info`.
unsafe fn write_info(info: &Info, to: *mut FiInfo) -> Result<(), Failure> {
    // SAFETY: no other code has `to`. Each allocation is stored at once, so the list frees it.
    unsafe {
        (*to).caps = info.caps.bits();
        (*to).mode = info.mode.bits();
        (*to).addr_format = address_format_raw(info.addr_format);
        ((*to).src_addr, (*to).src_addrlen) = malloc_address(info.src_addr)?;
        ((*to).dest_addr, (*to).dest_addrlen) = malloc_address(info.dest_addr)?;
        (*to).tx_attr = malloc_value(c_tx_attr(&info.tx))?;
        (*to).rx_attr = malloc_value(c_rx_attr(&info.rx))?;
        (*to).ep_attr = malloc_value(c_ep_attr(&info.ep))?;
        (*(*to).ep_attr).auth_key = malloc_bytes(&info.ep.auth_key)?;
        (*to).domain_attr = malloc_value(c_domain_attr(&info.domain))?;
        (*(*to).domain_attr).name = malloc_c_string(info.domain.name.as_deref())?;
        (*(*to).domain_attr).auth_key = malloc_bytes(&info.domain.auth_key)?;
        (*to).fabric_attr = malloc_value(c_fabric_attr(&info.fabric))?;
        (*(*to).fabric_attr).name = malloc_c_string(info.fabric.name.as_deref())?;
    }
    Ok(())
}

fn c_tx_attr(tx: &TxAttr) -> FiTxAttr {
    FiTxAttr {
        caps: tx.caps.bits(),
        mode: tx.mode.bits(),
        op_flags: tx.op_flags.bits(),
        msg_order: tx.msg_order.bits(),
        comp_order: tx.comp_order.bits(),
        inject_size: tx.inject_size_bytes,
        size: tx.size_ops,
        iov_limit: tx.iov_limit,
        rma_iov_limit: tx.rma_iov_limit,
        tclass: tx.tclass,
    }
}

fn c_rx_attr(rx: &RxAttr) -> FiRxAttr {
    FiRxAttr {
        caps: rx.caps.bits(),
        mode: rx.mode.bits(),
        op_flags: rx.op_flags.bits(),
        msg_order: rx.msg_order.bits(),
        comp_order: rx.comp_order.bits(),
        total_buffered_recv: rx.total_buffered_recv_bytes,
        size: rx.size_ops,
        iov_limit: rx.iov_limit,
    }
}

fn c_ep_attr(ep: &EpAttr) -> FiEpAttr {
    FiEpAttr {
        r#type: ep.ep_type.map_or(0, EndpointType::raw),
        protocol: ep.protocol,
        protocol_version: ep.protocol_version,
        max_msg_size: ep.max_msg_size_bytes,
        msg_prefix_size: ep.msg_prefix_size_bytes,
        max_order_raw_size: ep.max_order_raw_size_bytes,
        max_order_war_size: ep.max_order_war_size_bytes,
        max_order_waw_size: ep.max_order_waw_size_bytes,
        mem_tag_format: ep.mem_tag_format,
        tx_ctx_cnt: ep.tx_ctx_cnt,
        rx_ctx_cnt: ep.rx_ctx_cnt,
        auth_key_size: ep.auth_key.len(),
        auth_key: ptr::null_mut(),
    }
}

fn c_domain_attr(domain: &DomainAttr) -> FiDomainAttr {
    FiDomainAttr {
        domain: ptr::null_mut(),
        name: ptr::null_mut(),
        threading: domain.threading.map_or(0, Threading::raw),
        control_progress: domain.control_progress.map_or(0, Progress::raw),
        data_progress: domain.data_progress.map_or(0, Progress::raw),
        resource_mgmt: domain.resource_mgmt.map_or(0, ResourceManagement::raw),
        av_type: domain.av_type.map_or(0, AvType::raw),
        mr_mode: domain.mr_mode.bits().cast_signed(),
        mr_key_size: domain.mr_key_size_bytes,
        cq_data_size: domain.cq_data_size_bytes,
        cq_cnt: domain.cq_cnt,
        ep_cnt: domain.ep_cnt,
        tx_ctx_cnt: domain.tx_ctx_cnt,
        rx_ctx_cnt: domain.rx_ctx_cnt,
        max_ep_tx_ctx: domain.max_ep_tx_ctx,
        max_ep_rx_ctx: domain.max_ep_rx_ctx,
        max_ep_stx_ctx: domain.max_ep_stx_ctx,
        max_ep_srx_ctx: domain.max_ep_srx_ctx,
        cntr_cnt: domain.cntr_cnt,
        mr_iov_limit: domain.mr_iov_limit,
        caps: domain.caps.bits(),
        mode: domain.mode.bits(),
        auth_key: ptr::null_mut(),
        auth_key_size: domain.auth_key.len(),
        max_err_data: domain.max_err_data_bytes,
        mr_cnt: domain.mr_cnt,
        tclass: domain.tclass,
    }
}

fn c_fabric_attr(fabric: &FabricAttr) -> FiFabricAttr {
    FiFabricAttr {
        fabric: ptr::null_mut(),
        name: ptr::null_mut(),
        // The host writes the provider's name, and reports an error unless the field is null.
        prov_name: ptr::null_mut(),
        prov_version: fabric.prov_version.raw(),
        api_version: fabric.api_version.raw(),
    }
}

/// Allocates zeroed memory for a structure of the C interface, plus [`GROWTH_RESERVE_BYTES`].
fn allocate_zeroed<T>() -> Result<NonNull<T>, Failure> {
    // SAFETY: `calloc` may be called with any size; this one is not 0.
    let memory = unsafe { libc::calloc(1, size_of::<T>() + GROWTH_RESERVE_BYTES) };
    // `malloc` aligns for every C type.
    NonNull::new(memory.cast()).ok_or_else(|| Errno::ENOMEM.into())
}

fn malloc_value<T>(value: T) -> Result<*mut T, Failure> {
    let to = allocate_zeroed::<T>()?.as_ptr();
    // SAFETY: it was just allocated for a `T`.
    unsafe { to.write(value) };
    Ok(to)
}

/// Returns a copy of the bytes, or null if there are none.
fn malloc_bytes(from: &[u8]) -> Result<*mut u8, Failure> {
    if from.is_empty() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: `malloc` may be called with any size.
    let to: *mut u8 = unsafe { libc::malloc(from.len()) }.cast();
    if to.is_null() {
        return Err(Errno::ENOMEM.into());
    }
    // SAFETY: `to` was just allocated with this length.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(to)
}

fn malloc_c_string(from: Option<&str>) -> Result<*mut c_char, Failure> {
    let Some(text) = from else { return Ok(ptr::null_mut()) };
    let mut terminated = Vec::with_capacity(text.len() + 1);
    terminated.extend_from_slice(text.as_bytes());
    terminated.push(0);
    Ok(malloc_bytes(&terminated)?.cast())
}

fn malloc_address(from: Option<Address>) -> Result<(*mut c_void, usize), Failure> {
    let Some(address) = from else { return Ok((ptr::null_mut(), 0)) };
    let address = CAddress::new(address);
    let mut len_bytes = address.len_bytes();
    // SAFETY: `malloc` may be called with any size.
    let to = unsafe { libc::malloc(len_bytes) };
    if to.is_null() {
        return Err(Errno::ENOMEM.into());
    }
    // SAFETY: `to` was just allocated with this length.
    unsafe { address.copy_to(to, &raw mut len_bytes) };
    Ok((to, len_bytes))
}

/// # Safety
///
/// `memory` is null or came from `malloc`, and no code uses it again.
unsafe fn free<T>(memory: *mut T) {
    // SAFETY: the caller promises it.
    unsafe { libc::free(memory.cast()) };
}
