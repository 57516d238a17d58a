//! The parts of a budget that the peers of one host may use.
//!
//! A process can connect over TCP under many addresses, so a limit for each peer would limit
//! nothing. But these addresses belong to few hosts: see [`SourceHost`]. So the receiver limits
//! what the peers of one host use together.

use std::collections::HashMap;

use crate::limits::{HOST_FETCH_PERCENT, HOST_SHARE_PERCENT};
use crate::source_host::SourceHost;

/// How much of a budget each host uses, and how much a host may use.
#[derive(Debug)]
pub(super) struct Shares {
    share_bytes: u64,
    fetch_limit_bytes: u64,
    /// Hosts that use nothing are not listed.
    hosts: HashMap<SourceHost, HostUse>,
    /// What ended links of all hosts have left behind.
    left_behind_bytes: u64,
}

/// What the peers of one host use of a budget.
#[derive(Debug, Default)]
struct HostUse {
    /// All that the peers of the host use: the outstanding credit of links, the fetched payload,
    /// and what ended links have left behind.
    used_bytes: u64,
    /// Payload that present links have fetched before a receive matched its message.
    fetched_bytes: u64,
    /// What ended links have left behind.
    left_behind_bytes: u64,
    /// The part of `left_behind_bytes` that the receiver may drop.
    droppable_bytes: u64,
}

impl Shares {
    pub(super) fn new(limit_bytes: u64) -> Shares {
        Shares {
            share_bytes: percent_of(limit_bytes, HOST_SHARE_PERCENT),
            fetch_limit_bytes: percent_of(limit_bytes, HOST_FETCH_PERCENT),
            hosts: HashMap::new(),
            left_behind_bytes: 0,
        }
    }

    /// Returns how much payload may be fetched from one host before receives match it.
    pub(super) fn fetch_limit_bytes(&self) -> u64 {
        self.fetch_limit_bytes
    }

    /// Returns how much of its share a host does not use.
    pub(super) fn free_bytes(&self, host: SourceHost) -> u64 {
        self.share_bytes.saturating_sub(self.look_up(host, |of| of.used_bytes))
    }

    /// As [`free_bytes`](Self::free_bytes), but counts what the receiver may drop as free.
    pub(super) fn reclaimable_bytes(&self, host: SourceHost) -> u64 {
        self.share_bytes.saturating_sub(self.look_up(host, |of| of.used_bytes - of.droppable_bytes))
    }

    /// Whether this much payload may be fetched from a host in addition.
    pub(super) fn may_fetch(&self, host: SourceHost, bytes: u64) -> bool {
        bytes <= self.fetch_limit_bytes.saturating_sub(self.look_up(host, |of| of.fetched_bytes))
    }

    /// Whether a host has left more behind than its share.
    pub(super) fn has_excess_left_behind(&self, host: SourceHost) -> bool {
        self.look_up(host, |of| of.left_behind_bytes) > self.share_bytes
    }

    /// Returns how much of what a host has left behind must be kept.
    pub(super) fn kept_left_behind_bytes(&self, host: SourceHost) -> u64 {
        self.look_up(host, |of| of.left_behind_bytes - of.droppable_bytes)
    }

    /// Returns what ended links of all hosts have left behind.
    pub(super) fn left_behind_bytes(&self) -> u64 {
        self.left_behind_bytes
    }

    /// Returns how much the peers of one host may use together.
    pub(super) fn share_bytes(&self) -> u64 {
        self.share_bytes
    }

    pub(super) fn change_charge(&mut self, host: SourceHost, from_bytes: u64, to_bytes: u64) {
        self.change(host, |of| of.used_bytes = of.used_bytes + to_bytes - from_bytes);
    }

    pub(super) fn add_fetched(&mut self, host: SourceHost, bytes: u64) {
        self.change(host, |of| {
            of.used_bytes += bytes;
            of.fetched_bytes += bytes;
        });
    }

    pub(super) fn remove_fetched(&mut self, host: SourceHost, bytes: u64) {
        self.change(host, |of| {
            of.used_bytes -= bytes;
            of.fetched_bytes -= bytes;
        });
    }

    /// Records that a link has ended. Its messages still hold this credit and this fetched payload.
    pub(super) fn link_ended(&mut self, host: SourceHost, held_bytes: u64, fetched_bytes: u64) {
        self.left_behind_bytes += held_bytes + fetched_bytes;
        self.change(host, |of| {
            of.fetched_bytes -= fetched_bytes;
            of.left_behind_bytes += held_bytes + fetched_bytes;
        });
    }

    pub(super) fn release_left_behind(&mut self, host: SourceHost, bytes: u64) {
        self.left_behind_bytes -= bytes;
        self.change(host, |of| {
            of.used_bytes -= bytes;
            of.left_behind_bytes -= bytes;
        });
    }

    pub(super) fn add_droppable(&mut self, host: SourceHost, bytes: u64) {
        self.change(host, |of| of.droppable_bytes += bytes);
    }

    pub(super) fn remove_droppable(&mut self, host: SourceHost, bytes: u64) {
        self.change(host, |of| of.droppable_bytes -= bytes);
    }

    #[cfg(test)]
    pub(super) fn used_bytes(&self, host: SourceHost) -> u64 {
        self.look_up(host, |of| of.used_bytes)
    }

    #[cfg(test)]
    pub(super) fn are_unused(&self) -> bool {
        self.hosts.is_empty()
    }

    fn look_up(&self, host: SourceHost, look: impl FnOnce(&HostUse) -> u64) -> u64 {
        self.hosts.get(&host).map_or(0, look)
    }

    fn change(&mut self, host: SourceHost, change: impl FnOnce(&mut HostUse)) {
        let of = self.hosts.entry(host).or_default();
        change(of);
        if of.used_bytes == 0 {
            self.hosts.remove(&host);
        }
    }
}

/// Returns `percent` percent of a number, even if their product would overflow.
fn percent_of(number: u64, percent: u64) -> u64 {
    number / 100 * percent + number % 100 * percent / 100
}
