//! Accepted links whose hello has not arrived.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use homespun_engine::transport::LinkId;

use crate::limits::{HALF_OPEN_GRACE_MS, HELLO_CHECK_PASSES};

/// The accepted links whose hello has not arrived, and how long they may still take.
///
/// An honest peer says hello as soon as it is connected, so these links are few. A stranger that says
/// nothing, or says hello too slowly, costs a descriptor until its time is over.
#[derive(Debug)]
pub(crate) struct HalfOpenLinks {
    /// The key is the number of connections that the endpoint accepted before. So the oldest link comes
    /// first.
    links: BTreeMap<u64, HalfOpen>,
    accepted_count: u64,
    timeout: Duration,
    /// How many passes remain until one must read the clock.
    passes_until_check: u32,
}

#[derive(Debug)]
struct HalfOpen {
    id: LinkId,
    accepted_at: Instant,
}

impl HalfOpenLinks {
    pub(crate) fn new(timeout: Duration) -> HalfOpenLinks {
        HalfOpenLinks { links: BTreeMap::new(), accepted_count: 0, timeout, passes_until_check: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Numbers a connection that is accepted.
    pub(crate) fn take_next_serial(&mut self) -> u64 {
        let serial = self.accepted_count;
        self.accepted_count += 1;
        serial
    }

    pub(crate) fn insert(&mut self, serial: u64, id: LinkId, accepted_at: Instant) {
        self.links.insert(serial, HalfOpen { id, accepted_at });
    }

    /// Removes a link whose hello has arrived or which has ended.
    pub(crate) fn remove(&mut self, serial: u64) {
        self.links.remove(&serial);
    }

    pub(crate) fn oldest(&self) -> Option<LinkId> {
        self.links.first_key_value().map(|(_, link)| link.id)
    }

    /// Removes and returns the oldest link.
    pub(crate) fn pop_oldest(&mut self) -> Option<LinkId> {
        self.links.pop_first().map(|(_, link)| link.id)
    }

    /// The oldest link, if it is old enough for a new connection to displace it.
    pub(crate) fn oldest_displaceable(&self, now: Instant) -> Option<LinkId> {
        let is_aged = self.is_oldest_aged(now, Duration::from_millis(HALF_OPEN_GRACE_MS));
        self.oldest().filter(|_| is_aged)
    }

    /// Removes and returns the oldest link, if a new connection may displace it.
    pub(crate) fn pop_displaceable(&mut self, now: Instant) -> Option<LinkId> {
        self.oldest_displaceable(now).and_then(|_| self.pop_oldest())
    }

    /// Removes and returns the oldest link, if its time is over.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<LinkId> {
        if self.is_oldest_aged(now, self.timeout) { self.pop_oldest() } else { None }
    }

    fn is_oldest_aged(&self, now: Instant, age: Duration) -> bool {
        let oldest = self.links.first_key_value();
        oldest.is_some_and(|(_, oldest)| now.saturating_duration_since(oldest.accepted_at) >= age)
    }

    /// Counts a pass. Returns whether the pass must read the clock.
    pub(crate) fn count_pass_toward_time_check(&mut self) -> bool {
        if self.passes_until_check > 0 {
            self.passes_until_check -= 1;
            return false;
        }
        self.passes_until_check = HELLO_CHECK_PASSES - 1;
        true
    }

    /// Returns how soon a sleeping application must make a pass, to drop a link whose time is over. Lets the
    /// next pass read the clock.
    pub(crate) fn prepare_sleep_and_get_time_limit(&mut self) -> Option<Duration> {
        let (_, oldest) = self.links.first_key_value()?;
        self.passes_until_check = 0;
        Some(self.timeout.saturating_sub(oldest.accepted_at.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn accept_one_each_second(count: u32, from: Instant) -> HalfOpenLinks {
        let mut links = HalfOpenLinks::new(TIMEOUT);
        for number in 0..count {
            let serial = links.take_next_serial();
            links.insert(serial, LinkId(number), from + Duration::from_secs(number.into()));
        }
        links
    }

    #[test]
    fn links_expire_in_the_order_of_their_acceptance() {
        let begin = Instant::now();
        let mut links = accept_one_each_second(3, begin);
        assert_eq!(links.pop_expired(begin + TIMEOUT - Duration::from_millis(1)), None);
        assert_eq!(links.pop_expired(begin + TIMEOUT), Some(LinkId(0)));
        assert_eq!(links.pop_expired(begin + TIMEOUT), None);
        let later = begin + TIMEOUT + Duration::from_secs(5);
        assert_eq!([links.pop_expired(later), links.pop_expired(later)], [Some(LinkId(1)), Some(LinkId(2))]);
        assert_eq!((links.pop_expired(later), links.is_empty()), (None, true));
    }

    #[test]
    fn link_is_displaceable_only_after_its_grace() {
        let begin = Instant::now();
        let mut links = accept_one_each_second(2, begin);
        let grace = Duration::from_millis(HALF_OPEN_GRACE_MS);
        assert_eq!(links.oldest_displaceable(begin + grace / 2), None);
        assert_eq!(links.pop_displaceable(begin + grace / 2), None);
        assert_eq!(links.oldest_displaceable(begin + grace), Some(LinkId(0)));
        assert_eq!(links.pop_displaceable(begin + grace), Some(LinkId(0)));
        assert_eq!(links.pop_displaceable(begin + grace), None, "the next has just come");
    }

    #[test]
    fn link_with_a_hello_does_not_expire() {
        let begin = Instant::now();
        let mut links = accept_one_each_second(2, begin);
        links.remove(0);
        assert_eq!(links.pop_expired(begin + TIMEOUT), None);
        assert_eq!((links.pop_oldest(), links.pop_oldest()), (Some(LinkId(1)), None));
    }

    #[test]
    fn time_is_checked_in_few_passes_and_after_each_sleep() {
        let mut links = accept_one_each_second(1, Instant::now());
        let count_checks = |links: &mut HalfOpenLinks| {
            (0..10 * HELLO_CHECK_PASSES).filter(|_| links.count_pass_toward_time_check()).count()
        };
        assert_eq!(count_checks(&mut links), 10);
        assert!(links.count_pass_toward_time_check());
        assert!(!links.count_pass_toward_time_check());
        assert!(links.prepare_sleep_and_get_time_limit().unwrap() <= TIMEOUT);
        assert!(links.count_pass_toward_time_check());
        links.pop_oldest();
        assert_eq!(links.prepare_sleep_and_get_time_limit(), None, "no reason to wake");
    }
}
