//! The cost of peers that connect and say nothing, that say hello too slowly, or that connect too often.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homespun_engine::transport::{Armed, Transport};
use homespun_engine::wire::hello::HELLO_BYTES;

use super::hello::{encode_hello, has_ended};
use crate::TcpProvider;
use crate::descriptors::DescriptorLimit;
use crate::testing::{Pair, Side, drive_until, make_message};

const SHORT: Duration = Duration::from_millis(100);

/// How many connections a stranger makes and ends at once.
const STORM_CONNECTIONS: usize = 2_000;

fn open_side(provider: &TcpProvider) -> (Side, SocketAddr) {
    let side = Side::open(provider, "127.0.0.1:0");
    let address = side.transport.address().socket_addr();
    (side, address)
}

#[test]
fn slow_hello_is_dropped_after_its_time() {
    let (mut side, address) = open_side(&TcpProvider::new().with_hello_timeout(SHORT));
    let mut raw = TcpStream::connect(address).unwrap();
    raw.set_nodelay(true).unwrap();
    let hello = encode_hello("127.0.0.1:100");
    // Each byte comes soon after the previous one, but the whole hello takes too long.
    let mut bytes = hello[..HELLO_BYTES - 1].iter();
    drive_until("the slow peer to be dropped", &mut [&mut side], |_| {
        if let Some(byte) = bytes.next() {
            let _dropped_meanwhile = raw.write_all(&[*byte]);
            thread::sleep(SHORT / 20);
        }
        has_ended(&mut raw)
    });
    assert!(side.recorder.inboxes.is_empty() && side.transport.half_open.is_empty());
}

#[test]
fn sleeping_endpoint_wakes_to_drop_a_silent_peer() {
    let (mut side, address) = open_side(&TcpProvider::new().with_hello_timeout(SHORT));
    assert_eq!(side.transport.arm(), Armed::Ready, "it has not looked yet");
    side.progress();
    assert_eq!(side.transport.arm(), Armed::Asleep { look_again_after: None });
    let mut raw = TcpStream::connect(address).unwrap();
    drive_until("it to be accepted", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    let Armed::Asleep { look_again_after: Some(after) } = side.transport.arm() else {
        panic!("the endpoint sleeps until the peer speaks");
    };
    assert!(after <= SHORT, "{after:?}");
    thread::sleep(after);
    side.progress();
    assert!(has_ended(&mut raw), "one pass is enough");
    assert_eq!(side.transport.arm(), Armed::Asleep { look_again_after: None });
}

#[test]
fn hello_that_waited_for_a_pass_is_not_late() {
    let (mut side, address) = open_side(&TcpProvider::new().with_hello_timeout(SHORT));
    let mut raw = TcpStream::connect(address).unwrap();
    drive_until("it to be accepted", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    raw.write_all(&encode_hello("127.0.0.1:100")).unwrap();
    // The application makes no pass for longer than a hello may take.
    thread::sleep(2 * SHORT);
    drive_until("the hello", &mut [&mut side], |sides| sides[0].only_link().is_some());
    assert!(!has_ended(&mut raw));
}

#[test]
fn storm_of_short_connections_leaves_links_working_and_nothing_behind() {
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    let address = pair.server.transport.address().socket_addr();
    let max_links = DescriptorLimit::current().half_open_max_links();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..STORM_CONNECTIONS {
                if let Ok(mut raw) = TcpStream::connect(address)
                    && number % 2 == 0
                {
                    let _ends_at_once = raw.write_all(&encode_hello("127.0.0.1:100")[..number % HELLO_BYTES]);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut tag = 0;
        while !is_over.load(Ordering::Relaxed) || tag < 100 {
            tag += 1;
            pair.client.transport.send_inline(pair.out, &make_message(3, tag), b"abc").unwrap();
            let into = pair.into;
            pair.drive_until("a frame during the storm", |_, server| {
                assert!(server.transport.half_open.len() <= max_links);
                server.received_frames(into).len() == tag as usize
            });
        }
    });
    pair.drive_until("the strangers to be gone", |_, server| server.transport.half_open.is_empty());
    assert_eq!(pair.server.recorder.inboxes.len(), 1, "a stranger was reported");
    assert_eq!(pair.server.transport.links.ids().count(), 1, "a stranger left something behind");
}
