//! The descriptors of this process, and how many of them strangers may take.

use std::iter;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::limits::{
    HALF_OPEN_MAX_LINKS, HALF_OPEN_SHARE_PERCENT, RESERVE_MAX_DESCRIPTORS, RESERVE_SHARE_PERCENT,
};

/// How many descriptors this process may have (RLIMIT_NOFILE in `getrlimit(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorLimit {
    max_descriptors: u64,
}

impl DescriptorLimit {
    /// The limit at present. A process may change it at any time.
    pub(crate) fn current() -> DescriptorLimit {
        DescriptorLimit { max_descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    /// How many accepted links of an endpoint may lack the peer's hello at once.
    pub(crate) fn half_open_max_links(self) -> usize {
        let share = percent_of(self.max_descriptors, HALF_OPEN_SHARE_PERCENT);
        usize::try_from(share).unwrap_or(usize::MAX).clamp(1, HALF_OPEN_MAX_LINKS)
    }

    /// Whether this new descriptor has one of the last numbers, which are reserved for the process itself.
    /// The kernel gives the lowest free number, so all lower numbers are in use.
    pub(crate) fn is_in_reserve(self, new: &impl AsRawFd) -> bool {
        self.is_number_in_reserve(new.as_raw_fd())
    }

    /// Whether the next `count` new descriptors will be below the reserve. To find out, opens and closes
    /// descriptors until one is in the reserve. They refer to nothing, so a child that is forked meanwhile
    /// keeps nothing open with its copies. Says yes if a policy forbids that.
    pub(crate) fn has_spare(self, count: usize) -> bool {
        self.has_spare_by(count, || rustix::event::eventfd(0, EventfdFlags::CLOEXEC))
    }

    fn has_spare_by(self, count: usize, open: impl FnMut() -> rustix::io::Result<OwnedFd>) -> bool {
        let keep_if_spare = |new: rustix::io::Result<OwnedFd>| match new {
            Ok(new) => (!self.is_in_reserve(&new)).then_some(Some(new)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => None,
            Err(_) => Some(None),
        };
        let below: Vec<Option<OwnedFd>> =
            iter::repeat_with(open).take(count).map_while(keep_if_spare).collect();
        below.len() == count
    }

    /// How many accepted links an endpoint may have, if the process uses no other descriptors.
    pub(crate) fn accepted_max_links(self) -> usize {
        usize::try_from(self.first_reserved_number()).unwrap_or(usize::MAX).max(1)
    }

    fn is_number_in_reserve(self, number: RawFd) -> bool {
        u64::try_from(number).is_ok_and(|number| number >= self.first_reserved_number())
    }

    fn first_reserved_number(self) -> u64 {
        let share = percent_of(self.max_descriptors, RESERVE_SHARE_PERCENT);
        self.max_descriptors - share.min(RESERVE_MAX_DESCRIPTORS)
    }
}

fn percent_of(whole: u64, percent: u64) -> u64 {
    // Divide first, so that an unlimited number does not overflow.
    whole / 100 * percent + whole % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn limit(max_descriptors: u64) -> DescriptorLimit {
        DescriptorLimit { max_descriptors }
    }

    #[test]
    fn half_open_links_take_a_share_of_the_descriptors() {
        assert_eq!(limit(1024).half_open_max_links(), 256);
        assert_eq!(limit(100).half_open_max_links(), 25);
        assert_eq!(limit(3).half_open_max_links(), 1, "a listener that accepts nothing is of no use");
        assert_eq!(limit(1 << 20).half_open_max_links(), HALF_OPEN_MAX_LINKS);
        assert_eq!(limit(u64::MAX).half_open_max_links(), HALF_OPEN_MAX_LINKS);
    }

    #[test]
    fn last_descriptors_are_reserved() {
        assert!(!limit(1024).is_number_in_reserve(991) && limit(1024).is_number_in_reserve(992));
        assert!(!limit(40).is_number_in_reserve(35) && limit(40).is_number_in_reserve(36));
        assert!(!limit(u64::MAX).is_number_in_reserve(RawFd::MAX));
    }

    #[test]
    fn reserve_is_not_for_accepted_links() {
        assert_eq!(limit(1024).accepted_max_links(), 992);
        assert_eq!(limit(40).accepted_max_links(), 36);
        assert_eq!(limit(0).accepted_max_links(), 1);
        assert!(limit(u64::MAX).accepted_max_links() > 1 << 30);
    }

    #[test]
    fn spare_descriptor_is_found_by_its_number() {
        let file = File::open("/dev/null").unwrap();
        assert!(limit(u64::MAX).has_spare(3));
        let below = u64::try_from(file.as_raw_fd()).unwrap();
        // Every number from this one on is in the reserve.
        assert!(!limit(below.min(2)).has_spare(1));
    }

    #[test]
    fn forbidden_descriptor_is_no_lack_of_descriptors() {
        let has_spare_after = |error| limit(1024).has_spare_by(2, || Err(error));
        assert!(has_spare_after(Errno::PERM) && has_spare_after(Errno::NOSYS));
        assert!(!has_spare_after(Errno::MFILE) && !has_spare_after(Errno::NFILE));
    }
}
