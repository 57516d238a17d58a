//! The contract of a homespun backend as a library of tests.
//!
//! The author of a backend implements [`Provider`] and [`Transport`]. The documentation of these traits makes
//! promises; here each promise is a function that panics if a backend breaks it. One line in a file below
//! `tests/` turns each function into a test:
//!
//! ```
//! use homespun_engine::loopback::{Faults, Network};
//!
//! homespun_conformance::transport_contract!(Network::new(7, Faults::default()));
//! # fn main() {}
//! ```
//!
//! The tests use a backend through the two traits only. They do not demand optional parts of a transport,
//! such as [`pull`][pull] or [`wake_fd`][wake_fd]. A backend that has such a part should therefore assert
//! that the tests see it: see [`pulls`](transport::pulls) and [`wakes`](transport::wakes).
//!
//! A backend's own tests may use [`TestEndpoint`](transport::TestEndpoint) and
//! [`Recorder`](transport::Recorder), too.
//!
//! [`Provider`]: homespun_engine::transport::Provider
//! [`Transport`]: homespun_engine::transport::Transport
//! [pull]: homespun_engine::transport::Transport::pull
//! [wake_fd]: homespun_engine::transport::Transport::wake_fd

#![forbid(unsafe_code)]

pub mod transport;

/// Makes a `#[test]` of each function of the contract, with the name of the function.
///
/// Takes an expression whose type is a [`Provider`](homespun_engine::transport::Provider). Each test
/// evaluates it, so if the expression creates a provider, each test has its own.
///
/// Each test waits for an event up to a minute. A slow backend may ask for more:
///
/// ```
/// # use homespun_engine::loopback::{Faults, Network};
/// use std::time::Duration;
///
/// homespun_conformance::transport_contract!(
///     Network::new(7, Faults::default()),
///     patience: Duration::from_secs(600),
/// );
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! transport_contract {
    ($provider:expr $(, patience: $patience:expr)? $(,)?) => {
        $crate::transport_contract! { @tests ($provider $(, $patience)?);
            opening:
                provider_attr_is_complete_and_constant
                wildcard_bind_resolves_to_a_specific_address
                open_binds_to_the_requested_address
                open_at_an_address_in_use_fails_with_eaddrinuse;
            connecting:
                link_up_names_address_and_instance_of_the_peer
                endpoints_of_each_address_format_exchange_frames
                simultaneous_connects_make_two_links
                two_connects_to_one_peer_make_two_links
                endpoint_connects_to_itself
                connect_to_a_vacant_address_fails_with_econnrefused
                endpoint_reopened_at_an_address_has_its_own_instance
                stop_accepting_refuses_new_links_and_keeps_old_ones
                link_unreported_by_the_acceptor_never_comes_up
                connect_after_stop_accepting_succeeds
                links_between_many_endpoints_carry_their_own_frames;
            frames:
                frames_arrive_whole_and_in_order
                header_of_each_form_arrives_unchanged
                send_inline_takes_payload_up_to_its_limit
                many_small_frames_arrive_in_order
                large_frame_arrives_whole
                frame_sent_before_link_up_arrives_after_it
                flushed_frame_arrives_without_further_calls_of_the_sender
                transport_moved_to_another_thread_works;
            room:
                link_whose_peer_does_not_read_fills_up
                partly_sent_frame_does_not_block_other_links
                broken_link_answers_full_until_link_down
                receive_on_an_idle_transport_returns_0
                receive_budget_limits_reported_frames
                flooded_link_does_not_starve_others;
            closing:
                drain_delivers_all_frames_before_closed
                drain_of_a_full_link_delivers_the_taken_frames
                drain_from_both_sides_completes
                drain_inside_a_frame_resets_the_peer
                drain_while_the_peer_is_inside_a_frame_closes_the_peer
                close_while_connecting_reports_nothing
                close_of_an_ended_link_reports_nothing
                abort_with_lost_frames_resets_the_peer
                dropped_transport_ends_its_links
                transport_dropped_inside_a_frame_resets_the_peer
                reused_link_id_gets_no_events_of_its_predecessor;
            exposing:
                pull_reads_exposed_payload_whole_and_in_parts
                pull_again_reads_the_same_payload
                pull_of_memory_that_is_exposed_again_reads_its_new_content
                pull_beyond_exposed_memory_fails
                pull_from_an_invalid_description_fails
                pull_after_close_fails
                pull_after_transport_drop_fails;
            mapping:
                mapped_memory_is_shared_with_its_owner
                map_with_a_wrong_description_fails
                map_of_freed_memory_fails;
            waking:
                idle_transport_arms_and_sleeps
                incoming_connect_wakes_the_acceptor
                accepted_connect_wakes_the_connector
                refused_connect_wakes_the_connector
                frame_wakes_the_receiver
                arm_with_unreported_frames_stays_awake
                free_room_wakes_the_sender
                drain_wakes_the_peer
                abort_wakes_the_peer
                dropped_transport_wakes_the_peer
                wake_fd_works_inside_another_epoll
                sleeping_endpoints_miss_no_wakeup;
        }
    };
    (@tests $arguments:tt; $($theme:ident: $($test:ident)+;)+) => {
        $($(
            #[test]
            fn $test() {
                $crate::transport_contract! { @run $theme $test $arguments }
            }
        )+)+
    };
    (@run $theme:ident $test:ident ($provider:expr $(, $patience:expr)?)) => {
        let provider = $provider;
        let backend = $crate::transport::Backend::new(&provider)$(.with_patience($patience))?;
        $crate::transport::$theme::$test(backend);
    };
}

#[cfg(test)]
mod tests {
    /// No backend would run a function that the macro does not list.
    #[test]
    fn transport_contract_lists_every_test_function() {
        let listed = include_str!("lib.rs");
        let themes = [
            include_str!("transport/opening.rs"),
            include_str!("transport/connecting.rs"),
            include_str!("transport/frames.rs"),
            include_str!("transport/room.rs"),
            include_str!("transport/closing.rs"),
            include_str!("transport/exposing.rs"),
            include_str!("transport/mapping.rs"),
            include_str!("transport/waking.rs"),
        ];
        for theme in themes {
            let signature = "<P: Provider>(backend: Backend<'_, P>) {";
            let tests =
                theme.lines().filter_map(|line| line.strip_prefix("pub fn ")?.strip_suffix(signature));
            let names: Vec<&str> = tests.collect();
            assert!(!names.is_empty());
            for name in names {
                assert!(listed.lines().any(|line| line.trim().trim_end_matches(';') == name), "{name}");
            }
        }
    }
}
