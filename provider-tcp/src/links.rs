//! The table of links.

use homespun_engine::fork::ForkGeneration;
use homespun_engine::link_table::LinkTable;
use homespun_engine::transport::{LinkError, LinkId};

use crate::link::Link;

/// All links of a transport, by number.
///
/// In a forked child, [`link_mut`](Links::link_mut) finds no link: all links belong to the parent.
#[derive(Debug)]
pub(crate) struct Links {
    table: LinkTable<Slot>,
    generation: ForkGeneration,
}

/// The state of a link, stored under its number.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A connection, made or being made.
    Made(Box<Link>),
    /// A connect that failed at once. The next pass reports the failure.
    Failed(LinkError),
}

impl Links {
    pub(crate) fn new() -> Links {
        Links { table: LinkTable::default(), generation: ForkGeneration::current() }
    }

    /// Whether a forked child has inherited the links of its parent.
    #[inline]
    pub(crate) fn are_inherited(&self) -> bool {
        self.generation.is_in_forked_child()
    }

    pub(crate) fn insert(&mut self, slot: Slot) -> LinkId {
        self.table.insert(slot)
    }

    pub(crate) fn slot(&self, id: LinkId) -> Option<&Slot> {
        self.table.get(id)
    }

    /// The numbers in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.table.ids()
    }

    /// The connection with this number.
    #[inline]
    pub(crate) fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        if self.are_inherited() {
            return None;
        }
        match self.table.get_mut(id)? {
            Slot::Made(link) => Some(link),
            Slot::Failed(_) => None,
        }
    }

    /// Frees a number.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Slot> {
        self.table.remove(id)
    }
}
