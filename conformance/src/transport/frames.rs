//! Sending and receiving frames.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use homespun_engine::transport::{Provider, Transport};
use homespun_engine::wire::Header;

use super::headers;
use super::test_endpoint::progress_all;
use crate::transport::{
    BUDGET_FRAMES, Backend, Event, SIZES, TestEndpoint, drive_until, message_header, pseudo_random_payload,
};

/// Frames of all [`SIZES`], in both directions at once, arrive whole and in order, with their headers.
pub fn frames_arrive_whole_and_in_order<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, there, back) = backend.open_linked_pair();
    let to: Vec<_> = SIZES.map(|size| pseudo_random_payload(size, 1)).into();
    let fro: Vec<_> = SIZES.map(|size| pseudo_random_payload(size, 2)).into_iter().rev().collect();
    for (a, b) in to.iter().zip(&fro) {
        endpoints[0].post(there, a.clone());
        endpoints[1].post(back, b.clone());
    }
    drive_until(&mut endpoints, "all frames", |[a, b]| {
        a.recorder.frame_count(there) == SIZES.len() && b.recorder.frame_count(back) == SIZES.len()
    });
    let [a, b] = endpoints;
    assert!(b.recorder.payloads_of(back) == to, "other payloads than were sent");
    assert!(a.recorder.payloads_of(there) == fro, "other payloads than were sent");
    for event in [a.recorder.events_of(there), b.recorder.events_of(back)].concat() {
        if let Event::Frame(header, payload) = event {
            assert_eq!(*header, message_header(payload.len()));
        }
    }
}

/// Headers of every form arrive unchanged, with any numbers in them.
pub fn header_of_each_form_arrives_unchanged<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let with_payload =
        |header: Header| (header, pseudo_random_payload(header.payload_len_bytes() as usize, 7));
    let frames: Vec<(Header, Vec<u8>)> = headers::sample_headers().into_iter().map(with_payload).collect();
    for (header, payload) in &frames {
        endpoints[0].post_frame(link, *header, payload.clone());
    }
    drive_until(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == frames.len());
    let events = endpoints[1].recorder.events_of(peer).into_iter().skip(1);
    for (event, (header, payload)) in events.zip(frames) {
        assert_eq!(*event, Event::Frame(header, payload));
    }
}

/// A link with room takes any payload by [`send_inline`](Transport::send_inline), up to and including the
/// length [`inline_max_bytes`](homespun_engine::transport::LinkCaps::inline_max_bytes).
pub fn send_inline_takes_payload_up_to_its_limit<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let limit_bytes = endpoints[0].transport.caps(link).inline_max_bytes;
    let sizes = [0, 1, limit_bytes / 2, limit_bytes.saturating_sub(1), limit_bytes];
    for (count, len_bytes) in sizes.into_iter().enumerate() {
        let bytes = pseudo_random_payload(len_bytes, 1);
        let deadline = backend.deadline_from_now();
        while endpoints[0].transport.send_inline(link, &message_header(len_bytes), &bytes).is_err() {
            endpoints[0].transport.flush();
            deadline.yield_or_panic("room on an idle link");
        }
        drive_until(&mut endpoints, "the frame", |[_, b]| b.recorder.frame_count(peer) == count + 1);
    }
    assert!(endpoints[1].recorder.payloads_of(peer) == sizes.map(|size| pseudo_random_payload(size, 1)));
}

/// Frames arrive if the caller [hands them over](Transport::hand_over) one by one, and then makes no
/// further call: it may compute or wait for something else.
pub fn frames_handed_over_arrive_without_further_calls<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let mut sent_frames = 0;
    for burst_frames in [2, 20] {
        for _ in 0..burst_frames {
            let deadline = backend.deadline_from_now();
            let bytes = pseudo_random_payload(40, sent_frames as u64);
            while endpoints[0].transport.send_inline(link, &message_header(40), &bytes).is_err() {
                // The link has room for fewer frames. Those that it has taken must leave.
                progress_all(&mut endpoints);
                deadline.yield_or_panic("room on the link");
            }
            endpoints[0].transport.hand_over();
            sent_frames += 1;
        }
        endpoints[1].drive_until("the frames", |b| b.recorder.frame_count(peer) == sent_frames);
    }
}

