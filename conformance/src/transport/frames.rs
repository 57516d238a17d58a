//! How frames travel.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::limits::{CONNECTION_DATA_MAX_BYTES, REMOTE_MAX_BYTES};
use homespun_engine::transport::{Provider, Transport};
use homespun_engine::wire::{
    Atomic, AtomicForm, Awaits, Durable, Handshake, HandshakeStep, Header, Message, Outcome, Rma, RmaKind,
    Shown,
};

use crate::transport::{BUDGET_FRAMES, Deadline, Event, Party, SIZES, drive, linked, message, payload};

/// Frames of every size, in both directions at once, arrive whole, in order, and with their headers.
pub fn frames_arrive_whole_and_in_order<P: Provider>(provider: &P) {
    let (mut parties, there, back) = linked(provider);
    let to: Vec<_> = SIZES.map(|size| payload(size, 1)).into();
    let fro: Vec<_> = SIZES.map(|size| payload(size, 2)).into_iter().rev().collect();
    for (a, b) in to.iter().zip(&fro) {
        parties[0].post(there, a.clone());
        parties[1].post(back, b.clone());
    }
    drive(&mut parties, "all frames", |[a, b]| {
        a.recorder.frame_count(there) == SIZES.len() && b.recorder.frame_count(back) == SIZES.len()
    });
    let [a, b] = parties;
    assert!(b.recorder.payloads(back) == to, "other payloads than were sent");
    assert!(a.recorder.payloads(there) == fro, "other payloads than were sent");
    for event in [a.recorder.of(there), b.recorder.of(back)].concat() {
        if let Event::Frame(header, payload) = event {
            assert_eq!(*header, message(payload.len()));
        }
    }
}

