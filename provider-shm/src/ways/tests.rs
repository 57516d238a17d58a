use std::sync::Arc;
use std::sync::atomic::Ordering;

use homespun_engine::address::AddressFormat;

use super::*;
use crate::clock::ManualTime;
use crate::limits::CROWDING_SAMPLE_NS;

fn make_ways(clock: Clock, can_write_back: bool, can_pull: bool) -> Ways {
    Ways::new(AddressFormat::SockaddrIn.wildcard(), clock, can_write_back, can_pull)
}

const LEN_BYTES: u64 = 64 << 10;

/// The class of [`LEN_BYTES`].
const CLASS: usize = 1;

/// A link whose ways have fixed costs, and a sender that follows the receiver's choice.
struct Simulation {
    ways: Ways,
    time: Arc<ManualTime>,
    /// The time that a transfer takes on each way.
    costs_ns: [u64; WAYS],
    /// How many transfers took each way.
    transfers: [u32; WAYS],
}

impl Simulation {
    fn new(costs_ns: [u64; WAYS]) -> Simulation {
        let time = Arc::new(ManualTime::default());
        let ways = make_ways(Clock::Manual(time.clone()), true, true);
        Simulation { ways, time, costs_ns, transfers: [0; WAYS] }
    }

    fn pass_time(&self, way: Way) {
        self.time.now_ns.fetch_add(self.costs_ns[way as usize], Ordering::Relaxed);
    }

    fn transfer(&mut self) {
        if self.ways.pulled_classes() >> CLASS & 1 != 0 {
            self.pull();
        } else {
            self.receive_frame();
        }
    }

    fn pull(&mut self) {
        let (time, cost_ns) = (self.time.clone(), self.costs_ns[Way::Pull as usize]);
        let pull = || _ = time.now_ns.fetch_add(cost_ns, Ordering::Relaxed);
        self.ways.time_pull(LEN_BYTES, |()| true, pull);
        self.transfers[Way::Pull as usize] += 1;
    }

    fn receive_frame(&mut self) {
        let way = self.receive_frame_of(LEN_BYTES);
        self.transfers[way as usize] += 1;
    }

    fn receive_frame_of(&mut self, len_bytes: u64) -> Way {
        let writes_back = self.ways.frame_begun(len_bytes, false);
        let way = if writes_back { Way::WrittenBackRing } else { Way::Ring };
        self.pass_time(way);
        self.ways.frame_ended();
        way
    }

    /// Makes transfers, and returns how many took each way.
    fn transfer_repeatedly(&mut self, count: u32) -> [u32; WAYS] {
        self.transfers = [0; WAYS];
        for _ in 0..count {
            self.transfer();
        }
        self.transfers
    }

    fn best(&self) -> Way {
        self.ways.classes[CLASS].best
    }
}

#[test]
fn fastest_way_is_best_after_some_transfers() {
    for (costs_ns, fastest) in [
        ([4_000, 8_000, 6_000], Way::WrittenBackRing),
        ([8_000, 4_000, 6_000], Way::Ring),
        ([8_000, 9_000, 6_000], Way::Pull),
    ] {
        let mut simulation = Simulation::new(costs_ns);
        simulation.transfer_repeatedly(200);
        assert_eq!(simulation.best(), fastest, "{costs_ns:?}");
        assert_eq!(simulation.ways.pulled_classes() >> CLASS & 1 != 0, fastest == Way::Pull);
    }
}

#[test]
fn slower_ways_are_tried_seldom() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    simulation.transfer_repeatedly(20_000);
    let transfers = simulation.transfer_repeatedly(10_000);
    assert!(transfers[Way::Pull as usize] > 0 && transfers[Way::Ring as usize] > 0, "{transfers:?}");
    assert!(transfers[Way::WrittenBackRing as usize] > 9_900, "{transfers:?}");
}

#[test]
fn best_way_that_becomes_slow_is_left_at_once() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    simulation.transfer_repeatedly(500);
    simulation.costs_ns = [20_000, 30_000, 6_000];
    simulation.transfer_repeatedly(SAMPLES as u32 * TRANSFERS_PER_SAMPLE * 4);
    assert_eq!(simulation.best(), Way::Pull);
    simulation.costs_ns = [4_000, 8_000, 6_000];
    simulation.transfer_repeatedly(2 * TRIAL_MAX_TRANSFERS);
    assert_eq!(simulation.best(), Way::WrittenBackRing, "the trials of the slow time do not count for ever");
}

#[test]
fn single_delay_changes_nothing() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    simulation.transfer_repeatedly(500);
    for _ in 0..100 {
        simulation.costs_ns[Way::WrittenBackRing as usize] = 1_000_000;
        simulation.transfer();
        simulation.costs_ns[Way::WrittenBackRing as usize] = 4_000;
        simulation.transfer_repeatedly(2 * TRANSFERS_PER_SAMPLE);
        assert_eq!(simulation.best(), Way::WrittenBackRing);
    }
}

