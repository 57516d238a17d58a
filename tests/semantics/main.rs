//! What endpoints, completion queues and address vectors mean, told by tests that run over every transport.
//!
//! Each test is a function of a [`Net`]; it is written once and listed once, below. "In turns" one thread drives all
//! endpoints; "in threads" each endpoint is also driven by a thread of its own all the time; "across processes" each
//! endpoint lives in a process of its own, which drives it; "by itself" the library drives what nobody reads.

mod atomic_exclusion;
mod atomic_rights;
mod atomics;
mod binding;
mod bounds;
mod calls;
mod cancel;
mod closing;
mod completion_order;
mod connection_order;
mod connections;
mod counter_waits;
mod counters;
mod cq_letter;
mod credit;
mod directed;
mod durability;
mod empty_operations;
mod entries;
mod event_waiting;
mod failures;
mod fence;
mod ignored_flags;
mod late_binding;
mod levels;
mod misuse;
mod multi_receive;
mod naming;
mod ordering;
mod overrun;
mod partings;
mod peek;
mod poll_sets;
mod rejected;
mod restart;
mod rma;
mod safe_code;
mod selective;
mod shareable;
mod shared_connections;
mod shared_context_bounds;
mod shared_context_misuse;
mod shared_context_waits;
mod shared_context_works;
mod shared_contexts;
mod sources;
#[path = "../suite/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;
mod threads;
mod transmit_contexts;
mod triggered;
mod truncation;
mod wait_sets;
mod waiting;

use crate::suite::{Net, Transport, Turns};

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

