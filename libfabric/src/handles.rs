//! The objects that `fi_info::handle` may name: passive endpoints, and requests for connections.
//!
//! Handles are looked for by where they are and never looked into: an info may be older than the
//! end of what it names.

use std::collections::HashMap;
use std::ptr;
use std::sync::LazyLock;

use homespun::{ConnectionRequest, PassiveEndpoint};
use libc::c_void;
use parking_lot::Mutex;

use crate::abi::FI_CLASS_CONNREQ;
use crate::abi::fid::{FiOps, Fid};

static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Handles {
    passive: HashMap<usize, PassiveEndpoint>,
    requests: HashMap<usize, Held>,
}

/// A request that the application has read and neither accepted nor rejected.
struct Held {
    request: ConnectionRequest,
    /// The address of the passive endpoint that was asked, or 0 if it was closed.
    passive: usize,
    /// The address of the fabric that it belongs to.
    fabric: usize,
    /// The memory that the handle points to. Only an application may read it; the plugin never does.
    _fid: Box<RequestFid>,
}

struct RequestFid(#[expect(dead_code, reason = "it is there for C")] Fid);

// SAFETY: it holds no context, and its operations are constant.
unsafe impl Send for RequestFid {}

static REQUEST_OPS: FiOps = FiOps { ..FiOps::UNSUPPORTED };

/// The object that a handle names.
pub(crate) enum Handle {
    PassiveEndpoint(PassiveEndpoint),
    Request(ConnectionRequest),
}

/// A passive endpoint was opened.
pub(crate) fn add_passive<T>(at: *const T, passive: &PassiveEndpoint) {
    HANDLES.lock().passive.insert(at.expose_provenance(), passive.clone());
}

/// A passive endpoint is about to be closed. Requests that were read may still be accepted.
pub(crate) fn remove_passive<T>(at: *const T) {
    let mut handles = HANDLES.lock();
    let passive = handles.passive.remove(&at.addr());
    for held in handles.requests.values_mut().filter(|held| held.passive == at.addr()) {
        held.passive = 0;
    }
    // Dropping it takes locks of endpoints.
    drop(handles);
    drop(passive);
}

/// A fabric is about to be closed. Requests that were neither accepted nor rejected end with it.
pub(crate) fn remove_fabric<T>(at: *const T) {
    remove_requests(|held| held.fabric == at.addr());
}

/// The handle of a request, the same whenever it is asked for. Until it is decided, the request is kept.
pub(crate) fn handle_of_request(request: &ConnectionRequest, fabric: *const c_void) -> *mut Fid {
    let mut handles = HANDLES.lock();
    let known = handles.requests.iter().find(|(_, held)| held.request == *request).map(|(&at, _)| at);
    let at = known.unwrap_or_else(|| {
        let fid = Fid { fclass: FI_CLASS_CONNREQ, context: ptr::null_mut(), ops: &REQUEST_OPS };
        let fid = Box::new(RequestFid(fid));
        let at = ptr::from_ref(&*fid).expose_provenance();
        let passive = request.passive_endpoint() as usize;
        let held = Held { request: request.clone(), passive, fabric: fabric.addr(), _fid: fid };
        handles.requests.insert(at, held);
        at
    });
    ptr::with_exposed_provenance_mut(at)
}

/// Returns the object that a handle names, if it is one.
pub(crate) fn lookup_handle(handle: *const Fid) -> Option<Handle> {
    let handles = HANDLES.lock();
    let passive = handles.passive.get(&handle.addr()).cloned().map(Handle::PassiveEndpoint);
    passive.or_else(|| handles.requests.get(&handle.addr()).map(|held| Handle::Request(held.request.clone())))
}

/// The request that a handle names at this passive endpoint, which it has asked.
pub(crate) fn request_at<T>(passive: *const T, handle: *const Fid) -> Option<ConnectionRequest> {
    let handles = HANDLES.lock();
    let held = handles.requests.get(&handle.addr()).filter(|held| held.passive == passive.addr())?;
    Some(held.request.clone())
}

/// A request is decided, so its handle means nothing any more.
pub(crate) fn forget_request(request: &ConnectionRequest) {
    remove_requests(|held| held.request == *request);
}

fn remove_requests(is_over: impl Fn(&Held) -> bool) {
    let mut handles = HANDLES.lock();
    let found: Vec<Held> =
        handles.requests.extract_if(|_, held| is_over(held)).map(|(_, held)| held).collect();
    // Dropping them takes locks of endpoints.
    drop(handles);
    drop(found);
}
