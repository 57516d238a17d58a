//! A frame with a changed header, and a frame that is cut, end the link of their peer with an error, and no
//! other link. A connector refuses a greeting with a changed byte. `engine/src/wire/` tests every byte of
//! every header.

mod side;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use homespun_engine::errno::Errno;
use homespun_engine::transport::{LinkError, Transport};
use homespun_engine::wire::Header;
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::Hello;
use homespun_tcp::TcpProvider;

use side::{Side, drive_until};

fn encode_header(header: &Header) -> Vec<u8> {
    let mut buffer = [0; HEADER_MAX_BYTES];
    let len_bytes = frame::emit(header, &mut buffer);
    buffer[..len_bytes].to_vec()
}

/// Connects a peer that sends a hello, and then these bytes. Each peer claims another address, at which no
/// socket listens.
fn connect_peer(to: &Side, number: u8, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to.transport.address().socket_addr()).unwrap();
    let hello = Hello { address: SocketAddr::from(([127, 1, 0, number], 1)).into(), instance: 7 };
    stream.write_all(&[&hello.to_bytes()[..], bytes].concat()).unwrap();
    stream
}

#[test]
fn changed_or_cut_header_ends_its_own_link_only() {
    let [mut side, mut friend] = [(); 2].map(|()| Side::open(&TcpProvider::new()));
    let friendly = friend.transport.connect(side.transport.address());
    drive_until("a link", &mut [&mut side, &mut friend], |sides| sides[0].events.up.len() == 1);
    let header = encode_header(&Header::Matched { number: 0x0123_4567_89ab_cdef });
    let changed = |at: usize| {
        let mut bytes = header.clone();
        bytes[at] ^= 1;
        bytes
    };
    let all_changed = (0..header.len()).map(|at| (changed(at), false));
    let all_cut = (1..header.len()).map(|at| (header[..at].to_vec(), true));
    for (number, (bytes, is_cut)) in (1..).zip(all_changed.chain(all_cut)) {
        let peer = connect_peer(&side, number, &[&header[..], &bytes].concat());
        if is_cut {
            peer.shutdown(Shutdown::Write).unwrap();
        }
        drive_until("the end of the link", &mut [&mut side], |sides| !sides[0].events.down.is_empty());
        let (link, error) = side.events.down.remove(0);
        match error {
            LinkError::Protocol(_) if !is_cut => {}
            LinkError::System(Errno::ECONNRESET) if is_cut => {}
            error => panic!("{bytes:x?}: {error:?}"),
        }
        let frames = side.events.frames.iter().filter(|of| **of == link).count();
        assert_eq!(frames, 1, "{bytes:x?}");
        side.events.frames.clear();
    }
    friend.transport.send_inline(friendly, &Header::Fenced, &[]).unwrap();
    drive_until("a frame", &mut [&mut side, &mut friend], |sides| !sides[0].events.frames.is_empty());
    assert_eq!(friend.events.down, []);
}

#[test]
fn changed_greeting_byte_refuses_the_link() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut side = Side::open(&TcpProvider::new());
    let hello = Hello { address: address.into(), instance: 7 }.to_bytes();
    let welcome = ClaimRecord { status: ClaimStatus::Welcome, token: 0x0123_4567_89ab_cdef }.to_bytes();
    let greeting = [&hello[..], &welcome].concat();
    for at in 0..greeting.len() {
        let mut changed = greeting.clone();
        changed[at] ^= 1;
        let link = side.transport.connect(address.into());
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&changed).unwrap();
        drive_until("the refusal", &mut [&mut side], |sides| !sides[0].events.down.is_empty());
        let (down, error) = side.events.down.remove(0);
        let is_named = matches!(error, LinkError::Protocol(_) | LinkError::OtherVersion { .. });
        assert!(down == link && is_named, "byte {at}: {error:?}");
        assert!(side.events.up.is_empty(), "byte {at}");
    }
}
