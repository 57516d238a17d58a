//! What the library exports, and what each version of librpma exported.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions that each version since 0.10 has.
const SINCE_0_10: &str = "
    rpma_conn_apply_remote_peer_cfg
    rpma_conn_cfg_delete
    rpma_conn_cfg_get_cq_size
    rpma_conn_cfg_get_rcq_size
    rpma_conn_cfg_get_rq_size
    rpma_conn_cfg_get_sq_size
    rpma_conn_cfg_get_timeout
    rpma_conn_cfg_new
    rpma_conn_cfg_set_cq_size
    rpma_conn_cfg_set_rcq_size
    rpma_conn_cfg_set_rq_size
    rpma_conn_cfg_set_sq_size
    rpma_conn_cfg_set_timeout
    rpma_conn_delete
    rpma_conn_disconnect
    rpma_conn_get_cq
    rpma_conn_get_event_fd
    rpma_conn_get_private_data
    rpma_conn_get_qp_num
    rpma_conn_get_rcq
    rpma_conn_next_event
    rpma_conn_req_connect
    rpma_conn_req_delete
    rpma_conn_req_get_private_data
    rpma_conn_req_new
    rpma_conn_req_recv
    rpma_cq_get_fd
    rpma_cq_wait
    rpma_ep_get_fd
    rpma_ep_listen
    rpma_ep_next_conn_req
    rpma_ep_shutdown
    rpma_err_2str
    rpma_flush
    rpma_log_get_threshold
    rpma_log_set_function
    rpma_log_set_threshold
    rpma_mr_advise
    rpma_mr_dereg
    rpma_mr_get_descriptor
    rpma_mr_get_descriptor_size
    rpma_mr_get_ptr
    rpma_mr_get_size
    rpma_mr_reg
    rpma_mr_remote_delete
    rpma_mr_remote_from_descriptor
    rpma_mr_remote_get_flush_type
    rpma_mr_remote_get_size
    rpma_peer_cfg_delete
    rpma_peer_cfg_from_descriptor
    rpma_peer_cfg_get_descriptor
    rpma_peer_cfg_get_descriptor_size
    rpma_peer_cfg_get_direct_write_to_pmem
    rpma_peer_cfg_new
    rpma_peer_cfg_set_direct_write_to_pmem
    rpma_peer_delete
    rpma_peer_new
    rpma_read
    rpma_recv
    rpma_send
    rpma_send_with_imm
    rpma_utils_conn_event_2str
    rpma_utils_get_ibv_context
    rpma_utils_ibv_context_is_odp_capable
    rpma_write
    rpma_write_with_imm
";

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

/// Returns the functions that librpma had in a version.
pub(crate) fn functions_of_librpma(version: &str) -> BTreeSet<String> {
    let (_, further) = VERSIONS.iter().find(|(name, _)| *name == version).expect("a version of librpma");
    [SINCE_0_10].iter().chain(*further).flat_map(|list| names(list)).collect()
}

/// Returns the functions of all versions.
pub(crate) fn functions_of_every_version() -> BTreeSet<String> {
    versions().flat_map(functions_of_librpma).collect()
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
