//! Connections: passive endpoints, connecting endpoints, and their events. What connections do is the subject
//! of `suite/src/semantics/`; here it is how C sees them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::prelude::*;

const ENTRY_BYTES: usize = size_of::<FiEqCmEntry>();

/// Returns infos for endpoints that connect, on the loopback interface.
fn loopback_msg_infos() -> InfoList {
    let mut hints = InfoList::hints();
    hints.ep().r#type = FI_EP_MSG;
    loopback_infos_with(hints)
}

/// The objects that endpoints need. They are closed in the order of the fields.
struct ConnectionFixture {
    cq: Object<FidCq>,
    eq: Object<FidEq>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
    infos: InfoList,
}

/// An event of a connection.
struct Event {
    number: u32,
    fid: *mut Fid,
    info: Option<InfoList>,
    data: Vec<u8>,
}

impl ConnectionFixture {
    fn open() -> ConnectionFixture {
        let mut infos = loopback_msg_infos();
        let fabric = open_fabric(&mut infos, API_VERSION);
        let domain = fabric.open_domain(&infos).expect("a domain");
        let eq = fabric.open_eq(eq_attr(0)).expect("an event queue");
        let cq = domain.open_cq(cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a completion queue");
        ConnectionFixture { cq, eq, domain, fabric, infos }
    }

    /// Opens a passive endpoint that listens.
    fn open_listener(&self) -> Object<FidPep> {
        let listener = open_passive(&self.fabric, &self.infos).expect("a passive endpoint");
        assert_eq!((listener.bind(&self.eq, 0), call!(listener, cm.listen)), (0, 0));
        listener
    }

    /// Opens an endpoint, binds it to both queues, and enables it.
    fn open_endpoint(&self, info: &InfoList) -> Object<FidEp> {
        let endpoint = self.domain.open_endpoint(info).expect("an endpoint");
        assert_eq!((endpoint.bind(&self.eq, 0), endpoint.bind(&self.cq, FI_TRANSMIT | FI_RECV)), (0, 0));
        assert_eq!(endpoint.enable(), 0);
        endpoint
    }

    /// Opens an endpoint that requests a connection.
    fn open_requester(&self, of: &Object<FidPep>, data: &[u8]) -> Object<FidEp> {
        let endpoint = self.open_endpoint(&self.infos);
        assert_eq!(connect(&endpoint, &get_name!(of), data), 0);
        endpoint
    }

    /// `fi_eq_read`. Returns the number of bytes written, and the event's number.
    fn read_eq(&self, room: &mut [u8], flags: u64) -> (c_int, u32) {
        let mut number = 0;
        let (buf, len_bytes) = (room.as_mut_ptr().cast(), room.len());
        (call!(self.eq, ops.read, &raw mut number, buf, len_bytes, flags) as c_int, number)
    }

    /// Waits for the next event.
    fn await_event(&self, what: &str) -> Event {
        self.await_event_in(what, 1000, 0)
    }

    /// As [`await_event`](Self::await_event), into a buffer of this length.
    fn await_event_in(&self, what: &str, room_bytes: usize, flags: u64) -> Event {
        let (mut room, mut found) = (vec![0; room_bytes], (EAGAIN, 0));
        wait_until(what, || {
            // Some events need progress of the endpoints.
            self.cq.drive();
            found = self.read_eq(&mut room, flags);
            found.0 != EAGAIN
        });
        let len_bytes = usize::try_from(found.0).unwrap_or_else(|_| panic!("{what}: {}", found.0));
        assert!(len_bytes >= ENTRY_BYTES && len_bytes <= room.len());
        // SAFETY: an entry was written there.
        let FiEqCmEntry { fid, info } = unsafe { room.as_ptr().cast::<FiEqCmEntry>().read_unaligned() };
        let info = (!info.is_null()).then_some(InfoList(info));
        Event { number: found.1, fid, info, data: room[ENTRY_BYTES..len_bytes].to_vec() }
    }

    fn await_request(&self) -> InfoList {
        self.await_event("a request").info.expect("a request has an info")
    }

    /// Waits for an error, and reads it into a buffer of this length, or without one.
    fn await_error(&self, what: &str, room: &mut [u8]) -> FiEqErrEntry {
        wait_until(what, || {
            self.cq.drive();
            let read = self.read_eq(&mut [0; 1000], 0).0;
            assert!([EAGAIN, EAVAIL].contains(&read), "{what}: {read}");
            read == EAVAIL
        });
        // SAFETY: all zeroes are an entry.
        let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
        (entry.err_data, entry.err_data_size) = (room.as_mut_ptr().cast(), room.len());
        let read = call!(self.eq, ops.readerr, &raw mut entry, 0);
        assert_eq!(read, size_of::<FiEqErrEntry>().cast_signed());
        entry
    }
}

/// `fi_passive_ep`.
fn open_passive(fabric: &Object<FidFabric>, infos: &InfoList) -> Result<Object<FidPep>, c_int> {
    Object::open(|pep| call!(fabric, ops.passive_ep, infos.0, pep, NULL))
}

fn reject(passive: &Object<FidPep>, handle: *mut Fid, data: &[u8]) -> c_int {
    call!(passive, cm.reject, handle, data.as_ptr().cast(), data.len())
}

fn connect(endpoint: &Object<FidEp>, to: &[u8; 16], data: &[u8]) -> c_int {
    call!(endpoint, cm.connect, to.as_ptr().cast(), data.as_ptr().cast(), data.len())
}

fn accept(endpoint: &Object<FidEp>, data: &[u8]) -> c_int {
    call!(endpoint, cm.accept, data.as_ptr().cast(), data.len())
}

/// `fi_getpeer`.
fn get_peer(endpoint: &Object<FidEp>) -> Result<[u8; 16], c_int> {
    let (mut name, mut len_bytes) = ([0; 16], 16);
    match call!(endpoint, cm.getpeer, name.as_mut_ptr().cast(), &raw mut len_bytes) {
        0 => Ok(name),
        error => Err(error),
    }
}

/// Reads an address of an info.
fn read_address(at: *const c_void) -> [u8; 16] {
    // SAFETY: infos of this format have addresses of this length.
    unsafe { at.cast::<[u8; 16]>().read_unaligned() }
}

/// Shows fi_eq/connreq-has-info, fi_eq/event-data-length, fi_eq/connected-without-data-for-listener,
/// fi_eq/fid-of-event, fi_cm/connected-names-accepting-endpoint, fi_cm/shutdown-flags,
/// fi_cm/getpeer-after-connected, fi_cm/private-data.
#[test]
fn events_name_the_endpoints_of_a_connection() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let requester = desk.open_requester(&listener, b"may I?");

