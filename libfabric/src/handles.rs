//! The objects that `fi_info::handle` may name: passive endpoints, and connection requests.
//!
//! The plugin looks up handles by their address and never reads their memory. An application may
//! still have an info whose handle names a closed object.

use std::collections::HashMap;
use std::ptr;
use std::sync::LazyLock;

use homespun::{ConnectionRequest, PassiveEndpoint};
use libc::c_void;
use parking_lot::Mutex;

use crate::abi::FI_CLASS_CONNREQ;
use crate::abi::fid::{FiOps, Fid};
use crate::offered_name::Names;

static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Handles {
    passive: HashMap<usize, (PassiveEndpoint, Names)>,
    requests: HashMap<usize, Held>,
    /// How many requests there have been.
    request_count: u64,
}

/// A request that the application has read or peeked at, and has neither accepted nor rejected.
struct Held {
    request: ConnectionRequest,
    /// The address of the passive endpoint that received the request, or 0 if that endpoint was closed.
    passive: usize,
    /// Distinguishes the request from later ones, whose handles may have the same address.
    serial: u64,
    /// Whether the application has read the request, and not only peeked at it.
    is_read: bool,
    /// The address of the fabric of the request.
    fabric: usize,
    /// The memory that the handle points to. Only the application reads this memory.
    _fid: Box<RequestFid>,
}

struct RequestFid(#[expect(dead_code, reason = "only the application reads it")] Fid);

// SAFETY: it holds no context, and its operations are constant.
unsafe impl Send for RequestFid {}

static REQUEST_OPS: FiOps = FiOps { ..FiOps::UNSUPPORTED };

/// The object that a handle names.
pub(crate) enum Handle {
    /// With the names of its fabric and domain.
    PassiveEndpoint(PassiveEndpoint, Names),
    Request(ConnectionRequest),
}

/// Adds an open passive endpoint, and the names of its fabric and domain.
pub(crate) fn add_passive<T>(at: *const T, passive: &PassiveEndpoint, names: Names) {
    HANDLES.lock().passive.insert(at.expose_provenance(), (passive.clone(), names));
}

/// Returns the names of the fabric and the domain of the passive endpoint that received a request.
/// Returns `None` if that endpoint is closed.
pub(crate) fn lookup_passive_names(request: &ConnectionRequest) -> Option<Names> {
    let passive = request.passive_endpoint() as usize;
    HANDLES.lock().passive.get(&passive).map(|(_, names)| names.clone())
}

/// Removes a passive endpoint before it closes. Keeps the requests that were read: the application may still
/// accept them. Lets go of those that were only peeked at: the close rejects them as it rejects unseen ones,
/// unless an endpoint is open for them.
pub(crate) fn remove_passive<T>(at: *const T) {
    let mut handles = HANDLES.lock();
    let passive = handles.passive.remove(&at.addr());
    let is_unread = |held: &Held| held.passive == at.addr() && !held.is_read;
    let unread: Vec<_> = handles.requests.extract_if(|_, held| is_unread(held)).collect();
    for held in handles.requests.values_mut().filter(|held| held.passive == at.addr()) {
        held.passive = 0;
    }
    // Dropping requests and the passive endpoint locks endpoints, so unlock the handles first.
    drop(handles);
    drop((unread, passive));
}

/// Removes the pending requests of a fabric, before the fabric closes.
pub(crate) fn remove_requests_of_fabric<T>(at: *const T) {
    remove_requests(|held| held.fabric == at.addr());
}

/// Returns the handle of a request, and a number that no other request has: every call returns the same ones.
/// Keeps the request until the application accepts it, rejects it or closes the fabric.
pub(crate) fn find_or_add_request_handle(
    request: &ConnectionRequest,
    fabric: *const c_void,
    is_peek: bool,
) -> (*mut Fid, u64) {
    let handles = &mut *HANDLES.lock();
    let known = handles.requests.iter().find(|(_, held)| held.request == *request).map(|(&at, _)| at);
    let at = known.unwrap_or_else(|| {
        let fid = Fid { fclass: FI_CLASS_CONNREQ, context: ptr::null_mut(), ops: &REQUEST_OPS };
        let fid = Box::new(RequestFid(fid));
        let at = ptr::from_ref(&*fid).expose_provenance();
        let passive = request.passive_endpoint() as usize;
        handles.request_count += 1;
        let held = Held {
            request: request.clone(),
            passive,
            serial: handles.request_count,
            is_read: false,
            fabric: fabric.addr(),
            _fid: fid,
        };
        handles.requests.insert(at, held);
        at
    });
    let held = handles.requests.get_mut(&at).expect("it was found or added");
    held.is_read |= !is_peek;
    (ptr::with_exposed_provenance_mut(at), held.serial)
}

/// Returns the object that a handle names, if it is valid.
pub(crate) fn lookup_handle(handle: *const Fid) -> Option<Handle> {
    let handles = HANDLES.lock();
    let passive = handles.passive.get(&handle.addr()).cloned();
    let passive = passive.map(|(passive, names)| Handle::PassiveEndpoint(passive, names));
    passive.or_else(|| handles.requests.get(&handle.addr()).map(|held| Handle::Request(held.request.clone())))
}

/// Returns the request that a handle names, if this passive endpoint has received it.
pub(crate) fn lookup_request_of_passive<T>(
    passive: *const T,
    handle: *const Fid,
) -> Option<ConnectionRequest> {
    let handles = HANDLES.lock();
    let held = handles.requests.get(&handle.addr()).filter(|held| held.passive == passive.addr())?;
    Some(held.request.clone())
}

/// Removes a request that the application has accepted or rejected. Its handle becomes invalid.
pub(crate) fn forget_request(request: &ConnectionRequest) {
    remove_requests(|held| held.request == *request);
}

fn remove_requests(should_remove: impl Fn(&Held) -> bool) {
    let mut handles = HANDLES.lock();
    let found: Vec<Held> =
        handles.requests.extract_if(|_, held| should_remove(held)).map(|(_, held)| held).collect();
    // Dropping requests locks endpoints, so unlock the handles first.
    drop(handles);
    drop(found);
}