/// Headers of every kind arrive as they were sent, whatever numbers they hold.
pub fn every_header_arrives_as_it_was_sent<P: Provider>(provider: &P) {
    const EXTREMES: [u64; 4] = [0, 1, u64::MAX, 0x0123_4567_89ab_cdef];
    let (mut parties, link, peer) = linked(provider);
    let mut frames: Vec<(Header, Vec<u8>)> = Vec::new();
    for number in EXTREMES {
        frames.push((Header::Ack { received: number }, Vec::new()));
        frames.push((Header::Matched { number }, Vec::new()));
        frames.push((Header::Credit { granted_bytes: number }, Vec::new()));
        frames.push((Header::Fenced, Vec::new()));
        for outcome in (0..).map_while(Outcome::from_number) {
            frames.push((Header::Answer { op: number, outcome }, Vec::new()));
        }
        for step in HandshakeStep::ALL {
            for data_bytes in [0, 1, 100, CONNECTION_DATA_MAX_BYTES] {
                let data_bytes = data_bytes.min(step.data_max_bytes());
                let handshake = Handshake { step, number, data_bytes: data_bytes as u16 };
                frames.push((Header::Connection(handshake), payload(data_bytes, number)));
            }
        }
        for is_so in [false, true] {
            frames.push((Header::Clear { op: number, cannot_pull: is_so }, Vec::new()));
            frames.push((Header::Done { op: number, fault: is_so }, Vec::new()));
            frames.push((Header::Fence { matched: is_so }, Vec::new()));
        }
        for len_bytes in [0, 1, 5000] {
            let header = Header::Data { op: number, len_bytes: len_bytes as u64 };
            frames.push((header, payload(len_bytes, number)));
            let header = Header::ReadData { op: number, len_bytes: len_bytes as u64 };
            frames.push((header, payload(len_bytes, number)));
        }
        for (kind, op, datatype, count) in [
            (AtomicKind::Base, AtomicOp::Sum, Datatype::Uint64, 1),
            (AtomicKind::Base, AtomicOp::Band, Datatype::Uint8, 25),
            (AtomicKind::Fetch, AtomicOp::Read, Datatype::DoubleComplex, 7),
            (AtomicKind::Fetch, AtomicOp::Write, Datatype::Int16, Datatype::Int16.count_max()),
            (AtomicKind::Compare, AtomicOp::Cswap, Datatype::Uint64, 1),
            (AtomicKind::Compare, AtomicOp::CswapGt, Datatype::Float, Datatype::Float.count_max()),
        ] {
            let form = AtomicForm::new(kind, op, datatype, count).expect("there is such an operation");
            let header = Header::Atomic(Atomic { op: number, key: !number, address: number, form });
            frames.push((header, payload(form.payload_len_bytes(), number)));
        }
        for data in [None, Some(number)] {
            let rma = |kind, len_bytes| {
                Header::Rma(Rma {
                    op: number,
                    key: !number,
                    address: number,
                    len_bytes,
                    kind,
                    durable: Durable::Nothing,
                })
            };
            frames.push((rma(RmaKind::Read, number & 0xff_ffff), Vec::new()));
            for len_bytes in [0, 1, 16, 17, 5000] {
                let header = rma(RmaKind::Write { data }, len_bytes as u64);
                frames.push((header, payload(len_bytes, number)));
            }
            for remote_bytes in [0, 1, REMOTE_MAX_BYTES] {
                let kind = RmaKind::Offer { data, remote_bytes: remote_bytes as u8 };
                frames.push((rma(kind, 1 << 40), payload(remote_bytes, number)));
                let (key, address, remote_bytes) = (!number, number, remote_bytes as u8);
                let shown = Shown { key, address, len_bytes: 1 << 40, access: number, remote_bytes };
                frames.push((Header::Shown(shown), payload(usize::from(remote_bytes), number)));
            }
        }
        for (tag, data) in
            [(None, None), (Some(number), None), (None, Some(number)), (Some(!number), Some(number))]
        {
            for awaits in [Awaits::Nothing, Awaits::Arrival, Awaits::Match] {
                let message = Message { len_bytes: 300, tag, data, awaits };
                frames.push((Header::Message(message), payload(300, number)));
                for remote_bytes in [0, 1, REMOTE_MAX_BYTES] {
                    let message = Message { len_bytes: 1 << 40, ..message };
                    let header = Header::Request { message, op: number, remote_bytes: remote_bytes as u8 };
                    frames.push((header, payload(remote_bytes, number)));
                }
            }
        }
    }
    for (header, payload) in &frames {
        parties[0].post_frame(link, *header, payload.clone());
    }
    drive(&mut parties, "all frames", |[_, b]| b.recorder.frame_count(peer) == frames.len());
    let events = parties[1].recorder.of(peer).into_iter().skip(1);
    for (event, (header, payload)) in events.zip(frames) {
        assert_eq!(*event, Event::Frame(header, payload));
    }
}

/// [`send_inline`](Transport::send_inline) takes any payload up to
/// [`inline_max_bytes`](homespun_engine::transport::LinkCaps::inline_max_bytes), the longest included, once there is room.
pub fn frames_up_to_the_inline_limit_are_taken_inline<P: Provider>(provider: &P) {
    let (mut parties, link, peer) = linked(provider);
    let limit_bytes = parties[0].transport.caps(link).inline_max_bytes;
    let sizes = [0, 1, limit_bytes / 2, limit_bytes.saturating_sub(1), limit_bytes];
    for (count, len_bytes) in sizes.into_iter().enumerate() {
        let bytes = payload(len_bytes, 1);
        let deadline = Deadline::new();
        while parties[0].transport.send_inline(link, &message(len_bytes), &bytes).is_err() {
            parties[0].transport.flush();
            deadline.pause("room on an idle link");
        }
        drive(&mut parties, "the frame", |[_, b]| b.recorder.frame_count(peer) == count + 1);
    }
    assert!(parties[1].recorder.payloads(peer) == sizes.map(|size| payload(size, 1)));
}

