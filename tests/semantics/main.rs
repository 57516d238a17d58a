//! The behaviour that applications may rely on: tests that run over every transport.
//!
//! Each test is a function of a [`Net`](homespun_suite::Net), which says itself over which networks it runs
//! ([`over`](homespun_suite::over)).

use std::process::ExitCode;

use homespun::Fabric;
use homespun_suite::{Backend, Faults, TestedNetwork, TransportKind, Turns, run_tests_over};

use backend::ChannelProvider;

mod atomic_exclusion;
mod atomic_rights;
mod atomics;
#[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
#[path = "../../examples/backend/provider.rs"]
mod backend;
mod binding;
mod bounds;
mod calls;
mod cancel;
mod closing;
mod completion_order;
mod connect_timeouts;
mod connection_order;
mod connection_remote_data;
mod connections;
mod counter_waits;
mod counters;
mod cq_fields;
mod credit;
mod deferred_receives;
mod directed;
mod durability;
mod empty_operations;
mod entries;
mod event_waiting;
mod failed_connections;
mod failures;
mod fence;
mod flush;
mod ignored_flags;
mod late_binding;
mod levels;
mod misuse;
mod multi_receive;
mod naming;
mod ordering;
mod overrun;
mod peek;
mod poll_sets;
mod rejected;
mod restart;
mod reusable;
mod rma;
mod rx_cq_data;
mod safe_code;
mod selective;
mod send_buffers;
mod shareable;
mod shared_connections;
mod shared_context_bounds;
mod shared_context_misuse;
mod shared_context_remote_data;
mod shared_context_waits;
mod shared_context_works;
mod shared_contexts;
mod shutdown;
mod sources;
mod threads;
mod transmit_contexts;
mod triggered;
mod triggered_connections;
mod truncation;
mod wait_sets;
mod waiting;
mod work_ends;

/// The networks. IPv6 runs in turns alone, since it would test nothing more elsewhere.
fn networks() -> Vec<TestedNetwork> {
    use Turns::{Alternate, Automatic, Processes, Threads};
    let loopback = TransportKind::Loopback { seed: 0x5eed, faults: Faults::choppy() };
    let install = |fabric: Fabric| fabric.with_provider(ChannelProvider::new());
    let backend = TransportKind::Backend(Backend { domain: "channel", install });
    let mut networks = [
        TestedNetwork::driven_by("loopback", &loopback, &[Alternate, Threads]),
        TestedNetwork::driven_by("backend", &backend, &[Alternate, Threads, Automatic]),
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
    });
    networks
}

fn main() -> ExitCode {
    run_tests_over(&networks())
}