#[test]
fn trial_ends_if_the_sender_does_not_expose() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    let mut tries = 0;
    for _ in 0..20_000 {
        tries += u32::from(simulation.ways.classes[CLASS].present_way() == Way::Pull);
        simulation.receive_frame();
    }
    assert!(tries > 0 && simulation.best() == Way::WrittenBackRing);
    assert!(tries <= 8 * TRIAL_PATIENCE_TRANSFERS, "{tries}");
}

#[test]
fn crowded_processor_pulls_although_the_ring_is_faster() {
    let mut simulation = Simulation::new([10_000, 20_000, 30_000]);
    simulation.transfer_repeatedly(1000);
    let transfer_for_long = |simulation: &mut Simulation, switches| {
        for _ in 0..10 {
            simulation.time.forced_switches.fetch_add(switches, Ordering::Relaxed);
            simulation.time.now_ns.fetch_add(CROWDING_SAMPLE_NS, Ordering::Relaxed);
            simulation.transfer_repeatedly(TRANSFERS_PER_SAMPLE);
        }
    };
    transfer_for_long(&mut simulation, 5);
    assert_eq!(simulation.transfer_repeatedly(100)[Way::Pull as usize], 100);
    assert_eq!((simulation.best(), simulation.ways.pulled_classes()), (Way::WrittenBackRing, 0b11110));
    transfer_for_long(&mut simulation, 0);
    assert!(simulation.transfer_repeatedly(100)[Way::WrittenBackRing as usize] > 80);

    transfer_for_long(&mut simulation, 5);
    simulation.ways.pull_refused();
    assert_eq!(simulation.transfer_repeatedly(100)[Way::Pull as usize], 0, "it is not possible");
}

#[test]
fn refused_pull_is_not_tried_again() {
    let mut simulation = Simulation::new([8_000, 9_000, 6_000]);
    simulation.transfer_repeatedly(500);
    assert_eq!(simulation.best(), Way::Pull);
    simulation.ways.pull_refused();
    assert_eq!(simulation.ways.take_changed_pulled_classes(), Some(READS_NOTHING));
    assert_eq!(simulation.transfer_repeatedly(20_000)[Way::Pull as usize], 0);
}

#[test]
fn wait_for_asked_payload_counts() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    for _ in 0..200 {
        if simulation.ways.pulled_classes() >> CLASS & 1 != 0 {
            simulation.pull();
            continue;
        }
        simulation.ways.payload_asked();
        simulation.time.now_ns.fetch_add(50_000, Ordering::Relaxed);
        simulation.ways.frame_begun(LEN_BYTES, true);
        simulation.pass_time(Way::WrittenBackRing);
        simulation.ways.frame_ended();
    }
    assert_eq!(simulation.best(), Way::Pull, "the sender was late each time");
}

#[test]
fn time_of_short_asked_payload_does_not_count_for_the_next() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    for _ in 0..200 {
        simulation.ways.payload_asked();
        simulation.ways.short_payload_arrived();
        simulation.time.now_ns.fetch_add(1_000_000, Ordering::Relaxed);
        if simulation.ways.pulled_classes() >> CLASS & 1 != 0 {
            simulation.pull();
            continue;
        }
        simulation.ways.frame_begun(LEN_BYTES, true);
        simulation.pass_time(Way::WrittenBackRing);
        simulation.ways.frame_ended();
    }
    assert_eq!(simulation.best(), Way::WrittenBackRing, "the ring takes 4 us");
}

#[test]
fn unexpected_payload_is_not_timed() {
    let mut simulation = Simulation::new([4_000, 8_000, 6_000]);
    for _ in 0..200 {
        simulation.ways.frame_begun(LEN_BYTES, false);
        simulation.ways.payload_unplaced();
        simulation.pass_time(Way::Ring);
        simulation.ways.frame_ended();
    }
    assert_eq!(simulation.ways.classes[CLASS].ways[Way::WrittenBackRing as usize].cost_ns, None);
}

#[test]
fn short_payload_is_written_back_only_where_that_was_measured_to_be_faster() {
    for (costs_ns, fastest) in
        [([4_000, 8_000, 60_000], Way::WrittenBackRing), ([8_000, 4_000, 60_000], Way::Ring)]
    {
        let mut simulation = Simulation::new(costs_ns);
        assert_eq!(simulation.receive_frame_of(2_000), Way::Ring, "nothing was measured");
        for _ in 0..1_000 {
            simulation.receive_frame_of(20_000);
        }
        assert_eq!(simulation.receive_frame_of(2_000), fastest);
    }
}

#[test]
fn ways_of_a_processor_without_write_back_never_write_back() {
    let mut ways = make_ways(Clock::system(), false, true);
    for len_bytes in [5_000, 64 << 10, 1 << 20, 64 << 20] {
        for _ in 0..1000 {
            assert!(!ways.frame_begun(len_bytes, false));
            ways.frame_ended();
        }
    }
}
