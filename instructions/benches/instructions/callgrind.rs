//! Runs each path in its own process under callgrind.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path as FilePath;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, fs, thread};

use homespun_instructions::profile::Profile;
use homespun_instructions::record::Count;

use crate::Result;
use crate::c_node::PREFIXES;
use crate::collection::COLLECTED_FUNCTION;
use crate::path::{Interface, Path};
use crate::perform::COUNTED_OPERATIONS;

/// Makes the C library choose the memory and string functions for a processor without extensions. So the
/// counts do not depend on the processor.
const WITHOUT_EXTENSIONS: &str = "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX512F,-AVX512VL,-AVX2,-AVX,\
                                  -ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2";

/// The name of a link to this program, in the directory of the profiles. A program has its path on its
/// stack. The link makes the length of this path independent of the repository's directory.
const PROGRAM: &str = "instructions";

/// Counts these paths, and returns the counts by name. The processes run at the same time; the counts are
/// the same as if they ran alone.
pub(crate) fn count_paths(paths: Vec<Path>) -> Result<BTreeMap<String, Count>> {
    let directory = tempfile::tempdir()?;
    symlink(env::current_exe()?, directory.path().join(PROGRAM))?;
    let waiting = Mutex::new(paths);
    let counts = Mutex::new(Ok(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(path) = take_next_path(&waiting) {
                    let counted =
                        count_path(path, directory.path()).map_err(|error| format!("{path}: {error}"));
                    let mut counts = counts.lock().expect("no holder panics");
                    match (counted, &mut *counts) {
                        (Ok(count), Ok(counts)) => drop(counts.insert(path.to_string(), count)),
                        (Err(error), Ok(_)) => *counts = Err(error),
                        (_, Err(_)) => return,
                    }
                }
            });
        }
    });
    Ok(counts.into_inner().expect("no holder panics")?)
}

fn take_next_path(waiting: &Mutex<Vec<Path>>) -> Option<Path> {
    waiting.lock().expect("no holder panics").pop()
}

fn count_path(path: Path, directory: &FilePath) -> Result<Count> {
    let output = directory.join(path.to_string().replace('/', "-"));
    let mut command = Command::new("valgrind");
    // Fix the environment. The environment is on the stack, so its length would shift all addresses below
    // it.
    command
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("GLIBC_TUNABLES", WITHOUT_EXTENSIONS);
    if path.interface == Interface::Libfabric {
        // Without this, libfabric asks each of its providers what it offers.
        command.env("FI_PROVIDER", "shm");
        command.envs(PREFIXES.iter().filter_map(|(name, _)| Some((name, env::var_os(name)?))));
    }
    command.args(["--quiet", "--tool=callgrind", "--collect-atstart=no", "--demangle=no"]);
    command.args(["--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--toggle-collect={COLLECTED_FUNCTION}"));
    command.arg(format!("--callgrind-out-file={}", output.display()));
    command.current_dir(directory).arg(format!("./{PROGRAM}")).arg("--perform").arg(path.to_string());
    let ended = command.stdin(Stdio::null()).output()?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        return Err(format!("{}\n{said}", ended.status).into());
    }
    let profile = Profile::parse(&fs::read_to_string(&output)?)?;
    if profile.total < u64::from(COUNTED_OPERATIONS) {
        return Err("callgrind has collected next to nothing".into());
    }
    Ok(Count::mean_of(&profile, COUNTED_OPERATIONS))
}