    let [seen, read] = [FI_PEEK, 0].map(|flags| {
        let Event { number, fid, info, data } = desk.await_event_in("a request", 1000, flags);
        assert_eq!((number, fid, &data[..]), (FI_CONNREQ, listener.fid(), &b"may I?"[..]));
        info.expect("a request has an info")
    });
    assert_eq!(seen.0, read.0);
    let expected_names = (get_name!(listener), requester.name());
    // SAFETY: the info has all its attributes, and the request is open.
    unsafe {
        let info = read.info();
        assert_eq!(((*info.ep_attr).r#type, (*info.handle).fclass), (FI_EP_MSG, FI_CLASS_CONNREQ));
        assert_eq!((*info.fabric_attr).fabric, desk.fabric.as_ptr().cast());
        let names = (read_address(info.src_addr), read_address(info.dest_addr));
        assert_eq!(names, expected_names);
    }

    // The request outlives its passive endpoint.
    let asked = get_name!(listener);
    drop(listener);
    let acceptor = desk.open_endpoint(&read);
    assert_eq!((get_peer(&acceptor), accept(&acceptor, b"you may")), (Err(ENOTCONN), 0));
    for _ in 0..2 {
        let Event { number, fid, info, data } = desk.await_event("a connection");
        let answer = if fid == requester.fid() { &b"you may"[..] } else { b"" };
        assert!([acceptor.fid(), requester.fid()].contains(&fid) && info.is_none());
        assert_eq!((number, &data[..]), (FI_CONNECTED, answer));
    }
    let peers = (get_peer(&requester), get_peer(&acceptor));
    assert_eq!(peers, (Ok(asked), Ok(requester.name())));

    assert_eq!([1, 0].map(|flags| call!(requester, cm.shutdown, flags)), [EBADFLAGS, 0]);
    let mut shut = [(); 2].map(|()| desk.await_event("a shutdown"));
    shut.sort_by_key(|event| event.fid == requester.fid());
    assert_eq!(shut.each_ref().map(|event| event.fid), [acceptor.fid(), requester.fid()]);
    assert!(shut.iter().all(|event| event.number == FI_SHUTDOWN && event.data.is_empty()));
}

/// Shows fi_eq/eq-eavail-means-readerr, fi_eq/eq-err-data, fi_eq/context-of-event, fi_cm/private-data,
/// fi_cm/long-private-data.
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
        let request = desk.await_request();
        let handle = request.info().handle;
        assert_eq!(reject(&other, handle, b""), EINVAL, "that is another's");
        assert_eq!(reject(&listener, ptr::null_mut(), b""), EINVAL);
        assert_eq!(reject(&listener, handle, &[0; 1000]), EINVAL);
        assert_eq!(reject(&listener, handle, b"never"), 0);
        assert_eq!(reject(&listener, handle, b"never"), EINVAL, "it is decided");
        assert_eq!(desk.domain.open_endpoint(&request).err(), Some(EINVAL));

        let mut room = [0_u8; 3];
        let entry = desk.await_error("a rejection", &mut room[..room_bytes]);
        assert_eq!((entry.fid, entry.context), (requester.fid(), numbered_context(99)));
        assert_eq!((entry.err, entry.prov_errno), (libc::ECONNREFUSED, libc::ECONNREFUSED));
        // SAFETY: the entry gives the data's length; the data is valid until the next read.
        let data = unsafe { slice::from_raw_parts(entry.err_data.cast::<u8>(), entry.err_data_size) };
        assert_eq!(data, if room_bytes == 0 { &b"never"[..] } else { b"nev" });
    }
}

