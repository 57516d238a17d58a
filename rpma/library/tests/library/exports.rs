//! What the library exports, and what each version of librpma exported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Lists all functions of the library, in its rows.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/librpma-functions.md");

/// The functions that arrived in 1.0.
const SINCE_1_0: &str = "
    rpma_conn_cfg_get_compl_channel
    rpma_conn_cfg_get_srq
    rpma_conn_cfg_set_compl_channel
    rpma_conn_cfg_set_srq
    rpma_conn_get_compl_fd
    rpma_conn_wait
    rpma_srq_cfg_delete
    rpma_srq_cfg_get_rcq_size
    rpma_srq_cfg_get_rq_size
    rpma_srq_cfg_new
    rpma_srq_cfg_set_rcq_size
    rpma_srq_cfg_set_rq_size
    rpma_srq_delete
    rpma_srq_get_rcq
    rpma_srq_new
    rpma_srq_recv
";

/// The versions of librpma, and what their functions are beside those that each has.
const VERSIONS: [(&str, &[&str]); 6] = [
    (
        "LIBRPMA_0.10",
        &[
            "rpma_conn_completion_get",
            "rpma_conn_completion_wait",
            "rpma_conn_get_completion_fd",
            "rpma_cq_get_completion",
            "rpma_write_atomic",
        ],
    ),
    ("LIBRPMA_0.11", &["rpma_cq_get_completion", "rpma_cq_get_wc", "rpma_write_atomic"]),
    ("LIBRPMA_0.12", &["rpma_cq_get_wc", "rpma_write_atomic"]),
    ("LIBRPMA_0.13", &["rpma_atomic_write", "rpma_cq_get_wc", "rpma_write_atomic"]),
    ("LIBRPMA_0.14", &["rpma_atomic_write", "rpma_cq_get_wc"]),
    ("LIBRPMA_1.0", &["rpma_atomic_write", "rpma_cq_get_wc", SINCE_1_0]),
];

/// Returns the names of the versions of librpma.
pub(crate) fn versions() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|&(version, _)| version)
}

/// Returns the functions that librpma had in a version: its own, and those that no version lacked.
pub(crate) fn functions_of_librpma(version: &str) -> BTreeSet<String> {
    let of = |(_, further): &(&str, &[&str])| -> Vec<String> {
        further.iter().flat_map(|list| names(list)).collect()
    };
    let (own, others): (Vec<_>, Vec<_>) = VERSIONS.iter().partition(|(name, _)| *name == version);
    let own: BTreeSet<String> = own.into_iter().flat_map(of).collect();
    let others: BTreeSet<String> = others.into_iter().flat_map(of).collect();
    let is_there = |name: &String| own.contains(name) || !others.contains(name);
    functions_of_every_version().into_iter().filter(is_there).collect()
}

/// Returns the functions of all versions.
pub(crate) fn functions_of_every_version() -> BTreeSet<String> {
    let page = fs::read_to_string(PAGE).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

/// Returns the functions that a library exports with a version, as `objdump -T` writes it: in parentheses
/// if programs that are linked with the library get another one.
pub(crate) fn functions(library: &Path, version: &str) -> BTreeSet<String> {
    let table = objdump(library, "-T");
    let defined = table.lines().filter(|line| line.contains(" DF ") && !line.contains("*UND*"));
    let found = defined.filter_map(|line| {
        let mut last = line.split_whitespace().rev();
        let (name, found) = (last.next()?, last.next()?);
        (found == version && name != version).then(|| name.to_owned())
    });
    found.collect()
}

/// Returns the functions that a library exports with a version, for old and for new programs.
pub(crate) fn all_functions(library: &Path, version: &str) -> BTreeSet<String> {
    let mut found = functions(library, version);
    found.extend(functions(library, &format!("({version})")));
    found
}

pub(crate) fn objdump(library: &Path, option: &str) -> String {
    let output = Command::new("objdump").arg(option).arg(library).output();
    let output = output.expect("objdump, which each C compiler brings");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Returns the path of the library. Cargo builds it before its tests, and puts both into one directory.
pub(crate) fn library() -> PathBuf {
    env::current_exe().expect("this test's path").with_file_name("librpma.so")
}

pub(crate) fn names(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}
