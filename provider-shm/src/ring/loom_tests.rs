//! Loom models of the ring. Loom runs all interleavings of the ring's two sides, up to a given number of
//! preemptions.

use std::io::IoSlice;

use homespun_engine::transport::Sent;
use homespun_engine::wire::{Durable, Header, Message, Rma, RmaKind};
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::recorder::{LINK, Recorder};
use super::*;
use crate::segment::Segment;
use crate::ways::Ways;

/// The largest number of preemptions in an interleaving. Known bugs of similar algorithms need only two.
const PREEMPTIONS_MAX: usize = 3;

fn check_interleavings(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(test);
}

fn make_ring() -> (Producer, Consumer) {
    let segment = Segment::modelled();
    (Producer::new(segment.clone()), Consumer::new(segment, Ways::ring_only()))
}

fn make_message(len_bytes: usize) -> Header {
    Header::Message(Message::of_len(len_bytes as u64))
}

/// A model of an eventfd. A `wait` after a `ring` returns at once. If no thread ever calls `ring`, loom
/// reports that `wait` is a deadlock.
#[derive(Clone)]
struct Doorbell(Arc<(Mutex<bool>, loom::sync::Condvar)>);

impl Doorbell {
    fn new() -> Doorbell {
        Doorbell(Arc::new((Mutex::new(false), loom::sync::Condvar::new())))
    }

    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut has_rung = self.0.0.lock().unwrap();
        while !*has_rung {
            has_rung = self.0.1.wait(has_rung).unwrap();
        }
        *has_rung = false;
    }
}

/// Sends frames of one byte, and waits for room when the ring is full.
fn send_bytes(mut producer: Producer, count: u8, bells: &[Doorbell; 2]) {
    let [news, room] = bells;
    for byte in 0..count {
        while producer.send_inline(&make_message(1), &[byte]).is_err() {
            if producer.request_room_if_full() {
                room.wait();
            }
        }
        if producer.take_wake_request() {
            news.ring();
        }
    }
}

/// Receives `count` frames, and sleeps when the ring is empty.
fn receive_frames(mut consumer: Consumer, count: usize, bells: &[Doorbell; 2]) -> Recorder {
    let [news, room] = bells;
    let mut recorder = Recorder::default();
    while recorder.frames.len() < count {
        if consumer.receive(LINK, u32::MAX, &mut recorder).unwrap() == 0
            && consumer.request_wake_if_empty().unwrap()
        {
            news.wait();
            consumer.cancel_wake_request();
        }
        if consumer.take_room_request() {
            room.ring();
        }
    }
    recorder
}

#[test]
fn inline_frames_arrive_in_order() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        let sender = thread::spawn(move || {
            producer.send_inline(&make_message(1), &[1]).unwrap();
            producer.send_inline(&make_message(9), &[2; 9]).unwrap();
        });
        let mut recorder = Recorder::default();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        let all = [(make_message(1), vec![1]), (make_message(9), vec![2; 9])];
        assert_eq!(recorder.frames, all[..recorder.frames.len()], "not the first frames that were sent");
        sender.join().unwrap();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        assert_eq!(recorder.frames, all);
    });
}

#[test]
fn payload_in_the_front_area_arrives_whole_in_every_lap() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        // The words of this header leave no room for the payload in the line.
        let write = |op| {
            let (kind, durable) = (RmaKind::Write { data: Some(1) }, Durable::Nothing);
            Header::Rma(Rma { op, key: 2, address: 3, len_bytes: 25, kind, durable })
        };
        let frame = move |op: u8| (write(op.into()), vec![op; 25]);
        let sender = thread::spawn(move || {
            // The second payload begins behind the first, and wraps around.
            (0..2).find(|&op| {
                let (header, payload) = frame(op);
                let mut tries = (0..2).map(|_| producer.send(&header, &[IoSlice::new(&payload)]));
                tries.find(|sent| *sent != Sent::Full) != Some(Sent::Whole)
            })
        });
        let mut recorder = Recorder::default();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        let unsent = sender.join().unwrap();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        let sent: Vec<_> = (0..unsent.unwrap_or(2)).map(frame).collect();
        assert_eq!(recorder.frames, sent);
    });
}

