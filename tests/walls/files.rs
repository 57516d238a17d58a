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

impl File {
    /// Returns the lines with more characters than this, with their numbers.
    pub(crate) fn lines_wider_than(&self, max: usize) -> Vec<String> {
        let is_wide = |(line, _): &(&str, usize)| line.chars().count() > max;
        let wide = self.text.lines().zip(1..).filter(is_wide);
        wide.map(|(line, number)| format!("{}:{number}: {line}", self.path)).collect()
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads the files below `place` whose names end with a dot and `extension`. `place` may be such a file
/// itself. Skips hidden directories and the directories that cargo builds into.
///
/// # Errors
///
/// Errors of reading the files.
pub(crate) fn read_below(place: &str, extension: &str) -> io::Result<Vec<File>> {
    let mut paths = Vec::new();
    list_below(&root().join(place), &mut paths)?;
    paths.retain(|path| path.extension() == Some(OsStr::new(extension)) && path.is_file());
    let read = |path: PathBuf| Ok(File { path: path_below_root(&path)?, text: fs::read_to_string(&path)? });
    paths.into_iter().map(read).collect()
}

/// Returns the paths of all files and directories below the root, except what [`read_below`] skips.
///
/// # Errors
///
/// Errors of reading the directories.
pub(crate) fn list_paths() -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    list_below(root(), &mut paths)?;
    paths.iter().map(|path| path_below_root(path)).collect()
}

fn path_below_root(path: &Path) -> io::Result<String> {
    let below = path.strip_prefix(root()).map_err(io::Error::other)?;
    Ok(below.to_string_lossy().into_owned())
}

fn list_below(path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Cargo puts `CACHEDIR.TAG` only into a build directory that it has made itself. So check the name
    // `target`, too.
    let is_for_products = path == root().join("target") || path.join("CACHEDIR.TAG").exists();
    let is_skipped = name.starts_with('.') || path.is_symlink() || is_for_products;
    if path != root() && is_skipped {
        return Ok(());
    }
    if path.is_dir() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        entries.sort();
        for entry in entries {
            list_below(&entry, found)?;
        }
    }
    if path != root() {
        found.push(path.to_owned());
    }
    Ok(())
}
