//! Questions about the links that an endpoint has made.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use homespun_engine::transport::{LinkId, Transport};
use homespun_engine::wire::address_claim::{CLAIM_RECORD_BYTES, ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello, Question};

use super::address_claimer::{AddressClaimer, LOOPBACK, live_count, provider, vacant_address};
use crate::testing::{Side, drive_until};

#[test]
fn questions_of_strangers_are_answered_and_bounded() {
    let mut side = Side::open(&provider(), LOOPBACK);
    let question = Question { address: "127.0.0.1:100".parse::<SocketAddr>().unwrap().into(), token: 5 };
    let mut stranger = AddressClaimer::connect(&side);
    stranger.send(&question.to_bytes());
    drive_until("the answer", &mut [&mut side], |_| {
        stranger.read();
        stranger.received.len() == CLAIM_RECORD_BYTES
    });
    let answer = ClaimRecord::parse(stranger.received.first_chunk().unwrap()).unwrap();
    assert_eq!(answer, ClaimRecord { status: ClaimStatus::Denied, token: 5 });
    assert_eq!((side.transport.accepted.len(), side.transport.half_open.len()), (0, 1));
    // After a question, neither a hello may follow nor more questions than the limit.
    stranger.send(&Hello { address: question.address, instance: 1 }.to_bytes());
    drive_until("its end", &mut [&mut side], |_| stranger.read());
    let mut many = AddressClaimer::connect(&side);
    drive_until("the end of many questions", &mut [&mut side], |_| {
        many.stream.write_all(&question.to_bytes()).is_err() || many.read()
    });
    assert!(side.recorder.inboxes.is_empty() && side.transport.half_open.is_empty());
}

/// Opens an endpoint with links to these listeners, and with a connection from a stranger. Each listener has
/// sent a hello and a token, which the endpoint has not read.
fn connect_to_listeners(listeners: &[TcpListener]) -> (Side, Vec<TcpStream>, AddressClaimer, LinkId) {
    let mut side = Side::open(&provider(), LOOPBACK);
    let stranger = AddressClaimer::connect(&side);
    drive_until("the stranger", &mut [&mut side], |sides| !sides[0].transport.half_open.is_empty());
    let asking = side.transport.half_open.oldest().unwrap();
    let greeted = listeners.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        side.transport.connect(address.into());
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut hello = [0; HELLO_BYTES];
        drive_until("its hello", &mut [&mut side], |_| {
            stream.peek(&mut hello).is_ok_and(|bytes| bytes == HELLO_BYTES)
        });
        stream
    });
    let greeted: Vec<TcpStream> = greeted.collect();
    for (number, mut stream) in (0..).zip(&greeted) {
        let address = stream.local_addr().unwrap().into();
        stream.write_all(&Hello { address, instance: 1 }.to_bytes()).unwrap();
        stream.write_all(&ClaimRecord { status: ClaimStatus::Welcome, token: number }.to_bytes()).unwrap();
    }
    (side, greeted, stranger, asking)
}

#[test]
fn question_reads_only_the_links_to_the_endpoint_that_asks() {
    const LINKS: usize = 100;
    let listeners: Vec<TcpListener> = (0..LINKS).map(|_| TcpListener::bind(LOOPBACK).unwrap()).collect();
    let (mut side, _greeted, _stranger, asking) = connect_to_listeners(&listeners);
    let Side { transport, recorder, .. } = &mut side;
    let vacant = vacant_address();
    for token in 1_000..2_000 {
        let question = Question { address: vacant.with_port(1), token };
        assert_eq!(transport.answer_questions(asking, &[question], recorder), 0, "other links were read");
    }
    // Each of these endpoints asks about the token that it has just given.
    for (token, listener) in (0..).zip(&listeners) {
        let question = Question { address: listener.local_addr().unwrap().into(), token };
        let begin = Instant::now();
        while transport.address_claims.address_of_token(token).is_none() {
            assert!(transport.answer_questions(asking, &[question], recorder) <= 1, "other links were read");
            assert!(begin.elapsed() < Duration::from_secs(60), "the link was not read");
        }
    }
    assert_eq!(live_count(&side), LINKS);
}
