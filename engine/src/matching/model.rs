//! A model of matching as the man pages define it: two lists, searched from the front.

use super::{Criteria, Matching, PeerId, Place};

/// An operation on a [`Matching`]. `source` is taken modulo the number of peers, and `place` modulo
/// the length of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Arrive {
        source: usize,
        tag: u64,
    },
    Post {
        source: Option<usize>,
        tag: u64,
        ignore: u64,
    },
    Peek {
        source: Option<usize>,
        tag: u64,
        ignore: u64,
    },
    /// A message arrives and is kept aside, even if a posted receive accepts it.
    KeepAside {
        source: usize,
        tag: u64,
    },
    /// A receive is posted that takes none of the messages that were kept aside.
    PostBehind {
        source: Option<usize>,
        tag: u64,
        ignore: u64,
    },
    PeekPosted {
        source: usize,
        tag: u64,
    },
    PostedFor {
        source: usize,
    },
    RemovePosted {
        place: usize,
    },
    /// Removes all posted receives whose name is a multiple of `divisor`, which is not 0.
    RemoveManyPosted {
        divisor: u32,
    },
    RemoveUnexpected {
        place: usize,
    },
    RemoveAbsent,
    DrainPosted,
    DrainUnexpected,
}

/// An unexpected message.
#[derive(Debug)]
struct Waiting {
    source: PeerId,
    tag: u64,
    name: u32,
    /// Its place in the [`Matching`].
    place: Place,
}

/// Applies each operation to a [`Matching`] and to lists, and panics if the results differ.
#[derive(Debug)]
pub(crate) struct Model {
    peers: Vec<PeerId>,
    matching: Matching<u32, u32>,
    posted: Vec<(Criteria, u32)>,
    unexpected: Vec<Waiting>,
    /// The name of the next entry. No name is used twice, so the two queues never share a name.
    next_name: u32,
}

impl Model {
    pub(crate) fn new(peers: Vec<PeerId>) -> Model {
        Model { peers, matching: Matching::new(), posted: vec![], unexpected: vec![], next_name: 0 }
    }

    pub(crate) fn apply_and_check(&mut self, operation: Operation) {
        match operation {
            Operation::Arrive { source, tag } => self.arrive(self.peer_by_number(source), tag),
            Operation::Post { source, tag, ignore } => self.post(&self.build_criteria(source, tag, ignore)),
            Operation::Peek { source, tag, ignore } => {
                let criteria = self.build_criteria(source, tag, ignore);
                let expected = self.first_accepted_unexpected(&criteria).map(|at| self.unexpected[at].name);
                assert_eq!(self.matching.peek_unexpected(&criteria), expected);
            }
            Operation::KeepAside { source, tag } => self.add_unexpected(self.peer_by_number(source), tag),
            Operation::PostBehind { source, tag, ignore } => {
                self.add_posted(&self.build_criteria(source, tag, ignore));
            }
            Operation::PeekPosted { source, tag } => {
                let source = self.peer_by_number(source);
                let expected = self.first_accepting_posted(source, tag).map(|at| self.posted[at].1);
                assert_eq!(self.matching.peek_posted(source, tag), expected);
            }
            Operation::PostedFor { source } => {
                let source = self.peer_by_number(source);
                let matches = |(criteria, _): &&(Criteria, u32)| criteria.source == Some(source);
                let expected = self.posted.iter().filter(matches).map(|(_, name)| *name);
                assert!(self.matching.directed_posted(source).eq(expected));
            }
            Operation::RemovePosted { place } => {
                if let Some(at) = place.checked_rem(self.posted.len()) {
                    let (_, name) = self.posted.remove(at);
                    assert!(self.matching.remove_posted(name));
                    assert!(!self.matching.remove_posted(name));
                }
            }
            Operation::RemoveManyPosted { divisor } => {
                let is_multiple = |name: u32| name.is_multiple_of(divisor);
                let expected = self.posted.extract_if(.., |(_, name)| is_multiple(*name));
                let expected: Vec<u32> = expected.map(|(_, name)| name).collect();
                assert_eq!(self.matching.take_all_posted_where(is_multiple), expected);
            }
            Operation::RemoveUnexpected { place } => {
                if let Some(at) = place.checked_rem(self.unexpected.len()) {
                    let Waiting { name, place, .. } = self.unexpected.remove(at);
                    assert!(!self.matching.remove_unexpected(place, self.next_name));
                    assert!(self.matching.remove_unexpected(place, name));
                    assert!(!self.matching.remove_unexpected(place, name));
                }
            }
            Operation::RemoveAbsent => {
                assert!(!self.matching.remove_posted(self.next_name));
            }
            Operation::DrainPosted => {
                let drained: Vec<u32> = self.matching.drain_posted().collect();
                let expected: Vec<u32> = self.posted.drain(..).map(|(_, name)| name).collect();
                assert_eq!(drained, expected);
            }
            Operation::DrainUnexpected => {
                let drained: Vec<u32> = self.matching.drain_unexpected().collect();
                let expected: Vec<u32> = self.unexpected.drain(..).map(|message| message.name).collect();
                assert_eq!(drained, expected);
            }
        }
        assert_eq!(self.matching.posted_len(), self.posted.len());
        assert_eq!(self.matching.unexpected_len(), self.unexpected.len());
    }