/// The tests that hold wherever the endpoints live and whoever drives them.
macro_rules! tests_of_parties {
    ($net:expr) => {
        tests! { $net;
            calls:
                every_way_to_send_meets_every_way_to_receive
                messages_of_every_size_arrive
                the_largest_messages_arrive
                a_message_and_its_room_may_lie_in_pieces
                a_raw_buffer_is_not_written_beyond_its_end
                more_announces_what_follows_and_delays_nothing_for_ever;
            entries:
                every_format_tells_what_it_includes
                many_entries_are_read_at_once_and_in_order
                a_queue_for_each_direction
                reading_no_entries_drives_progress;
            cq_letter:
                every_field_of_every_kind_of_operation
                every_field_of_looks_and_claims
                an_error_tells_what_there_is_to_tell
                remote_data_is_there_if_its_flag_is
                errors_are_read_one_by_one
                every_number_of_an_error_has_a_text;
            sources:
                a_source_is_what_the_address_vector_calls_it
                an_unknown_source_is_unspecified
                a_removed_source_is_unspecified
                of_several_names_the_lowest_is_the_source
                without_the_capability_no_source_is_named
                an_unknown_source_is_told_with_all_of_its_completion
                whoever_was_told_of_can_be_inserted
                unknown_sources_keep_their_place_among_completions
                what_failed_has_failed_whoever_sent_it
                an_unknown_source_is_looked_up_when_its_entry_is_written
                unknown_sources_take_room_like_others
                a_look_tells_of_an_unknown_source
                a_silent_success_has_no_source
                receives_with_a_queue_of_their_own_tell_of_unknown_sources_there;
            directed:
                a_directed_receive_takes_messages_of_its_sender_alone
                an_unspecified_sender_is_any
                directed_and_undirected_receives_take_turns
                a_directed_receive_ends_with_its_sender
                without_the_capability_the_sender_does_not_matter;
            truncation:
                a_long_message_is_cut_and_said_to_be
                a_cut_message_leaves_the_sender_and_the_next_message_alone
                errors_keep_their_place_among_completions
                room_for_nothing_takes_nothing;
            ordering:
                messages_of_mixed_sizes_arrive_in_order
                tagged_messages_of_one_tag_are_received_in_order
                the_earliest_posted_receive_takes_a_message
                tagged_and_untagged_messages_do_not_meet
                tags_are_matched_bit_by_bit
                both_directions_keep_their_order
                a_message_does_not_overtake_a_write
                a_read_does_not_overtake_a_write
                a_write_does_not_overtake_a_write
                a_write_does_not_overtake_a_read
                a_message_does_not_overtake_a_read
                a_read_does_not_overtake_a_read
                a_fetch_does_not_overtake_a_read
                an_access_does_not_overtake_messages
                operations_of_all_kinds_are_done_as_if_one_by_one;
            completion_order:
                sends_and_accesses_complete_as_they_were_posted
                what_fails_has_its_turn
                what_is_silent_has_its_turn;
            bounds:
                sends_that_wait_for_the_peer_keep_nothing_else_from_the_queue
                sends_wait_for_room_in_the_queue
                receives_wait_for_room_in_the_queue
                the_receive_queue_has_a_depth;
            overrun:
                entries_come_first_and_then_nothing_more
                errors_are_lost_or_kept_like_successes
                each_direction_is_overrun_for_itself
                a_queue_that_is_read_in_time_loses_nothing;
            levels:
                a_match_may_be_the_default_level
                of_several_levels_the_strongest_counts
                every_level_completes_in_the_end
                a_delivery_needs_no_receive_to_be_posted
                a_match_needs_one
                a_late_match_holds_up_no_later_one
                what_a_cancelled_receive_wanted_is_not_matched
                a_message_that_was_cut_is_matched
                a_match_without_a_place_in_the_receivers_queue
                every_level_carries_every_kind_of_message
                messages_to_oneself_reach_every_level
                many_matches_are_told_of_in_whatever_order_they_come;
            fence:
                a_fenced_match_waits_until_all_before_it_are_matched
                a_fence_counts_what_is_silent_or_injected
                a_fence_may_be_silent_or_injected_itself
                fences_of_every_level_end_and_keep_the_order
                a_fence_holds_up_nothing_to_another_peer
                what_follows_a_fence_stays_behind_it
                a_fence_with_nothing_before_it_is_no_obstacle
                messages_to_oneself_are_fenced_too
                a_fenced_send_is_taken_back
                what_was_asked_for_a_fence_that_is_gone_is_asked_again
                everything_behind_a_fence_ends_when_the_peer_does
                whatever_is_fenced_waits_for_a_match
                a_fenced_access_asks_for_the_match_of_messages
                whatever_is_fenced_is_done_after_a_long_write
                whatever_is_fenced_is_done_after_a_long_read
                whatever_is_fenced_comes_after_a_failure;
            durability:
                what_completes_as_committed_is_durable
                what_is_not_committed_is_durable_when_a_fence_has_passed
                the_target_is_told_of_what_is_durable
                writes_may_be_committed_by_default
                memory_that_is_not_persistent_is_not_committed_to
                write_without_the_capability_cannot_commit;
            peek:
                a_look_tells_of_a_message_and_leaves_it
                a_look_that_finds_nothing_leaves_nothing
                peek_before_a_pass_does_not_see_what_the_pass_receives
                peek_sees_what_was_received_before_a_completion_that_was_read
                peeks_that_read_no_queue_make_progress
                a_look_finds_the_earliest_that_fits
                a_look_may_ask_for_a_sender
                what_a_posted_receive_takes_is_not_seen
                a_claimed_message_is_received_by_its_claim_alone
                what_is_discarded_is_gone
                a_claim_matches_only_when_it_receives
                a_claim_is_used_once
                a_claimed_message_is_cut_like_any_other
                a_message_that_is_still_arriving_is_seen_claimed_and_discarded
                a_message_that_stays_with_its_sender_is_seen_claimed_and_discarded
                a_claimed_message_outlives_its_sender
                whoever_has_claimed_a_message_may_close
                peek_needs_no_place_among_posted_receives
                messages_to_oneself_can_be_looked_at;
            multi_receive:
                messages_share_a_buffer_in_the_order_of_their_posting
                one_buffer_after_another_takes_a_stream
                messages_from_everybody_go_into_one_buffer
                what_came_before_goes_into_the_buffer
                a_message_that_does_not_fit_goes_on
                a_message_longer_than_the_whole_buffer_is_cut
                the_minimum_is_that_of_the_time_of_posting
                formats_tell_where_a_message_lies_or_do_not
                only_the_release_of_a_silent_buffer_is_heard
                a_cancelled_buffer_is_released_with_an_error
                a_directed_buffer_ends_with_its_sender
                a_buffer_takes_nothing_while_the_queue_is_full
                a_buffer_may_overrun_a_queue_that_nothing_protects
                a_buffer_is_not_written_to_after_its_endpoint_was_closed
                a_match_is_told_of_when_the_buffer_has_the_message
                a_buffer_takes_messages_to_oneself
                many_messages_may_be_the_default
                what_a_buffer_cannot_be;
            credit:
                many_long_messages_wait_for_a_small_budget
                what_is_discarded_makes_room;
            selective:
                success_is_silent_unless_asked_for
                a_level_is_no_request_for_a_completion
                flags_of_a_call_take_the_place_of_the_default
                an_injection_is_never_reported
                failure_is_never_silent
                truncation_is_never_silent;
            failures:
                nobody_listens
                somebody_listens_later
                unreachable_injections_are_reported
                a_closed_peer_is_found_again_at_its_address;
            restart:
                what_a_former_peer_has_sent_arrives_all_the_same
                what_was_meant_for_a_former_peer_fails_once
                one_who_comes_back_is_known_to_all;
            misuse:
                an_address_that_is_not_known
                default_flags_that_operations_lack_are_refused
                capabilities_that_are_not_there
                too_much_to_inject
                too_many_pieces;
            cancel:
                a_posted_receive_is_cancelled
                what_is_not_posted_cannot_be_cancelled
                a_cancelled_receive_takes_no_message
                one_receive_of_several_is_cancelled
                a_message_that_has_left_is_not_taken_back;
            naming:
                a_name_is_specific_and_has_a_port
                a_wildcard_endpoint_is_reached_by_its_name
                a_name_that_is_taken
                sixteen_endpoints_talk_to_each_other;
            closing:
                everything_is_dropped_in_any_order
                what_was_accepted_arrives_after_the_sender_is_gone
                what_waits_to_be_matched_arrives_after_the_sender_is_gone
                injected_messages_arrive_after_the_sender_is_gone
                an_endpoint_that_was_never_enabled_is_dropped;
            rma:
                every_way_to_write_reaches_the_region
                every_way_to_read_reaches_the_region
                accesses_of_every_size_are_whole
                what_is_not_allowed_fails_and_nothing_else_does
                an_endpoint_is_a_target_of_what_it_was_opened_for
                remote_data_completes_at_the_target
                remote_data_waits_for_room_at_the_target
                more_accesses_are_posted_than_a_target_takes_at_once
                accesses_and_messages_go_both_ways_at_once
                an_endpoint_accesses_its_own_memory
                a_fence_waits_for_accesses
                success_may_be_silent_and_failure_never_is
                nothing_touches_the_memory_of_a_closed_region
                a_key_belongs_to_one_region_at_a_time
                accesses_end_with_their_target
                an_endpoint_without_the_capability_has_no_access;
            atomics:
                every_call_reaches_the_region
                every_operation_updates_every_datatype
                arrays_of_every_length_are_whole
                an_injected_operation_leaves_its_buffer_alone
                what_was_posted_is_carried_out_after_its_initiator_is_gone
                operations_take_effect_in_the_order_of_their_posting
                more_operations_are_posted_than_a_target_takes_at_once
                operations_accesses_and_messages_go_both_ways_at_once
                an_endpoint_updates_its_own_memory
                a_fence_waits_for_operations
                every_level_completes
                success_may_be_silent_and_failure_never_is
                nothing_touches_the_memory_of_a_closed_region
                operations_end_with_their_target;
            atomic_rights:
                what_is_not_allowed_fails_and_nothing_else_does
                an_endpoint_is_a_target_of_what_it_was_opened_for
                an_endpoint_begins_what_it_was_opened_for
                an_endpoint_without_the_capability_has_no_atomics;
            empty_operations:
                atomic_on_no_elements_completes_without_effect
                atomic_on_no_elements_needs_no_region
                atomic_on_no_elements_that_is_not_offered_is_refused
                fence_waits_for_operations_of_nothing
                access_of_no_bytes_needs_no_region
                remote_data_with_no_bytes_and_no_region_arrives;
            ignored_flags:
                send_with_meaningless_flags_arrives
                receive_with_meaningless_flags_takes_its_message
                peek_with_meaningless_flags_finds_its_message
                access_with_meaningless_flags_takes_effect
                atomic_with_meaningless_flags_takes_effect
                flag_that_cannot_be_ignored_is_refused;
            atomic_exclusion:
                everybodys_updates_count
                a_lock_can_be_made_of_a_swap;
            shareable:
                what_is_mapped_is_written_and_read_like_any_other
                what_is_over_at_once_waits_for_room_to_be_reported
                what_is_over_at_once_overruns_a_queue_like_the_rest
                what_is_mapped_is_counted_whether_it_is_reported_or_not
                a_message_finds_what_was_written_before_it
                rights_and_bounds_hold_for_what_is_mapped
                an_endpoint_shows_no_more_than_it_allows
                what_has_ended_is_mapped_no_longer
                more_regions_are_accessed_than_are_mapped
                what_the_owner_is_to_see_goes_through_it
                the_end_of_the_owner_is_noticed;
            counters:
                messages_are_counted_at_both_ends
                accesses_are_counted_at_both_ends
                atomics_that_change_a_region_are_counted_as_writes_to_it
                whoever_has_mapped_a_region_is_counted_all_the_same
                what_is_silent_is_counted_like_the_rest
                failures_are_counted_apart
                what_cannot_be_reached_is_counted_as_a_failure
                looks_are_no_receipts
                each_message_in_a_buffer_is_counted
                counting_waits_for_no_room
                a_level_is_reached_before_it_is_counted
                what_an_endpoint_does_to_itself_is_counted_twice
                what_ends_with_its_peer_is_counted;
            threads:
                two_threads_play_ping_pong
                two_threads_flood_each_other;
        }
    };
}

