//! Links that shared memory could not carry after all.

use homespun_engine::transport::LinkId;

/// The links whose connect had to wait at a full backlog, and then found that TCP must carry them. Each keeps
/// the number that it had over shared memory. There are seldom any.
#[derive(Debug, Default)]
pub(crate) struct MovedLinks {
    links: Vec<MovedLink>,
    /// The numbers over shared memory of links that have ended since the last call of
    /// [`take_ended`](MovedLinks::take_ended).
    ended: Vec<LinkId>,
}

/// The two numbers of a link.
#[derive(Debug, Clone, Copy)]
struct MovedLink {
    near: LinkId,
    far: LinkId,
}

impl MovedLinks {
    pub(crate) fn insert(&mut self, near: LinkId, far: LinkId) {
        self.links.push(MovedLink { near, far });
    }

    /// The number over TCP of a link with this number over shared memory.
    #[inline]
    pub(crate) fn far_of(&self, near: LinkId) -> Option<LinkId> {
        self.links.iter().find(|link| link.near == near).map(|link| link.far)
    }

    /// The number over shared memory of a link with this number over TCP.
    #[inline]
    pub(crate) fn near_of(&self, far: LinkId) -> Option<LinkId> {
        self.links.iter().find(|link| link.far == far).map(|link| link.near)
    }

    /// Removes a link that the caller has closed. Returns its number over TCP.
    #[inline]
    pub(crate) fn remove(&mut self, near: LinkId) -> Option<LinkId> {
        let place = self.links.iter().position(|link| link.near == near)?;
        Some(self.links.swap_remove(place).far)
    }

    /// Removes a link that TCP has reported down. TCP may reuse its number at once.
    pub(crate) fn end(&mut self, far: LinkId) {
        if let Some(near) = self.near_of(far) {
            self.remove(near);
            self.ended.push(near);
        }
    }

    /// Returns the number over shared memory of a link that has ended, which can be freed.
    pub(crate) fn take_ended(&mut self) -> Option<LinkId> {
        self.ended.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_link_is_found_by_either_number_until_it_ends() {
        let mut moved = MovedLinks::default();
        moved.insert(LinkId(1), LinkId(10));
        moved.insert(LinkId(2), LinkId(20));
        assert_eq!((moved.far_of(LinkId(2)), moved.near_of(LinkId(10))), (Some(LinkId(20)), Some(LinkId(1))));
        assert_eq!((moved.far_of(LinkId(10)), moved.near_of(LinkId(1))), (None, None));
        moved.end(LinkId(20));
        assert_eq!((moved.far_of(LinkId(2)), moved.near_of(LinkId(20))), (None, None));
        assert_eq!((moved.take_ended(), moved.take_ended()), (Some(LinkId(2)), None));
        assert_eq!((moved.remove(LinkId(1)), moved.remove(LinkId(1))), (Some(LinkId(10)), None));
        assert_eq!(moved.take_ended(), None, "the caller has closed it");
    }
}
