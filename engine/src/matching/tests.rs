use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::model::{Model, Operation};
use super::*;

const A: PeerId = PeerId(0);

fn criteria_for_tag(tag: u64) -> Criteria {
    Criteria { source: None, tag, ignore: 0 }
}

#[test]
fn ignored_tag_bits_do_not_affect_matching() {
    let criteria = Criteria { source: None, tag: 0xff, ignore: 0x0f };
    assert!(criteria.accepts(A, 0xf0));
    assert!(!criteria.accepts(A, 0x0f));
}

/// The queues are so long that linear searches would make this test take minutes.
#[test]
fn many_exact_tags_match_in_reverse_order() {
    const COUNT: u64 = 100_000;
    let mut matching: Matching<u64, u64> = Matching::new();
    for tag in 0..COUNT {
        matching.add_posted(criteria_for_tag(tag), tag);
    }
    for tag in (0..COUNT).rev() {
        assert_eq!(matching.take_posted(A, tag), Some(tag));
    }
    for tag in 0..COUNT {
        matching.add_unexpected(A, tag, tag);
    }
    for tag in (0..COUNT).rev() {
        assert_eq!(matching.take_unexpected(&criteria_for_tag(tag)), Some(tag));
    }
    assert_eq!((matching.posted_len(), matching.unexpected_len()), (0, 0));
}

#[test]
fn drained_matching_keeps_no_entries() {
    let mut matching: Matching<u64, u64> = Matching::new();
    for round in 0..2 {
        // The queue is long enough for an index: a scan does not reach the first receive that
        // matches.
        for name in 0..100 {
            matching.add_posted(criteria_for_tag(name / 50), round * 100 + name);
            matching.add_unexpected(A, 2 + name / 50, round * 100 + name);
        }
        assert_eq!(matching.take_posted(A, 1), Some(round * 100 + 50));
        assert_eq!(matching.take_unexpected(&criteria_for_tag(3)), Some(round * 100 + 50));
        assert_eq!(matching.drain_posted().count(), 99);
        assert_eq!(matching.drain_unexpected().count(), 99);
    }
}

/// The habits of a program: which tags and masks it uses, and how often it does each operation.
#[derive(Debug, Clone)]
struct OperationMix {
    tags: u64,
    ignores: Vec<u64>,
    arrive_weight: u32,
    post_weight: u32,
    remove_weight: u32,
    /// How often a message is kept aside, and how often a receive is posted that cannot take a kept
    /// message.
    aside_weight: u32,
}

fn any_mix() -> impl Strategy<Value = OperationMix> {
    // The last list has more masks than the index keeps. With 60 tags, each bit of the masks
    // matters.
    let ignores = prop_oneof![
        Just(vec![0]),
        Just(vec![u64::MAX]),
        Just(vec![0, 0, 0, u64::MAX, 0x3]),
        Just((0..12).collect()),
    ];
    (select(vec![1, 3, 60]), ignores, 1..9_u32, 1..9_u32, 0..4_u32, 0..3_u32).prop_map(
        |(tags, ignores, arrive_weight, post_weight, remove_weight, aside_weight)| OperationMix {
            tags,
            ignores,
            arrive_weight,
            post_weight,
            remove_weight,
            aside_weight,
        },
    )
}

fn any_operation(mix: &OperationMix) -> impl Strategy<Value = Operation> + use<> {
    let OperationMix { tags, ignores, arrive_weight, post_weight, remove_weight, aside_weight } = mix.clone();
    let criteria = (option::of(0..4_usize), 0..tags, select(ignores));
    let envelope = (0..4_usize, 0..tags);
    prop_oneof![
        10 * arrive_weight => envelope.clone()
            .prop_map(|(source, tag)| Operation::Arrive { source, tag }),
        10 * post_weight => criteria.clone()
            .prop_map(|(source, tag, ignore)| Operation::Post { source, tag, ignore }),
        5 => criteria.clone().prop_map(|(source, tag, ignore)| Operation::Peek { source, tag, ignore }),
        10 * aside_weight => envelope.clone()
            .prop_map(|(source, tag)| Operation::KeepAside { source, tag }),
        10 * aside_weight => criteria
            .prop_map(|(source, tag, ignore)| Operation::PostBehind { source, tag, ignore }),
        5 => envelope.prop_map(|(source, tag)| Operation::PeekPosted { source, tag }),
        1 => (0..4_usize).prop_map(|source| Operation::PostedFor { source }),
        10 * remove_weight => prop_oneof![
            9 => any::<usize>().prop_map(|place| Operation::RemovePosted { place }),
            1 => (1..20_u32).prop_map(|divisor| Operation::RemoveManyPosted { divisor }),
        ],
        10 * remove_weight => any::<usize>().prop_map(|place| Operation::RemoveUnexpected { place }),
        1 => Just(Operation::RemoveAbsent),
    ]
}

fn any_program() -> impl Strategy<Value = Vec<Operation>> {
    // The mix of operations changes from time to time, so queues become long and short again.
    let phase = any_mix().prop_flat_map(|mix| vec(any_operation(&mix), 0..250));
    let end = select(vec![Operation::DrainPosted, Operation::DrainUnexpected, Operation::RemoveAbsent]);
    vec((phase, end), 1..4).prop_map(|phases| {
        phases.into_iter().flat_map(|(phase, end)| phase.into_iter().chain([end])).collect()
    })
}

proptest! {
    #[test]
    fn matching_agrees_with_the_model(program in any_program()) {
        let mut model = Model::new((0..4).map(PeerId).collect());
        for operation in program {
            model.apply_and_check(operation);
            model.check_order();
        }
    }
}

/// The name of a message. The test counts how often names are compared.
#[derive(Debug, Clone, Copy)]
struct CountingName(u32);

thread_local! {
    static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PartialEq for CountingName {
    fn eq(&self, other: &CountingName) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Eq for CountingName {}

#[test]
fn removal_of_many_messages_compares_each_once() {
    const COUNT: u32 = 10_000;
    // A peer chooses the order in which its messages end.
    let orders: [fn(u32) -> u32; 3] = [|at| at, |at| COUNT - 1 - at, |at| (at * 7919 + COUNT / 2) % COUNT];
    for order in orders {
        let mut matching: Matching<u32, CountingName> = Matching::new();
        let mut add = |name| matching.add_unexpected(A, 1, CountingName(name));
        let places: Vec<Place> = (0..COUNT).map(&mut add).collect();
        COMPARISONS.set(0);
        for name in (0..COUNT).map(order) {
            assert!(matching.remove_unexpected(places[name as usize], CountingName(name)));
        }
        assert_eq!((matching.unexpected_len(), COMPARISONS.get()), (0, COUNT as usize));
    }
}
