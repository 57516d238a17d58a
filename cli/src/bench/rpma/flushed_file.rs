//! The file to which flushes are persistent.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::CommandFailure;

/// The file systems whose files are never on a device, so that `msync(2)` has nothing to do.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A temporary file of zeros. Dropping it removes the file.
///
/// The file has a name, because some file systems write nothing back for a file without one.
#[derive(Debug)]
pub(super) struct FlushedFile {
    file: NamedTempFile,
}

impl FlushedFile {
    /// Creates the file in a directory. The device has all of its bytes, so that later writes allocate
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::Write`], which names the directory.
    pub(super) fn create(directory: &Path, len_bytes: usize) -> Result<FlushedFile, CommandFailure> {
        let create = || -> io::Result<NamedTempFile> {
            let mut file =
                tempfile::Builder::new().prefix("homespun-bench-").tempfile_in(directory.canonicalize()?)?;
            file.write_all(&vec![0; len_bytes])?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        let file = create().map_err(|error| CommandFailure::Write { path: directory.to_owned(), error })?;
        Ok(FlushedFile { file })
    }

    pub(super) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// The absolute path.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Where the file is.
#[derive(Debug, Clone)]
pub(super) struct FilePlace {
    /// The absolute path of the directory.
    pub(super) directory: PathBuf,
    /// The name of the file system, such as `ext4`; `None` if the kernel does not tell.
    pub(super) file_system: Option<String>,
}

impl FilePlace {
    pub(super) fn of(file: &FlushedFile) -> FilePlace {
        let directory = file.path().parent().unwrap_or(Path::new("/")).to_owned();
        FilePlace { directory, file_system: find_file_system(file.file()) }
    }

    /// Whether no device has the file, so that a persistent flush has nothing to write.
    pub(super) fn is_in_memory(&self) -> bool {
        self.file_system.as_deref().is_some_and(|name| IN_MEMORY.contains(&name))
    }
}

/// The name of the file system that has an open file.
fn find_file_system(file: &File) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount_id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    parse_file_system(&mounts, mount_id.trim()).map(str::to_owned)
}

/// The name of the file system of a mount in `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`).
fn parse_file_system<'a>(mounts: &'a str, mount_id: &str) -> Option<&'a str> {
    let mount = mounts.lines().find(|mount| mount.split(' ').next() == Some(mount_id))?;
    let (_, described) = mount.split_once(" - ")?;
    described.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_zeros_is_removed_when_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = FlushedFile::create(directory.path(), 5000).unwrap();
        let path = file.path().to_owned();
        assert!(path.is_absolute());
        assert_eq!(fs::read(&path).unwrap(), vec![0; 5000]);
        drop(file);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn file_system_is_that_of_the_mount() {
        let mounts = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
2 21 0:5 / /a\\040dir rw - devtmpfs - rw
212 21 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=100k
";
        assert_eq!(parse_file_system(mounts, "21"), Some("ext4"));
        assert_eq!(parse_file_system(mounts, "2"), Some("devtmpfs"));
        assert_eq!(parse_file_system(mounts, "212"), Some("tmpfs"));
        assert_eq!(parse_file_system(mounts, "1"), None);
    }

    #[test]
    fn only_file_systems_without_a_device_are_in_memory() {
        let place = |name: Option<&str>| FilePlace {
            directory: PathBuf::new(),
            file_system: name.map(str::to_owned),
        };
        assert!(place(Some("tmpfs")).is_in_memory());
        assert!(!place(Some("ext4")).is_in_memory());
        assert!(!place(None).is_in_memory());
    }
}
