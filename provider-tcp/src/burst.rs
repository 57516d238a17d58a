//! Decides which frames the kernel may hold back, so that frames of several posts share a packet.

use std::time::{Duration, Instant};

use crate::limits::{
    BURST_GAP_US, HOLD_MAX_BYTES, HOLD_MAX_POSTS, HOLD_MAX_US, HOLD_PAUSE_MAX_BURSTS, HOLD_PAUSE_MIN_BURSTS,
    PUNCTUAL_BURSTS,
};
use crate::socket::Departure;

/// The longest time between two posts of a burst.
const GAP: Duration = Duration::from_micros(BURST_GAP_US);

/// The longest time for which frames should be held back.
const HOLD: Duration = Duration::from_micros(HOLD_MAX_US);

/// The posts on one link since the last pass.
///
/// The frames of the first two posts leave at once. If a post follows another soon after, its frames wait
/// for those of the next post. A pass ends the burst, and sends what is held back.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    posts: u32,
    /// When the last post was made. `None` after the first post, which reads no clock.
    last_post: Option<Instant>,
    held: Option<Held>,
    /// A post of this burst would have been held back, but the policy has paused.
    is_paused: bool,
}

/// What the kernel holds back on one link.
#[derive(Debug, Clone, Copy)]
struct Held {
    since: Instant,
    posts: u32,
    bytes: usize,
}

/// Whether the posts of bursts are held back.
///
/// An application that posts a burst and then computes delays what is held back. So after such a burst,
/// a number of bursts is sent without a delay. This number doubles each time.
#[derive(Debug, Default)]
pub(crate) struct HoldPolicy {
    /// How many bursts are still sent without a delay.
    pause_bursts_left: u32,
    /// How many bursts the last pause had.
    last_pause_bursts: u32,
    /// How many bursts in a row have ended soon.
    punctual_bursts: u32,
}

impl Burst {
    /// Whether no post was made since the last pass.
    pub(crate) fn is_empty(&self) -> bool {
        self.posts == 0
    }

    /// Adds a post with frames of this length. Returns when the frames leave.
    pub(crate) fn add_post(
        &mut self,
        frame_bytes: usize,
        clock: impl FnOnce() -> Instant,
        policy: &mut HoldPolicy,
    ) -> Departure {
        self.posts = self.posts.saturating_add(1);
        if self.posts == 1 {
            return Departure::Now;
        }
        let now = clock();
        let is_soon = self.last_post.replace(now).is_some_and(|last| now.duration_since(last) < GAP);
        if !is_soon {
            self.end_hold(now, policy);
            return Departure::Now;
        }
        if policy.is_paused() {
            self.is_paused = true;
            return Departure::Now;
        }
        let mut held = self.held.unwrap_or(Held { since: now, posts: 0, bytes: 0 });
        held.posts += 1;
        held.bytes += frame_bytes;
        let is_enough = held.posts >= HOLD_MAX_POSTS || held.bytes >= HOLD_MAX_BYTES;
        self.held = (!is_enough).then_some(held);
        if is_enough { Departure::Now } else { Departure::WithNext }
    }

    /// Ends the burst. `may_hold_back` says whether the kernel may still hold frames of the link back: a
    /// large frame has pushed those before it.
    pub(crate) fn end(
        &mut self,
        may_hold_back: bool,
        clock: impl FnOnce() -> Instant,
        policy: &mut HoldPolicy,
    ) {
        if may_hold_back && self.held.is_some() {
            self.end_hold(clock(), policy);
        }
        if self.is_paused {
            policy.count_paused_burst();
        }
        *self = Burst::default();
    }

    fn end_hold(&mut self, now: Instant, policy: &mut HoldPolicy) {
        if let Some(Held { since, .. }) = self.held.take() {
            policy.record_hold(now.duration_since(since));
        }
    }
}

impl HoldPolicy {
    fn is_paused(&self) -> bool {
        self.pause_bursts_left > 0
    }

    fn count_paused_burst(&mut self) {
        self.pause_bursts_left = self.pause_bursts_left.saturating_sub(1);
    }

