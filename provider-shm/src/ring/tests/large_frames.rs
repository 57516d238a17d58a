use homespun_engine::address::AddressFormat;

use super::*;
use crate::clock::Clock;
use crate::limits::{PULL_MIN_BYTES, RING_MAX_BYTES};

#[test]
fn producer_learns_whether_the_consumer_maps_memory() {
    let (producer, mut consumer) = make_ring();
    let peer = AddressFormat::SockaddrIn.wildcard();
    *consumer.ways_mut() = Ways::new(peer, Clock::system(), true, true);
    assert!(producer.is_mapped_memory_pulled());
    consumer.ways_mut().pull_refused();
    consumer.publish_pulled_classes_if_changed();
    assert!(producer.is_mapped_memory_pulled(), "mapping is not reading");
    consumer.ways_mut().mapping_failed();
    consumer.publish_pulled_classes_if_changed();
    assert!(!producer.is_mapped_memory_pulled());
}

#[test]
fn consumer_learns_that_memory_is_no_longer_exposed() {
    let (producer, consumer) = make_ring();
    assert!(!consumer.has_exposure_ended());
    drop(producer);
    assert!(consumer.has_exposure_ended());
}

#[test]
fn producer_learns_for_which_lengths_the_consumer_pulls() {
    let (producer, mut consumer) = make_ring();
    let lengths = [PULL_MIN_BYTES, 4 * PULL_MIN_BYTES, RING_MAX_BYTES, RING_MAX_BYTES + 1];
    let pulled = |producer: &Producer| lengths.map(|len_bytes| producer.is_pulled(len_bytes as u64));
    assert_eq!(pulled(&producer), [false, false, false, true], "nothing was measured yet");
    producer.segment().pulled_classes().store(0b10, Ordering::Relaxed);
    assert_eq!(pulled(&producer), [false, true, false, true]);
    producer.segment().pulled_classes().store(u32::MAX, Ordering::Relaxed);
    assert!(!producer.is_pulled(PULL_MIN_BYTES as u64 - 1));
    consumer.ways_mut().pull_refused();
    consumer.publish_pulled_classes_if_changed();
    assert_eq!(pulled(&producer), [false; 4], "the consumer cannot read the producer's memory");
}

#[test]
fn large_frames_arrive_by_either_way_to_read_the_ring() {
    for can_write_back in [false, true] {
        let (mut producer, mut consumer) = make_ring();
        let peer = AddressFormat::SockaddrIn.wildcard();
        *consumer.ways_mut() = Ways::new(peer, Clock::system(), can_write_back, false);
        let mut sender = Sender::default();
        for salt in 0..100 {
            let len_bytes = PULL_MIN_BYTES + 999 * salt;
            let header = make_message(len_bytes, None, None);
            sender.frames.push_back((header, make_payload(len_bytes, salt)));
        }
        let expected: Vec<_> = sender.frames.iter().cloned().collect();
        let mut recorder = Recorder::default();
        for _ in 0..ROUNDS_MAX {
            if recorder.frames.len() == expected.len() {
                break;
            }
            sender.send_until_full(&mut producer, usize::MAX);
            consumer.receive(LINK, u32::MAX, &mut recorder).unwrap();
        }
        assert!(recorder.frames == expected, "another payload arrived");
    }
}
