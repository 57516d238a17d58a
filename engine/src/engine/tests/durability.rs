//! Tests of durable writes, from both sides, with a device that records its flushes.

use std::sync::{Mutex, Weak};

use super::*;

/// A device that records the offset and length of each flush. If `broken`, flushes fail.
#[derive(Debug, Default)]
pub(super) struct Device {
    persisted: Mutex<Vec<(usize, usize)>>,
    broken: Mutex<bool>,
}

impl Persist for Arc<Device> {
    fn persist(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), Errno> {
        if *self.broken.lock().unwrap() {
            return Err(Errno::EIO);
        }
        self.persisted.lock().unwrap().push((offset_bytes, len_bytes));
        Ok(())
    }
}

impl Device {
    pub(super) fn take_persisted(&self) -> Vec<(usize, usize)> {
        std::mem::take(&mut *self.persisted.lock().unwrap())
    }

    pub(super) fn set_broken(&self, is_broken: bool) {
        *self.broken.lock().unwrap() = is_broken;
    }
}

/// Adds a persistent region of this length.
pub(super) fn add_persistent_region(node: &Node, key: u64, len_bytes: usize) -> (Arc<Region>, Arc<Device>) {
    let device = Arc::new(Device::default());
    let attr = RegionAttr { key, access: MrAccess::all(), base_address: 1000 };
    let region = Region::owned(len_bytes, attr).unwrap().with_persistence(Box::new(device.clone()));
    (node.add_region(Ok(region)), device)
}

fn sent_outcomes(transport: &Scripted) -> Vec<Outcome> {
    sent_answers(transport).into_iter().map(|(_, outcome)| outcome).collect()
}

pub(super) fn write_header(op: u64, key: u64, place: u64, len_bytes: u64, durable: Durable) -> Header {
    let kind = RmaKind::Write { data: None };
    Header::Rma(Rma { op, key, address: 1000 + place, len_bytes, kind, durable })
}

#[test]
fn unfenced_commit_flushes_its_own_bytes_after_the_last_and_before_its_answer() {
    let (mut node, _) = engine_with_peer();
    let (_region, device) = add_persistent_region(&node, KEY, 100);
    node.frame(LINK, &write_header(1, KEY, 0, 4, Durable::Nothing), b"abcd");
    node.frame_begun(LINK, &write_header(2, KEY, 20, 6, Durable::Written));
    node.payload_arrived(LINK, b"123");
    assert_eq!(device.take_persisted(), [], "not all of it is there");
    node.payload_arrived(LINK, b"456");
    assert_eq!((device.take_persisted(), sent_answers(&node.transport)), (vec![(20, 6)], vec![]));
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [1, 2].map(|op| (op, Outcome::Done)));
}

#[test]
fn unfenced_commit_of_an_offer_flushes_after_its_last_byte() {
    for pulled in [Pull::Done, Pull::Refused] {
        let (mut node, _) = engine_with_peer();
        let (_region, device) = add_persistent_region(&node, KEY, 100);
        node.transport.memory = b"hello".to_vec();
        node.transport.pulls = [pulled].into();
        let kind = RmaKind::Offer { data: Some(3), remote_bytes: REMOTE.len() as u8 };
        let offer = Rma { op: 5, key: KEY, address: 1007, len_bytes: 5, kind, durable: Durable::Written };
        node.frame(LINK, &Header::Rma(offer), REMOTE);
        assert_eq!(device.take_persisted(), []);
        node.transmit();
        if pulled == Pull::Refused {
            assert_eq!(device.take_persisted(), []);
            node.pass_with_frame(LINK, &Header::Data { op: 5, len_bytes: 5 }, b"hello");
        }
        assert_eq!(device.take_persisted(), [(7, 5)]);
        assert_eq!(sent_outcomes(&node.transport), [Outcome::Done]);
        assert_eq!(node.sink.ended.len(), 1, "the target is told");
    }
}

