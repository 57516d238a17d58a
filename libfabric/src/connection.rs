//! Connections of endpoints: `fi_cm(3)`, except for the calls of passive endpoints.

use std::ptr;
use std::slice;

use homespun::mutated;
use homespun::{Address, ConnectionEvent, Errno};
use libc::{c_int, c_void, sa_family_t, sockaddr_in, sockaddr_in6};

use crate::abi::endpoint::{FiOpsCm, FidEp};
use crate::abi::eq::FiEqCmEntry;
use crate::abi::fid::Fid;
use crate::abi::{FI_CONNECTED, FI_CONNREQ, FI_SHUTDOWN};
use crate::edge::{Failure, run_entry_point};
use crate::handles;
use crate::info::{InfoList, malloc_request_info};
use crate::object;
use crate::offered_name::{self, Names};
use crate::opened;
use crate::sockaddr::{self, CAddress};
use crate::states::EndpointState;
use crate::unsupported::StubFn;

pub(crate) static OPS: FiOpsCm = FiOpsCm {
    size: size_of::<FiOpsCm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen: StubFn::STUB,
    accept,
    reject: StubFn::STUB,
    shutdown,
    join: StubFn::STUB,
};

unsafe extern "C" fn setname(ep: *mut Fid, addr: *mut c_void, addrlen: usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint and an address of this length.
        unsafe {
            let endpoint = &object::state::<EndpointState>(ep.cast())?.endpoint;
            endpoint.set_name(sockaddr::read(addr, addrlen)?)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn getname(ep: *mut Fid, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
        if addrlen.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let name = CAddress::new(endpoint.name()?);
        // SAFETY: the caller passes the length of its buffer.
        let fits = unsafe { name.copy_to(addr, addrlen) } || mutated!("fi_cm/getname-etoosmall");
        if fits { Ok(0) } else { Err(Errno::ETOOSMALL.into()) }
    })
}

unsafe extern "C" fn connect(
    ep: *mut FidEp,
    addr: *const c_void,
    param: *const c_void,
    paramlen: usize,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint, an address of the endpoint's format, and
        // `paramlen` bytes of data.
        unsafe {
            let state = object::state::<EndpointState>(ep.cast())?;
            state.endpoint.connect(read_peer_address(addr)?, connection_data(param, paramlen)?)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn accept(ep: *mut FidEp, param: *const c_void, paramlen: usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint, and data of this length.
        let state = unsafe { object::state::<EndpointState>(ep.cast())? };
        // SAFETY: as above.
        let data = unsafe { connection_data(param, paramlen)? };
        // Take the request before `accept`. As soon as the connection is up, another thread of the
        // application may read the event and close the endpoint.
        let request = state.request.lock().take();
        if let Err(error) = state.endpoint.accept(data) {
            *state.request.lock() = request;
            return Err(error.into());
        }
        if let Some(request) = request {
            handles::forget_request(&request);
        }
        Ok(0)
    })
}

unsafe extern "C" fn shutdown(ep: *mut FidEp, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let state = unsafe { object::state::<EndpointState>(ep.cast())? };
        if flags != 0 && !mutated!("fi_cm/shutdown-flags") {
            return Err(Errno::EBADFLAGS.into());
        }
        state.endpoint.shutdown()?;
        Ok(0)
    })
}

unsafe extern "C" fn getpeer(ep: *mut FidEp, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let state = unsafe { object::state::<EndpointState>(ep.cast())? };
        if addrlen.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let peer = CAddress::new(state.endpoint.peer()?);
        // SAFETY: the caller passes the length of its buffer.
        if unsafe { peer.copy_to(addr, addrlen) } { Ok(0) } else { Err(Errno::ETOOSMALL.into()) }
    })
}

/// Returns the data that the application sends with a connection request or with an answer.
///
/// # Errors
///
/// EINVAL if `param` is null and `len_bytes` is not 0.
///
/// # Safety
///
/// `param` is null or readable for `len_bytes` as long as the result is used.
pub(crate) unsafe fn connection_data<'a>(
    param: *const c_void,
    len_bytes: usize,
) -> Result<&'a [u8], Failure> {
    match (param.is_null(), len_bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // SAFETY: the caller promises it.
        (false, _) => Ok(unsafe { slice::from_raw_parts(param.cast(), len_bytes) }),
    }
}

