//! Tests the budget for unexpected messages over TCP. Messages that strangers leave behind keep no peer out.
//! The peers of one host leave a part of the budget to other hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use homespun::cq::Entry;
use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES};
use homespun::{
    AddressVector, Bytes, BytesMut, CompletionQueue, Endpoint, Fabric, FabricAddress, Hints, OpenEndpoint,
    Tag, TagMatch,
};
use homespun_engine::wire::frame::{HEADER_MAX_BYTES, emit};
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::{Header, Message};

use homespun_suite::Deadline;

/// The victim's budget. Some thirty peers exhaust the budget by the first messages that they leave behind.
const BUDGET_BYTES: usize = 1 << 20;

/// How many empty messages a peer can send with the initial credit of its link.
const MESSAGES: u64 = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;

/// The tag of a stranger's messages.
const STRANGE: u64 = 0xbad;

/// How many passes the first peer makes while the victim checks the peer's address. Each later peer makes
/// this many passes more than the peer before.
const PASSES: usize = 50;

/// An endpoint over TCP, and all that it needs.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Party {
    fn open_with(hints: &Hints) -> Party {
        let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(hints).expect("an endpoint");
        Party { endpoint, cq, av }
    }

    fn open_at(node: &str) -> Party {
        Party::open_with(&Hints::new().domain("tcp").node(node).source())
    }

    /// Opens an endpoint that peers of every loopback address reach.
    fn open_victim() -> Party {
        let hints = Hints::new().domain("tcp").node("127.0.0.1").source();
        Party::open_with(&hints.total_buffered_recv_bytes(BUDGET_BYTES))
    }

    fn address(&self) -> SocketAddr {
        self.endpoint.name().expect("an endpoint in service").socket_addr()
    }

    fn insert(&self, other: &Party) -> FabricAddress {
        let name = other.endpoint.name().expect("an endpoint in service");
        self.av.insert_if_absent(name).expect("an endpoint's name")
    }

    /// Sends empty messages with this tag, and waits until the sends have ended. Returns whether all
    /// succeeded.
    fn try_deliver(&self, to: &Party, tag: u64, count: u64) -> bool {
        let address = self.insert(to);
        for context in 0..count {
            let (tag, flags) = (Some(Tag(tag)), OpFlags::DELIVERY_COMPLETE);
            let send = SendMsg { to: address, tag, context, flags, ..SendMsg::default() };
            self.endpoint.sendmsg(send).expect("room for a send");
        }
        let deadline = Deadline::new();
        let (mut ended, mut failed) = (0, 0);
        while ended + failed < count {
            match self.cq.read_entry().expect("a queue that is not overrun") {
                Some(Entry::Completed(..)) => ended += 1,
                Some(Entry::UnknownSource(..)) | None => {}
                Some(Entry::Failed(_)) => failed += 1,
            }
            to.cq.progress();
            deadline.yield_or_panic("the ends of sends");
        }
        failed == 0
    }

    /// Closes a peer. Then waits until a send to the peer has failed: by then this party has noticed that
    /// the peer's links have ended.
    fn await_end_of(&self, peer: Party) {
        let to = self.insert(&peer);
        drop(peer);
        let send = SendMsg { to, tag: Some(Tag(0)), flags: OpFlags::DELIVERY_COMPLETE, ..SendMsg::default() };
        self.endpoint.sendmsg(send).expect("room for a send");
        let deadline = Deadline::new();
        loop {
            match self.cq.read_entry().expect("a queue that is not overrun") {
                Some(Entry::Failed(_)) => return,
                Some(entry) => panic!("a closed peer has received a message: {entry:?}"),
                None => deadline.yield_or_panic("the end of a peer"),
            }
        }
    }

    /// Peeks for a message with this tag. Returns whether there is one.
    fn peek(&self, tag: u64, flags: OpFlags) -> bool {
        let tagged = Some(TagMatch { tag, ignore: 0 });
        self.endpoint.recvmsg(RecvMsg { tagged, flags, ..Default::default() }).expect("room for a peek");
        let entry = self.cq.read_entry().expect("a queue that is not overrun").expect("a peek ends at once");
        !matches!(entry, Entry::Failed(_))
    }

    /// Discards all messages with this tag. Returns how many there were.
    fn discard_all(&self, tag: u64) -> u64 {
        (0..).take_while(|_| self.peek(tag, OpFlags::PEEK | OpFlags::DISCARD)).count() as u64
    }
}