#[test]
fn undecided_request_is_rejected_when_its_fabric_closes() {
    let (asked, asking) = (ConnectionFixture::open(), ConnectionFixture::open());
    let listener = asked.open_listener();
    let requester = asking.open_requester(&listener, b"");
    wait_until("a request", || {
        // Each side makes progress only when its queue is read.
        asking.read_eq(&mut [], FI_PEEK);
        asked.read_eq(&mut [0; ENTRY_BYTES], FI_PEEK).0 != EAGAIN
    });
    asked.await_request();
    drop((listener, asked));
    let entry = asking.await_error("a rejection", &mut []);
    assert_eq!((entry.fid, entry.err), (requester.fid(), libc::ECONNREFUSED));
}

/// Shows fi_eq/event-data-length.
#[test]
fn event_data_is_truncated_to_the_buffer() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let _requester = desk.open_requester(&listener, b"please");
    wait_until("a request", || desk.read_eq(&mut [], FI_PEEK).0 != EAGAIN);
    for short in [0, ENTRY_BYTES - 1] {
        assert_eq!(desk.read_eq(&mut vec![0; short], 0).0, ETOOSMALL, "it stays");
    }
    assert_eq!(desk.read_eq(&mut [0; 100], 1).0, EBADFLAGS);
    let read = desk.await_event_in("a request", ENTRY_BYTES + 3, 0);
    assert_eq!((read.number, &read.data[..]), (FI_CONNREQ, &b"ple"[..]));
}