/// However many small frames are sent, all arrive in order.
pub fn many_small_frames_arrive_in_order<P: Provider>(provider: &P) {
    const FRAMES: usize = 5000;
    let (mut parties, link, peer) = linked(provider);
    let len_bytes = |n: usize| n * 7 % 61;
    for n in 0..FRAMES {
        parties[0].post(link, payload(len_bytes(n), n as u64));
        parties[1].post(peer, payload(len_bytes(n), !(n as u64)));
    }
    drive(&mut parties, "all frames", |[a, b]| {
        // Whoever counts all of them after every pass counts for long.
        [a, b].iter().all(|party| party.recorder.log().len() == 1 + FRAMES)
    });
    for (party, link, is_back) in [(&parties[0], link, true), (&parties[1], peer, false)] {
        for (n, bytes) in party.recorder.payloads(link).into_iter().enumerate() {
            let salt = if is_back { !(n as u64) } else { n as u64 };
            assert_eq!(bytes, payload(len_bytes(n), salt), "frame {n}");
        }
    }
}

/// A frame that is larger than any buffer of the transport's arrives.
pub fn a_large_frame_arrives<P: Provider>(provider: &P) {
    const LEN_BYTES: usize = 5 * 1024 * 1024 + 13;
    let (mut parties, link, peer) = linked(provider);
    parties[0].post(link, payload(LEN_BYTES, 1));
    drive(&mut parties, "the frame", |[_, b]| b.recorder.frame_count(peer) == 1);
    assert!(parties[1].recorder.payloads(peer) == [payload(LEN_BYTES, 1)], "other bytes than were sent");
}

/// Sending is possible as soon as [`connect`](Transport::connect) has returned, with patience, and the peer learns who it is
/// before it gets the first frame.
pub fn frames_sent_before_the_link_is_up_arrive<P: Provider>(provider: &P) {
    let mut parties = [Party::open(provider, 11), Party::open(provider, 22)];
    let link = parties[0].connect(parties[1].address());
    parties[0].post(link, payload(5000, 1));
    parties[0].transmit();
    drive(&mut parties, "the frame", |[_, b]| b.recorder.log().len() == 2);
    let [a, b] = parties;
    let events: Vec<&Event> = b.recorder.log().iter().map(|(_, event)| event).collect();
    let frame = Event::Frame(message(5000), payload(5000, 1));
    assert_eq!(events, [&Event::Up(a.address(), 11), &frame]);
}

/// What was taken, and flushed while there was room, arrives although its sender makes no further call.
pub fn what_was_flushed_arrives_without_the_sender<P: Provider>(provider: &P) {
    let ([mut a, mut b], link, peer) = linked(provider);
    for round in 1..=20 {
        a.post(link, payload(10 * round, 1));
        let deadline = Deadline::new();
        while !a.is_posted() {
            a.transmit();
            deadline.pause("room on an idle link");
        }
        drive(array::from_mut(&mut b), "the frame", |[b]| b.recorder.frame_count(peer) == round);
    }
    assert_eq!((a.receive(BUDGET_FRAMES), b.recorder.down(peer)), (0, None));
}

/// The caller may move a transport between threads, and two transports may be called at the same time.
pub fn a_transport_may_move_between_threads<P: Provider>(provider: &P) {
    let ([mut a, mut b], link, peer) = linked(provider);
    for size in SIZES {
        a.post(link, payload(size, 1));
        b.post(peer, payload(size, 2));
    }
    // Each goes on until both have everything: what one has taken may still need it to get out.
    let finished = AtomicUsize::new(0);
    let run = |party: &mut Party<P::Transport>| {
        let deadline = Deadline::new();
        let mut has_all = false;
        while finished.load(Ordering::Relaxed) < 2 {
            party.transmit();
            party.receive(BUDGET_FRAMES);
            if !has_all && party.is_posted() && party.recorder.log().len() == 1 + SIZES.len() {
                has_all = true;
                finished.fetch_add(1, Ordering::Relaxed);
            }
            deadline.pause("all frames");
        }
    };
    thread::scope(|scope| {
        for party in [&mut a, &mut b] {
            scope.spawn(|| run(party));
        }
    });
    assert!(a.recorder.payloads(link) == SIZES.map(|size| payload(size, 2)));
    assert!(b.recorder.payloads(peer) == SIZES.map(|size| payload(size, 1)));
    a.post(link, payload(33, 1));
    drive(&mut [a, b], "a frame, in the first thread again", |[_, b]| {
        b.recorder.frame_count(peer) == SIZES.len() + 1
    });
}
