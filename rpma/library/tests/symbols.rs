//! The symbols of the library, as `objdump -T` lists them: those that programs of librpma ask for.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Command;

use homespun_suite::prerequisites::Prerequisite;

/// The functions that librpma has had since 0.10.
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

/// The functions that librpma has had since 1.0.
const SINCE_1_0: &str = "
    rpma_atomic_write
    rpma_conn_cfg_get_compl_channel
    rpma_conn_cfg_get_srq
    rpma_conn_cfg_set_compl_channel
    rpma_conn_cfg_set_srq
    rpma_conn_get_compl_fd
    rpma_conn_wait
    rpma_cq_get_wc
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

/// The functions that only librpma 0.10 had.
const ONLY_0_10: &str = "
    rpma_conn_completion_get
    rpma_conn_completion_wait
    rpma_conn_get_completion_fd
    rpma_cq_get_completion
    rpma_write_atomic
";

/// The library of the package librpma0.
const PACKAGED: &str = "/usr/lib/x86_64-linux-gnu/librpma.so.0";

#[test]
fn library_has_every_function_of_librpma_1_3() {
    let mut found = functions(&library(), "LIBRPMA_1.0");
    // That of 0.9, which no program is linked with any more.
    found.extend(functions(&library(), "(LIBRPMA_1.0)"));
    assert_eq!(found, names(&[SINCE_0_10, SINCE_1_0, ONLY_0_10]));
    assert_eq!(names(&[SINCE_0_10, SINCE_1_0]).len(), 84);
}

#[test]
fn library_has_every_function_of_librpma_0_10() {
    let mut found = functions(&library(), "(LIBRPMA_0.10)");
    let with_default = functions(&library(), "LIBRPMA_0.10");
    assert_eq!(with_default, names(&["rpma_conn_completion_get"]), "that of 1.0 is of 0.9");
    found.extend(with_default);
    assert_eq!(found, names(&[SINCE_0_10, ONLY_0_10]));
    assert_eq!(found.len(), 71);
}

#[test]
fn library_exports_nothing_else_but_the_text_of_a_status() {
    let base: BTreeSet<String> = functions(&library(), "Base");
    assert_eq!(base, names(&["ibv_wc_status_str"]));
}

#[test]
fn packaged_library_has_the_same_functions_and_versions() {
    if !Path::new(PACKAGED).exists() {
        Prerequisite::LIBRPMA.report_skipped(PACKAGED);
        return;
    }
    assert_eq!(functions(Path::new(PACKAGED), "LIBRPMA_1.0"), names(&[SINCE_0_10, SINCE_1_0]));
}

#[test]
fn library_has_the_soname_of_librpma() {
    assert!(
        objdump(&library(), "-p")
            .lines()
            .any(|line| line.trim_start().starts_with("SONAME") && line.ends_with("librpma.so.0"))
    );
}

/// Returns the names of the functions with a version.
fn functions(library: &Path, version: &str) -> BTreeSet<String> {
    let table = objdump(library, "-T");
    let defined = table.lines().filter(|line| line.contains(" DF ") && !line.contains("*UND*"));
    let found = defined.filter_map(|line| {
        let mut last = line.split_whitespace().rev();
        let (name, found) = (last.next()?, last.next()?);
        (found == version && name != version).then(|| name.to_owned())
    });
    found.collect()
}

fn objdump(library: &Path, option: &str) -> String {
    let output = Command::new("objdump").arg(option).arg(library).output();
    let output = output.expect("objdump, which each C compiler brings");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Returns the path of the library. Cargo builds it before its tests, and puts both into one directory.
fn library() -> std::path::PathBuf {
    env::current_exe().expect("this test's path").with_file_name("librpma.so")
}

fn names(lists: &[&str]) -> BTreeSet<String> {
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}
