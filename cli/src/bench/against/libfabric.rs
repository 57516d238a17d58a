//! The installed libfabric with which contenders run.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use homespun::info::PROVIDER_NAME;

use super::output;
use crate::failure::CommandFailure;
use crate::run::plugin;

const PINGPONG: &str = "fi_pingpong";
const INFO: &str = "fi_info";
pub(in crate::bench) const LIBRARY: &str = "libfabric.so.1";

/// The directories under the prefix of an installation that may contain the library.
const LIBRARY_DIRECTORIES: [&str; 4] = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];

/// Variables that would override the provider or the domain on a program's command line.
const CONFLICTING: [&str; 2] = ["FI_PROVIDER", "FI_HOMESPUN_DOMAIN"];

/// An installed libfabric, with homespun's plugin.
#[derive(Debug)]
pub(super) struct InstalledLibfabric {
    programs: PathBuf,
    /// The directory of the library. `None` leaves the search to the loader.
    libraries: Option<PathBuf>,
    plugin: PathBuf,
    version: String,
}

impl InstalledLibfabric {
    /// Finds the installation under `prefix`, or without a prefix the installation whose programs are on
    /// `PATH`.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::NoLibfabric`], which names the missing file, or [`CommandFailure::NoPlugin`].
    pub(super) fn find(prefix: Option<&Path>) -> Result<InstalledLibfabric, CommandFailure> {
        let (programs, libraries) = match prefix {
            Some(prefix) => {
                let programs = [prefix.join("bin")];
                (find_directory_with(PINGPONG, &programs)?, Some(find_library_directory(prefix)?))
            }
            None => {
                let path = env::var_os("PATH").unwrap_or_default();
                let programs: Vec<PathBuf> = env::split_paths(&path).collect();
                let missing = |_| CommandFailure::NoLibfabric { missing: PINGPONG, looked_in: "PATH".into() };
                (find_directory_with(PINGPONG, &programs).map_err(missing)?, None)
            }
        };
        let plugin = plugin::find_directory(None)?;
        let mut libfabric = InstalledLibfabric { programs, libraries, plugin, version: String::new() };
        let printed = libfabric.run_fi_info(&["--version"])?.unwrap_or_default();
        let missing = || CommandFailure::NoLibfabric {
            missing: LIBRARY,
            looked_in: match &libfabric.libraries {
                Some(directory) => directory.display().to_string(),
                None => "the directories of the loader".into(),
            },
        };
        libfabric.version = output::parse_library_version(&printed).ok_or_else(missing)?.to_owned();
        Ok(libfabric)
    }

    /// The version of the library.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The path of the library in words.
    pub(super) fn describe_library_path(&self) -> String {
        match &self.libraries {
            Some(directory) => directory.join(LIBRARY).display().to_string(),
            None => "where the loader finds it".into(),
        }
    }

    /// The program `fi_pingpong`.
    pub(super) fn pingpong_path(&self) -> PathBuf {
        self.programs.join(PINGPONG)
    }

    /// Checks that this libfabric has the requested provider, with reliable unconnected endpoints.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::NoProvider`], which lists the available providers.
    pub(super) fn require_provider(&self, requested: &str) -> Result<(), CommandFailure> {
        if self.run_fi_info(&["-p", requested, "-t", "FI_EP_RDM"])?.is_some() {
            return Ok(());
        }
        let mut available = output::parse_provider_names(&self.run_fi_info(&["-l"])?.unwrap_or_default());
        // homespun always takes part, so do not list it as a choice.
        available.retain(|name| name != PROVIDER_NAME || name == requested);
        Err(CommandFailure::NoProvider {
            requested: requested.to_owned(),
            version: self.version.clone(),
            available,
        })
    }

    /// Sets the environment of a program, so that it loads this libfabric with homespun's plugin.
    pub(super) fn set_environment(&self, command: &mut Command) {
        for name in CONFLICTING {
            command.env_remove(name);
        }
        command.env(plugin::FI_PROVIDER_PATH, &self.plugin);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }

    /// The output of `fi_info`, or `None` if it fails.
    fn run_fi_info(&self, arguments: &[&str]) -> Result<Option<String>, CommandFailure> {
        let program = self.programs.join(INFO);
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null());
        self.set_environment(&mut command);
        let failed = |error| CommandFailure::NotExecuted { command: program.clone().into(), error };
        let output = command.output().map_err(failed)?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// Finds the directory under `prefix` that contains libfabric's library.
///
/// # Errors
///
/// [`CommandFailure::NoLibfabric`].
pub(in crate::bench) fn find_library_directory(prefix: &Path) -> Result<PathBuf, CommandFailure> {
    find_directory_with(LIBRARY, &LIBRARY_DIRECTORIES.map(|directory| prefix.join(directory)))
}

/// The first of these directories that holds a file of this name.
fn find_directory_with(name: &'static str, directories: &[PathBuf]) -> Result<PathBuf, CommandFailure> {
    let found = directories.iter().find(|directory| directory.join(OsStr::new(name)).is_file());
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = directories.iter().map(|place| place.display().to_string()).collect();
        CommandFailure::NoLibfabric { missing: name, looked_in: places.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn prefix_without_programs_or_library_is_refused() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let message = || InstalledLibfabric::find(Some(prefix.path())).unwrap_err().to_string();
        assert!(message().contains("no fi_pingpong"), "{}", message());
        fs::create_dir(prefix.path().join("bin")).expect("a temporary directory");
        fs::write(prefix.path().join("bin/fi_pingpong"), "").expect("a temporary file");
        assert!(message().contains("no libfabric.so.1"), "{}", message());
    }
}
