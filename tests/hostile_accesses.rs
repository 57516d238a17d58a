//! Strangers connect over TCP, and access memory without knowing its key.

use std::net::SocketAddr;

use homespun::flags::MrAccess;
use homespun::{Caps, Fabric, Hints, MrAttr, OpenEndpoint};
use homespun_engine::wire::{Durable, Header, Outcome, Refusal, Rma, RmaKind};
use homespun_suite::Deadline;
use homespun_suite::hostile_peer::{HostilePeer, await_greeting};

const SECRET: &[u8] = b"the secret of the application";

/// A port of the stranger's host at which no endpoint is.
const VACANT_PORT: u16 = 1;

/// Shows fi_mr/target-must-be-registered.
#[test]
fn stranger_without_the_key_reads_and_writes_nothing() {
    let hints = Hints::new().domain("tcp").caps(Caps::MSG | Caps::RMA).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, domain, .. } = Fabric::new().open_endpoint(&hints).expect("an endpoint");
    let attr = MrAttr::granting(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    let region = domain.register(SECRET.len(), &attr).expect("memory");
    region.write_at(0, SECRET).expect("it fits");
    let memory = region.remote();
    let victim = endpoint.name().expect("an endpoint in service").socket_addr();
    let claimed = SocketAddr::new(victim.ip(), VACANT_PORT);
    let mut stranger = HostilePeer::claim(victim, claimed, 7).expect("a listener");
    await_greeting(&mut stranger, || cq.progress());

    let mut op = 0;
    let mut access = |key: u64, kind: RmaKind, payload: &[u8]| {
        op += 1;
        let len_bytes = SECRET.len() as u64;
        let header =
            Header::Rma(Rma { op, key, address: memory.address, len_bytes, kind, durable: Durable::Nothing });
        stranger.send_header(&header);
        stranger.send_bytes(payload);
        let deadline = Deadline::new();
        loop {
            assert!(stranger.read(), "the access has ended the link");
            let outcome = stranger.received_headers().iter().find_map(|header| match *header {
                Header::Answer { op: answered, outcome } if answered == op => Some(outcome),
                _ => None,
            });
            match outcome {
                Some(outcome) => return (outcome, stranger.received_payload_bytes()),
                None => cq.progress(),
            }
            deadline.yield_or_panic("an answer");
        }
    };
    let write = RmaKind::Write { data: None };
    let near_keys = [memory.key.wrapping_add(1), memory.key.wrapping_sub(1), !memory.key];
    // Try small keys, as an application that counts its keys would use. Also try keys that are close to the
    // region's key.
    let one_bit_off = (0..64).map(|bit| memory.key ^ 1 << bit);
    for key in (0..16).chain(near_keys).chain(one_bit_off) {
        assert_eq!(access(key, RmaKind::Read, b""), (Outcome::Refused(Refusal::Key), 0), "{key:#x}");
        assert_eq!(access(key, write, &SECRET.to_ascii_uppercase()), (Outcome::Refused(Refusal::Key), 0));
    }
    let mut bytes = [0; SECRET.len()];
    region.read_at(0, &mut bytes).expect("its own memory");
    assert_eq!(bytes, SECRET, "a stranger has written");
    // With the key the same access succeeds.
    assert_eq!(access(memory.key, RmaKind::Read, b""), (Outcome::Done, SECRET.len() as u64));
}
