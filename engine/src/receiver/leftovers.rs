//! What ended links have left behind: messages that no receive has taken.
//!
//! Messages of a proven peer stay until receives take them. Messages of an unproven peer may be
//! dropped when the room is needed. The messages of the link that ended first are dropped first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::credit::Budget;
use crate::link_fault::NoMemory;
use crate::operation::UnexpectedId;
use crate::source_host::SourceHost;

/// A link's list may contain ids of messages that no longer exist: as many as there are ids of
/// existing messages, plus this number.
const GONE_MAX_MESSAGES: usize = 16;

/// The unexpected messages of an unproven peer, the oldest first. Some may no longer exist.
#[derive(Debug, Default)]
pub(super) struct UnprovenMessages(VecDeque<UnexpectedId>);

impl UnprovenMessages {
    /// Makes room for one more message.
    pub(super) fn try_reserve(&mut self) -> Result<(), NoMemory> {
        Ok(self.0.try_reserve(1)?)
    }

    /// Adds a message. `kept_len` messages of the link still exist, this one included.
    pub(super) fn push(&mut self, id: UnexpectedId, kept_len: u64, exists: impl Fn(UnexpectedId) -> bool) {
        self.0.push_back(id);
        // This keeps the list short, and checks each id only a few times.
        if self.0.len() as u64 > 2 * kept_len + GONE_MAX_MESSAGES as u64 {
            self.0.retain(|id| exists(*id));
        }
    }

    /// Returns the ids of the messages.
    pub(super) fn into_ids(self) -> VecDeque<UnexpectedId> {
        self.0
    }
}

/// What ended links have left behind. Only links that were charged to a host are listed.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// By the creation number of the link. A link that has left nothing is not listed.
    by_link: HashMap<u64, LinkLeftovers>,
    /// The ended links whose messages may be dropped. The key is the link's `end_number`, and the
    /// value its creation number.
    droppable: BTreeMap<u64, u64>,
    /// The same links. The key begins with the link's host.
    droppable_of_host: BTreeMap<(SourceHost, u64), u64>,
    /// How many links were added so far: the `end_number` of the next one.
    ended_count: u64,
}

/// What one link has left behind.
#[derive(Debug)]
struct LinkLeftovers {
    host: SourceHost,
    /// The credit that its messages hold, and their fetched payload.
    bytes: u64,
    /// The place of the link among those that have ended.
    end_number: u64,
    /// The part of `bytes` that messages use which no peek has claimed.
    unclaimed_bytes: u64,
    /// Whether these messages may be dropped.
    are_droppable: bool,
    /// The messages that may be dropped, the oldest first. Some of them may no longer exist, and peeks
    /// may have claimed some.
    messages: VecDeque<UnexpectedId>,
}

impl Leftovers {
    /// Adds a link that has ended. `bytes` says how much of the budget its messages still use, and
    /// `unclaimed_bytes` how much of that those use which no peek has claimed.
    pub(super) fn add_link(
        &mut self,
        creation_number: u64,
        host: SourceHost,
        bytes: u64,
        unclaimed_bytes: u64,
    ) {
        let end_number = self.ended_count;
        self.ended_count += 1;
        if bytes > 0 {
            let (are_droppable, messages) = (false, VecDeque::new());
            let left = LinkLeftovers { host, bytes, end_number, unclaimed_bytes, are_droppable, messages };
            self.by_link.insert(creation_number, left);
        }
    }

    /// Records that these messages of an ended link may be dropped, unless a peek has claimed them. They
    /// include all that no peek has claimed. Some may no longer exist.
    pub(super) fn allow_drops(
        &mut self,
        creation_number: u64,
        messages: VecDeque<UnexpectedId>,
        budget: &mut Budget,
    ) {
        let Some(left) = self.by_link.get_mut(&creation_number).filter(|left| left.unclaimed_bytes > 0)
        else {
            return;
        };
        (left.messages, left.are_droppable) = (messages, true);
        budget.add_droppable(left.host, left.unclaimed_bytes);
        self.droppable.insert(left.end_number, creation_number);
        self.droppable_of_host.insert((left.host, left.end_number), creation_number);
    }

    /// Returns how much of the budget the messages of an ended link use that no peek has claimed.
    pub(super) fn unclaimed_bytes(&self, creation_number: u64) -> u64 {
        self.by_link.get(&creation_number).map_or(0, |left| left.unclaimed_bytes)
    }

    /// Records that a message of an ended link, which uses `bytes`, must not be dropped, or no longer
    /// exists. No peek had claimed it before.
    pub(super) fn forbid_drop(&mut self, creation_number: u64, bytes: u64, budget: &mut Budget) {
        let Some(left) = self.by_link.get_mut(&creation_number) else { return };
        left.unclaimed_bytes -= bytes;
        if !left.are_droppable {
            return;
        }
        budget.remove_droppable(left.host, bytes);
        if left.unclaimed_bytes == 0 {
            (left.messages, left.are_droppable) = (VecDeque::new(), false);
            self.droppable.remove(&left.end_number);
            self.droppable_of_host.remove(&(left.host, left.end_number));
        }
    }

    /// Releases bytes that an ended link had left behind.
    pub(super) fn release(&mut self, creation_number: u64, bytes: u64, budget: &mut Budget) {
        let Some(left) = self.by_link.get_mut(&creation_number) else { return budget.release(bytes) };
        left.bytes -= bytes;
        budget.release_left_behind(left.host, bytes);
        if left.bytes == 0 {
            self.by_link.remove(&creation_number);
        }
    }

    /// Removes and returns the id of the message to drop first, among the messages of `host` or of
    /// all hosts. If the message no longer exists, or a peek has claimed it, the caller calls
    /// again.
    pub(super) fn take_next_droppable(&mut self, host: Option<SourceHost>) -> Option<UnexpectedId> {
        let first = match host {
            None => self.droppable.first_key_value().map(|(_, link)| *link),
            Some(host) => {
                let of_host = (host, 0)..=(host, u64::MAX);
                self.droppable_of_host.range(of_host).next().map(|(_, link)| *link)
            }
        };
        self.by_link.get_mut(&first?)?.messages.pop_front()
    }
}
