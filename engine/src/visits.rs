//! Counts the visits of links and peers, for tests that a pass does not cost more because of idle peers.
//! Without `cfg(test)` it does nothing.

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Records that the engine has visited one link or one peer in a table.
#[inline(always)]
pub(crate) fn record_visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Returns how many links and peers this thread visits in a call.
#[cfg(test)]
pub(crate) fn count_visits_during(call: impl FnOnce()) -> u64 {
    let before = VISITS.get();
    call();
    VISITS.get() - before
}
