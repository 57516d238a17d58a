//! Whether this host permits cross-memory copies, and if not, why.

use std::{fs, io};

use crate::memory;

/// A setting of the Yama security module. It restricts which processes may read the memory of others.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Says in one sentence whether this host lets a process copy large messages from another process's memory.
pub(crate) fn describe_cross_memory_support(allows_any_tracer: bool) -> String {
    let scope = fs::read_to_string(PTRACE_SCOPE).ok().and_then(|text| text.trim().parse().ok());
    describe_probe_result(
        memory::probe_process_vm_readv(),
        scope,
        rustix::process::geteuid().is_root(),
        allows_any_tracer,
    )
}

fn describe_probe_result(
    probe: io::Result<()>,
    scope: Option<u32>,
    is_root: bool,
    allows_any_tracer: bool,
) -> String {
    let one_copy = "large messages take one copy where that is faster";
    let both_copies = "large messages take two copies, through the ring";
    match (probe, scope) {
        (Err(error), _) => {
            format!("cross-memory copies are barred here (process_vm_readv: {error}): {both_copies}")
        }
        (Ok(()), None | Some(0)) => format!("cross-memory copies work: {one_copy}"),
        (Ok(()), Some(_)) if is_root => {
            format!("cross-memory copies work for a privileged process: {one_copy}")
        }
        (Ok(()), Some(1)) if allows_any_tracer => {
            format!(
                "cross-memory copies work with processes that set FI_HOMESPUN_SHM_ANY_TRACER, as this one \
                 does: between them {one_copy}"
            )
        }
        (Ok(()), Some(1)) => format!(
            "cross-memory copies work from descendants only (kernel.yama.ptrace_scope is 1): between other \
             processes {both_copies}; FI_HOMESPUN_SHM_ANY_TRACER=1 lets every process of this user read this \
             one's memory"
        ),
        (Ok(()), Some(scope)) => format!(
            "cross-memory copies are for administrators only (kernel.yama.ptrace_scope is {scope}): \
             {both_copies}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_memory_description_names_cause_and_remedy() {
        let barred = || Err(io::Error::from(rustix::io::Errno::PERM));
        let cases = [
            (barred(), None, true, "barred here (process_vm_readv: Operation not permitted"),
            (Ok(()), None, false, "work: large messages take one copy"),
            (Ok(()), Some(0), false, "work: large messages take one copy"),
            (Ok(()), Some(1), true, "privileged"),
            (Ok(()), Some(1), false, "FI_HOMESPUN_SHM_ANY_TRACER=1"),
            (Ok(()), Some(2), false, "administrators only (kernel.yama.ptrace_scope is 2)"),
        ];
        for (probe, scope, is_root, expected) in cases {
            let finding = describe_probe_result(probe, scope, is_root, false);
            assert!(finding.contains(expected), "{finding}");
        }
        assert!(describe_probe_result(Ok(()), Some(1), false, true).contains("as this one does"));
    }
}