    /// Checks that the same names wait in the same order.
    pub(crate) fn check_order(&self) {
        assert!(self.matching.posted().eq(self.posted.iter().map(|(_, name)| *name)));
        assert!(self.matching.unexpected().eq(self.unexpected.iter().map(|message| message.name)));
    }

    fn arrive(&mut self, source: PeerId, tag: u64) {
        let taken = self.first_accepting_posted(source, tag);
        let expected = taken.map(|at| self.posted.remove(at).1);
        assert_eq!(self.matching.take_posted(source, tag), expected);
        if expected.is_none() {
            self.add_unexpected(source, tag);
        }
    }

    fn add_unexpected(&mut self, source: PeerId, tag: u64) {
        let name = self.allocate_name();
        let place = self.matching.add_unexpected(source, tag, name);
        self.unexpected.push(Waiting { source, tag, name, place });
    }

    fn post(&mut self, criteria: &Criteria) {
        let expected = self.first_accepted_unexpected(criteria).map(|at| self.unexpected.remove(at).name);
        assert_eq!(self.matching.take_unexpected(criteria), expected);
        if expected.is_none() {
            self.add_posted(criteria);
        }
    }

    fn add_posted(&mut self, criteria: &Criteria) {
        let name = self.allocate_name();
        self.posted.push((*criteria, name));
        self.matching.add_posted(*criteria, name);
    }

    fn first_accepting_posted(&self, source: PeerId, tag: u64) -> Option<usize> {
        self.posted.iter().position(|(criteria, _)| is_match(criteria, source, tag))
    }

    fn first_accepted_unexpected(&self, criteria: &Criteria) -> Option<usize> {
        self.unexpected.iter().position(|message| is_match(criteria, message.source, message.tag))
    }

    fn build_criteria(&self, source: Option<usize>, tag: u64, ignore: u64) -> Criteria {
        Criteria { source: source.map(|source| self.peer_by_number(source)), tag, ignore }
    }

    fn peer_by_number(&self, number: usize) -> PeerId {
        self.peers[number % self.peers.len()]
    }

    fn allocate_name(&mut self) -> u32 {
        self.next_name += 1;
        self.next_name - 1
    }
}

/// Whether a receive accepts a message, in the words of `fi_tagged(3)`.
fn is_match(criteria: &Criteria, source: PeerId, tag: u64) -> bool {
    let is_source = match criteria.source {
        Some(only) => only == source,
        None => true,
    };
    is_source && (tag | criteria.ignore) == (criteria.tag | criteria.ignore)
}