#[test]
fn fenced_commit_flushes_all_earlier_writes_of_its_peer() {
    let (mut node, _) = engine_with_peer();
    let other = LinkId(8);
    node.link_up(other, 3, 1);
    let (_first, first_device) = add_persistent_region(&node, 1, 100);
    let (_second, second_device) = add_persistent_region(&node, 2, 100);
    node.frame(LINK, &write_header(1, 1, 10, 2, Durable::Nothing), b"ab");
    node.frame(LINK, &write_header(2, 1, 50, 3, Durable::Nothing), b"abc");
    node.frame(LINK, &write_header(3, 2, 90, 0, Durable::Nothing), b"");
    node.frame(other, &write_header(1, 2, 70, 4, Durable::Nothing), b"abcd");
    node.frame(LINK, &write_header(4, 2, 0, 1, Durable::Everything), b"x");
    let persisted = [first_device.take_persisted(), second_device.take_persisted()];
    assert_eq!(persisted, [[(10, 43)], [(0, 1)]]);
    // A second fence flushes nothing again.
    node.frame(LINK, &write_header(5, 2, 0, 0, Durable::Everything), b"");
    assert_eq!((first_device.take_persisted(), second_device.take_persisted()), (vec![], vec![]));
    node.frame(other, &write_header(2, 1, 0, 0, Durable::Everything), b"");
    assert_eq!((first_device.take_persisted(), second_device.take_persisted()), (vec![], vec![(70, 4)]));
    node.transmit();
    assert!(sent_answers(&node.transport).iter().all(|(_, outcome)| *outcome == Outcome::Done));
}

/// A device that records the first bytes of a region at each flush.
#[derive(Default)]
struct Observer {
    region: Mutex<Weak<Region>>,
    seen: Mutex<Vec<Vec<u8>>>,
}

impl Persist for Arc<Observer> {
    fn persist(&self, _: usize, _: usize) -> Result<(), Errno> {
        let region = self.region.lock().unwrap().upgrade().expect("its region asks for it");
        self.seen.lock().unwrap().push(read_region(&region)[..4].to_vec());
        Ok(())
    }
}

#[test]
fn fenced_commit_flushes_earlier_writes_before_writing() {
    let offer = RmaKind::Offer { data: None, remote_bytes: REMOTE.len() as u8 };
    for way in ["whole", "in parts", "fetched"] {
        let (mut node, _) = engine_with_peer();
        node.transport.memory = b"late".to_vec();
        let observer = Arc::new(Observer::default());
        let attr = RegionAttr { key: KEY, access: MrAccess::all(), base_address: 1000 };
        let region = Region::owned(100, attr).unwrap().with_persistence(Box::new(observer.clone()));
        let region = node.add_region(Ok(region));
        *observer.region.lock().unwrap() = Arc::downgrade(&region);
        let fenced = write_header(2, KEY, 0, 4, Durable::Everything);
        node.frame(LINK, &write_header(1, KEY, 50, 4, Durable::Nothing), b"data");
        match (way, fenced) {
            ("whole", _) => node.frame(LINK, &fenced, b"late"),
            ("in parts", _) => {
                node.frame_begun(LINK, &fenced);
                node.payload_arrived(LINK, b"la");
                node.payload_arrived(LINK, b"te");
            }
            (_, Header::Rma(rma)) => node.frame(LINK, &Header::Rma(Rma { kind: offer, ..rma }), REMOTE),
            (_, other) => panic!("a write: {other:?}"),
        }
        node.transmit();
        assert_eq!(*observer.seen.lock().unwrap(), [vec![0; 4], b"late".to_vec()], "{way}");
        assert_eq!(sent_answers(&node.transport), [1, 2].map(|op| (op, Outcome::Done)));
    }
}

#[test]
fn fenced_write_is_dropped_if_earlier_flush_fails() {
    let (mut node, _) = engine_with_peer();
    let (_broken, device) = add_persistent_region(&node, 1, 100);
    let (sound, _device) = add_persistent_region(&node, 2, 100);
    device.set_broken(true);
    node.frame(LINK, &write_header(1, 1, 0, 4, Durable::Nothing), b"data");
    node.pass_with_frame(LINK, &write_header(2, 2, 0, 4, Durable::Everything), b"late");
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::Done), (2, Outcome::NotDurable)]);
    assert_eq!(read_region(&sound), [0; 100]);
}

