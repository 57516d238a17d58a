//! The table of links.

use homespun_engine::errno::Errno;
use homespun_engine::link_table::LinkTable;
use homespun_engine::transport::LinkId;

use crate::link::Link;

/// All links of a transport, by number.
#[derive(Debug, Default)]
pub(crate) struct Links(LinkTable<Slot>);

/// The state of a link, stored under its number.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A connection, made or being made.
    Made(Box<Link>),
    /// A connect that failed at once. The next pass reports the failure.
    Failed(Errno),
}

impl Links {
    pub(crate) fn insert(&mut self, slot: Slot) -> LinkId {
        self.0.insert(slot)
    }

    pub(crate) fn slot(&self, id: LinkId) -> Option<&Slot> {
        self.0.get(id)
    }

    /// The connection with this number.
    pub(crate) fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        match self.0.get_mut(id)? {
            Slot::Made(link) => Some(link),
            Slot::Failed(_) => None,
        }
    }

    /// Frees a number.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Slot> {
        self.0.remove(id)
    }
}
