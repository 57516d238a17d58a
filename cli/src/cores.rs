//! The cores of this host, and pinning a thread to a core.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cache_topology::{CacheTopology, Sharing};
use crate::failure::CommandFailure;

/// The cores that this process may run on.
#[derive(Debug)]
pub(crate) struct AllowedCores {
    allowed: Vec<usize>,
}

impl AllowedCores {
    /// Asks the system for the cores. The list is empty if the call fails.
    pub(crate) fn of_this_process() -> AllowedCores {
        let allowed = match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(_) => Vec::new(),
        };
        AllowedCores { allowed }
    }

    /// The number of cores, in words.
    pub(crate) fn describe_core_count(&self) -> String {
        match self.allowed.len() {
            1 => "1 core".into(),
            count => format!("{count} cores"),
        }
    }

    /// Chooses two cores to measure between, on different physical cores if possible. `None` if there
    /// are fewer than two cores.
    pub(crate) fn choose_pair(&self) -> Option<(usize, usize)> {
        self.choose_pair_preferring_other_physical_core(physical_core_id)
    }

    /// Chooses the pairs of cores to measure on: one pair shares a cache but not the physical core, the
    /// other shares no cache. Both pairs have the first core. A pair that does not exist is left out.
    ///
    /// If neither pair exists, returns the pair of [`choose_pair`](Self::choose_pair). Returns no pair
    /// if there are fewer than two cores.
    pub(crate) fn choose_pairs_to_compare(&self, topology: &CacheTopology) -> Vec<CorePair> {
        self.choose_pairs_by_sharing(
            |first, second| topology.sharing_between(first, second),
            self.choose_pair(),
        )
    }

    fn choose_pairs_by_sharing(
        &self,
        sharing: impl Fn(usize, usize) -> Sharing,
        fallback: Option<(usize, usize)>,
    ) -> Vec<CorePair> {
        let Some((&first, others)) = self.allowed.split_first() else { return Vec::new() };
        let pairs: Vec<CorePair> = others
            .iter()
            .map(|&second| CorePair { first, second, sharing: sharing(first, second) })
            .collect();
        let of_kind =
            |is_kind: fn(&Sharing) -> bool| pairs.iter().find(|pair| is_kind(&pair.sharing)).copied();
        let shared = of_kind(|sharing| matches!(sharing, Sharing::Cache(_)));
        let apart = of_kind(|sharing| *sharing == Sharing::Nothing);
        let found: Vec<CorePair> = shared.into_iter().chain(apart).collect();
        if !found.is_empty() {
            return found;
        }
        let pair = |(first, second)| CorePair { first, second, sharing: sharing(first, second) };
        fallback.map(pair).into_iter().collect()
    }

    fn choose_pair_preferring_other_physical_core<P: PartialEq>(
        &self,
        physical: impl Fn(usize) -> Option<P>,
    ) -> Option<(usize, usize)> {
        let (&first, others) = self.allowed.split_first()?;
        let near = physical(first);
        let other = others.iter().find(|core| near.is_none() || physical(**core) != near);
        other.or(others.first()).map(|&second| (first, second))
    }
}

/// Two cores to measure between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CorePair {
    pub(crate) first: usize,
    pub(crate) second: usize,
    /// The closest component that the two cores share.
    pub(crate) sharing: Sharing,
}

/// Pins the calling thread, and the threads that it starts, to one core.
pub(crate) fn pin_thread_to_core(core: usize) -> Result<(), CommandFailure> {
    let failure = |error| CommandFailure::Pin { core, error };
    if core >= CpuSet::MAX_CPU {
        return Err(failure(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|errno| failure(errno.into()))
}

/// Identifies the physical core to which `core` belongs, by the kernel's numbers of the package and the
/// physical core. `None` if the kernel does not tell.
fn physical_core_id(core: usize) -> Option<(String, String)> {
    let topology = format!("/sys/devices/system/cpu/cpu{core}/topology");
    let package = fs::read_to_string(format!("{topology}/physical_package_id")).ok()?;
    let number = fs::read_to_string(format!("{topology}/core_id")).ok()?;
    Some((package, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_pair(allowed: &[usize], physical: impl Fn(usize) -> Option<usize>) -> Option<(usize, usize)> {
        AllowedCores { allowed: allowed.to_vec() }.choose_pair_preferring_other_physical_core(physical)
    }

    #[test]
    fn pair_has_two_physical_cores_if_there_are_two() {
        let halves = |core| Some(core / 2);
        assert_eq!(choose_pair(&[0, 1, 2, 3], halves), Some((0, 2)));
        assert_eq!(choose_pair(&[4, 5], halves), Some((4, 5)));
        assert_eq!(choose_pair(&[1, 6, 7], |_| None), Some((1, 6)));
    }

    #[test]
    fn pairs_to_compare_cover_shared_and_no_cache_or_fall_back() {
        let placements = |allowed: &[usize], sharing: fn(usize, usize) -> Sharing| -> Vec<(usize, Sharing)> {
            let cores = AllowedCores { allowed: allowed.to_vec() };
            let found = cores.choose_pairs_by_sharing(sharing, Some((0, 9)));
            found.into_iter().map(|pair| (pair.second, pair.sharing)).collect()
        };
        let two_sockets = |_, second| match second {
            1 => Sharing::Core,
            2 | 3 => Sharing::Cache(3),
            _ => Sharing::Nothing,
        };
        let both = [(2, Sharing::Cache(3)), (8, Sharing::Nothing)];
        assert_eq!(placements(&[0, 1, 2, 3, 8, 9], two_sockets), both);
        assert_eq!(placements(&[0, 1, 8], two_sockets), [(8, Sharing::Nothing)]);
        assert_eq!(placements(&[0, 1], |_, _| Sharing::Core), [(9, Sharing::Core)]);
        assert_eq!(placements(&[0, 1, 9], |_, _| Sharing::Unknown), [(9, Sharing::Unknown)]);
        assert_eq!(AllowedCores { allowed: vec![0] }.choose_pairs_by_sharing(two_sockets, None), []);
    }

    #[test]
    fn single_core_has_no_pair() {
        assert_eq!(choose_pair(&[3], Some), None);
        assert_eq!(choose_pair(&[], Some), None);
    }
}
