//! Tests of a target alone, without endpoint, link and engine.

use std::io::IoSliceMut;

use super::*;
use crate::completion::EndedOperation;
use crate::limits::MESSAGE_COST_BYTES;
use crate::link_fault::NoMemory;
use crate::receiver::{HeldCredit, WriteNotice};
use crate::region::{Region, RegionAttr};
use crate::transport::{Pull, RemotePayload};
use crate::wire::RmaKind;

const LINK: LinkId = LinkId(3);
const PEER: PeerId = PeerId(5);
const KEY: u64 = 77;
const REMOTE: &[u8] = b"over there";
const ALL: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);
const WRITE: RmaKind = RmaKind::Write { data: None };
const OFFER: RmaKind = RmaKind::Offer { data: None, remote_bytes: REMOTE.len() as u8 };

/// What the tests of engines need of a target.
impl Target {
    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    pub(crate) fn inbounds_len(&self) -> usize {
        self.inbounds.len()
    }

    pub(crate) fn fetches_len(&self) -> usize {
        self.fetches.len()
    }

    pub(crate) fn unpersisted_len(&self) -> usize {
        self.unpersisted.len()
    }

    /// Returns two counts for the link's peer: accesses without an answer, and result bytes of atomic
    /// operations that are not sent yet.
    pub(crate) fn unanswered_counts(&self, id: LinkId) -> (usize, usize) {
        self.links.get(id).map_or((0, 0), |link| (link.unanswered_ops, link.unanswered_bytes))
    }

    pub(crate) fn set_counts_accesses(&mut self, counts: bool) {
        self.counts_accesses = counts;
    }

    pub(crate) fn set_atomic_access(&mut self, atomics: MrAccess) {
        self.atomics = atomics;
    }

    pub(crate) fn set_pull_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.fetches.set_step_max_bytes(step_max_bytes);
    }
}

/// Records the effects. If `is_full`, has no room for completions.
#[derive(Debug, Default)]
struct EffectsRecorder {
    is_full: bool,
    completed: Vec<EndedOperation>,
    notices: Vec<WriteNotice>,
    counted: Vec<CounterEvents>,
    queued: Vec<Header>,
    written_counts: usize,
    reads: usize,
    returned_bytes: u64,
}

impl TargetEffects for EffectsRecorder {
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation> {
        if self.is_full {
            return Err(completion);
        }
        self.completed.push(completion);
        Ok(())
    }

    fn give_to_receive(&mut self, link: LinkId, notice: WriteNotice) -> Result<(), NoMemory> {
        assert_eq!(link, LINK);
        self.notices.push(notice);
        Ok(())
    }

    fn count(&mut self, events: CounterEvents) {
        self.counted.push(events);
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        assert_eq!(link, LINK);
        self.queued.push(header);
    }

    fn queue_written_count(&mut self, link: LinkId) {
        assert_eq!(link, LINK);
        self.written_counts += 1;
    }

    fn queue_read_data(&mut self, link: LinkId) {
        assert_eq!(link, LINK);
        self.reads += 1;
    }

    fn return_credit(&mut self, _: LinkId, cost_bytes: u64) {
        self.returned_bytes += cost_bytes;
    }

    fn hold_credit(&mut self, _: LinkId, _: u64) -> Option<HeldCredit> {
        None
    }

    fn return_held_credit(&mut self, _: HeldCredit) {}
}

/// Creates a target with a link, and with a region of this length.
fn target_with_region(len_bytes: usize) -> (Target, Arc<Region>, EffectsRecorder) {
    let mut target = Target::new(Arc::default(), ALL, ALL, Order::SAS, true);
    target.link_added(LINK, PEER);
    let attr = RegionAttr { key: KEY, access: ALL, base_address: 0 };
    let region = target.regions().add(Region::owned(len_bytes, attr).unwrap()).unwrap();
    (target, region, EffectsRecorder::default())
}

fn make_rma(op: u64, address: u64, len_bytes: u64, kind: RmaKind) -> Rma {
    Rma { op, key: KEY, address, len_bytes, kind, durable: Durable::Nothing }
}