/// The tests that need a party which makes no progress for a while, or count on it that whatever happens has happened when
/// everybody was driven some times.
macro_rules! tests_of_sleepers {
    ($net:expr) => {
        tests! { $net;
            entries:
                a_queue_that_is_never_empty_drives_progress_all_the_same;
            bounds:
                the_transmit_queue_has_a_depth
                what_was_refused_has_had_no_effect;
            overrun:
                sends_have_no_places_but_still_a_depth
                reads_drive_progress_all_the_same;
            levels:
                a_small_message_is_injected_without_its_receiver
                a_match_waits_for_the_receiver_too
                the_default_level_comes_from_the_endpoint
                the_stronger_levels_wait_for_the_receiver;
            fence:
                the_weakest_fence_waits_for_the_completion_of_those_before_it
                a_fenced_message_waits_for_the_answer_to_every_access;
            completion_order:
                what_waits_for_its_turn_is_outstanding;
            ordering:
                what_is_mapped_does_not_overtake_messages_either;
            credit:
                a_flood_waits_with_its_sender
                a_flood_goes_on_as_it_is_received
                nobody_else_is_held_up_by_a_flood
                messages_that_no_budget_holds_arrive_when_they_are_received
                a_message_that_waits_for_credit_is_taken_back
                a_sender_that_closes_waits_for_credit
                two_floods_meet
                a_flood_to_oneself_waits_as_well
                messages_that_wait_for_credit_end_when_the_receiver_does;
            failures:
                the_peer_closes;
            rma:
                an_access_waits_for_its_target
                what_cannot_be_posted_is_refused;
            shareable:
                what_is_mapped_is_accessed_without_its_owner;
            atomics:
                an_operation_waits_for_its_target;
            atomic_rights:
                what_cannot_be_posted_is_refused;
        }
    };
}

