//! The numbers of links: those of near links are even, those of far links odd.

use homespun_engine::transport::LinkId;

/// A link, by the number that the transport carrying it has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Over shared memory.
    Near(LinkId),
    /// Over TCP.
    Far(LinkId),
}

impl Carried {
    #[inline]
    pub(crate) fn from_number(link: LinkId) -> Carried {
        let own = LinkId(link.0 >> 1);
        if link.0 & 1 == 0 { Carried::Near(own) } else { Carried::Far(own) }
    }

    #[inline]
    pub(crate) fn number(self) -> LinkId {
        // Each link has a descriptor, and there are fewer of these than half of all numbers.
        match self {
            Carried::Near(own) => LinkId(own.0 << 1),
            Carried::Far(own) => LinkId(own.0 << 1 | 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_tells_the_transport_and_its_own_number() {
        let mut numbers = Vec::new();
        for own in [0, 1, 2, 1000, u32::MAX >> 1].map(LinkId) {
            for carried in [Carried::Near(own), Carried::Far(own)] {
                assert_eq!(Carried::from_number(carried.number()), carried);
                numbers.push(carried.number());
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 10, "two links have one number");
    }
}
