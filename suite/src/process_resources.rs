//! The system resources of a process, to compare them before and after a test.

use std::collections::BTreeSet;
use std::fs;

use super::posix::{heap_bytes, trim_heap};
use super::prerequisites::Prerequisite;

/// The resources of a process that a test may leak. A test without a leak leaves these resources as they
/// were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessResources {
    descriptors: BTreeSet<String>,
    /// The number of mappings of memory files (`memfd_create(2)`) and of files in /dev/shm.
    mappings: usize,
    /// The names in /dev/shm that may be this library's.
    shared_files: BTreeSet<String>,
}

/// The memory of a process.
#[derive(Debug, Default, Clone, Copy)]
pub struct MemoryUsage {
    /// The private memory of the process in bytes. Free memory of the heap does not count if the C library
    /// can return it.
    pub resident_bytes: u64,
    /// The used bytes of the process's heap, or 0 if the C library does not count them.
    pub heap_bytes: u64,
}

impl ProcessResources {
    /// Measures the resources of this process.
    pub fn measure_now() -> ProcessResources {
        ProcessResources {
            descriptors: list_descriptors(),
            mappings: count_shared_mappings(),
            shared_files: list_shared_files(),
        }
    }
}

/// Returns how many descriptors this process has open.
pub fn count_descriptors() -> usize {
    list_descriptors().len()
}

impl MemoryUsage {
    /// Measures the memory of this process.
    pub fn measure_now() -> MemoryUsage {
        trim_heap();
        let counted = Prerequisite::COUNTED_HEAP
            .report_skipped_if_none(heap_bytes(), "its memory is counted in pages only");
        MemoryUsage { resident_bytes: resident_bytes(), heap_bytes: counted.unwrap_or(0) }
    }

    /// Returns the larger value of each field.
    pub fn max(self, other: MemoryUsage) -> MemoryUsage {
        MemoryUsage {
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            heap_bytes: self.heap_bytes.max(other.heap_bytes),
        }
    }
}

/// Returns the open descriptors, except the one that lists them.
fn list_descriptors() -> BTreeSet<String> {
    let listed = fs::read_dir("/proc/self/fd").expect("Linux lists them");
    let entries = listed.map(|entry| entry.expect("an entry").path());
    let targets = entries.filter_map(|path| {
        let target = fs::read_link(&path).ok()?;
        Some(format!("{} -> {}", path.display(), target.display()))
    });
    targets.filter(|entry| !entry.ends_with("/fd")).collect()
}

fn count_shared_mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux lists them");
    maps.lines().filter(|line| line.contains("/memfd:") || line.contains("/dev/shm/")).count()
}

fn list_shared_files() -> BTreeSet<String> {
    // Not every system has the directory.
    let Ok(listed) = fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains("homespun")).collect()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says it");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line with this name");
    let kib = line.trim().strip_suffix(" kB").expect("it is counted in KiB");
    kib.parse::<u64>().expect("a number") * 1024
}
