//! Completion order: `comp_order` of `fi_endpoint(3)`.
//!
//! Operations on one peer need not end in the order of posting. Some end when the link has taken
//! them, others when the peer answers. If completions must keep the order of posting
//! (`FI_ORDER_STRICT`), each operation gets a *turn* when it is posted. The end of an operation is
//! held until all operations on the same peer with earlier turns have ended. An operation that
//! reports no success has a turn too, since a later completion implies that the operation has
//! ended.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use crate::completion::{EndedOperation, FailedOperation};
use crate::error::OperationError;
use crate::operation::Signalled;
use crate::peer_id::PeerId;

/// The turn of an operation. It fits into the padding of [`Send`](crate::operation::Send).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(NonZeroU32);

/// How an operation has ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// Success that is counted but not reported.
    CountedOnly(EndedOperation),
    Completed(EndedOperation),
    /// Success of deferred work.
    DeferredWork(Box<EndedOperation>),
    Failed(Box<FailedOperation>, Signalled),
}

impl Ending {
    /// Makes a success the failure of an operation on `peer` that was flushed, and also a failure that may be
    /// that of an earlier operation. Other failures stay as they are.
    pub(super) fn into_flushed(self, peer: PeerId) -> Ending {
        let (completion, signalled) = match self {
            Ending::CountedOnly(completion) => (completion, Signalled::No),
            Ending::Completed(completion) => (completion, Signalled::Yes),
            Ending::DeferredWork(completion) => (*completion, Signalled::Deferred),
            Ending::Failed(failure, signalled) if failure.error == OperationError::PeerReceive => {
                (failure.completion, signalled)
            }
            Ending::Failed(failure, signalled) => return Ending::Failed(failure, signalled),
        };
        // It is not known whether the peer has carried out the operation.
        let completion = EndedOperation { len_bytes: 0, ..completion };
        let failure = FailedOperation { completion, error: OperationError::Flushed, target: Some(peer) };
        Ending::Failed(Box::new(failure), signalled)
    }
}

/// The turns of operations whose end is not reported yet.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The turns, by number minus one. The numbers in `free` are not in use.
    entries: Vec<Entry>,
    free: Vec<NonZeroU32>,
    /// The turns of each peer's operations, in order. Peers without turns have no entry.
    by_peer: HashMap<PeerId, VecDeque<Turn>>,
    /// How many operations have ended and wait for their turn.
    waiting_ops: usize,
}

#[derive(Debug)]
struct Entry {
    peer: PeerId,
    ending: Option<Ending>,
}

impl Turns {
    /// Returns how many operations have ended and wait for their turn.
    pub(super) fn waiting_ops(&self) -> usize {
        self.waiting_ops
    }

    /// Returns the peers on which operations have turns.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.by_peer.keys().copied()
    }

    /// Gives a turn to an operation that is posted to this peer now.
    pub(super) fn assign(&mut self, peer: PeerId) -> Turn {
        let entry = Entry { peer, ending: None };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[entry_index(number)] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                // There is one entry for each operation, and no endpoint has 2^32 operations.
                let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
                NonZeroU32::new(count).unwrap_or(NonZeroU32::MAX)
            }
        };
        let turn = Turn(number);
        self.by_peer.entry(peer).or_default().push_back(turn);
        turn
    }

    /// Records the end of an operation, and returns the operation's peer. The caller then repeats
    /// [`take_first_if_ended`](Self::take_first_if_ended) for this peer until the result is `None`.
    pub(super) fn record_end(&mut self, turn: Turn, ending: Ending) -> PeerId {
        let entry = &mut self.entries[entry_index(turn.0)];
        entry.ending = Some(ending);
        self.waiting_ops += 1;
        entry.peer
    }

    /// Removes this peer's first turn and returns how its operation has ended. Returns `None` if
    /// that operation has not ended, or if the peer has no turn.
    pub(super) fn take_first_if_ended(&mut self, peer: PeerId) -> Option<Ending> {
        let turns = self.by_peer.get_mut(&peer)?;
        let number = turns.front()?.0;
        let ending = self.entries[entry_index(number)].ending.take()?;
        turns.pop_front();
        if turns.is_empty() {
            self.by_peer.remove(&peer);
        }
        self.free.push(number);
        self.waiting_ops -= 1;
        Some(ending)
    }
}

fn entry_index(number: NonZeroU32) -> usize {
    number.get() as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::flags::CompletionFlags;

    const PEERS: [PeerId; 2] = [PeerId(0), PeerId(1)];

    fn counted_send() -> Ending {
        let flags = CompletionFlags::of_send(false);
        Ending::CountedOnly(EndedOperation::of_transmit(1, flags, Buffer::None))
    }

    /// Removes the ends that are due, and returns how many there were.
    fn take_and_count_due(turns: &mut Turns, peer: PeerId) -> usize {
        std::iter::from_fn(|| turns.take_first_if_ended(peer)).count()
    }

    #[test]
    fn completion_waits_for_earlier_operations_to_the_same_peer() {
        let mut turns = Turns::default();
        let [first, second, third] = [0, 1, 0].map(|peer| turns.assign(PEERS[peer]));
        assert_eq!(turns.record_end(third, counted_send()), PEERS[0]);
        assert_eq!((take_and_count_due(&mut turns, PEERS[0]), turns.waiting_ops()), (0, 1));
        assert_eq!(turns.record_end(second, counted_send()), PEERS[1]);
        assert_eq!((take_and_count_due(&mut turns, PEERS[1]), turns.waiting_ops()), (1, 1));
        turns.record_end(first, counted_send());
        assert_eq!((take_and_count_due(&mut turns, PEERS[0]), turns.waiting_ops()), (2, 0));
        assert!(turns.by_peer.is_empty());
    }

    #[test]
    fn turn_numbers_are_reused() {
        let mut turns = Turns::default();
        for _ in 0..3 {
            let two = [turns.assign(PEERS[0]), turns.assign(PEERS[1])];
            for turn in two {
                let peer = turns.record_end(turn, counted_send());
                assert_eq!(take_and_count_due(&mut turns, peer), 1);
            }
        }
        assert_eq!((turns.entries.len(), turns.free.len()), (2, 2));
    }
}
