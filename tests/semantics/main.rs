//! The behaviour that applications may rely on: tests that run over every transport.
//!
//! Each test is a function of a [`Net`](homespun_suite::Net), and is in one of the [`lists`]. [`in_turns`],
//! [`in_threads`], [`by_itself`] and [`across_processes`] run the lists over the [`networks`]. These four
//! modules differ in what drives the endpoints.

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
mod networks;
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

homespun_suite::party_process_entry!();

/// Makes a test of each function.
macro_rules! tests {
    ($net:expr; $($module:ident: $($test:ident)+;)+) => {
        $(mod $module {
            $(#[test]
            fn $test() {
                crate::$module::$test(&$net);
            })+
        })+
    };
}

/// Runs one list of tests over each of these transports.
macro_rules! tests_over {
    ($tests:ident: $($transport:ident: $net:expr;)+) => {
        $(mod $transport {
            $tests! { $net }
        })+
    };
}

/// All tests over each transport, in modules of these names.
macro_rules! all_tests_over {
    ($($transport:ident: $net:expr;)+) => {
        $(mod $transport {
            mod parties {
                tests_of_parties! { $net }
            }
            mod sleepers {
                tests_of_sleepers! { $net }
            }
            mod objects {
                tests_of_objects! { $net }
            }
            mod connected {
                tests_of_connections! { $net }
            }
        })+
    };
}

// These modules use the macros above, so they come last.
#[macro_use]
mod lists;
mod across_processes;
mod by_itself;
mod in_threads;
mod in_turns;