    /// Records how long frames were held back.
    fn record_hold(&mut self, time: Duration) {
        if time <= HOLD {
            self.punctual_bursts += 1;
            if self.punctual_bursts >= PUNCTUAL_BURSTS {
                self.punctual_bursts = 0;
                self.last_pause_bursts /= 2;
            }
            return;
        }
        self.punctual_bursts = 0;
        let doubled_bursts = self.last_pause_bursts.saturating_mul(2);
        self.last_pause_bursts = doubled_bursts.clamp(HOLD_PAUSE_MIN_BURSTS, HOLD_PAUSE_MAX_BURSTS);
        self.pause_bursts_left = self.last_pause_bursts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(BURST_GAP_US / 2);
    const LATER: Duration = Duration::from_micros(BURST_GAP_US);

    /// A burst, its policy, and the time.
    struct Posts {
        burst: Burst,
        policy: HoldPolicy,
        now: Instant,
    }

    impl Posts {
        fn new() -> Posts {
            Posts { burst: Burst::default(), policy: HoldPolicy::default(), now: Instant::now() }
        }

        fn add(&mut self, after: Duration, frame_bytes: usize) -> Departure {
            self.now += after;
            self.burst.add_post(frame_bytes, || self.now, &mut self.policy)
        }

        fn end(&mut self, after: Duration) {
            self.now += after;
            self.burst.end(true, || self.now, &mut self.policy);
        }

        /// Whether the third of three posts is held back.
        fn is_third_post_held(&mut self) -> bool {
            let [.., third] = [(); 3].map(|()| self.add(SOON, 40));
            third == Departure::WithNext
        }

        /// Counts the bursts, each of three posts, until one is held back. Ends that burst, too.
        fn count_bursts_until_held(&mut self) -> u32 {
            let mut count = 0;
            while !self.is_third_post_held() {
                self.end(SOON);
                count += 1;
            }
            self.end(SOON);
            count
        }
    }

    #[test]
    fn first_two_posts_leave_at_once() {
        let mut posts = Posts::new();
        for _ in 0..3 {
            let departures = [(); 4].map(|()| posts.add(SOON, 40));
            assert_eq!(departures[..2], [Departure::Now; 2]);
            assert_eq!(departures[2..], [Departure::WithNext; 2]);
            posts.end(SOON);
        }
    }

    #[test]
    fn single_post_reads_no_clock() {
        let (mut burst, mut policy) = (Burst::default(), HoldPolicy::default());
        for _ in 0..3 {
            let departure = burst.add_post(40, || panic!("reads the clock"), &mut policy);
            assert_eq!(departure, Departure::Now);
            burst.end(true, || panic!("reads the clock"), &mut policy);
        }
    }

    #[test]
    fn slow_posts_leave_at_once() {
        let mut posts = Posts::new();
        assert!(posts.is_third_post_held());
        for _ in 0..10 {
            assert_eq!(posts.add(LATER, 40), Departure::Now);
        }
        assert_eq!(posts.add(SOON, 40), Departure::WithNext);
    }

    #[test]
    fn held_posts_leave_at_the_limit_of_posts() {
        let mut posts = Posts::new();
        posts.add(SOON, 40);
        posts.add(SOON, 40);
        for _ in 0..3 {
            for _ in 1..HOLD_MAX_POSTS {
                assert_eq!(posts.add(Duration::ZERO, 40), Departure::WithNext);
            }
            assert_eq!(posts.add(Duration::ZERO, 40), Departure::Now);
        }
    }

    #[test]
    fn held_posts_leave_at_the_limit_of_bytes() {
        let mut posts = Posts::new();
        posts.add(SOON, 40);
        posts.add(SOON, 40);
        assert_eq!(posts.add(SOON, HOLD_MAX_BYTES - 1), Departure::WithNext);
        assert_eq!(posts.add(SOON, 1), Departure::Now);
        assert_eq!(posts.add(SOON, HOLD_MAX_BYTES), Departure::Now);
    }

    #[test]
    fn each_long_hold_doubles_the_pause() {
        let mut posts = Posts::new();
        let mut expected_bursts = HOLD_PAUSE_MIN_BURSTS;
        for _ in 0..20 {
            assert!(posts.is_third_post_held());
            posts.end(HOLD * 2);
            assert_eq!(posts.count_bursts_until_held(), expected_bursts);
            expected_bursts = (2 * expected_bursts).min(HOLD_PAUSE_MAX_BURSTS);
        }
    }

    #[test]
    fn punctual_bursts_shorten_the_next_pause() {
        let mut posts = Posts::new();
        for pause_bursts in [HOLD_PAUSE_MIN_BURSTS, 2 * HOLD_PAUSE_MIN_BURSTS] {
            assert!(posts.is_third_post_held());
            posts.end(HOLD * 2);
            assert_eq!(posts.count_bursts_until_held(), pause_bursts);
        }
        for _ in 0..PUNCTUAL_BURSTS {
            assert!(posts.is_third_post_held());
            posts.end(SOON);
        }
        assert!(posts.is_third_post_held());
        posts.end(HOLD * 2);
        assert_eq!(posts.count_bursts_until_held(), 2 * HOLD_PAUSE_MIN_BURSTS, "half of twice four times");
    }
}