/// The tests that mean something only where all parties share a process.
macro_rules! tests_of_objects {
    ($net:expr) => {
        tests! { $net;
            // What takes entries is a closure that uses the queue: it cannot be sent to another process.
            entries:
                what_reads_entries_may_use_the_queue_and_its_endpoints;
            // Two endpoints share one queue, which is an object of one process.
            bounds:
                two_endpoints_share_a_queue;
            // A thread sleeps on a queue of this process.
            sources:
                whoever_sleeps_is_told_of_an_unknown_source;
            // A queue is looked at before any endpoint is there, and after.
            cq_letter:
                a_queue_holds_as_much_as_it_was_opened_for
                a_queue_without_endpoints_has_nothing_to_tell
                what_was_not_read_outlives_its_endpoint_and_is_lost_with_its_queue
                what_is_lost_with_its_queue_is_dropped;
            // Whether a buffer was dropped is seen where it came from; two domains are objects of one process.
            overrun:
                what_is_lost_is_dropped
                the_domain_decides_for_its_endpoints;
            // These are about objects as such, most of them before any peer is there.
            misuse:
                an_endpoint_out_of_service_posts_nothing
                enabling_needs_queues_and_addresses
                everything_is_bound_once
                what_getinfo_would_not_answer_cannot_be_opened
                objects_of_two_domains_are_not_bound_together
                what_is_bound_is_not_closed_even_before_it_is_used
                what_is_in_use_is_not_closed;
            // Whether a buffer that comes back is the one that was handed over is seen where it came from.
            rejected:
                everything_comes_back_from_an_endpoint_out_of_service
                everything_comes_back_if_the_peer_is_unknown
                everything_comes_back_without_the_capability
                everything_comes_back_if_there_is_no_room
                too_many_pieces_and_a_claim_of_nothing_come_back
                what_came_back_is_posted_again;
            // A context and its endpoints are objects of one process.
            shared_contexts:
                receives_posted_before_binding_serve_every_endpoint
                messages_of_each_peer_keep_their_order
                receive_takes_message_that_came_before_it
                tagged_and_untagged_receives_take_messages_of_their_kind
                long_message_is_truncated_at_its_endpoint
                directed_receive_takes_its_source_at_any_endpoint
                directed_receive_ends_with_the_last_link_of_its_source
                buffer_takes_messages_of_all_endpoints
                cancelled_receive_ends_at_the_first_endpoint
                peek_finds_messages_of_any_endpoint
                closed_endpoint_leaves_receives_to_others
                endpoints_come_and_go_while_messages_arrive
                selective_endpoint_reports_asked_receives_alone
                counters_count_what_their_endpoint_receives;
            shared_context_waits:
                peeks_alone_make_progress
                sleeping_reader_wakes_for_a_post
                sleeping_reader_wakes_for_a_cancel
                threads_post_while_others_read
                threads_post_while_others_read_one_queue;
            shared_context_bounds:
                report_without_endpoints_waits_for_the_first
                full_queue_of_one_endpoint_stops_no_other
                buffer_serves_others_while_one_queue_is_full
                receives_beyond_the_depth_are_refused
                many_messages_wait_for_a_small_budget;
            shared_context_misuse:
                directed_receive_without_endpoints_is_refused
                context_with_endpoints_is_not_closed
                wrong_use_is_refused;
            shared_context_works:
                post_to_the_context_makes_work_of_its_endpoint_due
                receive_of_an_endpoint_with_a_shared_context_cannot_wait;
            // Handles are dropped, closed, forgotten and shared in ways that one process alone can.
            safe_code:
                silent_access_frees_its_memory
                what_is_posted_is_freed_with_its_endpoint
                what_is_forgotten_harms_nobody
                objects_are_closed_in_any_order_or_are_busy
                everything_is_dropped_while_a_thread_polls
                the_last_of_many_threads_closes_the_endpoint
                an_endpoint_is_dropped_amid_traffic_in_both_directions;
            // There is one endpoint only, or one of the domains is the network inside the process.
            naming:
                an_endpoint_is_bound_where_it_is_told
                two_domains_at_once
                an_endpoint_talks_to_itself;
            // Regions belong to a domain, with or without a peer.
            rma:
                what_is_refused_is_handed_back
                what_cannot_be_registered_is_refused
                a_domain_may_pick_keys_and_count_from_addresses;
            // Two domains know the same memory, in threads; what is offered and handed back concerns no peer.
            atomic_rights:
                what_is_offered_is_said
                what_is_refused_is_handed_back;
            atomic_exclusion:
                updates_by_all_transports_count;
            // Counters, and what they are bound to, belong to a domain; threads of one process wait for them.
            binding:
                counters_take_the_place_of_queues
                one_counter_serves_several_endpoints_and_regions
                what_cannot_be_bound_is_refused
                a_region_is_enabled_when_it_has_its_counters;
            late_binding:
                counters_of_an_enabled_endpoint_count_what_follows
                a_counter_of_an_enabled_endpoint_wakes_its_waiters
                a_late_counter_of_accesses_counts_those_to_mapped_memory
                a_queue_of_an_enabled_endpoint_wakes_its_reader
                queues_of_an_enabled_endpoint_report_what_follows
                enabling_again_changes_nothing;
            counter_waits:
                events_wake_whoever_waits
                what_peers_do_to_a_region_wakes_whoever_waits
                failures_end_waits
                a_counter_and_a_queue_are_slept_on_at_once
                one_thread_waits_for_a_counter_while_another_polls
                endpoints_and_regions_come_and_go_while_a_thread_waits;
            // Works refer to counters and endpoints of one process.
            triggered:
                every_kind_of_work_waits_for_its_threshold
                work_is_reported_only_if_it_asks_for_that
                works_are_done_in_the_order_of_their_thresholds
                works_trigger_works
                work_whose_threshold_is_reached_is_done_at_once
                errors_count_towards_a_threshold
                events_of_endpoints_and_regions_trigger_works
                work_waits_while_its_endpoint_has_no_room
                cancelled_and_flushed_work_is_never_done
                work_stays_due_when_its_counter_is_set_back
                numbers_of_works_are_no_contexts_to_cancel
                works_without_room_at_a_closed_endpoint_end_uncounted
                work_that_is_queued_with_the_last_handle_is_forgotten
                triggered_operations_end_as_any_operation
                triggered_operation_is_cancelled_by_its_context
                work_that_is_refused_when_due_fails
                work_that_fails_is_counted_and_reported
                counters_that_work_depends_on_are_busy
                works_of_a_closed_endpoint_are_forgotten
                what_cannot_wait_is_refused
                sleepers_are_woken_by_works
                threads_count_and_queue_at_once;
            // The members of a set are objects of one process.
            wait_sets:
                what_happens_to_any_member_wakes_whoever_waits_for_the_set
                two_sets_are_slept_on_at_once;
            poll_sets:
                whoever_polls_a_set_drives_all_its_members
                what_is_in_a_set_is_not_closed;
            // Contexts belong to a domain, as their endpoints do.
            transmit_contexts:
                endpoints_that_share_a_context_complete_in_their_own_queues
                wrong_uses_of_transmit_contexts_are_refused
                a_context_with_endpoints_is_busy;
            // Files are mapped by the test's own domain.
            durability:
                a_file_is_one_with_its_region
                what_is_not_persistent_is_not_registered_as_such;
            // Threads share an endpoint or a queue; across processes the calls would come one by one.
            threads:
                an_endpoint_is_shared_by_threads
                queues_may_be_shared_crosswise;
            // Threads of one process sleep on its queues.
            waiting:
                messages_of_every_size_wake_both_sides
                completions_of_every_level_wake
                a_match_by_another_thread_is_told_of
                errors_wake
                the_end_of_a_peer_wakes
                the_death_of_a_peer_wakes
                a_timeout_ends_a_wait
                a_signal_ends_all_waits_or_else_the_next
                a_threshold_is_waited_for
                a_threshold_beyond_the_depth_is_the_depth
                several_threads_sleep_on_one_queue
                one_thread_sleeps_while_another_polls
                a_queue_of_one_direction_is_slept_on
                endpoints_come_and_go_while_a_thread_sleeps
                an_overrun_ends_every_wait
                several_queues_are_slept_on_at_once
                without_a_wait_object_nobody_waits;
        }
    };
}