#[test]
fn peeked_request_is_refused_at_a_close_unless_an_endpoint_is_open_for_it() {
    for is_taken in [false, true] {
        let desk = ConnectionFixture::open();
        let listener = desk.open_listener();
        let requester = desk.open_requester(&listener, b"");
        let seen = desk.await_event_in("a request", 1000, FI_PEEK).info.expect("a request has an info");
        let acceptor = is_taken.then(|| desk.open_endpoint(&seen));
        drop(listener);
        if let Some(acceptor) = acceptor {
            assert_eq!(accept(&acceptor, b""), 0);
            let connected = [(); 2].map(|()| desk.await_event("a connection").number);
            assert_eq!(connected, [FI_CONNECTED; 2]);
        } else {
            let failed = desk.await_error("the end of the request", &mut []);
            assert_eq!((failed.fid, failed.err), (requester.fid(), libc::ECONNREFUSED));
        }
    }
}

/// Shows fi_endpoint/passive-endpoint-needs-event-queue,
/// fi_cm/connect-once, fi_cm/accept-needs-handle.
#[test]
fn connection_calls_without_their_prerequisites_are_refused() {
    let desk = ConnectionFixture::open();
    let listener = desk.open_listener();
    let mute = open_passive(&desk.fabric, &desk.infos).expect("a passive endpoint");
    let mut infos = loopback_msg_infos();
    infos.info_mut().handle = mute.fid();
    assert_eq!(call!(mute, cm.listen), ENOEQ);
    assert_eq!(call!(listener, cm.listen), EOPBADSTATE, "it does already");
    assert_eq!((mute.bind(&desk.cq, 0), mute.bind(&desk.eq, 1)), (EINVAL, EBADFLAGS));
    drop(mute);
    assert_eq!(desk.domain.open_endpoint(&infos).err(), Some(EINVAL), "the handle means nothing any more");
    assert_eq!(open_passive(&desk.fabric, &loopback_infos()).err(), Some(EINVAL), "another type");

    let endpoint = desk.domain.open_endpoint(&desk.infos).expect("an endpoint");
    let to = get_name!(listener);
    assert_eq!(endpoint.bind(&desk.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!((connect(&endpoint, &to, b""), endpoint.bind(&desk.eq, 0)), (ENOEQ, 0));
    assert_eq!((get_peer(&endpoint), call!(endpoint, cm.shutdown, 0)), (Err(ENOTCONN), ENOTCONN));
    assert_eq!(accept(&endpoint, b""), EOPBADSTATE, "there is no request");
    assert_eq!(connect(&endpoint, &[0; 16], b""), EINVAL);
    let none = call!(endpoint, cm.connect, to.as_ptr().cast(), ptr::null(), 1);
    assert_eq!((none, connect(&endpoint, &to, &[0; 257])), (EINVAL, EINVAL));
    assert_eq!(connect(&endpoint, &to, &[7; 256]), 0);
    assert_eq!(connect(&endpoint, &to, b""), EOPBADSTATE, "it has asked");
    assert_eq!(desk.await_event("a request").data, [7; 256]);

    let Node { ep, .. } = &Node::open();
    assert_eq!([connect(ep, &to, b""), accept(ep, b""), call!(ep, cm.shutdown, 0)], [ENOSYS; 3]);
}

/// What a backlog does is the subject of `suite/src/semantics/connected/connections.rs`.
/// Shows fi_endpoint/cm-data-size.
#[test]
fn passive_endpoint_has_options_and_a_backlog() {
    let desk = ConnectionFixture::open();
    let (listener, endpoint) = (desk.open_listener(), desk.open_endpoint(&desk.infos));
    let (mut sizes_bytes, mut len_bytes) = ([0_usize; 2], 8);
    let [of_listener, of_endpoint] = sizes_bytes.each_mut().map(|size| ptr::from_mut(size).cast::<c_void>());
    let (level, option) = (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE);
    let results = [
        call!(listener, ops.getopt, level, option, of_listener, &raw mut len_bytes),
        call!(endpoint, ops.getopt, level, option, of_endpoint, &raw mut len_bytes),
        call!(listener, ops.setopt, level, option, of_listener, 8),
        call!(endpoint, ops.setopt, level, option, of_endpoint, 8),
    ];
    assert_eq!((results, sizes_bytes), ([0, 0, ENOPROTOOPT, ENOPROTOOPT], [256; 2]));
    for (mut requests, answer) in [(1, 0), (0, EINVAL), (-1, EINVAL)] {
        assert_eq!(listener.control::<c_int>(FI_BACKLOG, &raw mut requests), answer);
    }
    assert_eq!(listener.control(FI_BACKLOG, NULL), EINVAL);
}

/// One thread closes endpoints while another reads their errors.
#[test]
fn event_error_still_names_an_endpoint_that_is_closing() {
    let desk = ConnectionFixture::open();
    let closed = desk.open_listener();
    let mut closed_name = get_name!(closed);
    drop(closed);
    // Another listener could get the port of the closed one, but none gets a port below the dynamic range.
    closed_name[2..4].copy_from_slice(&9_u16.to_be_bytes());
    let (eq, count, is_over) = (&desk.eq, &AtomicUsize::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            // If the other thread has failed, this one ends, too.
            let begin = Instant::now();
            while !is_over.load(Ordering::Acquire) && begin.elapsed() < Duration::from_secs(120) {
                for flags in [FI_PEEK, 0] {
                    // SAFETY: all zeroes are an entry.
                    let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
                    if call!(eq, ops.readerr, &raw mut entry, flags) != EAGAIN as isize {
                        let told = (entry.context, entry.err);
                        assert_eq!(told, (numbered_context(0x5eed), libc::ECONNREFUSED));
                        count.fetch_add(usize::from(flags == 0), Ordering::Release);
                    }
                }
            }
        });
        for round in 0..100 {
            let before = count.load(Ordering::Acquire);
            let endpoint = desk.open_endpoint(&desk.infos);
            // SAFETY: only this thread uses it yet.
            unsafe { (*endpoint.fid()).context = numbered_context(0x5eed) };
            // The failed connection first ends the receive with an error, then reports an error event.
            endpoint.recv(&mut [], 1);
            assert_eq!(connect(&endpoint, &closed_name, b""), 0);
            desk.cq.await_error("the end of the receive", &desk.cq);
            // Close every second endpoint at once: the reader may or may not have read the endpoint's error.
            if round % 2 == 0 {
                let is_read = || count.load(Ordering::Acquire) > before || reader.is_finished();
                wait_until("the error event", is_read);
            }
        }
        is_over.store(true, Ordering::Release);
        join("the reader", reader);
    });
}

