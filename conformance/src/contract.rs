//! The promises of the contract, as tests of a program.

use std::time::Duration;

use homespun_engine::transport::Provider;
use libtest_mimic::{Completion, Trial};

use crate::transport::{self, Backend, Features, assert_features};

/// A promise, and the function that panics if a backend breaks it.
struct Promise<P> {
    name: &'static str,
    /// The optional features that it belongs to.
    of: Features,
    check: fn(Backend<'_, P>),
}

/// The contract of one backend.
#[derive(Debug)]
pub struct Contract<P> {
    name: &'static str,
    open: fn() -> P,
    features: Features,
    patience: Option<Duration>,
}

impl<P: Provider + 'static> Contract<P> {
    /// Creates the contract of a backend. Each test opens a provider of its own. Tests of features that are
    /// not listed are ignored; one more test, `declared_features_match_the_backend`, fails if the list
    /// differs from the features that the backend has.
    #[must_use]
    pub fn new(name: &'static str, open: fn() -> P, features: Features) -> Contract<P> {
        Contract { name, open, features, patience: None }
    }

    /// Lets a test wait so long for an event, for a slow backend. The default is a minute.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Contract<P> {
        Contract { patience: Some(patience), ..self }
    }

    /// Makes each promise a test, called `name::promise`.
    #[must_use]
    pub fn tests(self) -> Vec<Trial> {
        let Contract { name, open, features, patience } = self;
        let run = move |check: &dyn Fn(Backend<'_, P>)| {
            let provider = open();
            let backend = Backend::new(&provider);
            check(match patience {
                Some(patience) => backend.with_patience(patience),
                None => backend,
            });
            Ok(Completion::Completed)
        };
        let declared = format!("{name}::declared_features_match_the_backend");
        let mut tests =
            vec![Trial::ignorable_test(declared, move || run(&|backend| assert_features(backend, features)))];
        tests.extend(promises::<P>().into_iter().map(|Promise { name: promise, of, check }| {
            Trial::ignorable_test(format!("{name}::{promise}"), move || match of - features {
                lacked if lacked.is_empty() => run(&check),
                lacked => {
                    let names: Vec<&str> = lacked.iter_names().map(|(name, _)| name).collect();
                    Ok(Completion::ignored_with(format!("the backend lacks {}", names.join(" and "))))
                }
            })
        }));
        tests
    }
}

/// All promises, by theme. A test checks that no function of a theme is left out.
fn promises<P: Provider>() -> Vec<Promise<P>> {
    macro_rules! promises {
        ($($of:expr, $theme:ident: $($name:ident)+;)+) => {
            vec![$($(
                Promise { name: stringify!($name), of: $of, check: transport::$theme::$name::<P> },
            )+)+]
        };
    }
    promises! {
        Features::empty(), opening:
            provider_attr_is_complete_and_constant
            wildcard_bind_resolves_to_a_specific_address
            open_binds_to_the_requested_address
            open_at_an_address_in_use_fails_with_eaddrinuse;
        Features::empty(), connecting:
            link_up_names_address_and_instance_of_the_peer
            endpoints_of_each_address_format_exchange_frames
            simultaneous_connects_make_two_links
            two_connects_to_one_peer_make_two_links
            endpoint_connects_to_itself
            connect_to_a_vacant_address_fails_with_econnrefused
            endpoint_reopened_at_an_address_has_its_own_instance
            link_of_a_closed_endpoint_comes_up_before_its_successors_or_ended
            stop_accepting_refuses_new_links_and_keeps_old_ones
            link_unreported_by_the_acceptor_never_comes_up
            connecting_link_comes_up_after_stop_accepting
            connect_after_stop_accepting_succeeds
            links_between_many_endpoints_carry_their_own_frames;
        Features::empty(), frames:
            frames_arrive_whole_and_in_order
            header_of_each_form_arrives_unchanged
            frames_handed_over_arrive_without_further_calls
            send_inline_takes_payload_up_to_its_limit
            many_small_frames_arrive_in_order
            large_frame_arrives_whole
            frame_sent_before_link_up_arrives_after_it
            flushed_frame_arrives_without_further_calls_of_the_sender
            transport_moved_to_another_thread_works;
        Features::empty(), at_once:
            messages_sent_at_once_keep_their_order
            message_sent_at_once_arrives_without_further_calls
            idle_transport_asks_for_a_pass_now_and_then;
        Features::empty(), room:
            full_link_delivers_everything_once_the_peer_reads
            broken_link_answers_full_until_link_down
            receive_on_an_idle_transport_returns_0
            receive_budget_limits_reported_frames
            flooded_link_does_not_starve_others;
        Features::empty(), closing:
            drain_delivers_all_frames_before_closed
            drain_completes_without_calls_of_the_peer
            drain_while_connecting_completes_without_calls_of_the_peer
            drain_of_a_full_link_completes_when_the_peer_is_dropped
            transport_dropped_after_a_drain_loses_no_frames
            drain_from_both_sides_completes
            close_while_connecting_reports_nothing
            close_of_an_ended_link_reports_nothing
            abort_reports_closed_to_the_peer_only_after_all_frames
            dropped_transport_ends_its_links_and_fails_unaccepted_connects
            reused_link_id_gets_no_events_of_its_predecessor;
        Features::PULLS, exposing:
            pull_reads_exposed_payload_whole_and_in_parts
            pull_again_reads_the_same_payload
            pull_of_memory_that_is_exposed_again_reads_its_new_content
            pull_beyond_exposed_memory_fails
            pull_from_an_invalid_description_fails
            pull_after_close_fails
            pull_after_transport_drop_fails;
        Features::MAPS, mapping:
            mapped_memory_is_shared_with_its_owner
            map_with_a_wrong_description_fails
            map_of_freed_memory_fails;
        Features::SPLITS, room:
            partly_sent_frame_does_not_block_other_links;
        Features::SPLITS, closing:
            close_after_a_partly_taken_frame_resets_the_peer
            drain_amid_an_incoming_frame_reports_closed_to_the_peer
            transport_dropped_after_a_partly_taken_frame_resets_the_peer;
        Features::WAKES, waking:
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
        Features::BACKLOG, waking:
            connector_at_a_full_backlog_sets_a_retry_time_and_connects;
    }
}

#[cfg(test)]
mod tests {
    use homespun_engine::loopback::Network;

    #[test]
    fn every_function_of_the_contract_is_a_promise() {
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
        let names: Vec<&str> = super::promises::<Network>().iter().map(|promise| promise.name).collect();
        let signature = "<P: Provider>(backend: Backend<'_, P>) {";
        let function = |line: &'static str| line.strip_prefix("pub fn ")?.strip_suffix(signature);
        let functions: Vec<&str> =
            themes.iter().flat_map(|theme| theme.lines().filter_map(function)).collect();
        assert!(functions.len() > 50, "{functions:?}");
        for function in functions {
            assert!(names.contains(&function), "{function}");
        }
    }
}
