//! The contract of a homespun backend as a library of tests.
//!
//! A backend implements [`Provider`] and [`Transport`], and needs only the crate `homespun-engine`. The
//! documentation of these traits makes promises. This crate has a function for each promise. The function
//! panics if a backend breaks the promise. The functions use a backend only through the two traits.
//!
//! # How to use it
//!
//! ```toml
//! [dependencies]
//! homespun-engine = "0.1"
//!
//! [dev-dependencies]
//! homespun-conformance = "0.1"
//! ```
//!
//! One line in a file below `tests/` turns each function into a test. Replace the loopback network with an
//! expression that creates your provider:
//!
//! ```
//! use homespun_engine::loopback::{Faults, Network};
//!
//! homespun_conformance::transport_contract!(Network::new(7, Faults::default()), features: [maps, splits]);
//! # fn main() {}
//! ```
//!
//! `cargo test` then shows the result of each promise by name. A promise is `ignored` if it belongs to an
//! optional [feature](transport::Features) that the backend does not declare:
//!
//! ```text
//! test frames_arrive_whole_and_in_order ... ok
//! test frame_wakes_the_receiver ... ignored, the backend has no wake-ups
//! test declared_features_match_the_backend ... ok
//! ```
//!
//! To begin, declare no feature: `declared_features_match_the_backend` prints the features that the backend
//! has. [`transport_contract`] documents the other arguments of the macro.
//!
//! # One promise at a time
//!
//! A test may also call a single function, for example for a backend in a special situation:
//!
//! ```
//! use std::time::Duration;
//!
//! use homespun_conformance::transport::{Backend, connecting, frames};
//! use homespun_engine::loopback::{Faults, Network};
//!
//! let network = Network::new(7, Faults::choppy());
//! let backend = Backend::new(&network).with_patience(Duration::from_secs(600));
//! connecting::endpoint_connects_to_itself(backend);
//! frames::many_small_frames_arrive_in_order(backend);
//! ```
//!
//! [`TestEndpoint`](transport::TestEndpoint) drives a transport as an engine would, and
//! [`Recorder`](transport::Recorder) records what the transport reports. Tests of your own may use both:
//!
//! ```
//! use homespun_conformance::transport::{Backend, drive_until, pseudo_random_payload};
//! use homespun_engine::loopback::{Faults, Network};
//!
//! let network = Network::new(7, Faults::default());
//! let (mut endpoints, link, peer) = Backend::new(&network).open_linked_pair();
//! endpoints[0].post(link, pseudo_random_payload(100, 1));
//! drive_until(&mut endpoints, "the frame", |[_, b]| b.recorder.frame_count(peer) == 1);
//! assert_eq!(endpoints[1].recorder.payloads_of(peer), [pseudo_random_payload(100, 1)]);
//! ```
//!
//! [`Provider`]: homespun_engine::transport::Provider
//! [`Transport`]: homespun_engine::transport::Transport

#![forbid(unsafe_code)]

pub mod transport;

