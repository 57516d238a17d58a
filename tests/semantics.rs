//! The tests of what applications may rely on (`suite/src/semantics/`), over every transport.

use std::process::ExitCode;

use homespun_suite::{Faults, TestedNetwork, TransportKind, Turns, run_tests_over};

/// The networks. IPv6 and what connects endpoints of one process alone run without threads: these would test
/// nothing more there.
fn networks() -> Vec<TestedNetwork> {
    use Turns::{Alternate, Automatic, Processes, Threads};
    let loopback = TransportKind::Loopback { seed: 0x5eed, faults: Faults::choppy() };
    let mut networks = [
        TestedNetwork::driven_by("loopback", &loopback, &[Alternate]),
        TestedNetwork::driven_by("tcp4", &TransportKind::Tcp4, &[Alternate, Threads, Automatic, Processes]),
        TestedNetwork::driven_by("tcp6", &TransportKind::Tcp6, &[Alternate]),
        TestedNetwork::driven_by("shm4", &TransportKind::Shm4, &[Alternate, Threads, Automatic, Processes]),
        TestedNetwork::driven_by("shm6", &TransportKind::Shm6, &[Alternate]),
        TestedNetwork::driven_by("auto4", &TransportKind::Auto4, &[Alternate, Threads, Processes]),
        // The first and the third endpoint are near each other. Both are far from the second.
        TestedNetwork::driven_by(
            "mixed4",
            &TransportKind::MIXED4,
            &[Alternate, Threads, Automatic, Processes],
        ),
    ]
    .concat();
    networks.push(TestedNetwork {
        name: "shm4_buffers",
        transport: TransportKind::Shm4,
        turns: Alternate,
        sends_from_buffers: true,
        may_lack: &[],
    });
    networks
}

fn main() -> ExitCode {
    run_tests_over(&networks())
}
