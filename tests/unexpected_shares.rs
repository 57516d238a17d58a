//! Tests the budget for unexpected messages over TCP. Messages that strangers leave behind keep no peer out.
//! The peers of one host leave a part of the budget to other hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;

use homespun::cq::Entry;
use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES};
use homespun::{Bytes, BytesMut, Fabric, FabricAddress, Hints, OpenEndpoint, Tag, TagMatch};
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
struct Party(OpenEndpoint);

impl Deref for Party {
    type Target = OpenEndpoint;

    fn deref(&self) -> &OpenEndpoint {
        &self.0
    }
}

impl Party {
    /// Opens an endpoint. The budget 0 stands for the default.
    fn open_with_budget(node: &str, budget_bytes: usize) -> Party {
        let hints = Hints::new().domain("tcp").node(node).source().total_buffered_recv_bytes(budget_bytes);
        Party(Fabric::new().open_endpoint(&hints).expect("an endpoint"))
    }

    fn open_at(node: &str) -> Party {
        Party::open_with_budget(node, 0)
    }

    /// Opens an endpoint that peers of every loopback address reach.
    fn open_victim() -> Party {
        Party::open_with_budget("127.0.0.1", BUDGET_BYTES)
    }

    fn insert(&self, other: &Party) -> FabricAddress {
        self.av.insert_if_absent(other.endpoint.name().expect("a name")).expect("an endpoint's name")
    }

    fn post(&self, send: SendMsg) {
        self.endpoint.sendmsg(send).expect("room for a send");
    }

    fn read_entry(&self) -> Option<Entry> {
        self.cq.read_entry().expect("a queue that is not overrun")
    }

    /// Sends empty messages with this tag, and waits until the sends have ended. Returns whether all
    /// succeeded.
    fn try_deliver(&self, to: &Party, tag: u64, count: u64) -> bool {
        let address = self.insert(to);
        for context in 0..count {
            let (tag, flags) = (Some(Tag(tag)), OpFlags::DELIVERY_COMPLETE);
            self.post(SendMsg { to: address, tag, context, flags, ..SendMsg::default() });
        }
        let deadline = Deadline::new();
        let (mut ended, mut failed) = (0, 0);
        while ended + failed < count {
            match self.read_entry() {
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
        self.post(SendMsg { to, tag: Some(Tag(0)), flags: OpFlags::DELIVERY_COMPLETE, ..SendMsg::default() });
        let deadline = Deadline::new();
        loop {
            match self.read_entry() {
                Some(Entry::Failed(_)) => return,
                Some(entry) => panic!("a closed peer has received a message: {entry:?}"),
                None => deadline.yield_or_panic("the end of a peer"),
            }
        }
    }

    /// Discards a message with this tag. Returns whether there is one.
    fn discard(&self, tag: u64) -> bool {
        let (tagged, flags) = (Some(TagMatch { tag, ignore: 0 }), OpFlags::PEEK | OpFlags::DISCARD);
        self.endpoint.recvmsg(RecvMsg { tagged, flags, ..Default::default() }).expect("room for a peek");
        !matches!(self.read_entry().expect("a peek ends at once"), Entry::Failed(_))
    }

    /// Discards all messages with this tag. Returns how many there were.
    fn discard_all(&self, tag: u64) -> u64 {
        (0..).take_while(|_| self.discard(tag)).count() as u64
    }
}

/// Sends a message and waits until it is received.
#[track_caller]
fn exchange_message(from: &Party, to: &Party, tag: u64) {
    let any = FabricAddress::UNSPECIFIED;
    to.endpoint.trecv(BytesMut::zeroed(8), any, Tag(tag), 1).expect("room for a receive");
    from.endpoint.tsend(Bytes::from_static(b"hello"), from.insert(to), Tag(tag), 0).expect("room");
    let deadline = Deadline::new();
    let mut ends = [false, false];
    while ends != [true, true] {
        for (end, party) in ends.iter_mut().zip([from, to]) {
            *end |= party.cq.read().expect("no operation fails").is_some();
        }
        deadline.yield_or_panic("a message");
    }
}

/// Strangers come one after the other, and claim to have an endpoint at a port where no endpoint is. Each
/// leaves as many messages behind as the initial credit allows, and waits until the victim has read them to
/// their end.
fn let_strangers_leave_messages(victim: &Party, count: u16) {
    let mut frame = [0; HEADER_MAX_BYTES];
    let message = Header::Message(Message { tag: Some(STRANGE), ..Message::of_len(0) });
    let frame_bytes = emit(&message, &mut frame);
    let messages = frame[..frame_bytes].repeat(MESSAGES as usize);
    let address = victim.endpoint.name().expect("an endpoint in service").socket_addr();
    for port in 100..100 + count {
        let mut stream = TcpStream::connect(address).expect("a listener");
        let claimed = SocketAddr::new(stream.local_addr().expect("it is connected").ip(), port);
        let hello = Hello { address: claimed.into(), instance: u64::from(port) }.to_bytes();
        stream.write_all(&[&hello, &messages[..]].concat()).expect("room for a few bytes");
        stream.set_nonblocking(true).expect("a socket");
        let mut is_answered = false;
        let deadline = Deadline::new();
        loop {
            victim.cq.progress();
            match stream.read(&mut [0; 4096]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(1..) if is_answered => {}
                // The victim has answered the hello, so the stranger leaves.
                Ok(1..) => {
                    is_answered = true;
                    let _already_ended = stream.shutdown(Shutdown::Write);
                }
                Ok(0) | Err(_) => break,
            }
            deadline.yield_or_panic("the end of a stranger");
        }
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