/// Makes a `#[test]` of each function of the contract, with the name of the function.
///
/// Takes an expression whose type is a [`Provider`](homespun_engine::transport::Provider). Each test
/// evaluates the expression anew.
///
/// `features` lists the optional [features](transport::Features) of the backend; the default is none. Tests
/// of other features are ignored. One more test, `declared_features_match_the_backend`, fails if the list
/// differs from the features that the backend has.
///
/// A test waits up to a minute for an event. A slow backend may ask for more `patience`.
///
/// ```
/// use std::time::Duration;
///
/// # use homespun_engine::loopback::{Faults, Network};
/// homespun_conformance::transport_contract!(
///     Network::new(7, Faults::default()),
///     features: [maps, splits],
///     patience: Duration::from_secs(600),
/// );
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! transport_contract {
    (
        $provider:expr
        $(, features: [$($feature:ident),* $(,)?])?
        $(, patience: $patience:expr)?
        $(,)?
    ) => {
        $crate::transport_contract! {
            @features [$($($feature)*)?] lacks lacks lacks lacks lacks; ($provider $(, $patience)?)
        }
    };
    // Each of the following arms takes one listed feature, and replaces its `lacks` by `has`.
    (
        @features [pulls $($rest:ident)*]
        $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt
    ) => {
        $crate::transport_contract! { @features [$($rest)*] has $maps $splits $wakes $backlog; $run }
    };
    (
        @features [maps $($rest:ident)*]
        $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt
    ) => {
        $crate::transport_contract! { @features [$($rest)*] $pulls has $splits $wakes $backlog; $run }
    };
    (
        @features [splits $($rest:ident)*]
        $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt
    ) => {
        $crate::transport_contract! { @features [$($rest)*] $pulls $maps has $wakes $backlog; $run }
    };
    (
        @features [wakes $($rest:ident)*]
        $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt
    ) => {
        $crate::transport_contract! { @features [$($rest)*] $pulls $maps $splits has $backlog; $run }
    };
    (
        @features [backlog $($rest:ident)*]
        $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt
    ) => {
        $crate::transport_contract! { @features [$($rest)*] $pulls $maps $splits $wakes has; $run }
    };
    (@features [$unknown:ident $($rest:ident)*] $($has:ident)+; $run:tt) => {
        compile_error!(concat!("the contract knows no feature `", stringify!($unknown), "`"));
    };
    (@features [] $pulls:ident $maps:ident $splits:ident $wakes:ident $backlog:ident; $run:tt) => {
        #[test]
        fn declared_features_match_the_backend() {
            let declared = $crate::transport::Features {
                pulls: $crate::transport_contract!(@is $pulls),
                maps: $crate::transport_contract!(@is $maps),
                splits: $crate::transport_contract!(@is $splits),
                wakes: $crate::transport_contract!(@is $wakes),
                backlog: $crate::transport_contract!(@is $backlog),
            };
            $crate::transport_contract! { @with backend $run }
            $crate::transport::assert_features(backend, declared);
        }
        $crate::transport_contract! {
            @tests has "" $run
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
                connecting_link_comes_up_after_stop_accepting
                connect_after_stop_accepting_succeeds
                links_between_many_endpoints_carry_their_own_frames;
            frames:
                frames_arrive_whole_and_in_order
                header_of_each_form_arrives_unchanged
                frames_handed_over_arrive_without_further_calls
                send_inline_takes_payload_up_to_its_limit
                many_small_frames_arrive_in_order
                large_frame_arrives_whole
                frame_sent_before_link_up_arrives_after_it
                flushed_frame_arrives_without_further_calls_of_the_sender
                transport_moved_to_another_thread_works;
            room:
                full_link_delivers_everything_once_the_peer_reads
                broken_link_answers_full_until_link_down
                receive_on_an_idle_transport_returns_0
                receive_budget_limits_reported_frames
                flooded_link_does_not_starve_others;
            closing:
                drain_delivers_all_frames_before_closed
                drain_completes_without_calls_of_the_peer
                drain_while_connecting_completes_without_calls_of_the_peer
                drain_of_a_full_link_completes_when_the_peer_is_dropped
                transport_dropped_after_a_drain_loses_no_frames
                drain_of_a_full_link_delivers_the_taken_frames
                drain_from_both_sides_completes
                close_while_connecting_reports_nothing
                close_of_an_ended_link_reports_nothing
                abort_reports_closed_to_the_peer_only_after_all_frames
                dropped_transport_ends_its_links_and_fails_unaccepted_connects
                reused_link_id_gets_no_events_of_its_predecessor;
        }
        $crate::transport_contract! {
            @tests $pulls "links of the backend do not pull payload" $run
            exposing:
                pull_reads_exposed_payload_whole_and_in_parts
                pull_again_reads_the_same_payload
                pull_of_memory_that_is_exposed_again_reads_its_new_content
                pull_beyond_exposed_memory_fails
                pull_from_an_invalid_description_fails
                pull_after_close_fails
                pull_after_transport_drop_fails;
        }
        $crate::transport_contract! {
            @tests $maps "links of the backend do not map memory of their peers" $run
            mapping:
                mapped_memory_is_shared_with_its_owner
                map_with_a_wrong_description_fails
                map_of_freed_memory_fails;
        }
        $crate::transport_contract! {
            @tests $splits "the backend takes frames whole or not at all" $run
            room:
                partly_sent_frame_does_not_block_other_links;
            closing:
                close_after_a_partly_taken_frame_resets_the_peer
                drain_amid_an_incoming_frame_reports_closed_to_the_peer
                transport_dropped_after_a_partly_taken_frame_resets_the_peer;
        }
        $crate::transport_contract! {
            @tests $wakes "the backend has no wake-ups" $run
            waking:
                idle_transport_arms_and_sleeps
                incoming_connect_wakes_the_acceptor
                accepted_connect_wakes_the_connector
                refused_connect_wakes_the_connector
                frame_wakes_the_receiver
                arm_with_unreported_frames_stays_awake
                arm_after_an_unreported_event_stays_awake
                arm_after_room_was_freed_stays_awake
                room_keeps_the_transport_ready_until_it_is_reported
                drain_completes_while_the_endpoint_sleeps
                free_room_wakes_the_sender
                drain_wakes_the_peer
                abort_wakes_the_peer
                dropped_transport_wakes_the_peer
                wake_fd_works_inside_another_epoll
                sleeping_endpoints_miss_no_wakeup;
        }
        $crate::transport_contract! {
            @tests $backlog "the backlog of the backend does not fill up" $run
            waking:
                connector_at_a_full_backlog_sets_a_retry_time_and_connects;
        }
    };
    (@is has) => { true };
    (@is lacks) => { false };
    (@tests has $reason:literal $run:tt $($theme:ident: $($test:ident)+;)+) => {
        $($(
            #[test]
            fn $test() {
                $crate::transport_contract! { @with backend $run }
                $crate::transport::$theme::$test(backend);
            }
        )+)+
    };
    (@tests lacks $reason:literal $run:tt $($theme:ident: $($test:ident)+;)+) => {
        $($(
            #[test]
            #[ignore = $reason]
            fn $test() {
                $crate::transport_contract! { @with backend $run }
                $crate::transport::$theme::$test(backend);
            }
        )+)+
    };
    (@with $backend:ident ($provider:expr $(, $patience:expr)?)) => {
        let provider = $provider;
        let $backend = $crate::transport::Backend::new(&provider)$(.with_patience($patience))?;
    };
}

#[cfg(test)]
mod tests {
    /// A test function that the macro does not list would never run.
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
