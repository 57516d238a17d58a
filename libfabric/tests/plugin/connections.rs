//! Connections: passive endpoints, connecting endpoints, and their events.

mod closing;
mod waiting;

use std::{mem, ptr, slice};

use homespun_fi::abi::domain::FidDomain;
use homespun_fi::abi::endpoint::{FidEp, FidPep};
use homespun_fi::abi::eq::{FiCqTaggedEntry, FiEqAttr, FiEqCmEntry, FiEqErrEntry, FidCq, FidEq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::fid::Fid;
use homespun_fi::abi::info::{FiEpAttr, FiInfo};
use homespun_fi::abi::{
    FI_BACKLOG, FI_CLASS_CONNREQ, FI_CONNECTED, FI_CONNREQ, FI_CQ_FORMAT_TAGGED, FI_ENABLE,
    FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_PEEK, FI_RECV, FI_SHUTDOWN, FI_TRANSMIT, FI_WAIT_NONE,
};
use libc::{c_int, c_void};

use crate::host::{
    API_VERSION, CqEntry, InfoList, Node, Object, Plugin, cq_attr, eq_attr, numbered_context, open_fabric,
    wait_until,
};

const FI_EP_MSG: u32 = 1;
const FI_SOURCE: u64 = 1 << 57;

const EAGAIN: isize = -11;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const ENOPROTOOPT: c_int = -92;
const ENOTCONN: c_int = -107;
const ECONNREFUSED: c_int = 111;
const ETOOSMALL: c_int = -257;
const EOPBADSTATE: c_int = -258;
const EAVAIL: isize = -259;
const EBADFLAGS: c_int = -260;
const ENOEQ: c_int = -261;

const ENTRY_BYTES: usize = size_of::<FiEqCmEntry>();

/// Returns infos for endpoints that connect, on the loopback interface.
pub(crate) fn loopback_msg_infos() -> InfoList {
    // SAFETY: all zeroes are hints that specify nothing.
    let (mut ep, mut hints): (FiEpAttr, FiInfo) = unsafe { (mem::zeroed(), mem::zeroed()) };
    ep.r#type = FI_EP_MSG;
    hints.ep_attr = &raw mut ep;
    Plugin::get().getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, &raw const hints).expect("they are offered")
}

/// The objects that endpoints need. They are closed in the order of the fields.
pub(crate) struct ConnectionFixture {
    cq: Object<FidCq>,
    eq: Object<FidEq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
    infos: InfoList,
}

/// An event of a connection.
pub(crate) struct Event {
    pub(crate) number: u32,
    fid: *mut Fid,
    /// The info of a request, which the application frees.
    pub(crate) info: Option<InfoList>,
    data: Vec<u8>,
}

impl ConnectionFixture {
    fn open() -> ConnectionFixture {
        ConnectionFixture::open_with_eq_wait_obj(FI_WAIT_NONE)
    }

    /// Opens the objects with an info that has this mode.
    pub(crate) fn open_with_mode(mode: u64) -> ConnectionFixture {
        let infos = loopback_msg_infos();
        // SAFETY: the answer is valid, and only this thread uses it.
        unsafe { (*infos.as_ptr()).mode = mode };
        ConnectionFixture::open_with_infos(infos, FI_WAIT_NONE)
    }

    fn open_with_eq_wait_obj(wait_obj: u32) -> ConnectionFixture {
        ConnectionFixture::open_with_infos(loopback_msg_infos(), wait_obj)
    }

