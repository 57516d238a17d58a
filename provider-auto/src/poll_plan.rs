//! Chooses the transports that a pass polls.

use crate::limits::{EMPTY_FAR_POLLS_MAX, PASSES_PER_FAR_POLL, PASSES_PER_NEAR_POLL};

/// Tracks whether far peers are active, and how long ago each transport was polled.
///
/// A ring in shared memory that carries messages is *hot*: each poll of shared memory looks into it. A poll
/// of hot rings costs no system call. A poll of TCP costs one system call, and a poll of shared memory
/// without hot rings also costs one. While far peers are active, each pass polls the transport that is
/// likely to have frames, and only some passes poll the other transport. While no far peer is active, passes
/// poll only shared memory. Its polls of the kernel also report events of TCP.
#[derive(Debug, Default)]
pub(crate) struct PollPlan {
    /// After how many more polls of TCP that find nothing far peers count as inactive.
    far_polls_left: u32,
    passes_since_far_poll: u32,
    passes_since_near_poll: u32,
}

impl PollPlan {
    /// Counts a pass. Returns whether the pass must poll shared memory.
    #[inline]
    pub(crate) fn count_pass_and_check_near_due(&mut self, has_hot_rings: bool) -> bool {
        if has_hot_rings || !self.is_far_active() {
            return true;
        }
        self.passes_since_near_poll += 1;
        if self.passes_since_near_poll < PASSES_PER_NEAR_POLL {
            return false;
        }
        self.passes_since_near_poll = 0;
        true
    }

    /// Counts a pass. Returns whether the pass must poll TCP even if the kernel has announced no event. If
    /// TCP has timed work, some passes poll TCP even without active far peers.
    #[inline]
    pub(crate) fn count_pass_and_check_far_due(&mut self, has_hot_rings: bool, has_timed_work: bool) -> bool {
        let is_active = self.is_far_active();
        if !is_active && !has_timed_work {
            return false;
        }
        self.passes_since_far_poll += 1;
        is_active && !has_hot_rings || self.passes_since_far_poll >= PASSES_PER_FAR_POLL
    }

    /// Whether passes poll TCP without an event of the kernel.
    #[inline]
    pub(crate) fn is_far_active(&self) -> bool {
        self.far_polls_left > 0
    }

    /// Records how much a poll of TCP has reported.
    pub(crate) fn record_far_poll(&mut self, reported: u32) {
        self.passes_since_far_poll = 0;
        self.far_polls_left =
            if reported > 0 { EMPTY_FAR_POLLS_MAX } else { self.far_polls_left.saturating_sub(1) };
    }

    /// Makes the next pass poll shared memory.
    pub(crate) fn force_near_poll_in_next_pass(&mut self) {
        self.passes_since_near_poll = PASSES_PER_NEAR_POLL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes passes in which TCP reports nothing. Returns how many polled shared memory, and how many polled
    /// TCP.
    fn count_polls(
        plan: &mut PollPlan,
        passes: u32,
        has_hot_rings: bool,
        has_timed_work: bool,
    ) -> (u32, u32) {
        let (mut near, mut far) = (0, 0);
        for _ in 0..passes {
            near += u32::from(plan.count_pass_and_check_near_due(has_hot_rings));
            if plan.count_pass_and_check_far_due(has_hot_rings, has_timed_work) {
                far += 1;
                plan.record_far_poll(0);
            }
        }
        (near, far)
    }

    #[test]
    fn inactive_far_peers_cost_no_polls() {
        let mut plan = PollPlan::default();
        for has_hot_rings in [true, false] {
            assert_eq!(count_polls(&mut plan, 1000, has_hot_rings, false), (1000, 0));
            let polls = 10;
            let passes = polls * PASSES_PER_FAR_POLL;
            assert_eq!(count_polls(&mut plan, passes, has_hot_rings, true), (passes, polls), "timed work");
        }
    }

    #[test]
    fn active_far_peers_are_polled_until_they_are_silent() {
        let mut plan = PollPlan::default();
        plan.record_far_poll(1);
        let passes = EMPTY_FAR_POLLS_MAX;
        assert_eq!(count_polls(&mut plan, passes, false, false), (passes / PASSES_PER_NEAR_POLL, passes));
        assert_eq!(count_polls(&mut plan, 100, false, false), (100, 0));
    }

    #[test]
    fn active_far_peers_are_polled_now_and_then_between_hot_rings() {
        let mut plan = PollPlan::default();
        plan.record_far_poll(1);
        let polls = 10;
        assert_eq!(
            count_polls(&mut plan, polls * PASSES_PER_FAR_POLL, true, false),
            (polls * PASSES_PER_FAR_POLL, polls)
        );
        plan.record_far_poll(7);
        assert_eq!(
            count_polls(&mut plan, EMPTY_FAR_POLLS_MAX * PASSES_PER_FAR_POLL, true, false).1,
            EMPTY_FAR_POLLS_MAX
        );
        assert!(!plan.is_far_active());
    }

    #[test]
    fn forced_poll_of_shared_memory_happens_in_the_next_pass() {
        let mut plan = PollPlan::default();
        plan.record_far_poll(1);
        assert!(!plan.count_pass_and_check_near_due(false));
        plan.force_near_poll_in_next_pass();
        assert!(plan.count_pass_and_check_near_due(false));
        assert!(!plan.count_pass_and_check_near_due(false));
    }
}