fn answer_header(op: u64, outcome: Outcome) -> Header {
    Header::Answer { op, outcome }
}

fn read_region(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len_bytes()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn write_is_answered_when_it_is_in_its_region() {
    let (mut target, region, mut asked) = target_with_region(6);
    target.write_arrived(LINK, &make_rma(1, 1, 2, WRITE), b"ab", &mut asked).unwrap();
    target.begin_write(LINK, &make_rma(2, 3, 3, WRITE), &mut asked).unwrap();
    assert_eq!(asked.queued, [answer_header(1, Outcome::Done)]);
    assert!(target.is_write_arriving(LINK));
    target.put_payload(LINK, b"cd", &mut asked).unwrap();
    assert!(target.payload_space(LINK).is_empty(), "bytes are copied to memory of the region's own");
    target.put_payload(LINK, b"e", &mut asked).unwrap();
    assert!(!target.is_write_arriving(LINK));
    assert_eq!(asked.queued[1..], [answer_header(2, Outcome::Done)]);
    assert_eq!((read_region(&region), asked.counted.len()), (b"\0abcde".to_vec(), 2));
}

#[test]
fn offered_write_is_pulled() {
    let (mut target, region, mut asked) = target_with_region(10);
    target.set_pull_step_max_bytes(4);
    target.write_offered(LINK, &make_rma(1, 0, 10, OFFER), REMOTE, &mut asked).unwrap();
    assert!(target.write_offered(LINK, &make_rma(1, 0, 1, OFFER), REMOTE, &mut asked).is_err(), "again");
    let mut steps = 0;
    while target.is_pulling() {
        let pull = |_, remote: &RemotePayload, at_bytes: u64, into: &mut [IoSliceMut<'_>]| {
            assert_eq!(remote.as_bytes(), REMOTE);
            let at = at_bytes as usize;
            let len = into[0].len();
            into[0].copy_from_slice(&b"0123456789"[at..at + len]);
            Pull::Done
        };
        target.pull_payloads(pull, &mut asked).unwrap();
        steps += 1;
    }
    assert_eq!((steps, read_region(&region)), (3, b"0123456789".to_vec()));
    assert_eq!(asked.queued, [answer_header(1, Outcome::Done)]);
}

#[test]
fn end_of_a_link_ends_its_writes() {
    let (mut target, _region, mut asked) = target_with_region(10);
    target.begin_write(LINK, &make_rma(1, 0, 3, WRITE), &mut asked).unwrap();
    target.write_offered(LINK, &make_rma(2, 0, 5, OFFER), REMOTE, &mut asked).unwrap();
    assert_eq!((target.inbounds_len(), target.fetches_len()), (2, 1));
    target.link_ended(LINK);
    assert_eq!((target.inbounds_len(), target.fetches_len()), (0, 0));
    target.pull_payloads(|_, _, _, _| panic!("its peer is gone"), &mut asked).unwrap();
    assert!(asked.queued.is_empty());
}

#[test]
fn write_with_data_notifies_a_receive_if_receives_take_remote_data() {
    let (mut target, _, mut asked) = target_with_region(6);
    target.give_remote_data_to_receives();
    let write = |op, address, data| make_rma(op, address, 2, RmaKind::Write { data });
    target.write_arrived(LINK, &write(1, 1, Some(70)), b"ab", &mut asked).unwrap();
    target.write_arrived(LINK, &write(2, 1, None), b"ab", &mut asked).unwrap();
    assert_eq!(asked.notices, [WriteNotice { data: 70, len_bytes: 2 }]);
    assert!(asked.completed.is_empty() && asked.returned_bytes == 0, "the notice holds the credit");
    // A refused write gives no notice, and returns its credit.
    target.write_arrived(LINK, &write(3, 5, Some(71)), b"ab", &mut asked).unwrap();
    assert_eq!((asked.notices.len(), asked.returned_bytes), (1, MESSAGE_COST_BYTES));
}
