//! Finds the directory of homespun's plugin for libfabric.

use std::env;
use std::path::{Path, PathBuf, absolute};

pub(crate) use super::environment::FI_PROVIDER_PATH;
use crate::failure::CommandFailure;

/// The plugin's file name. `cargo build` gives the plugin this name, and libfabric accepts it.
const PLUGIN: &str = "libhomespun_fi.so";

/// The directories to search, relative to this program's directory. Cargo puts the plugin into the first
/// two. An installation may put it into the next three. The last two exist only in a build tree: they
/// are the directories of cargo's profiles.
const PLACES: [&str; 7] = [".", "deps", "../lib/homespun", "../lib", "../lib64", "../release", "../debug"];

/// The absolute path of the plugin's directory. Without a requested directory, it is the first searched
/// directory that has a plugin.
///
/// # Errors
///
/// [`CommandFailure::NoPlugin`], which names the searched directories.
pub(crate) fn find_directory(requested: Option<&Path>) -> Result<PathBuf, CommandFailure> {
    first_with_plugin(requested.map_or_else(candidate_directories, |requested| vec![requested.to_owned()]))
}

fn candidate_directories() -> Vec<PathBuf> {
    // `current_exe` resolves symbolic links: it returns the path of the program, not of a link to the
    // program.
    let program = env::current_exe().ok();
    let mut places =
        program.as_deref().and_then(Path::parent).map(candidate_directories_near).unwrap_or_default();
    // Search `FI_PROVIDER_PATH` last: a plugin that was built with this program is preferred.
    places.extend(env::var_os(FI_PROVIDER_PATH).iter().flat_map(env::split_paths));
    places
}

/// The directories that may contain the plugin of a program in this directory.
fn candidate_directories_near(directory: &Path) -> Vec<PathBuf> {
    PLACES.map(|place| directory.join(place)).into()
}

fn first_with_plugin(places: Vec<PathBuf>) -> Result<PathBuf, CommandFailure> {
    // The command may change its directory before libfabric looks for the plugin.
    let places: Vec<PathBuf> = places.into_iter().filter_map(|place| absolute(place).ok()).collect();
    match places.iter().find(|place| place.join(PLUGIN).is_file()) {
        Some(place) => Ok(place.clone()),
        None => Err(CommandFailure::NoPlugin { plugin: PLUGIN, looked_in: places }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn first_directory_with_the_plugin_is_found() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let [empty, first, second] = ["empty", "first", "second"].map(|name| root.path().join(name));
        for directory in [&empty, &first, &second] {
            fs::create_dir(directory).expect("a temporary directory");
        }
        for directory in [&first, &second] {
            fs::write(directory.join(PLUGIN), "").expect("a temporary directory");
        }
        let places = vec![empty.clone(), first.clone(), second];
        assert_eq!(first_with_plugin(places).expect("it is there"), first);
        let missing = first_with_plugin(vec![empty.clone()]).expect_err("it is not there").to_string();
        assert!(missing.contains(&empty.display().to_string()), "{missing}");
        assert!(missing.contains("cargo build --release -p homespun-libfabric"), "{missing}");
    }

    #[test]
    fn plugin_is_found_in_an_installation_and_in_a_build_tree() {
        for (program, plugin) in [
            ("bin", "bin"),
            ("bin", "lib/homespun"),
            ("bin", "lib"),
            ("bin", "lib64"),
            ("target/debug", "target/debug/deps"),
            ("target/debug", "target/release"),
            ("target/release", "target/debug"),
        ] {
            let root = tempfile::tempdir().expect("a temporary directory");
            let [program, plugin] = [program, plugin].map(|name| root.path().join(name));
            fs::create_dir_all(&program).expect("a temporary directory");
            fs::create_dir_all(&plugin).expect("a temporary directory");
            fs::write(plugin.join(PLUGIN), "").expect("a temporary directory");
            let found = first_with_plugin(candidate_directories_near(&program)).expect("it is there");
            let [found, plugin] = [found, plugin].map(|path| fs::canonicalize(path).expect("it is there"));
            assert_eq!(found, plugin);
        }
    }

    #[test]
    fn plugin_directory_is_absolute() {
        // Tests run in the directory of their package, so `src` exists but has no plugin.
        let missing = find_directory(Some(Path::new("src"))).expect_err("it is not there");
        let CommandFailure::NoPlugin { looked_in, .. } = missing else { panic!("{missing}") };
        assert!(looked_in[0].is_absolute(), "{looked_in:?}");
    }
}