    fn open_with_infos(infos: InfoList, wait_obj: u32) -> ConnectionFixture {
        let fabric = open_fabric(infos.first(), API_VERSION);
        let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
        let eq = fabric.open_eq(&mut FiEqAttr { wait_obj, ..eq_attr(0) }).expect("an event queue");
        let cq = domain.open_cq(&mut cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
        ConnectionFixture { cq, eq, domain, fabric, infos }
    }

    fn info(&self) -> *mut FiInfo {
        self.infos.as_ptr()
    }

    fn open_passive(&self) -> Object<FidPep> {
        open_passive(&self.fabric, self.info()).expect("a passive endpoint")
    }

    /// Opens a passive endpoint that listens.
    pub(crate) fn open_listener(&self) -> Object<FidPep> {
        let listener = self.open_passive();
        assert_eq!(listener.bind(&self.eq, 0), 0);
        assert_eq!(listen(&listener), 0);
        listener
    }

    /// Opens an endpoint, binds it to both queues, and enables it.
    fn open_endpoint(&self, info: *mut FiInfo) -> Object<FidEp> {
        let endpoint = self.domain.open_endpoint(info).expect("an endpoint");
        assert_eq!(endpoint.bind(&self.eq, 0), 0);
        assert_eq!(endpoint.bind(&self.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(endpoint.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
        endpoint
    }

    /// Opens an endpoint that requests a connection.
    pub(crate) fn open_requester(&self, of: &Object<FidPep>, data: &[u8]) -> Object<FidEp> {
        let endpoint = self.open_endpoint(self.info());
        assert_eq!(connect(&endpoint, &get_name(of), data), 0);
        endpoint
    }

    /// `fi_eq_read`.
    fn read_eq(&self, room: &mut [u8], flags: u64) -> (isize, u32) {
        read_eq(&self.eq, room, flags)
    }

    /// Waits for the next event, and reads it into a buffer of this length.
    fn await_event_with_buffer_len(&self, room_bytes: usize, flags: u64) -> Event {
        let mut room = vec![0; room_bytes];
        let mut found = (EAGAIN, 0);
        wait_until(|| {
            // Some events need progress of the endpoints. A read of the completion queue makes
            // progress.
            let _ = self.try_read_completion();
            found = self.read_eq(&mut room, flags);
            found.0 != EAGAIN
        });
        parse_event(found, &room)
    }

    pub(crate) fn await_event(&self) -> Event {
        self.await_event_with_buffer_len(1000, 0)
    }

    /// `fi_eq_readerr`, as soon as there is an error.
    fn await_error(&self, entry: &mut FiEqErrEntry) {
        let mut room = [0; 1000];
        wait_until(|| {
            let _ = self.try_read_completion();
            let read = self.read_eq(&mut room, 0).0;
            assert!([EAGAIN, EAVAIL].contains(&read), "{read}");
            read == EAVAIL
        });
        let eq = self.eq.as_ptr();
        // SAFETY: the queue is open.
        let read = unsafe { ((*(*eq).ops).readerr)(eq, entry, 0) };
        assert_eq!(read, size_of::<FiEqErrEntry>().cast_signed());
    }

    /// Returns the context of the next completion, if there is one.
    fn try_read_completion(&self) -> Option<usize> {
        let (cq, mut entry) = (self.cq.as_ptr(), FiCqTaggedEntry::EMPTY);
        // SAFETY: the queue is open, and has this format.
        match unsafe { ((*(*cq).ops).read)(cq, (&raw mut entry).cast(), 1) } {
            1 => Some(entry.op_context.addr()),
            _ => None,
        }
    }

    /// Opens the endpoints of a connection: requester and acceptor.
    fn open_pair(&self) -> (Object<FidEp>, Object<FidEp>) {
        let listener = self.open_listener();
        let requester = self.open_requester(&listener, b"");
        let request = self.await_event().info.expect("a request");
        let acceptor = self.open_endpoint(request.as_ptr());
        assert_eq!(accept(&acceptor, b""), 0);
        for _ in 0..2 {
            assert_eq!(self.await_event().number, FI_CONNECTED);
        }
        (requester, acceptor)
    }
}

/// `fi_eq_read`. Returns the number of bytes written, and the event's number.
pub(crate) fn read_eq(eq: &Object<FidEq>, room: &mut [u8], flags: u64) -> (isize, u32) {
    let (eq, mut number) = (eq.as_ptr(), 0);
    // SAFETY: the queue is open, and the length is the buffer's.
    let read =
        unsafe { ((*(*eq).ops).read)(eq, &raw mut number, room.as_mut_ptr().cast(), room.len(), flags) };
    (read, number)
}

/// Returns the event that a read wrote into `room`.
pub(crate) fn parse_event((read, number): (isize, u32), room: &[u8]) -> Event {
    let len_bytes = usize::try_from(read).unwrap_or_else(|_| panic!("fi_eq_read says {read}"));
    assert!(len_bytes >= ENTRY_BYTES && len_bytes <= room.len());
    // SAFETY: an entry was written there.
    let FiEqCmEntry { fid, info } = unsafe { room.as_ptr().cast::<FiEqCmEntry>().read_unaligned() };
    Event { number, fid, info: InfoList::from_event(info), data: room[ENTRY_BYTES..len_bytes].to_vec() }
}

/// `fi_passive_ep`.
pub(crate) fn open_passive(fabric: &Object<FidFabric>, info: *mut FiInfo) -> Result<Object<FidPep>, c_int> {
    let fabric = fabric.as_ptr();
    // SAFETY: the fabric is open and the info valid.
    Object::open(|pep| unsafe { ((*(*fabric).ops).passive_ep)(fabric, info, pep, ptr::null_mut()) })
}

pub(crate) fn listen(passive: &Object<FidPep>) -> c_int {
    let pep = passive.as_ptr();
    // SAFETY: the passive endpoint is open.
    unsafe { ((*(*pep).cm).listen)(pep) }
}

fn reject(passive: &Object<FidPep>, handle: *mut Fid, data: &[u8]) -> c_int {
    let pep = passive.as_ptr();
    // SAFETY: the passive endpoint is open, and the length is the data's.
    unsafe { ((*(*pep).cm).reject)(pep, handle, data.as_ptr().cast(), data.len()) }
}

pub(crate) fn connect(endpoint: &Object<FidEp>, to: &[u8; 16], data: &[u8]) -> c_int {
    let ep = endpoint.as_ptr();
    // SAFETY: the endpoint is open, and the length is the data's.
    unsafe { ((*(*ep).cm).connect)(ep, to.as_ptr().cast(), data.as_ptr().cast(), data.len()) }
}

pub(crate) fn accept(endpoint: &Object<FidEp>, data: &[u8]) -> c_int {
    let ep = endpoint.as_ptr();
    // SAFETY: the endpoint is open, and the length is the data's.
    unsafe { ((*(*ep).cm).accept)(ep, data.as_ptr().cast(), data.len()) }
}

fn shutdown(endpoint: &Object<FidEp>, flags: u64) -> c_int {
    let ep = endpoint.as_ptr();
    // SAFETY: the endpoint is open.
    unsafe { ((*(*ep).cm).shutdown)(ep, flags) }
}

/// `fi_getpeer`.
fn get_peer(endpoint: &Object<FidEp>) -> Result<[u8; 16], c_int> {
    let (ep, mut name, mut len_bytes) = (endpoint.as_ptr(), [0; 16], 16);
    // SAFETY: the endpoint is open, and the length is the buffer's.
    match unsafe { ((*(*ep).cm).getpeer)(ep, name.as_mut_ptr().cast(), &raw mut len_bytes) } {
        0 => Ok(name),
        error => Err(error),
    }
}

/// An object that has a name.
pub(crate) trait Named {
    fn call_getname(&self, name: *mut c_void, len_bytes: *mut usize) -> c_int;
}

impl Named for Object<FidEp> {
    fn call_getname(&self, name: *mut c_void, len_bytes: *mut usize) -> c_int {
        // SAFETY: the endpoint is open.
        unsafe { ((*(*self.as_ptr()).cm).getname)(self.fid(), name, len_bytes) }
    }
}

impl Named for Object<FidPep> {
    fn call_getname(&self, name: *mut c_void, len_bytes: *mut usize) -> c_int {
        // SAFETY: the endpoint is open.
        unsafe { ((*(*self.as_ptr()).cm).getname)(self.fid(), name, len_bytes) }
    }
}

/// `fi_getname`.
pub(crate) fn get_name(object: &impl Named) -> [u8; 16] {
    let (mut name, mut len_bytes) = ([0; 16], 16);
    assert_eq!(object.call_getname(name.as_mut_ptr().cast(), &raw mut len_bytes), 0);
    name
}

/// Reads an address of an info.
fn read_address(at: *const c_void) -> [u8; 16] {
    // SAFETY: infos of this format have addresses of this length.
    unsafe { at.cast::<[u8; 16]>().read_unaligned() }
}

/// Sends a message without payload.
fn send_empty(from: &Object<FidEp>, number: usize) -> isize {
    let ep = from.as_ptr();
    // SAFETY: the endpoint is open, and the message has no memory.
    unsafe { ((*(*ep).msg).send)(ep, ptr::null(), 0, ptr::null_mut(), 0, numbered_context(number)) }
}

fn post_empty_recv(at: &Object<FidEp>, number: usize) -> isize {
    let ep = at.as_ptr();
    // SAFETY: the endpoint is open, and the receive has no memory.
    unsafe { ((*(*ep).msg).recv)(ep, ptr::null_mut(), 0, ptr::null_mut(), 0, numbered_context(number)) }
}

#[test]
fn accepted_connection_carries_messages() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let requester = desk.open_requester(&listener, b"may I?");

    let seen = desk.await_event_with_buffer_len(1000, FI_PEEK);
    let seen_at = seen.info.map(|info| {
        let at = info.as_ptr();
        // The read below returns the same info.
        mem::forget(info);
        at
    });
    let Event { number, fid, info, data } = desk.await_event();
    let info = info.expect("a request has an info");
    assert_eq!((number, fid, &data[..]), (FI_CONNREQ, listener.fid(), &b"may I?"[..]));
    assert_eq!((seen.number, seen.fid, seen_at, seen.data), (number, fid, Some(info.as_ptr()), data));
    // SAFETY: the info has all its attributes, and the request is open.
    unsafe {
        let info = info.first();
        assert_eq!((*info.ep_attr).r#type, FI_EP_MSG);
        assert_eq!((*info.handle).fclass, FI_CLASS_CONNREQ);
        assert_eq!((*info.fabric_attr).fabric, desk.fabric.as_ptr().cast());
        assert_eq!(
            (read_address(info.src_addr), read_address(info.dest_addr)),
            (get_name(&listener), get_name(&requester))
        );
    }

    let acceptor = desk.open_endpoint(info.as_ptr());
    assert_eq!(get_peer(&acceptor), Err(ENOTCONN));
    assert_eq!(post_empty_recv(&acceptor, 1), 0);
    assert_eq!(send_empty(&acceptor, 2), ENOTCONN as isize);
    assert_eq!(accept(&acceptor, b"you may"), 0);
    let mut connected = [desk.await_event(), desk.await_event()];
    connected.sort_by_key(|event| event.fid == requester.fid());
    for (event, (fid, data)) in
        connected.iter().zip([(acceptor.fid(), &b""[..]), (requester.fid(), &b"you may"[..])])
    {
        assert_eq!((event.number, event.fid, &event.data[..]), (FI_CONNECTED, fid, data));
        assert!(event.info.is_none());
    }
    assert_eq!(
        (get_peer(&requester), get_peer(&acceptor)),
        (Ok(get_name(&listener)), Ok(get_name(&requester)))
    );

    assert_eq!(send_empty(&requester, 3), 0);
    let mut ended = Vec::new();
    wait_until(|| {
        ended.extend(desk.try_read_completion());
        ended.len() == 2
    });
    ended.sort_unstable();
    assert_eq!(ended, [1, 3]);

    assert_eq!(shutdown(&requester, 1), EBADFLAGS);
    assert_eq!(shutdown(&requester, 0), 0);
    let mut shut = [desk.await_event(), desk.await_event()];
    shut.sort_by_key(|event| event.fid == requester.fid());
    for (event, fid) in shut.iter().zip([acceptor.fid(), requester.fid()]) {
        assert_eq!((event.number, event.fid, event.data.len()), (FI_SHUTDOWN, fid, 0));
    }
    assert_eq!(send_empty(&requester, 4), ENOTCONN as isize);
}

#[test]
fn rejection_delivers_its_data() {
    let desk = ConnectionFixture::open();
    let (listener, other) = (desk.open_listener(), desk.open_listener());
    // In the first round the application passes a buffer that is too short for the error data. In the
    // second round it passes none, so the data stays in the queue's memory.
    for room_bytes in [3, 0] {
        let requester = desk.open_requester(&listener, b"please");
        // SAFETY: only this thread uses it.
        unsafe { (*requester.fid()).context = numbered_context(99) };
        let request = desk.await_event().info.expect("a request");
        let handle = request.first().handle;
        assert_eq!(reject(&other, handle, b""), EINVAL, "that is another's");
        assert_eq!(reject(&listener, ptr::null_mut(), b""), EINVAL);
        assert_eq!(reject(&listener, handle, &[0; 1000]), EINVAL);
        assert_eq!(reject(&listener, handle, b"never"), 0);
        assert_eq!(reject(&listener, handle, b"never"), EINVAL, "it is decided");
        assert_eq!(desk.domain.open_endpoint(request.as_ptr()).err(), Some(EINVAL));

        let mut room = [0_u8; 3];
        // SAFETY: all zeroes are an entry.
        let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
        (entry.err_data, entry.err_data_size) = (room.as_mut_ptr().cast(), room_bytes);
        desk.await_error(&mut entry);
        assert_eq!((entry.fid, entry.context), (requester.fid(), numbered_context(99)));
        assert_eq!((entry.err, entry.prov_errno), (ECONNREFUSED, ECONNREFUSED));
        // SAFETY: the entry gives the data's length; the data is valid until the next read.
        let data = unsafe { slice::from_raw_parts(entry.err_data.cast::<u8>(), entry.err_data_size) };
        assert_eq!(data, if room_bytes == 0 { &b"never"[..] } else { b"nev" });
    }
}

#[test]
fn connection_request_is_accepted_after_its_passive_endpoint_closes() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let requester = desk.open_requester(&listener, b"");
    let request = desk.await_event().info.expect("a request");
    drop(listener);
    let acceptor = desk.open_endpoint(request.as_ptr());
    assert_eq!(accept(&acceptor, b""), 0);
    let heard = [desk.await_event(), desk.await_event()].map(|event| (event.number, event.fid));
    assert!(
        heard.contains(&(FI_CONNECTED, requester.fid())) && heard.contains(&(FI_CONNECTED, acceptor.fid()))
    );
}

#[test]
fn undecided_request_is_rejected_when_its_fabric_closes() {
    let (asked, asking) = (ConnectionFixture::open(), ConnectionFixture::open());
    let listener = asked.open_listener();
    let requester = asking.open_requester(&listener, b"");
    wait_until(|| {
        // Each side makes progress only when its queue is read.
        asking.read_eq(&mut [], FI_PEEK);
        asked.read_eq(&mut [0; ENTRY_BYTES], FI_PEEK).0 != EAGAIN
    });
    let request = asked.await_event().info.expect("a request");
    drop((listener, asked));
    // SAFETY: all zeroes are an entry.
    let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
    asking.await_error(&mut entry);
    assert_eq!((entry.fid, entry.err), (requester.fid(), ECONNREFUSED));
    drop(request);
}

#[test]
fn event_data_is_truncated_to_the_buffer() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let _requester = desk.open_requester(&listener, b"please");
    let mut room = [0; ENTRY_BYTES + 3];
    wait_until(|| desk.read_eq(&mut [], FI_PEEK).0 != EAGAIN);
    for short in [0, ENTRY_BYTES - 1] {
        assert_eq!(desk.read_eq(&mut room[..short], 0).0, ETOOSMALL as isize, "it stays");
    }
    assert_eq!(desk.read_eq(&mut room, 1).0, EBADFLAGS as isize);
    let read = parse_event(desk.read_eq(&mut room, 0), &room);
    assert_eq!((read.number, &read.data[..]), (FI_CONNREQ, &b"ple"[..]));
}

#[test]
fn endpoint_takes_over_address_of_passive_endpoint() {
    let desk = ConnectionFixture::open();
    let (listener, passive) = (desk.open_listener(), desk.open_passive());
    let address_of_passive = get_name(&passive);
    let infos = loopback_msg_infos();
    // SAFETY: only this thread uses the info, which does not own its handle.
    unsafe { (*infos.as_ptr()).handle = passive.fid() };
    let requester = desk.open_endpoint(infos.as_ptr());
    assert_eq!(get_name(&requester), address_of_passive);
    assert_eq!(passive.bind(&desk.eq, 0), EOPBADSTATE);
    assert_eq!(desk.domain.open_endpoint(infos.as_ptr()).err(), Some(EOPBADSTATE), "there is one already");
    drop(passive);
    assert_eq!(
        desk.domain.open_endpoint(infos.as_ptr()).err(),
        Some(EINVAL),
        "the handle means nothing any more"
    );
    assert_eq!(connect(&requester, &get_name(&listener), b""), 0);
    let request = desk.await_event().info.expect("a request");
    assert_eq!(read_address(request.first().dest_addr), address_of_passive);
}

#[test]
fn connection_calls_without_their_prerequisites_are_refused() {
    let desk = ConnectionFixture::open();
    let (listener, mute) = (desk.open_listener(), desk.open_passive());
    assert_eq!(listen(&mute), ENOEQ);
    assert_eq!(listen(&listener), EOPBADSTATE, "it does already");
    assert_eq!(mute.bind(&desk.cq, 0), EINVAL);
    assert_eq!(mute.bind(&desk.eq, 1), EBADFLAGS);
    let unconnected = Plugin::get().loopback_infos();
    assert_eq!(open_passive(&desk.fabric, unconnected.as_ptr()).err(), Some(EINVAL), "of another type");

    let endpoint = desk.domain.open_endpoint(desk.info()).expect("an endpoint");
    assert_eq!(endpoint.bind(&desk.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(connect(&endpoint, &get_name(&listener), b""), ENOEQ);
    assert_eq!(endpoint.bind(&desk.eq, 0), 0);
    assert_eq!((get_peer(&endpoint), shutdown(&endpoint, 0)), (Err(ENOTCONN), ENOTCONN));
    assert_eq!(accept(&endpoint, b""), EOPBADSTATE, "there is no request");
    assert_eq!(connect(&endpoint, &[0; 16], b""), EINVAL);
    assert_eq!(connect(&endpoint, &get_name(&listener), &[0; 257]), EINVAL);
    assert_eq!(connect(&endpoint, &get_name(&listener), &[7; 256]), 0);
    assert_eq!(connect(&endpoint, &get_name(&listener), b""), EOPBADSTATE, "it has asked");
    assert_eq!(desk.await_event().data, [7; 256]);

    let unconnected = Node::open();
    assert_eq!(connect(&unconnected.ep, &get_name(&listener), b""), ENOSYS);
    assert_eq!((accept(&unconnected.ep, b""), shutdown(&unconnected.ep, 0)), (ENOSYS, ENOSYS));
}

#[test]
fn passive_endpoint_has_options_and_a_backlog() {
    let desk = ConnectionFixture::open();
    let (listener, endpoint) = (desk.open_listener(), desk.open_endpoint(desk.info()));
    let unconnected = Node::open();
    // SAFETY: all of them are open.
    let (of_passive, of_endpoint, of_unconnected) =
        unsafe { ((*listener.as_ptr()).ops, (*endpoint.as_ptr()).ops, (*unconnected.ep.as_ptr()).ops) };
    for (fid, ops, answer) in [
        (listener.fid(), of_passive, 0),
        (endpoint.fid(), of_endpoint, 0),
        (unconnected.ep.fid(), of_unconnected, ENOPROTOOPT),
    ] {
        let (mut size_bytes, mut len_bytes) = (0_usize, size_of::<usize>());
        // SAFETY: the object is open, and there is room for a number.
        unsafe {
            let at = (&raw mut size_bytes).cast();
            assert_eq!(
                ((*ops).getopt)(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, at, &raw mut len_bytes),
                answer
            );
            let set = ((*ops).setopt)(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, at, len_bytes);
            assert_eq!(set, ENOPROTOOPT);
        }
        assert_eq!(size_bytes, if answer == 0 { 256 } else { 0 });
    }

    for (mut requests, answer) in [(1, 0), (0, EINVAL), (-1, EINVAL)] {
        assert_eq!(listener.control::<c_int>(FI_BACKLOG, &raw mut requests), answer);
    }
    assert_eq!(listener.control::<c_int>(FI_BACKLOG, ptr::null_mut()), EINVAL);
    let first = desk.open_requester(&listener, b"first");
    assert_eq!(desk.await_event().data, b"first");
    // The backlog has room for one undecided request.
    let second = desk.open_requester(&listener, b"second");
    // SAFETY: all zeroes are an entry.
    let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
    desk.await_error(&mut entry);
    assert_eq!((entry.fid, entry.err), (second.fid(), ECONNREFUSED));
    drop(first);
}

#[test]
fn event_queue_with_bound_endpoints_is_busy() {
    let ConnectionFixture { cq, eq, domain, fabric, infos } = ConnectionFixture::open();
    let listener = open_passive(&fabric, infos.as_ptr()).expect("a passive endpoint");
    assert_eq!(listener.bind(&eq, 0), 0);
    let (eq, error) = eq.close().expect_err("a passive endpoint is bound to it");
    assert_eq!(error, EBUSY);
    drop(listener);
    let endpoint = domain.open_endpoint(infos.as_ptr()).expect("an endpoint");
    assert_eq!(endpoint.bind(&eq, 0), 0);
    let (eq, error) = eq.close().expect_err("an endpoint is bound to it");
    assert_eq!(error, EBUSY);
    drop((endpoint, cq, eq, domain));
    let listener = open_passive(&fabric, infos.as_ptr()).expect("a passive endpoint");
    let (fabric, error) = fabric.close().expect_err("a passive endpoint is open");
    assert_eq!(error, EBUSY);
    drop((listener, fabric));
}