/// Sends a message and waits until it is received.
#[track_caller]
fn exchange_message(from: &Party, to: &Party, tag: u64) {
    let any = FabricAddress::UNSPECIFIED;
    to.endpoint.trecv(BytesMut::zeroed(8), any, TagMatch { tag, ignore: 0 }, 1).expect("room for a receive");
    let (buffers, address) = (vec![Bytes::from_static(b"hello")], from.insert(to));
    let send = SendMsg { buffers, to: address, tag: Some(Tag(tag)), ..SendMsg::default() };
    from.endpoint.sendmsg(send).expect("room for a send");
    let deadline = Deadline::new();
    let mut ends = [false, false];
    while ends != [true, true] {
        for (end, party) in ends.iter_mut().zip([from, to]) {
            *end |= party.cq.read().expect("no operation fails").is_some();
        }
        deadline.yield_or_panic("a message");
    }
}

/// Returns the bytes of a frame without payload.
fn frame(header: &Header) -> Vec<u8> {
    let mut bytes = [0; HEADER_MAX_BYTES];
    let len_bytes = emit(header, &mut bytes);
    bytes[..len_bytes].to_vec()
}

/// A process that claims to have an endpoint at a port where no endpoint is.
struct Stranger(TcpStream);

impl Stranger {
    /// Connects, and sends a hello and these bytes. Waits until the victim has answered or ended the
    /// connection.
    fn connect(victim: &Party, port: u16, bytes: &[u8]) -> Stranger {
        let mut stream = TcpStream::connect(victim.address()).expect("a listener");
        let claimed = SocketAddr::new(stream.local_addr().expect("it is connected").ip(), port);
        let hello = Hello { address: claimed.into(), instance: u64::from(port) }.to_bytes();
        stream.write_all(&[&hello, bytes].concat()).expect("room for a few bytes");
        let mut stranger = Stranger(stream);
        let deadline = Deadline::new();
        while !stranger.has_answer_or_end() {
            victim.cq.progress();
            deadline.yield_or_panic("an answer to a hello");
        }
        stranger
    }

    fn has_answer_or_end(&mut self) -> bool {
        self.0.set_nonblocking(true).expect("a socket");
        let read = self.0.read(&mut [0; 4096]);
        !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Ends the connection, and waits until the victim has read it to its end.
    fn leave(mut self, victim: &Party) {
        let _already_ended = self.0.shutdown(Shutdown::Write);
        let deadline = Deadline::new();
        loop {
            victim.cq.progress();
            match self.0.read(&mut [0; 4096]) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
            deadline.yield_or_panic("the end of a stranger");
        }
    }
}

/// Strangers come one after the other. Each leaves as many messages behind as the initial credit allows.
fn let_strangers_leave_messages(victim: &Party, count: u16) {
    let message = Header::Message(Message { tag: Some(STRANGE), ..Message::of_len(0) });
    let messages = frame(&message).repeat(MESSAGES as usize);
    for port in 0..count {
        Stranger::connect(victim, 100 + port, &messages).leave(victim);
    }
}

#[test]
fn messages_of_strangers_that_left_keep_no_peer_out() {
    let victim = Party::open_victim();
    let_strangers_leave_messages(&victim, 150);
    let peer = Party::open_at("127.0.0.1");
    exchange_message(&peer, &victim, 1);
    exchange_message(&victim, &peer, 2);
    // The victim connects to a peer, too.
    let_strangers_leave_messages(&victim, 150);
    let asked = Party::open_at("127.0.0.1");
    exchange_message(&victim, &asked, 3);
    exchange_message(&asked, &victim, 4);
}

#[test]
fn host_with_all_of_its_share_left_behind_keeps_no_other_host_out() {
    let victim = Party::open_victim();
    let deadline = Deadline::new();
    let mut arrived = Vec::new();
    // Each peer makes some passes, to let the victim check the peer's address. If they were too few, the
    // victim drops the messages of the peer. Later peers make more passes.
    for tag in 1.. {
        let peer = Party::open_at("127.0.0.1");
        if !peer.try_deliver(&victim, tag, MESSAGES) {
            break;
        }
        for _ in 0..PASSES * tag as usize {
            peer.cq.progress();
            victim.cq.progress();
        }
        victim.await_end_of(peer);
        arrived.push(tag);
        deadline.yield_or_panic("the refusal of a peer");
    }
    let other = Party::open_at("127.0.0.2");
    exchange_message(&other, &victim, 10_000);
    exchange_message(&victim, &other, 10_000);
    // When the victim has discarded these messages, peers of the first host can send again.
    let received: u64 = arrived.iter().map(|tag| victim.discard_all(*tag)).sum();
    assert!(received >= BUDGET_BYTES as u64 / 2 / MESSAGE_COST_BYTES, "{received}");
    let peer = Party::open_at("127.0.0.1");
    exchange_message(&peer, &victim, 10_000);
}
