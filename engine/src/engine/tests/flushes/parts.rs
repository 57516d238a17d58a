//! Tests of flushes that the target carries out in parts.

use super::*;

const OTHER_LINK: LinkId = LinkId(8);
const REGION_BYTES: usize = 3 * FLUSH_PASS_MAX_BYTES;
const PASS: usize = FLUSH_PASS_MAX_BYTES;

fn persistent_flush(op: u64, key: u64, place: usize, len_bytes: usize) -> Header {
    flush_header(op, key, place as u64, len_bytes as u64, Durable::Written)
}

/// Returns an engine with two peers, and a long persistent region with its device.
fn engine_with_long_region() -> (Node, Arc<Region>, Arc<Device>) {
    let (mut node, _) = engine_with_peer();
    node.link_up(OTHER_LINK, 3, 1);
    let (region, device) = add_persistent_region(&node, KEY, REGION_BYTES);
    (node, region, device)
}

/// Makes a pass. Returns what it has made durable.
fn make_pass(node: &mut Node, device: &Device) -> Vec<(usize, usize)> {
    node.transmit();
    device.take_persisted()
}

#[test]
fn links_take_turns_with_parts_of_flushes() {
    let (mut node, _region, device) = engine_with_long_region();
    let (_other, other_device) = add_persistent_region(&node, KEY + 1, REGION_BYTES);
    node.frame(LINK, &persistent_flush(1, KEY, 0, 3 * PASS), b"");
    node.frame(LINK, &persistent_flush(2, KEY, 0, 3 * PASS), b"");
    node.frame(OTHER_LINK, &persistent_flush(1, KEY + 1, 0, PASS + 1), b"");
    let mut parts = Vec::new();
    while node.has_work_without_arrivals() {
        node.transmit();
        let (ours, others) = (device.take_persisted(), other_device.take_persisted());
        parts.push((ours, others));
        // Writes are carried out and answered between the parts.
        let op = 100 + parts.len() as u64;
        let write = write_header(op, KEY, 0, 1, Durable::Nothing);
        node.frame(OTHER_LINK, &write, b"w");
    }
    node.transmit();
    let part = |number: usize| vec![(number * PASS, PASS)];
    let expected = [
        (part(0), vec![]),
        (vec![], part(0)),
        (part(1), vec![]),
        // The other peer's last byte leaves room for a part of another flush.
        (vec![(2 * PASS, PASS - FLUSH_PART_MIN_BYTES)], vec![(PASS, 1)]),
        (vec![(3 * PASS - FLUSH_PART_MIN_BYTES, FLUSH_PART_MIN_BYTES)], vec![]),
        (part(0), vec![]),
        (part(1), vec![]),
        (part(2), vec![]),
    ];
    assert_eq!(parts, expected);
    let answers = sent_answers(&node.transport);
    assert_eq!(answers.len(), 3 + parts.len());
    assert!(answers.iter().all(|(_, outcome)| *outcome == Outcome::Done));
}

#[test]
fn flushes_that_leave_little_of_each_pass_do_not_hold_others_up() {
    let (mut node, _region, device) = engine_with_long_region();
    let (_other, other_device) = add_persistent_region(&node, KEY + 1, REGION_BYTES);
    for op in 0..10 {
        node.frame(LINK, &persistent_flush(op, KEY, 0, PASS - 1), b"");
    }
    node.frame(OTHER_LINK, &persistent_flush(0, KEY + 1, 0, REGION_BYTES), b"");
    node.transmit_times(6);
    assert_eq!(device.take_persisted().len(), 3);
    let parts: Vec<_> = (0..3).map(|number| (number * PASS, PASS)).collect();
    assert_eq!(other_device.take_persisted(), parts);
}

