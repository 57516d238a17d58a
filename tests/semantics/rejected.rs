//! A call that is refused hands back what was handed over, as it was.

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{Caps, OpFlags};
use homespun::limits::IOV_LIMIT;
use homespun::{Again, Bytes, BytesMut, Endpoint, Errno, Error, FabricAddress, Rejected};

use crate::suite::payload::{payload, pieces, received, room};
use crate::suite::{Deadline, Net, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// Tries every call that sends, and makes sure that each is refused with this error and hands everything back.
#[track_caller]
fn every_send_is_refused(endpoint: &Endpoint, to: FabricAddress, message: &Bytes, errno: Errno) {
    let whole = |refused: Result<(), Rejected<Bytes>>| {
        let rejected = refused.expect_err("no send can be posted");
        assert_eq!(rejected.errno(), errno);
        assert_eq!((rejected.buffer.as_ptr(), rejected.buffer.len()), (message.as_ptr(), message.len()));
    };
    whole(endpoint.send(message.clone(), to, 1));
    whole(endpoint.senddata(message.clone(), 2, to, 1));
    whole(endpoint.tsend(message.clone(), to, 3, 1));
    whole(endpoint.tsenddata(message.clone(), 2, to, 3, 1));
    let in_pieces = pieces(message, IOV_LIMIT);
    let vector = |refused: Result<(), Rejected<Vec<Bytes>>>| {
        let rejected = refused.expect_err("no send can be posted");
        assert_eq!((rejected.errno(), &rejected.buffer), (errno, &in_pieces));
    };
    vector(endpoint.sendv(in_pieces.clone(), to, 1));
    vector(endpoint.tsendv(in_pieces.clone(), to, 3, 1));
    let send = SendMsg {
        buffers: in_pieces.clone(),
        to,
        tag: Some(3),
        data: Some(2),
        context: 1,
        flags: OpFlags::COMPLETION | OpFlags::FENCE,
    };
    let rejected = endpoint.sendmsg(send.clone()).expect_err("no send can be posted");
    let back = rejected.buffer;
    assert_eq!(Error::from(Rejected { error: rejected.error, buffer: () }).errno(), errno);
    assert_eq!((back.buffers, back.to, back.tag), (send.buffers, send.to, send.tag));
    assert_eq!((back.data, back.context, back.flags), (send.data, send.context, send.flags));
}

/// Tries every call that receives, a peek included, and makes sure that each is refused with this error and
/// hands everything back.
#[track_caller]
fn every_receive_is_refused(endpoint: &Endpoint, from: FabricAddress, errno: Errno) {
    every_posted_receive_is_refused(endpoint, from, errno);
    for flags in [OpFlags::PEEK, OpFlags::PEEK | OpFlags::CLAIM] {
        request_is_refused(endpoint, from, flags, errno);
    }
}

/// As [`every_receive_is_refused`], of the calls that take a place among the outstanding receives.
#[track_caller]
fn every_posted_receive_is_refused(endpoint: &Endpoint, from: FabricAddress, errno: Errno) {
    let whole = |post: &dyn Fn(BytesMut) -> Result<(), Rejected<BytesMut>>| {
        let buffer = room(24);
        let address = buffer.as_ptr();
        let rejected = post(buffer).expect_err("no receive can be posted");
        assert_eq!((rejected.errno(), rejected.buffer.as_ptr()), (errno, address));
        assert_eq!(rejected.buffer, room(24));
    };
    whole(&|buffer| endpoint.recv(buffer, from, 1));
    whole(&|buffer| endpoint.trecv(buffer, from, 7, 0, 1));
    let vector = |refused: Result<(), Rejected<Vec<BytesMut>>>| {
        let rejected = refused.expect_err("no receive can be posted");
        assert_eq!((rejected.errno(), rejected.buffer), (errno, vec![room(24), room(8)]));
    };
    vector(endpoint.recvv(vec![room(24), room(8)], from, 1));
    vector(endpoint.trecvv(vec![room(24), room(8)], from, 7, 0, 1));
    request_is_refused(endpoint, from, OpFlags::COMPLETION, errno);
}

#[track_caller]
fn request_is_refused(endpoint: &Endpoint, from: FabricAddress, flags: OpFlags, errno: Errno) {
    let buffers = || vec![room(24), room(8)];
    let receive = RecvMsg { buffers: buffers(), from, tagged: Some((7, 1)), context: 9, flags };
    let rejected = endpoint.recvmsg(receive).expect_err("no receive can be posted");
    assert_eq!(rejected.errno(), errno, "{flags:?}");
    let back = rejected.buffer;
    assert_eq!((back.buffers, back.from, back.tagged), (buffers(), from, Some((7, 1))));
    assert_eq!((back.context, back.flags), (9, flags));
}

pub(crate) fn everything_comes_back_from_an_endpoint_out_of_service(net: &Net) {
    let endpoint = net.domain().endpoint(net.info()).unwrap();
    every_send_is_refused(&endpoint, FabricAddress(0), &payload(1, 90_000), Errno::EOPBADSTATE);
    every_receive_is_refused(&endpoint, ANY, Errno::EOPBADSTATE);
}

pub(crate) fn everything_comes_back_if_the_peer_is_unknown(net: &Net) {
    let (alice, _bob) = net.pair();
    let endpoint = alice.endpoint.as_here();
    let nobody = FabricAddress(77);
    every_send_is_refused(endpoint, nobody, &payload(1, 90_000), Errno::EINVAL);
    every_receive_is_refused(endpoint, nobody, Errno::EINVAL);
}

pub(crate) fn everything_comes_back_without_the_capability(net: &Net) {
    let open = |caps| net.pair_of(Setup { caps, ..Setup::default() }, Setup::default());
    let (alice, _bob) = open(Caps::MSG | Caps::TAGGED | Caps::RECV);
    every_send_is_refused(alice.endpoint.as_here(), alice.peer(), &payload(1, 80), Errno::EOPNOTSUPP);
    let (alice, _bob) = open(Caps::MSG | Caps::TAGGED | Caps::SEND);
    every_receive_is_refused(alice.endpoint.as_here(), ANY, Errno::EOPNOTSUPP);
}

pub(crate) fn everything_comes_back_if_there_is_no_room(net: &Net) {
    let narrow = || Setup { tx_depth_ops: 1, rx_depth_ops: 1, ..Setup::default() };
    let (alice, bob) = net.pair_of(narrow(), narrow());
    let flags = OpFlags::MATCH_COMPLETE;
    let send = SendMsg { buffers: vec![payload(1, 8)], to: alice.peer(), flags, ..SendMsg::default() };
    alice.endpoint.sendmsg(send).unwrap();
    every_send_is_refused(alice.endpoint.as_here(), alice.peer(), &payload(2, 80), Errno::EAGAIN);
    alice.endpoint.recv(room(8), ANY, 5).unwrap();
    every_posted_receive_is_refused(alice.endpoint.as_here(), ANY, Errno::EAGAIN);
    bob.endpoint.recv(room(8), ANY, 6).unwrap();
    assert_eq!(received(&bob.completion().buffer), payload(1, 8));
    alice.completion();
}

pub(crate) fn too_many_pieces_and_a_claim_of_nothing_come_back(net: &Net) {
    let (alice, _bob) = net.pair();
    let (endpoint, to) = (alice.endpoint.as_here(), alice.peer());
    let rejected = endpoint.sendv(vec![payload(1, 9); IOV_LIMIT + 1], to, 1).unwrap_err();
    assert_eq!((rejected.errno(), rejected.buffer), (Errno::EINVAL, vec![payload(1, 9); IOV_LIMIT + 1]));
    let rejected = endpoint.recvv(vec![room(9); IOV_LIMIT + 1], ANY, 1).unwrap_err();
    assert_eq!((rejected.errno(), rejected.buffer), (Errno::EINVAL, vec![room(9); IOV_LIMIT + 1]));
    request_is_refused(endpoint, ANY, OpFlags::CLAIM, Errno::ENOENT);
    request_is_refused(endpoint, ANY, OpFlags::CLAIM | OpFlags::DISCARD, Errno::ENOENT);
    let contradiction = OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD;
    request_is_refused(endpoint, ANY, contradiction, Errno::EINVAL);
}

pub(crate) fn what_came_back_is_posted_again(net: &Net) {
    let narrow = Setup { tx_depth_ops: 2, tx_op_flags: OpFlags::MATCH_COMPLETE, ..Setup::default() };
    let (alice, bob) = net.pair_of(narrow, Setup::default());
    let endpoint = alice.endpoint.as_here();
    let send = |n: u64, message: Bytes| endpoint.send(message, alice.peer(), n);
    // Nobody receives yet, so there is room for two.
    send(0, payload(0, 5000)).unwrap();
    send(1, payload(1, 5000)).unwrap();
    let mut rejected = send(2, payload(2, 5000)).unwrap_err();
    let count = 40;
    for n in 0..count {
        bob.endpoint.recv(room(5000), ANY, n).unwrap();
    }
    let deadline = Deadline::new();
    for n in 2..count {
        while let Err(again) = send(n, rejected.buffer) {
            assert_eq!(again.error, Error::Again(Again::QueueFull));
            assert!(again.buffer.is_unique(), "nobody else has kept it");
            rejected = again;
            alice.progress_all();
            deadline.pause("room for a send");
        }
        rejected = Rejected { error: rejected.error, buffer: payload(n + 1, 5000) };
    }
    for n in 0..count {
        assert!(received(&bob.completion().buffer) == payload(n, 5000));
    }
}
