//! The ids by which the caller knows links. Near links have even ids, and far links have odd ids.

use homespun_engine::transport::LinkId;

/// A link, by the id that the transport carrying it has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarriedLink {
    /// Over shared memory.
    Near(LinkId),
    /// Over TCP.
    Far(LinkId),
}

impl CarriedLink {
    /// Finds the link that the caller knows by this id.
    #[inline]
    pub(crate) fn from_link_id(link: LinkId) -> CarriedLink {
        let own = LinkId(link.0 >> 1);
        if link.0 & 1 == 0 { CarriedLink::Near(own) } else { CarriedLink::Far(own) }
    }

    /// Returns the id by which the caller knows the link.
    #[inline]
    pub(crate) fn link_id(self) -> LinkId {
        // No bit is lost: each link has a descriptor, and a process has fewer than 2^31 descriptors.
        match self {
            CarriedLink::Near(own) => LinkId(own.0 << 1),
            CarriedLink::Far(own) => LinkId(own.0 << 1 | 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_id_tells_the_transport_and_its_own_id() {
        let mut numbers = Vec::new();
        for own in [0, 1, 2, 1000, u32::MAX >> 1].map(LinkId) {
            for carried in [CarriedLink::Near(own), CarriedLink::Far(own)] {
                assert_eq!(CarriedLink::from_link_id(carried.link_id()), carried);
                numbers.push(carried.link_id());
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 10, "two links have one number");
    }
}
