//! The cores of this host, and staying on one.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;

/// The cores that this process may run on.
#[derive(Debug)]
pub(crate) struct Cores {
    allowed: Vec<usize>,
}

impl Cores {
    /// Asks the system; none are known if it does not say.
    pub(crate) fn of_this_process() -> Cores {
        let allowed = match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(_) => Vec::new(),
        };
        Cores { allowed }
    }

    /// How many there are, in words.
    pub(crate) fn count(&self) -> String {
        match self.allowed.len() {
            1 => "1 core".into(),
            count => format!("{count} cores"),
        }
    }

    /// Two to measure between: not two halves of one physical core, if there is a choice. None if there is only one.
    pub(crate) fn pair(&self) -> Option<(usize, usize)> {
        self.pair_by(physical_core)
    }

    fn pair_by<P: PartialEq>(&self, physical: impl Fn(usize) -> Option<P>) -> Option<(usize, usize)> {
        let (&first, others) = self.allowed.split_first()?;
        let near = physical(first);
        let other = others.iter().find(|core| near.is_none() || physical(**core) != near);
        other.or(others.first()).map(|&second| (first, second))
    }
}

/// Keeps the calling thread, and those that it starts, on one core.
pub(crate) fn pin(core: usize) -> Result<(), Failure> {
    let failure = |error| Failure::Pin { core, error };
    if core >= CpuSet::MAX_CPU {
        return Err(failure(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|errno| failure(errno.into()))
}

/// What tells physical cores apart: package and number, as the kernel has them.
fn physical_core(core: usize) -> Option<(String, String)> {
    let topology = format!("/sys/devices/system/cpu/cpu{core}/topology");
    let package = fs::read_to_string(format!("{topology}/physical_package_id")).ok()?;
    let number = fs::read_to_string(format!("{topology}/core_id")).ok()?;
    Some((package, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(allowed: &[usize], physical: impl Fn(usize) -> Option<usize>) -> Option<(usize, usize)> {
        Cores { allowed: allowed.to_vec() }.pair_by(physical)
    }

    #[test]
    fn a_pair_is_of_different_physical_cores_where_there_are_such() {
        let halves = |core| Some(core / 2);
        assert_eq!(pair(&[0, 1, 2, 3], halves), Some((0, 2)));
        assert_eq!(pair(&[4, 5], halves), Some((4, 5)));
        assert_eq!(pair(&[1, 6, 7], |_| None), Some((1, 6)));
    }

    #[test]
    fn one_core_is_no_pair() {
        assert_eq!(pair(&[3], Some), None);
        assert_eq!(pair(&[], Some), None);
    }
}
