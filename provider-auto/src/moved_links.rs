//! Links that have moved from shared memory to TCP before their first frame.

use std::collections::HashMap;

use homespun_engine::transport::LinkId;

/// The links that have moved to TCP. Each link first had to wait at the full backlog of a name, and then
/// found that no near peer has the name. The caller knows the link by its id over shared memory.
#[derive(Debug, Default)]
pub(crate) struct MovedLinks {
    far_by_near: HashMap<LinkId, LinkId>,
    near_by_far: HashMap<LinkId, LinkId>,
    /// The ids over shared memory of ended links, until [`pop_ended`](MovedLinks::pop_ended) returns them.
    ended: Vec<LinkId>,
}

impl MovedLinks {
    /// Adds a link that has moved. `near` is the link's id over shared memory, and `far` is its id over TCP.
    pub(crate) fn insert(&mut self, near: LinkId, far: LinkId) {
        self.far_by_near.insert(near, far);
        self.near_by_far.insert(far, near);
    }

    /// Returns the id over TCP of a link that moved, given its id over shared memory. `None` if the link has
    /// not moved.
    #[inline]
    pub(crate) fn far_id_of(&self, near: LinkId) -> Option<LinkId> {
        self.far_by_near.get(&near).copied()
    }

    /// Returns the id over shared memory of a link that moved, given its id over TCP. `None` if the link has
    /// not moved.
    #[inline]
    pub(crate) fn near_id_of(&self, far: LinkId) -> Option<LinkId> {
        self.near_by_far.get(&far).copied()
    }

    /// Removes a link that the caller has closed. Returns the link's id over TCP, if the link had moved.
    pub(crate) fn remove_closed(&mut self, near: LinkId) -> Option<LinkId> {
        let far = self.far_by_near.remove(&near)?;
        self.near_by_far.remove(&far);
        Some(far)
    }

    /// Removes a link that TCP has reported down. TCP may reuse the link's id at once.
    pub(crate) fn remove_ended(&mut self, far: LinkId) {
        if let Some(near) = self.near_by_far.remove(&far) {
            self.far_by_near.remove(&near);
            self.ended.push(near);
        }
    }

    /// Returns the id over shared memory of a link that has ended. The caller frees the id.
    pub(crate) fn pop_ended(&mut self) -> Option<LinkId> {
        self.ended.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_link_is_found_by_either_id_until_it_ends() {
        let mut moved = MovedLinks::default();
        moved.insert(LinkId(1), LinkId(10));
        moved.insert(LinkId(2), LinkId(20));
        assert_eq!(
            (moved.far_id_of(LinkId(2)), moved.near_id_of(LinkId(10))),
            (Some(LinkId(20)), Some(LinkId(1)))
        );
        assert_eq!((moved.far_id_of(LinkId(10)), moved.near_id_of(LinkId(1))), (None, None));
        moved.remove_ended(LinkId(20));
        assert_eq!((moved.far_id_of(LinkId(2)), moved.near_id_of(LinkId(20))), (None, None));
        assert_eq!((moved.pop_ended(), moved.pop_ended()), (Some(LinkId(2)), None));
        assert_eq!(
            (moved.remove_closed(LinkId(1)), moved.remove_closed(LinkId(1))),
            (Some(LinkId(10)), None)
        );
        assert_eq!(moved.pop_ended(), None, "the caller has closed it");
    }
}