/// Events that an application writes.
/// Shows fi_eq/write-needs-flag, fi_eq/one-event-per-read, fi_eq/peek-leaves-event, fi_eq/eq-eagain.
#[test]
fn events_are_read_as_written() {
    let node = Node::open_disabled();
    let eq = node.fabric.open_eq(eq_attr(WRITE)).expect("an event queue");
    let mut buf = [0_u8; 8];
    let room = buf.as_mut_ptr();
    let read = |len_bytes, flags| {
        let mut event = 0;
        (call!(eq, ops.read, &raw mut event, room.cast(), len_bytes, flags) as i32, event)
    };
    assert_eq!(read(8, 0).0, EAGAIN);
    assert_eq!(call!(eq, ops.write, 1, b"event".as_ptr().cast(), 5, 0), 5);
    // `fi_eq_write` has no flags: this one is ignored.
    assert_eq!(call!(eq, ops.write, 2, ptr::null(), 0, 1), 0);
    assert_eq!(read(4, 0).0, ETOOSMALL);
    assert_eq!((read(8, FI_PEEK), read(8, 0)), ((5, 1), (5, 1)));
    assert_eq!((read(0, 0), read(8, 0).0), ((0, 2), EAGAIN));
    assert_eq!(&buf[..5], b"event");
    // SAFETY: all zeroes are an entry.
    let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
    assert_eq!(call!(eq, ops.readerr, &raw mut entry, 0), EAGAIN as isize);
    let refused = call!(node.eq, ops.write, 1, b"event".as_ptr().cast(), 5, 0);
    assert_eq!(refused, EOPBADSTATE as isize, "it was not opened for writing");
}
