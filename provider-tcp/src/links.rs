//! The table of links.

use homespun_engine::errno::Errno;
use homespun_engine::transport::LinkId;

use crate::link::Link;

/// All links of a transport, by number. Numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Links {
    slots: Vec<Option<Slot>>,
    free: Vec<LinkId>,
}

/// What stands behind a number.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A connection, made or being made.
    Made(Box<Link>),
    /// A connection that could not even be begun; this is still to be reported.
    Failed(Errno),
}

impl Links {
    /// Enters what `make` makes for a number.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(LinkId) -> Slot) -> LinkId {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = u32::try_from(self.slots.len()).expect("fewer links than there can be descriptors");
            self.slots.push(None);
            LinkId(id)
        });
        self.slots[id.0 as usize] = Some(make(id));
        id
    }

    pub(crate) fn slot(&self, id: LinkId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// The connection behind a number.
    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        match self.slots.get_mut(id.0 as usize)? {
            Some(Slot::Made(link)) => Some(link),
            Some(Slot::Failed(_)) | None => None,
        }
    }

    /// Frees a number.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Slot> {
        let slot = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_once_they_are_free() {
        let mut links = Links::default();
        let insert = |links: &mut Links| links.insert_with(|_| Slot::Failed(Errno::EMFILE));
        let (first, second) = (insert(&mut links), insert(&mut links));
        assert_ne!(first, second);
        assert!(links.remove(first).is_some());
        assert!(links.remove(first).is_none(), "freed twice");
        assert!(links.slot(first).is_none());
        assert_eq!(insert(&mut links), first);
        assert!(!(insert(&mut links) == first || links.slot(second).is_none()));
    }

    #[test]
    fn an_unknown_number_is_nobody() {
        let mut links = Links::default();
        assert!(links.link(LinkId(7)).is_none() && links.remove(LinkId(u32::MAX)).is_none());
    }
}