/// Thousands of small frames arrive in order.
pub fn many_small_frames_arrive_in_order<P: Provider>(backend: Backend<'_, P>) {
    const FRAMES: usize = 5000;
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let len_bytes = |n: usize| n * 7 % 61;
    for n in 0..FRAMES {
        endpoints[0].post(link, pseudo_random_payload(len_bytes(n), n as u64));
        endpoints[1].post(peer, pseudo_random_payload(len_bytes(n), !(n as u64)));
    }
    drive_until(&mut endpoints, "all frames", |[a, b]| {
        // The length of the log is cheap; counting frames after every pass is not.
        [a, b].iter().all(|endpoint| endpoint.recorder.log().len() == 1 + FRAMES)
    });
    for (endpoint, link, inverted) in [(&endpoints[0], link, u64::MAX), (&endpoints[1], peer, 0)] {
        for (n, bytes) in endpoint.recorder.payloads_of(link).into_iter().enumerate() {
            assert_eq!(bytes, pseudo_random_payload(len_bytes(n), n as u64 ^ inverted), "frame {n}");
        }
    }
}

/// A frame that is larger than usual buffers arrives whole: 5 MiB, or the provider's largest message if that
/// is smaller.
pub fn large_frame_arrives_whole<P: Provider>(backend: Backend<'_, P>) {
    let len_bytes = backend.clamp_frame_bytes(5 * 1024 * 1024 + 13);
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    endpoints[0].post(link, pseudo_random_payload(len_bytes, 1));
    drive_until(&mut endpoints, "the frame", |[_, b]| b.recorder.frame_count(peer) == 1);
    let is_intact = endpoints[1].recorder.payloads_of(peer) == [pseudo_random_payload(len_bytes, 1)];
    assert!(is_intact, "other bytes than were sent");
}

/// The caller may send a frame as soon as [`connect`](Transport::connect) has returned. If the link refuses
/// the frame, a later send succeeds. The peer reports the link as up before the first frame.
pub fn frame_sent_before_link_up_arrives_after_it<P: Provider>(backend: Backend<'_, P>) {
    let mut endpoints = [backend.open_endpoint(11), backend.open_endpoint(22)];
    let link = endpoints[0].connect(endpoints[1].address());
    endpoints[0].post(link, pseudo_random_payload(5000, 1));
    endpoints[0].transmit();
    drive_until(&mut endpoints, "the frame", |[_, b]| b.recorder.log().len() == 2);
    let [a, b] = endpoints;
    let events: Vec<&Event> = b.recorder.log().iter().map(|(_, event)| event).collect();
    let frame = Event::Frame(message_header(5000), pseudo_random_payload(5000, 1));
    assert_eq!(events, [&Event::Up(a.address(), 11), &frame]);
}

/// Once a link with room has taken and flushed a frame, the frame arrives without further calls of the
/// sender.
pub fn flushed_frame_arrives_without_further_calls_of_the_sender<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    for round in 1..=20 {
        a.post(link, pseudo_random_payload(10 * round, 1));
        let deadline = backend.deadline_from_now();
        while !a.has_sent_all() {
            a.receive(BUDGET_FRAMES);
            a.transmit();
            deadline.yield_or_panic("room on an idle link");
        }
        b.drive_until("the frame", |b| b.recorder.frame_count(peer) == round);
    }
    assert_eq!((a.receive(BUDGET_FRAMES), b.recorder.down_error(peer)), (0, None));
}

/// The caller may move a transport between threads. Two threads may call two transports at the same time.
pub fn transport_moved_to_another_thread_works<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    for size in SIZES {
        a.post(link, pseudo_random_payload(size, 1));
        b.post(peer, pseudo_random_payload(size, 2));
    }
    // Each side continues until both sides have all frames: a transport may need further calls to send a
    // frame that it has taken.
    let finished = AtomicUsize::new(0);
    let run = |endpoint: &mut TestEndpoint<P::Transport>| {
        let deadline = backend.deadline_from_now();
        let mut has_all = false;
        while finished.load(Ordering::Relaxed) < 2 {
            endpoint.make_progress();
            if !has_all && endpoint.has_sent_all() && endpoint.recorder.log().len() == 1 + SIZES.len() {
                has_all = true;
                finished.fetch_add(1, Ordering::Relaxed);
            }
            deadline.yield_or_panic("all frames");
        }
    };
    thread::scope(|scope| {
        for endpoint in [&mut a, &mut b] {
            scope.spawn(|| run(endpoint));
        }
    });
    assert!(a.recorder.payloads_of(link) == SIZES.map(|size| pseudo_random_payload(size, 2)));
    assert!(b.recorder.payloads_of(peer) == SIZES.map(|size| pseudo_random_payload(size, 1)));
    a.post(link, pseudo_random_payload(33, 1));
    drive_until(&mut [a, b], "a frame, in the first thread again", |[_, b]| {
        b.recorder.frame_count(peer) == SIZES.len() + 1
    });
}