#[test]
fn pass_makes_a_limited_number_of_parts_durable() {
    const LINKS: u32 = 200;
    let (mut node, _region, device) = engine_with_long_region();
    for link in 0..LINKS {
        let link = LinkId(10 + link);
        let port = u16::try_from(1000 + link.0).unwrap();
        node.link_up(link, port, 1);
        // The short flush waits for the long one.
        for (op, len_bytes) in [(1, FLUSH_AT_ONCE_MAX_BYTES + 1), (2, 1)] {
            node.frame(link, &persistent_flush(op, KEY, 0, len_bytes), b"");
        }
    }
    let mut passes = 0;
    while node.has_work_without_arrivals() {
        let parts = make_pass(&mut node, &device);
        assert!((1..=PASS / FLUSH_PART_MIN_BYTES).contains(&parts.len()), "{} parts", parts.len());
        assert!(parts.iter().map(|(_, len_bytes)| len_bytes).sum::<usize>() <= PASS);
        passes += 1;
    }
    assert_eq!(sent_answers(&node.transport).len(), 2 * LINKS as usize);
    assert!(passes >= 2 * LINKS as usize * FLUSH_PART_MIN_BYTES / PASS, "{passes} passes");
}

#[test]
fn persistent_flushes_of_a_link_end_in_the_order_of_arrival() {
    let (mut node, _region, device) = engine_with_long_region();
    node.frame(LINK, &persistent_flush(1, KEY, 0, PASS + 1), b"");
    node.frame(LINK, &persistent_flush(2, KEY, 7, 8), b"");
    node.frame(LINK, &persistent_flush(3, KEY, 0, 0), b"");
    // These need nothing of the device.
    node.frame(LINK, &flush_header(4, KEY, 0, 8, Durable::Nothing), b"");
    node.frame(LINK, &persistent_flush(5, KEY, 0, REGION_BYTES + 1), b"");
    // The short flush of another peer does not wait.
    node.frame(OTHER_LINK, &persistent_flush(6, KEY, 20, 4), b"");
    assert_eq!(device.take_persisted(), [(20, 4)]);
    let mut parts = Vec::new();
    while node.has_work_without_arrivals() {
        parts.extend(make_pass(&mut node, &device));
    }
    assert_eq!(parts, [(0, PASS), (PASS, 1), (7, 8)]);
    let refused = Outcome::Refused(Refusal::Range);
    let mut answers = sent_answers(&node.transport);
    answers.retain(|(op, _)| *op != 6);
    let expected = [4, 5, 1, 2, 3].map(|op| (op, if op == 5 { refused } else { Outcome::Done }));
    assert_eq!(answers, expected, "the others keep their order");
}

#[test]
fn flush_fails_if_one_of_its_parts_does() {
    let (mut node, _region, device) = engine_with_long_region();
    node.frame(LINK, &persistent_flush(1, KEY, 0, 3 * PASS), b"");
    node.frame(LINK, &persistent_flush(2, KEY, 0, 1), b"");
    assert_eq!(make_pass(&mut node, &device), [(0, PASS)]);
    device.set_broken(true);
    make_pass(&mut node, &device);
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::NotDurable)]);
    device.set_broken(false);
    assert_eq!(make_pass(&mut node, &device), []);
    assert_eq!(sent_answers(&node.transport), [1, 2].map(|op| (op, Outcome::NotDurable)));
    assert!(!node.has_work_without_arrivals());
}

#[test]
fn flush_of_a_region_that_closes_between_parts_is_refused() {
    let (mut node, region, device) = engine_with_long_region();
    node.frame(LINK, &persistent_flush(1, KEY, 0, 3 * PASS), b"");
    assert_eq!(make_pass(&mut node, &device), [(0, PASS)]);
    node.engine.target.regions().close(&region);
    assert_eq!(make_pass(&mut node, &device), []);
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::Refused(Refusal::Key))]);
    assert!(!node.has_work_without_arrivals());
}

#[test]
fn flush_of_an_ended_link_is_forgotten() {
    let (mut node, _region, device) = engine_with_long_region();
    node.frame(LINK, &persistent_flush(1, KEY, 0, 3 * PASS), b"");
    node.link_down(LINK, RESET);
    assert!(!node.has_work_without_arrivals());
    node.link_up(LINK, 2, 1);
    node.frame(LINK, &persistent_flush(1, KEY, 9, PASS), b"");
    assert_eq!(make_pass(&mut node, &device), [(9, PASS)]);
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::Done)]);
    assert!(!node.has_work_without_arrivals());
}
