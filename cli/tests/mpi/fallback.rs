//! Where homespun cannot be used, nothing else is: messages that arrive have come over homespun.

use std::time::Duration;

use crate::every_byte::program;
use crate::launch::Launch;

/// `mpirun` itself may hang at the end of ranks that failed at once, which is no matter here.
const FAILURE_MAX: Duration = Duration::from_secs(30);

#[test]
fn without_homespun_no_message_is_sent() {
    let Some(program) = program() else { return };
    let outcome =
        Launch::with(("FI_HOMESPUN_DOMAIN", "token-ring"), 2).at_most(FAILURE_MAX).run(program, &[]);
    assert!(!outcome.status.is_some_and(|status| status.success()), "{outcome}");
    assert!(!outcome.stdout.contains("every byte checked"), "{outcome}");
    assert!(outcome.stderr.contains("PML cm cannot be selected"), "{outcome}");
}

#[test]
fn without_a_domain_asked_for_open_mpi_takes_tcp() {
    let Some(program) = program() else { return };
    let outcome = Launch::with(("OMPI_MCA_pml", "ob1"), 2).run(program, &[]);
    outcome.require_over("tcp", 2);
}
