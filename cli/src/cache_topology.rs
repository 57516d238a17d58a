//! The caches that cores share, read from `/sys/devices/system/cpu`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

/// The level of the caches that only the threads of one physical core share.
const CORE_CACHE_LEVEL: u32 = 1;

/// The kernel's description of the cores of a host.
#[derive(Debug)]
pub(crate) struct CacheTopology {
    root: PathBuf,
}

/// The closest component that two cores share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sharing {
    /// A physical core, of which both are threads.
    Core,
    /// A cache of this level.
    Cache(u32),
    /// No cache.
    Nothing,
    /// Unknown, because the kernel does not describe the caches.
    Unknown,
}

impl CacheTopology {
    pub(crate) fn of_this_host() -> CacheTopology {
        CacheTopology { root: "/sys/devices/system/cpu".into() }
    }

    /// Returns the closest component that two cores share.
    pub(crate) fn sharing_between(&self, first: usize, second: usize) -> Sharing {
        let caches = read_data_caches(&self.root.join(format!("cpu{first}/cache")));
        if caches.is_empty() {
            return Sharing::Unknown;
        }
        let shared = caches.iter().filter(|cache| cache.cores.contains(second));
        match shared.map(|cache| cache.level).min() {
            Some(CORE_CACHE_LEVEL) => Sharing::Core,
            Some(level) => Sharing::Cache(level),
            None => Sharing::Nothing,
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sharing::Core => f.write_str("threads of one physical core"),
            Sharing::Cache(level) => write!(f, "sharing a cache (L{level})"),
            Sharing::Nothing => f.write_str("sharing no cache"),
            Sharing::Unknown => f.write_str("caches not known"),
        }
    }
}

/// A cache that holds data.
struct Cache {
    level: u32,
    cores: CoreList,
}

/// The data caches of a core, without those whose description is incomplete.
fn read_data_caches(directory: &Path) -> Vec<Cache> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let read = |path: PathBuf| -> Option<Cache> {
        let field = |name: &str| fs::read_to_string(path.join(name)).ok();
        let kind = field("type")?;
        let level = field("level")?.trim().parse().ok()?;
        let cores = field("shared_cpu_list")?.trim().parse().ok()?;
        (kind.trim() != "Instruction").then_some(Cache { level, cores })
    };
    entries.filter_map(|entry| read(entry.ok()?.path())).collect()
}

/// Cores in the kernel's notation: `0-3,8`.
#[derive(Debug, PartialEq, Eq)]
struct CoreList(Vec<(usize, usize)>);

impl CoreList {
    fn contains(&self, core: usize) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&core))
    }
}

impl FromStr for CoreList {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Ok((first.parse()?, last.parse()?))
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(CoreList)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with four cores. Cores 0 and 1 are threads of one physical core. Core 2 shares the
    /// third-level cache with both. Core 3 shares no cache with any other core.
    fn fabricated_topology() -> (tempfile::TempDir, CacheTopology) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let caches = [
            (0, "1", "Data", "0-1"),
            (0, "1", "Instruction", "0-3"),
            (0, "2", "Unified", "0-1"),
            (0, "3", "Unified", "0-2\n"),
            (3, "1", "Data", "3"),
        ];
        for (index, (core, level, kind, shared)) in caches.into_iter().enumerate() {
            let directory = root.path().join(format!("cpu{core}/cache/index{index}"));
            fs::create_dir_all(&directory).expect("a temporary directory");
            for (name, text) in [("level", level), ("type", kind), ("shared_cpu_list", shared)] {
                fs::write(directory.join(name), text).expect("a temporary file");
            }
        }
        fs::write(root.path().join("cpu0/cache/uevent"), "").expect("a temporary file");
        let topology = CacheTopology { root: root.path().to_owned() };
        (root, topology)
    }

    #[test]
    fn cores_share_the_nearest_cache() {
        let (_root, topology) = fabricated_topology();
        assert_eq!(topology.sharing_between(0, 1), Sharing::Core);
        assert_eq!(topology.sharing_between(0, 2), Sharing::Cache(3));
        assert_eq!(topology.sharing_between(0, 3), Sharing::Nothing);
    }

    #[test]
    fn core_without_description_has_unknown_sharing() {
        let (_root, topology) = fabricated_topology();
        assert_eq!(topology.sharing_between(7, 0), Sharing::Unknown);
    }

    #[test]
    fn core_lists_have_ranges_and_single_cores() {
        let list: CoreList = "0-3,8,10-11".parse().unwrap();
        let contained: Vec<usize> = (0..13).filter(|core| list.contains(*core)).collect();
        assert_eq!(contained, [0, 1, 2, 3, 8, 10, 11]);
        for text in ["", "x", "1-", "-1", "1,,2"] {
            assert!(text.parse::<CoreList>().is_err(), "{text:?}");
        }
    }
}