/// The tests of endpoints with connections, which share a process.
macro_rules! tests_of_connections {
    ($net:expr) => {
        tests! { $net;
            connections:
                a_request_is_accepted_and_both_are_connected
                a_request_is_rejected
                nobody_listens
                messages_travel_both_ways_over_a_connection
                memory_is_accessed_over_a_connection
                accesses_of_every_kind_go_over_a_connection
                nothing_is_sent_before_the_connection_and_receives_may_wait_for_it
                requests_of_those_who_are_gone_leave_the_queue_unread
                the_requester_goes_before_it_is_accepted
                who_waits_is_refused_when_the_listener_goes
                another_endpoint_accepts_what_the_first_has_not
                many_ask_at_once
                the_backlog_is_limited
                an_endpoint_takes_over_the_address_of_a_passive_one
                a_name_is_chosen_before_it_is_needed
                what_is_missing_or_too_much_is_refused
                what_is_bound_keeps_the_event_queue
                an_endpoint_reads_of_its_connection_through_its_completion_queue_too;
            connection_order:
                receives_posted_early_complete_in_the_order_of_sending
                receives_posted_late_complete_in_the_order_of_sending
                tagged_and_untagged_receives_complete_in_one_order
                messages_in_one_buffer_complete_in_the_order_of_sending
                truncated_receives_keep_their_place
                connections_of_a_shared_context_each_keep_their_order;
            partings:
                what_was_sent_arrives_before_the_end
                everything_ends_with_the_connection
                what_was_received_has_succeeded_although_the_receiver_shuts_down
                what_was_received_has_succeeded_although_the_receiver_is_sending
                shutdowns_cross
                a_long_message_that_is_under_way_ends_with_a_shutdown
                what_was_accepted_is_connected_although_everything_is_closed_at_once
                objects_go_in_any_order;
            event_waiting:
                events_wake_whoever_sleeps
                failures_wake_whoever_sleeps
                whoever_sleeps_on_a_completion_queue_is_connected
                one_sleeps_on_each_queue
                an_event_of_the_applications_own_wakes_everybody;
            shared_connections:
                connections_share_receives
                end_of_one_connection_leaves_receives_to_others;
            wait_sets:
                events_and_completions_wake_whoever_waits_for_both;
        }
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

/// The tests of endpoints with connections, of waits for several objects, of late binding, and of work that waits for
/// counters, with automatic progress.
macro_rules! tests_of_connections_by_themselves {
    ($net:expr) => {
        tests! { $net;
            connections:
                connections_are_made_while_nobody_reads
                requests_of_those_who_are_gone_leave_the_queue_unread
                a_request_is_accepted_and_both_are_connected
                a_request_is_rejected
                messages_travel_both_ways_over_a_connection
                many_ask_at_once;
            connection_order:
                receives_posted_early_complete_in_the_order_of_sending
                connections_of_a_shared_context_each_keep_their_order;
            partings:
                what_was_sent_arrives_before_the_end
                shutdowns_cross
                objects_go_in_any_order;
            event_waiting:
                events_wake_whoever_sleeps
                one_sleeps_on_each_queue;
            wait_sets:
                what_happens_to_any_member_wakes_whoever_waits_for_the_set
                events_and_completions_wake_whoever_waits_for_both;
            shared_contexts:
                receives_posted_before_binding_serve_every_endpoint
                messages_of_each_peer_keep_their_order
                receive_takes_message_that_came_before_it
                tagged_and_untagged_receives_take_messages_of_their_kind
                long_message_is_truncated_at_its_endpoint
                directed_receive_takes_its_source_at_any_endpoint
                directed_receive_ends_with_the_last_link_of_its_source
                buffer_takes_messages_of_all_endpoints
                cancelled_receive_ends_at_the_first_endpoint
                peek_finds_messages_of_any_endpoint
                closed_endpoint_leaves_receives_to_others
                endpoints_come_and_go_while_messages_arrive
                selective_endpoint_reports_asked_receives_alone
                counters_count_what_their_endpoint_receives;
            shared_context_waits:
                peeks_alone_make_progress
                sleeping_reader_wakes_for_a_post
                sleeping_reader_wakes_for_a_cancel
                threads_post_while_others_read
                threads_post_while_others_read_one_queue;
            shared_context_bounds:
                report_without_endpoints_waits_for_the_first
                full_queue_of_one_endpoint_stops_no_other
                buffer_serves_others_while_one_queue_is_full
                receives_beyond_the_depth_are_refused
                many_messages_wait_for_a_small_budget;
            shared_context_misuse:
                directed_receive_without_endpoints_is_refused
                context_with_endpoints_is_not_closed
                wrong_use_is_refused;
            shared_context_works:
                post_to_the_context_makes_work_of_its_endpoint_due
                receive_of_an_endpoint_with_a_shared_context_cannot_wait;
            shared_connections:
                connections_share_receives
                end_of_one_connection_leaves_receives_to_others;
            triggered:
                every_kind_of_work_waits_for_its_threshold
                works_trigger_works
                events_of_endpoints_and_regions_trigger_works
                work_waits_while_its_endpoint_has_no_room
                sleepers_are_woken_by_works
                threads_count_and_queue_at_once;
            late_binding:
                counters_of_an_enabled_endpoint_count_what_follows
                a_counter_of_an_enabled_endpoint_wakes_its_waiters
                a_late_counter_of_accesses_counts_those_to_mapped_memory
                a_queue_of_an_enabled_endpoint_wakes_its_reader
                queues_of_an_enabled_endpoint_report_what_follows;
        }
    };
}

mod in_turns {
    all_tests_over! {
        loopback: crate::choppy(crate::Turns::Alternate);
        backend: crate::backend(crate::Turns::Alternate);
        tcp4: crate::tcp4(crate::Turns::Alternate);
        tcp6: crate::tcp6(crate::Turns::Alternate);
        shm4: crate::shm4(crate::Turns::Alternate);
        shm6: crate::shm6(crate::Turns::Alternate);
    }
}

mod in_threads {
    all_tests_over! {
        loopback: crate::choppy(crate::Turns::Threads);
        backend: crate::backend(crate::Turns::Threads);
        tcp4: crate::tcp4(crate::Turns::Threads);
        tcp6: crate::tcp6(crate::Turns::Threads);
        shm4: crate::shm4(crate::Turns::Threads);
        shm6: crate::shm6(crate::Turns::Threads);
    }
}

/// With automatic progress, where nobody sleeps. The formats of addresses make no difference to it, and the backend is one
/// that has to be polled.
mod by_itself {
    mod backend {
        tests_of_parties! { crate::backend(crate::Turns::Automatic) }
    }
    mod tcp4 {
        tests_of_parties! { crate::tcp4(crate::Turns::Automatic) }
        tests_of_connections_by_themselves! { crate::tcp4(crate::Turns::Automatic) }
    }
    mod shm4 {
        tests_of_parties! { crate::shm4(crate::Turns::Automatic) }
        tests_of_connections_by_themselves! { crate::shm4(crate::Turns::Automatic) }
    }
}

/// The loopback is a network inside one process, and so is the example of a backend.
mod across_processes {
    mod tcp4 {
        mod parties {
            tests_of_parties! { crate::tcp4(crate::Turns::Processes) }
        }
        mod sleepers {
            tests_of_sleepers! { crate::tcp4(crate::Turns::Processes) }
        }
    }
    mod tcp6 {
        mod parties {
            tests_of_parties! { crate::tcp6(crate::Turns::Processes) }
        }
        mod sleepers {
            tests_of_sleepers! { crate::tcp6(crate::Turns::Processes) }
        }
    }
    mod shm4 {
        mod parties {
            tests_of_parties! { crate::shm4(crate::Turns::Processes) }
        }
        mod sleepers {
            tests_of_sleepers! { crate::shm4(crate::Turns::Processes) }
        }
    }
    mod shm6 {
        mod parties {
            tests_of_parties! { crate::shm6(crate::Turns::Processes) }
        }
        mod sleepers {
            tests_of_sleepers! { crate::shm6(crate::Turns::Processes) }
        }
    }
}

fn choppy(turns: Turns) -> Net {
    Net::choppy(0x5eed, turns)
}

fn backend(turns: Turns) -> Net {
    Net::new(&Transport::Backend, turns)
}

fn tcp4(turns: Turns) -> Net {
    Net::new(&Transport::Tcp4, turns)
}

fn tcp6(turns: Turns) -> Net {
    Net::new(&Transport::Tcp6, turns)
}

fn shm4(turns: Turns) -> Net {
    Net::new(&Transport::Shm4, turns)
}

fn shm6(turns: Turns) -> Net {
    Net::new(&Transport::Shm6, turns)
}
