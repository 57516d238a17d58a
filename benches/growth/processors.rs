//! The processors on which the two active threads run. On one processor they would take turns.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;

/// Keeps the calling thread on the first processor that it may use.
pub(crate) fn stay_on_first() -> Result<()> {
    stay_on(allowed()?.first())
}

/// Keeps the calling thread on the last processor that it may use.
pub(crate) fn stay_on_last() -> Result<()> {
    stay_on(allowed()?.last())
}

fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect())
}

fn stay_on(processor: Option<&usize>) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(*processor.ok_or("no processor")?);
    Ok(sched_setaffinity(None, &only)?)
}
