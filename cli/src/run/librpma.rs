//! Puts homespun's `librpma.so.0` in place of librpma.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use homespun::params;

use crate::failure::CommandFailure;

/// The library's file name, as `cargo build` gives it. Its soname is `librpma.so.0`, so the dynamic linker
/// takes it for the library that programs ask for.
const LIBRARY: &str = "librpma.so";

/// The variable of libraries that the dynamic linker loads before all others (`ld.so(8)`).
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The directories to search, relative to this program's directory: those of cargo, and one where an
/// installation may put the library. Others may contain librpma itself.
const PLACES: [&str; 5] = [".", "deps", "../lib/homespun", "../release", "../debug"];

/// Makes a command use the library, over this domain if one is named.
///
/// # Errors
///
/// [`CommandFailure::NoLibrpma`], [`CommandFailure::PreloadPath`].
pub(super) fn set_environment(command: &mut Command, domain: Option<&str>) -> Result<(), CommandFailure> {
    let program = env::current_exe().ok();
    let near = program.as_deref().and_then(Path::parent);
    let library = first_with_library(near.map(candidate_directories).unwrap_or_default())?;
    command.env(LD_PRELOAD, preloaded(&library, env::var_os(LD_PRELOAD).as_deref())?);
    if let Some(domain) = domain {
        command.env(params::DOMAIN.env_variable(), domain);
    }
    Ok(())
}

fn candidate_directories(near: &Path) -> Vec<PathBuf> {
    PLACES.map(|place| near.join(place)).into()
}

/// Returns the path of the first library in these directories.
fn first_with_library(places: Vec<PathBuf>) -> Result<PathBuf, CommandFailure> {
    let found = places.iter().map(|place| place.join(LIBRARY)).find(|path| path.is_file());
    found.ok_or(CommandFailure::NoLibrpma { looked_in: places })
}

/// Returns the value of [`LD_PRELOAD`]: the library, and then those of the user.
fn preloaded(library: &Path, of_user: Option<&OsStr>) -> Result<OsString, CommandFailure> {
    let is_separator = |byte: &u8| matches!(byte, b' ' | b':');
    if library.as_os_str().as_encoded_bytes().iter().any(is_separator) {
        return Err(CommandFailure::PreloadPath { library: library.to_owned() });
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(of_user) = of_user.filter(|of_user| !of_user.is_empty()) {
        value.push(":");
        value.push(of_user);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn library_is_found_beside_the_program_but_not_in_a_system_directory() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let find = || first_with_library(candidate_directories(&root.path().join("target/debug")));
        for (directory, is_found) in [("target/lib", false), ("target/release", true)] {
            fs::create_dir_all(root.path().join("target/debug")).expect("a temporary directory");
            fs::create_dir_all(root.path().join(directory)).expect("a temporary directory");
            fs::write(root.path().join(directory).join(LIBRARY), "").expect("a temporary directory");
            assert_eq!(find().is_ok(), is_found, "{directory}");
        }
    }

    #[test]
    fn library_comes_before_those_of_the_user() {
        let of = |path: &str, of_user: Option<&str>| preloaded(Path::new(path), of_user.map(OsStr::new));
        assert_eq!(of("/here/librpma.so", None).expect("a path"), "/here/librpma.so");
        assert_eq!(of("/here/librpma.so", Some("")).expect("a path"), "/here/librpma.so");
        assert_eq!(of("/here/librpma.so", Some("a.so")).expect("a path"), "/here/librpma.so:a.so");
        for path in ["/with space/librpma.so", "/with:colon/librpma.so"] {
            let refused = of(path, None).expect_err("it cannot be named").to_string();
            assert!(refused.contains(path), "{refused}");
        }
    }
}