#[test]
fn fenced_commit_flushes_writes_of_an_earlier_link() {
    let (mut node, _) = engine_with_peer();
    let (_region, device) = add_persistent_region(&node, KEY, 100);
    let next = LinkId(8);
    node.frame(LINK, &write_header(1, KEY, 10, 4, Durable::Nothing), b"data");
    node.link_down(LINK, LinkError::Closed);
    node.link_up(next, 2, 1);
    node.frame(next, &write_header(1, KEY, 0, 0, Durable::Everything), b"");
    assert_eq!(device.take_persisted(), [(10, 4)]);
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::Done)]);
    assert!(node.engine.target.unpersisted_len() == 0);
}

#[test]
fn failed_flush_is_answered_not_durable() {
    let (mut node, _) = engine_with_peer();
    let (failed, device) = add_persistent_region(&node, KEY, 100);
    device.set_broken(true);
    let with_data = |op, durable| {
        let kind = RmaKind::Write { data: Some(1) };
        Header::Rma(Rma { op, key: KEY, address: 1000, len_bytes: 1, kind, durable })
    };
    node.frame(LINK, &with_data(1, Durable::Written), b"a");
    node.frame(LINK, &write_header(2, KEY, 0, 1, Durable::Nothing), b"a");
    node.frame(LINK, &write_header(3, KEY, 5, 0, Durable::Everything), b"");
    // After a failed flush, the engine never flushes the region again. The system reports lost data
    // only once.
    device.set_broken(false);
    node.frame(LINK, &write_header(4, KEY, 5, 1, Durable::Written), b"a");
    node.frame(LINK, &write_header(5, KEY, 5, 0, Durable::Everything), b"");
    assert_eq!(device.take_persisted(), []);
    node.engine.target.regions().close(&failed);
    let (_anew, device) = add_persistent_region(&node, KEY, 100);
    node.frame(LINK, &write_header(6, KEY, 5, 1, Durable::Written), b"a");
    assert_eq!(device.take_persisted(), [(5, 1)]);
    node.frame(LINK, &write_header(7, KEY, 0, 0, Durable::Everything), b"");
    node.pass_with_frame(LINK, &write_header(8, KEY, 0, 0, Durable::Everything), b"");
    let [done, not] = [Outcome::Done, Outcome::NotDurable];
    assert_eq!(sent_outcomes(&node.transport), [not, done, not, not, not, done, not, done]);
    assert!(node.sink.ended.is_empty(), "the target is told of nothing that failed");
}

#[test]
fn closing_a_region_answers_its_unflushed_write_once_as_not_durable() {
    let (mut node, _) = engine_with_peer();
    let (_region, _device) = add_persistent_region(&node, KEY, 100);
    let (closed, _device) = add_persistent_region(&node, 2, 100);
    node.frame(LINK, &write_header(5, 2, 0, 1, Durable::Nothing), b"a");
    node.engine.target.regions().close(&closed);
    node.frame(LINK, &write_header(6, KEY, 0, 0, Durable::Everything), b"");
    node.frame(LINK, &write_header(7, KEY, 0, 0, Durable::Everything), b"");
    // The closed region is freed before the fence. The fence still fails, but only once.
    let (dropped, _device) = add_persistent_region(&node, 3, 100);
    let (_other, _device) = add_persistent_region(&node, 4, 100);
    node.frame(LINK, &write_header(8, 3, 0, 1, Durable::Nothing), b"a");
    node.engine.target.regions().close(&dropped);
    drop(dropped);
    node.frame(LINK, &write_header(9, 4, 0, 1, Durable::Nothing), b"a");
    node.frame(LINK, &write_header(10, KEY, 0, 0, Durable::Everything), b"");
    node.pass_with_frame(LINK, &write_header(11, KEY, 0, 0, Durable::Everything), b"");
    let [done, not] = [Outcome::Done, Outcome::NotDurable];
    assert_eq!(sent_outcomes(&node.transport), [done, not, done, done, done, not, done]);
}
