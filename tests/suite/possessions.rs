//! What a process has of the system, to be counted before and after.

use std::collections::BTreeSet;
use std::fs;

/// Everything of a process that could be left over: equal before and after where nothing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Possessions {
    descriptors: BTreeSet<String>,
    /// Mappings of files that are shared and have no place in the file system.
    mappings: usize,
    /// The names in /dev/shm that could be the library's.
    shared_files: BTreeSet<String>,
}

impl Possessions {
    /// Those of this process.
    pub(crate) fn now() -> Possessions {
        Possessions { descriptors: descriptors(), mappings: mappings(), shared_files: shared_files() }
    }
}

/// The descriptors that are open, apart from the one that finds this out.
fn descriptors() -> BTreeSet<String> {
    let listed = fs::read_dir("/proc/self/fd").expect("Linux lists them");
    let entries = listed.map(|entry| entry.expect("an entry").path());
    let targets = entries.filter_map(|path| {
        let target = fs::read_link(&path).ok()?;
        Some(format!("{} -> {}", path.display(), target.display()))
    });
    targets.filter(|entry| !entry.ends_with("/fd")).collect()
}

fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux lists them");
    maps.lines().filter(|line| line.contains("/memfd:") || line.contains("/dev/shm/")).count()
}

fn shared_files() -> BTreeSet<String> {
    // Not every system has the directory.
    let Ok(listed) = fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains("homespun")).collect()
}
