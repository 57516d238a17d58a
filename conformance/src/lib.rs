//! The contract of a homespun backend as a library of tests.
//!
//! Somebody who writes a backend implements [`Provider`] and [`Transport`]; the documentation of the latter says what
//! must hold. Here each of its promises is a function that fails where it is broken. One line in a file below `tests/`
//! makes a test of each:
//!
//! ```
//! use homespun_engine::loopback::{Faults, Network};
//!
//! homespun_conformance::transport_contract!(Network::new(7, Faults::default()));
//! # fn main() {}
//! ```
//!
//! The tests know nothing of a backend but the two traits. Whatever a transport may leave out, such as
//! [`pull`][pull] or [`wake_fd`][wake_fd], is not demanded, so a backend that does have it
//! should also make sure that it is found: see [`pulls`](transport::pulls) and [`wakes`](transport::wakes).
//!
//! What the tests are made of, [`TestEndpoint`](transport::TestEndpoint) and [`Recorder`](transport::Recorder), is there for the tests
//! that a backend has of its own.
//!
//! [`Provider`]: homespun_engine::transport::Provider
//! [`Transport`]: homespun_engine::transport::Transport
//! [pull]: homespun_engine::transport::Transport::pull
//! [wake_fd]: homespun_engine::transport::Transport::wake_fd

#![forbid(unsafe_code)]

pub mod transport;

/// Makes a `#[test]` of each function that tests a transport, named like the function.
///
/// Takes an expression of a type that is a [`Provider`](homespun_engine::transport::Provider). It is evaluated once for
/// each test, so every test has a provider of its own if the expression makes one.
///
/// Each test is given no more than the [patience](crate::transport::Deadline) of a minute for anything that it waits for.
#[macro_export]
macro_rules! transport_contract {
    ($provider:expr) => {
        $crate::transport_contract! { @tests $provider;
            opening:
                a_provider_says_what_it_can_do
                a_wildcard_becomes_an_address_that_others_can_use
                an_endpoint_is_bound_where_it_is_told
                an_address_has_one_endpoint_at_a_time;
            connecting:
                both_sides_learn_who_the_other_is
                endpoints_of_every_format_reach_each_other
                connects_that_cross_make_two_links
                two_connects_to_one_peer_make_two_links
                an_endpoint_reaches_itself
                nobody_there_is_refused
                a_successor_at_an_address_is_another_instance
                an_endpoint_that_stopped_accepting_keeps_its_links
                a_link_that_the_acceptor_never_reports_is_never_up
                an_endpoint_that_stopped_accepting_may_still_connect
                many_endpoints_have_many_links;
            frames:
                frames_arrive_whole_and_in_order
                every_header_arrives_as_it_was_sent
                frames_up_to_the_inline_limit_are_taken_inline
                many_small_frames_arrive_in_order
                a_large_frame_arrives
                frames_sent_before_the_link_is_up_arrive
                what_was_flushed_arrives_without_the_sender
                a_transport_may_move_between_threads;
            room:
                a_peer_that_does_not_read_holds_the_sender_up
                an_unfinished_frame_leaves_other_links_alone
                a_broken_link_is_full_until_it_is_down
                an_idle_transport_has_nothing_to_report
                a_budget_bounds_what_is_reported
                a_flooded_link_does_not_starve_another;
            closing:
                a_drained_link_delivers_everything_and_then_is_closed
                a_full_link_may_be_drained
                both_sides_may_drain_at_once
                a_link_drained_inside_a_frame_did_not_end_in_order
                a_link_may_be_drained_while_the_peer_is_inside_a_frame
                a_link_may_be_closed_while_it_connects
                a_link_may_be_closed_before_its_end_was_reported
                an_aborted_link_never_claims_to_be_complete
                a_dropped_transport_ends_its_links
                a_dropped_transport_inside_a_frame_did_not_end_in_order
                a_number_that_is_used_again_hears_nothing_of_its_past;
            exposing:
                exposed_payload_is_pulled_whole_and_in_parts
                a_pull_beyond_what_is_exposed_does_not_succeed
                nonsense_is_not_pulled
                nothing_is_pulled_once_the_link_was_closed
                nothing_is_pulled_once_the_transport_was_dropped;
            mapping:
                both_sides_see_what_is_shared
                what_is_described_wrong_is_not_mapped
                what_is_gone_is_not_mapped;
            waking:
                an_idle_transport_falls_asleep
                a_connect_wakes
                an_answered_connect_wakes
                a_refused_connect_wakes
                a_frame_wakes
                what_is_there_already_keeps_awake
                room_wakes
                a_drained_link_wakes
                an_aborted_link_wakes
                a_dropped_peer_wakes
                a_wake_descriptor_may_be_nested
                two_that_sleep_whenever_they_can_miss_nothing;
        }
    };
    (@tests $provider:expr; $($theme:ident: $($test:ident)+;)+) => {
        $($(
            #[test]
            fn $test() {
                $crate::transport::$theme::$test(&$provider);
            }
        )+)+
    };
}

#[cfg(test)]
mod tests {
    /// A function that is not listed would be tested by nobody.
    #[test]
    fn every_function_of_the_contract_is_listed() {
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
            let signature = "<P: Provider>(provider: &P) {";
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
