//! The faults that are planted in the sources.

use std::path::Path;
use std::{fs, io};

/// The directories whose crates a build with the faults has.
const CRATES: [&str; 7] = [
    "src",
    "engine/src",
    "provider-shm/src",
    "provider-tcp/src",
    "provider-auto/src",
    "libfabric/src",
    "rpma",
];

/// Returns the clauses that have a fault, sorted.
///
/// # Errors
///
/// Errors of reading the sources, and a clause with several faults.
pub(crate) fn read_planted() -> io::Result<Vec<String>> {
    let mut clauses = Vec::new();
    for directory in CRATES {
        read_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut clauses)?;
    }
    clauses.sort_unstable();
    match clauses.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(io::Error::other(format!("several places ask for {}", pair[0]))),
        None => Ok(clauses),
    }
}

fn read_directory(directory: &Path, clauses: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read_directory(&path, clauses)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path)?;
            let code: Vec<&str> =
                source.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
            let code = code.join("\n");
            // A long call has its clause in a line of its own.
            let asked =
                code.split("mutated!(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            clauses.extend(asked.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    Ok(())
}