#[test]
fn payload_in_the_data_area_arrives_whole() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        let header = Header::Data { op: 1, len_bytes: 50 };
        let sender = thread::spawn(move || {
            let payload: Vec<u8> = (0..50).collect();
            let mut rest = payload.as_slice();
            let mut sent = producer.send(&header, &[IoSlice::new(rest)]);
            // The producer tries a few times and then stops. All bytes that the ring has taken must still
            // arrive.
            for _ in 0..2 {
                match sent {
                    Sent::Whole => break,
                    Sent::Partial(count_bytes) => rest = &rest[count_bytes..],
                    Sent::Full => thread::yield_now(),
                }
                sent = producer.resume(&[IoSlice::new(rest)]);
            }
            if let Sent::Partial(count_bytes) = sent {
                rest = &rest[count_bytes..];
            }
            if sent == Sent::Whole { 50 } else { 50 - rest.len() }
        });
        let mut recorder = Recorder::default();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        let sent_bytes = sender.join().unwrap();
        consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        let arrived: Vec<u8> = (0..sent_bytes as u8).collect();
        assert_eq!(recorder.unfinished_payload(), arrived);
    });
}

/// The producer sends more frames than there are lines. It overwrites no unread line, and neither side
/// sleeps for ever.
#[test]
fn producer_and_consumer_miss_no_wakeup() {
    check_interleavings(|| {
        let (producer, consumer) = make_ring();
        let bells = [Doorbell::new(), Doorbell::new()];
        let count = LINES as u8 + 1;
        let sender = {
            let bells = bells.clone();
            thread::spawn(move || send_bytes(producer, count, &bells))
        };
        let recorder = receive_frames(consumer, count.into(), &bells);
        sender.join().unwrap();
        let payloads: Vec<u8> = recorder.frames.into_iter().flat_map(|(_, payload)| payload).collect();
        assert_eq!(payloads, (0..count).collect::<Vec<u8>>());
    });
}

#[test]
fn cold_consumer_sees_the_line_or_is_woken() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        let sender = thread::spawn(move || {
            producer.send_inline(&make_message(1), &[1]).unwrap();
            producer.take_wake_request()
        });
        let is_asleep = consumer.request_wake_if_empty().unwrap();
        let has_rung = sender.join().unwrap();
        assert!(!is_asleep || has_rung, "asleep, and there is something to read");
    });
}

#[test]
fn producer_without_room_sees_room_or_is_woken() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        while producer.send_inline(&make_message(1), &[1]).is_ok() {}
        let sender = thread::spawn(move || producer.request_room_if_full());
        consumer.receive(LINK, u32::MAX, &mut Recorder::default()).unwrap();
        let has_rung = consumer.take_room_request();
        let is_asleep = sender.join().unwrap();
        assert!(!is_asleep || has_rung, "asleep, and there is room");
    });
}

#[test]
fn ring_end_is_finished_after_the_last_frame() {
    check_interleavings(|| {
        let (mut producer, mut consumer) = make_ring();
        let is_gone = Arc::new(AtomicBool::new(false));
        let sender = {
            let is_gone = Arc::clone(&is_gone);
            thread::spawn(move || {
                producer.send_inline(&make_message(1), &[1]).unwrap();
                producer.finish();
                is_gone.store(true, Ordering::Release);
            })
        };
        if is_gone.load(Ordering::Acquire) {
            let mut recorder = Recorder::default();
            assert_eq!(consumer.receive(LINK, u32::MAX, &mut recorder), Ok(1));
            assert_eq!(consumer.ring_end(), RingEnd::Finished);
        }
        sender.join().unwrap();
    });
}
