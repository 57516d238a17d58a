//! The files of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A text file of the repository.
pub(crate) struct File {
    /// The path below the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads the files below a directory, or that one file, whose names end with a dot and `extension`.
/// Skips hidden directories and what cargo built.
///
/// # Errors
///
/// Errors of reading the files.
pub(crate) fn read_below(place: &str, extension: &str) -> io::Result<Vec<File>> {
    let mut paths = Vec::new();
    list(&root().join(place), OsStr::new(extension), &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let below = path.strip_prefix(root()).map_err(io::Error::other)?;
        Ok(File { path: below.to_string_lossy().into_owned(), text: fs::read_to_string(&path)? })
    };
    paths.into_iter().map(read).collect()
}

fn list(path: &Path, extension: &OsStr, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path == root() || !(name.starts_with('.') || name == "target") {
            for entry in fs::read_dir(path)? {
                list(&entry?.path(), extension, found)?;
            }
        }
    } else if path.extension() == Some(extension) {
        found.push(path.to_owned());
    }
    Ok(())
}
