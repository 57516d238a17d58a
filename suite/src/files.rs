//! Files that tests register as regions, and whether the system has written their pages back.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::prerequisites::probe_dirty_page_counts_or_skip;

/// A file that other processes find by a number. Dropping the `NamedFile` removes the file.
#[derive(Debug)]
pub struct NamedFile {
    /// The number of the name, for [`RegionFile`](crate::RegionFile).
    pub number: u64,
}

impl NamedFile {
    /// A name that no other test uses.
    pub fn with_unused_name() -> NamedFile {
        NamedFile { number: next_name_number() }
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        region_file_path(self.number)
    }

    /// The bytes of the file.
    pub fn read_content(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the file is there")
    }

    /// Asserts that all bytes that a process has changed in the file's pages are on the device.
    ///
    /// On a host without [`Prerequisite::FILES_ON_A_DEVICE`] this check is skipped.
    ///
    /// [`Prerequisite::FILES_ON_A_DEVICE`]: crate::prerequisites::Prerequisite::FILES_ON_A_DEVICE
    #[track_caller]
    pub fn assert_written_back_or_skip(&self, process_id: u32) {
        let path = self.path();
        if probe_dirty_page_counts_or_skip(&path) {
            assert_eq!(dirty_bytes(process_id, &path), 0, "pages that are not on the device");
        }
    }

    /// Asserts that some bytes that a process has changed in the file's pages are not on the device. Skipped
    /// on the same hosts as [`assert_written_back_or_skip`](Self::assert_written_back_or_skip).
    #[track_caller]
    pub fn assert_not_written_back_or_skip(&self, process_id: u32) {
        let path = self.path();
        if probe_dirty_page_counts_or_skip(&path) {
            assert_ne!(dirty_bytes(process_id, &path), 0, "the write was not committed");
        }
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        let _may_never_have_been = fs::remove_file(self.path());
    }
}

/// Opens or creates a file, and gives the file this length. The number determines the name of the file. A
/// file without a number loses its name at once.
pub(super) fn open_region_file(number: Option<u64>, len_bytes: usize) -> File {
    let path = region_file_path(number.unwrap_or_else(self::next_name_number));
    let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = options.expect("a file can be made here");
    file.set_len(len_bytes as u64).expect("there is room for it");
    if number.is_none() {
        fs::remove_file(&path).expect("it is there");
    }
    file
}

fn next_name_number() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    u64::from(process::id()) << 32 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a path in the directory of the test's program. This directory is usually on a device, unlike some
/// directories of temporary files.
fn region_file_path(number: u64) -> PathBuf {
    let program = env::current_exe().expect("the test's own program");
    program.with_file_name(format!("region-{number:016x}"))
}

/// Returns how many bytes are dirty in a process's mappings of the file, according to `proc(5)`.
fn dirty_bytes(process_id: u32, path: &Path) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{process_id}/smaps")).expect("a process of ours");
    let name = path.to_str().expect("a name that is a text");
    let mut is_of_file = false;
    let mut dirty_kib = 0;
    for line in smaps.lines() {
        match line.split_once(':') {
            Some(("Shared_Dirty" | "Private_Dirty", amount)) if is_of_file => {
                let kib = amount.trim().strip_suffix(" kB").expect("an amount of memory");
                dirty_kib += kib.trim().parse::<u64>().expect("a number");
            }
            // Every line about a mapping begins with a capitalised word, except the first line.
            Some((word, _)) if word.starts_with(|first: char| first.is_ascii_uppercase()) => {}
            _ => is_of_file = line.ends_with(name),
        }
    }
    dirty_kib << 10
}
