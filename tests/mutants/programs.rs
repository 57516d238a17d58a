//! The programs of all tests, built with the faults, and which of their tests a citation means.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::Deserialize;

use crate::citations::Citation;

/// The features with which `./test` builds the tests, and the faults.
const FEATURES: &str = "homespun/mutants";

/// Where the rules of the model are. They are no tests: the random programs apply them.
const MODEL: &str = "suite/src/model";

/// Where the tests over every network are.
const SEMANTICS: &str = "suite/src/semantics";

/// How many networks' tests of one function are run before the others: a fault mostly shows over the first.
const FIRST_NETWORKS: [&str; 3] = ["loopback::", "shm4::", "tcp4::"];

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    /// The name of the target.
    pub(crate) name: String,
    /// Its root file, below the root of the repository.
    source: String,
    /// The directory of its package, where its tests run.
    pub(crate) directory: PathBuf,
    pub(crate) executable: PathBuf,
    /// The names of its tests.
    tests: Vec<String>,
}

/// Tests of one program.
#[derive(Debug, Clone)]
pub(crate) struct CitedTests {
    pub(crate) program: Arc<Program>,
    pub(crate) names: Vec<String>,
}

impl CitedTests {
    /// Those of them with these names.
    pub(crate) fn only(&self, names: &BTreeSet<String>) -> CitedTests {
        let names = self.names.iter().filter(|&name| names.contains(name)).cloned().collect();
        CitedTests { program: Arc::clone(&self.program), names }
    }
}

/// What `cargo` says of a target that it has built.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the tests of all crates, and lists them.
///
/// # Errors
///
/// Errors of building them.
pub(crate) fn build() -> io::Result<Vec<Arc<Program>>> {
    let mut cargo = Command::new(env!("CARGO"));
    // The arguments are those of `./test`, so that nothing is built again.
    cargo.args(["test", "--workspace", "--locked", "--no-run"]);
    cargo.args(["--features", FEATURES, "--message-format", "json-render-diagnostics"]);
    let built = cargo.current_dir(root()).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err(io::Error::other("the tests cannot be built"));
    }
    let artifacts = built.stdout.split(|&byte| byte == b'\n').filter_map(|line| {
        let artifact: Artifact = serde_json::from_slice(line).ok()?;
        let executable = artifact.executable.clone()?;
        // This program needs no test.
        (artifact.profile.test && artifact.target.name != "mutants").then_some((artifact, executable))
    });
    artifacts.map(|(artifact, executable)| Ok(Arc::new(Program::list(artifact, executable)?))).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Program {
    fn list(artifact: Artifact, executable: PathBuf) -> io::Result<Program> {
        let directory = artifact.manifest_path.parent().unwrap_or(root()).to_owned();
        let source = artifact.target.src_path.strip_prefix(root()).map_err(io::Error::other)?;
        let source = source.to_string_lossy().into_owned();
        let listed = Command::new(&executable).current_dir(&directory).arg("--list").output()?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        let tests =
            listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
        Ok(Program { name: artifact.target.name, source, directory, executable, tests })
    }

    /// Whether a file is one of this program's: its root, or below the directory of its root.
    fn has_source(&self, file: &str) -> bool {
        let below = |path: &str| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        match self.source.rsplit_once('/') {
            Some((directory, "lib.rs" | "main.rs")) => below(directory),
            _ => file == self.source,
        }
    }

    /// The tests that a citation means.
    fn find(&self, citation: &Citation) -> Vec<String> {
        if citation.file.starts_with(MODEL) && self.source == "tests/model/main.rs" {
            return self.tests.clone();
        }
        let is_of_suite = citation.file.starts_with(SEMANTICS) && self.name == "semantics";
        if !is_of_suite && !self.has_source(&citation.file) {
            return Vec::new();
        }
        let is_meant = |name: &&String| name.rsplit("::").next() == Some(&citation.function);
        self.tests.iter().filter(is_meant).cloned().collect()
    }
}

/// Finds the tests that cite a clause: those that mostly end soon come first.
pub(crate) fn find_cited(programs: &[Arc<Program>], citations: &[Citation], clause: &str) -> Vec<CitedTests> {
    let mut cited = Vec::new();
    for program in programs {
        let of_clause = citations.iter().filter(|citation| citation.clause == clause);
        let names: BTreeSet<String> = of_clause.flat_map(|citation| program.find(citation)).collect();
        let is_first = |name: &String| FIRST_NETWORKS.iter().any(|network| name.starts_with(network));
        let (first, others): (Vec<String>, Vec<String>) = names.into_iter().partition(is_first);
        for names in [first, others] {
            if !names.is_empty() {
                cited.push(CitedTests { program: Arc::clone(program), names });
            }
        }
    }
    cited.sort_by_key(|tests| (tests.program.source == "tests/model/main.rs", tests.names.len()));
    cited
}
