//! Tests of which operations are counted, whether or not they are reported.

use std::sync::Mutex;

use super::*;

/// Removes and returns the events that were counted since the last call.
fn take_counted(sink: &mut Recorder) -> Vec<(CounterEvents, bool)> {
    std::mem::take(&mut sink.counted)
}

/// A counter that records the events of a region.
#[derive(Default)]
struct Events(Mutex<Vec<CounterEvents>>);

impl CountAccess for Events {
    fn count(&self, event: CounterEvents) {
        self.0.lock().unwrap().push(event);
    }
}

impl Events {
    fn take(&self) -> Vec<CounterEvents> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn rma_header(op: u64, key: u64, len_bytes: u64, kind: RmaKind) -> Header {
    Header::Rma(Rma { op, key, address: 0, len_bytes, kind, durable: Durable::Nothing })
}

#[test]
fn remote_access_counts_for_endpoint_and_region() {
    let (mut node, _) = engine_with_peer();
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let attr = RegionAttr { key: KEY, access, base_address: 0 };
    let mut memory = vec![0; 10];
    let region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
    let events = Arc::new(Events::default());
    let counter: Arc<dyn CountAccess> = events.clone();
    region.bind_counter(CounterEvents::OF_REGION, &counter).unwrap();
    for event in [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE] {
        assert!(matches!(region.bind_counter(event, &counter), Err(Misuse::Busy(_))));
    }
    node.transport.memory = b"pulled".into();
    let write = RmaKind::Write { data: None };
    let offer = RmaKind::Offer { data: Some(9), remote_bytes: REMOTE.len() as u8 };
    let cases = [
        (rma_header(1, KEY, 4, write), &b"4444"[..], CounterEvents::REMOTE_WRITE),
        (rma_header(2, KEY, 6, offer), REMOTE, CounterEvents::REMOTE_WRITE),
        (rma_header(3, KEY, 6, RmaKind::Read), b"", CounterEvents::REMOTE_READ),
        (rma_header(4, KEY, 0, RmaKind::Read), b"", CounterEvents::REMOTE_READ),
    ];
    for tells in [true, false] {
        node.engine.target.set_counts_accesses(tells);
        for (header, payload, event) in &cases {
            node.pass_with_frame(LINK, header, payload);
            let expected = if tells { vec![*event] } else { vec![] };
            assert_eq!(events.take(), expected);
            let expected: Vec<_> = expected.into_iter().map(|event| (event, true)).collect();
            assert_eq!(take_counted(&mut node.sink), expected);
        }
    }
    // A read is counted when all its data is sent. A refused read is never counted.
    node.engine.target.set_counts_accesses(true);
    node.transport.answers = [Sent::Partial(3), Sent::Full].into();
    node.pass_with_frame(LINK, &rma_header(5, KEY, 6, RmaKind::Read), b"");
    assert_eq!(events.take(), []);
    node.transmit();
    node.transmit();
    assert_eq!(events.take(), [CounterEvents::REMOTE_READ]);
    let refused =
        [rma_header(6, 1, 4, write), rma_header(7, KEY, 40, write), rma_header(8, KEY, 11, RmaKind::Read)];
    for header in refused {
        node.frame(LINK, &header, &vec![0; header.payload_len_bytes() as usize]);
        node.transmit();
    }
    assert_eq!(events.take(), []);
    assert_eq!(take_counted(&mut node.sink), [(CounterEvents::REMOTE_READ, true)]);
    node.engine.target.regions().close(&region);
}

#[test]
fn remote_atomic_counts_once_per_region_counter() {
    let (mut node, _) = engine_with_peer();
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let attrs = [KEY, KEY + 1].map(|key| RegionAttr { key, access, base_address: 0 });
    let [shared, apart] =
        attrs.map(|attr| node.engine.target.regions().add(Region::owned(8, attr).unwrap()).unwrap());
    let events = [(); 3].map(|()| Arc::new(Events::default()));
    let [both, reads, writes] = events.each_ref().map(|events| -> Arc<dyn CountAccess> { events.clone() });
    shared.bind_counter(CounterEvents::OF_REGION, &both).unwrap();
    apart.bind_counter(CounterEvents::REMOTE_READ, &reads).unwrap();
    apart.bind_counter(CounterEvents::REMOTE_WRITE, &writes).unwrap();
    let [read, write] = [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE];
    // Each case has the events that the endpoint counts, and the events that the region's counters
    // count.
    for (op, (kind, what, of_endpoint, of_region)) in (1..).zip([
        (AtomicKind::Base, AtomicOp::Sum, write, write),
        (AtomicKind::Fetch, AtomicOp::Sum, read, read | write),
        (AtomicKind::Fetch, AtomicOp::Read, read, read),
        (AtomicKind::Compare, AtomicOp::Cswap, read, read | write),
    ]) {
        let form = AtomicForm::new(kind, what, Datatype::Uint64, 1).unwrap();
        for key in [KEY, KEY + 1] {
            let header = Header::Atomic(Atomic { op, key, address: 0, form });
            let payload = vec![1; header.payload_len_bytes() as usize];
            node.frame(LINK, &header, &payload);
            assert_eq!(take_counted(&mut node.sink), [(of_endpoint, true)], "{kind} {what:?}");
        }
        let [both, reads, writes] = events.each_ref().map(|events| events.take().len());
        let expected = (1, usize::from(of_region.contains(read)), usize::from(of_region.contains(write)));
        assert_eq!((both, reads, writes), expected, "{kind} {what:?}");
    }
}