/// Reads a socket address. The C call passes no length, so the address's family determines the
/// length.
///
/// # Safety
///
/// `addr` is null, or points to a socket address as long as its family requires.
unsafe fn read_peer_address(addr: *const c_void) -> Result<Address, Failure> {
    if addr.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: not null, so it has a family, which need not be aligned.
    let family = c_int::from(unsafe { addr.cast::<sa_family_t>().read_unaligned() });
    let len_bytes = match family {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(Errno::EINVAL.into()),
    };
    // SAFETY: the address has the length that its family implies.
    unsafe { sockaddr::read(addr, len_bytes) }
}

/// The size of an entry's header. The application's data follows it.
pub(crate) const ENTRY_BYTES: usize = size_of::<FiEqCmEntry>();

/// A connection event in C's form.
pub(crate) struct CmEvent {
    pub(crate) number: u32,
    fid: *mut Fid,
    /// The info of a request. The application will own and free the info.
    info: Option<InfoList>,
    /// The number of a request among all requests.
    serial: u64,
    data: Box<[u8]>,
}

impl CmEvent {
    /// Converts an event. If the application has peeked at a connection request, `peeked` is the
    /// request's number and the info that the peek returned.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub(crate) fn new(
        event: ConnectionEvent,
        fabric: *const c_void,
        peeked: Option<(u64, InfoList)>,
        is_peek: bool,
    ) -> Result<CmEvent, Failure> {
        let fid = |object: u64| ptr::with_exposed_provenance_mut(object as usize);
        Ok(match event {
            ConnectionEvent::Request(request) => {
                let (handle, serial) = handles::find_or_add_request_handle(&request, fabric, is_peek);
                let info = match peeked {
                    Some((of, info)) if of == serial => info,
                    _ => {
                        let name = offered_name::current();
                        let names = handles::lookup_passive_names(&request)
                            .unwrap_or_else(|| Names::of_provider(name));
                        let info = offered_name::offer_info(request.info(), name, &names);
                        let list = malloc_request_info(&info)?;
                        // SAFETY: the list was just made from this info.
                        unsafe { opened::write_open_objects_into_request(fabric, &info, list.head()) };
                        // SAFETY: as above.
                        unsafe { (*list.head()).handle = handle };
                        list
                    }
                };
                let (number, data) = (FI_CONNREQ, request.data().into());
                CmEvent { number, fid: fid(request.passive_endpoint()), info: Some(info), serial, data }
            }
            ConnectionEvent::Connected { endpoint, data } => {
                CmEvent { number: FI_CONNECTED, fid: fid(endpoint), info: None, serial: 0, data }
            }
            ConnectionEvent::Shutdown { endpoint, .. } => CmEvent {
                number: FI_SHUTDOWN,
                fid: fid(endpoint),
                info: None,
                serial: 0,
                data: Box::default(),
            },
        })
    }

    /// Writes the entry, and as much of the data as fits. Returns the number of bytes written. For
    /// a peek at a connection request, also returns the request's number and info: a later read of
    /// this request returns the same info.
    ///
    /// # Safety
    ///
    /// `buf` is writable for `len_bytes`, which are at least [`ENTRY_BYTES`].
    pub(crate) unsafe fn write(
        self,
        buf: *mut c_void,
        len_bytes: usize,
        is_peek: bool,
    ) -> (usize, Option<(u64, InfoList)>) {
        let CmEvent { fid, info, serial, data, .. } = self;
        let info_head = info.as_ref().map_or(ptr::null_mut(), InfoList::head);
        let data_bytes = data.len().min(len_bytes - ENTRY_BYTES);
        // SAFETY: the caller promises the room; the entry may be unaligned.
        unsafe {
            buf.cast::<FiEqCmEntry>().write_unaligned(FiEqCmEntry { fid, info: info_head });
            ptr::copy_nonoverlapping(data.as_ptr(), buf.cast::<u8>().add(ENTRY_BYTES), data_bytes);
        }
        let peeked = match info {
            Some(info) if is_peek => Some((serial, info)),
            Some(info) => {
                info.into_raw();
                None
            }
            None => None,
        };
        let data_bytes = if mutated!("fi_eq/event-data-length") { 0 } else { data_bytes };
        (ENTRY_BYTES + data_bytes, peeked)
    }
}
