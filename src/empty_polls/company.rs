//! Tells whether a program that computes shares this thread's core.
//!
//! A program that computes keeps the core until its time slice ends. Threads that wait give the core back
//! sooner: they yield or sleep. So the thread notes when it has not run for a time slice, and how often the
//! kernel has taken the core away since it noted that before. If that came to a time slice each time, the
//! others compute. Among 24 processes on a core that yield to each other, such pauses come too, but each of
//! them has many switches.

use std::cell::Cell;

/// A pause of this length is a time slice: a thread that waits gives the core back sooner.
pub(super) const SLICE_NS: u64 = 1_000_000;

/// How long company counts as present after a pause. Then the thread polls without a sleep until the next
/// pause, which costs it the rest of its time slice and one of the other program.
const STAYS_NS: u64 = 200_000_000;

/// Two pauses that are further apart do not show that company has come: now and then, each core has something
/// else to do.
const ARRIVAL_MAX_NS: u64 = 50_000_000;

/// What a thread knows of its company.
pub(super) struct Company {
    last_pause: Cell<Option<Pause>>,
    /// Until when company counts as present, if there has been any.
    until_ns: Cell<Option<u64>>,
}

/// A pause in which the thread did not poll.
#[derive(Clone, Copy)]
struct Pause {
    end_ns: u64,
    /// How often the kernel had taken the core away then.
    switches: u64,
}

impl Company {
    pub(super) const fn new() -> Company {
        Company { last_pause: Cell::new(None), until_ns: Cell::new(None) }
    }

    #[inline]
    pub(super) fn is_present(&self, now_ns: u64) -> bool {
        self.until_ns.get().is_some_and(|until_ns| now_ns < until_ns)
    }

    /// Records a pause of at least [`SLICE_NS`] that has ended now. `switches` is how often the kernel has
    /// taken the core from this thread.
    pub(super) fn note_pause(&self, now_ns: u64, switches: u64) {
        let Some(last) = self.last_pause.replace(Some(Pause { end_ns: now_ns, switches })) else { return };
        let elapsed_ns = now_ns.saturating_sub(last.end_ns);
        let lost = switches.saturating_sub(last.switches);
        let has_just_left =
            self.until_ns.get().is_some_and(|until_ns| now_ns.saturating_sub(until_ns) <= ARRIVAL_MAX_NS);
        let is_connected = elapsed_ns <= ARRIVAL_MAX_NS || has_just_left;
        if lost > 0 && is_connected && elapsed_ns / lost >= SLICE_NS {
            self.until_ns.set(Some(now_ns + STAYS_NS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER_NS: u64 = 1 << 60;

    /// Notes pauses: for each, the time since the pause before, and how often the thread has lost the core.
    /// Returns whether company is present after the last one.
    fn is_present_after(pauses: &[(u64, u64)]) -> bool {
        let company = Company::new();
        // The clock begins with the first wait, while the thread may have lost the core before.
        let (mut now_ns, mut switches) = (SLICE_NS, 1);
        company.note_pause(now_ns, switches);
        for (elapsed_ns, lost) in pauses {
            now_ns += elapsed_ns;
            switches += lost;
            company.note_pause(now_ns, switches);
        }
        company.is_present(now_ns)
    }

    #[test]
    fn company_is_present_after_two_time_slices() {
        assert!(!is_present_after(&[]), "one pause may be anything");
        assert!(is_present_after(&[(2 * SLICE_NS, 1)]));
        assert!(is_present_after(&[(8 * SLICE_NS, 8)]));
        assert!(!is_present_after(&[(8 * SLICE_NS, 9)]), "the others yield");
        assert!(!is_present_after(&[(8 * SLICE_NS, 0)]), "the thread has not lost the core");
        assert!(!is_present_after(&[(ARRIVAL_MAX_NS + 1, 1)]), "the pauses are far apart");
    }

    #[test]
    fn company_stays_until_a_while_after_the_last_pause() {
        let company = Company::new();
        company.note_pause(SLICE_NS, 1);
        let arrived_ns = SLICE_NS + ARRIVAL_MAX_NS;
        company.note_pause(arrived_ns, 2);
        let leaves_ns = arrived_ns + STAYS_NS;
        assert!(company.is_present(leaves_ns - 1) && !company.is_present(leaves_ns));
        assert!(!company.is_present(FOREVER_NS));

        company.note_pause(leaves_ns + ARRIVAL_MAX_NS, 3);
        assert!(company.is_present(leaves_ns + ARRIVAL_MAX_NS), "one pause shows that it has not left");
        company.note_pause(leaves_ns + 10 * STAYS_NS, 4);
        assert!(!company.is_present(leaves_ns + 10 * STAYS_NS), "this may be another pause");
    }
}
