//! The behaviour that applications may rely on: tests that run over every transport.
//!
//! Each test is a function of a [`Net`](homespun_suite::Net), and is in a list below. [`in_turns`],
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
mod connection_order;
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
mod failures;
mod fence;
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
mod safe_code;
mod selective;
mod shareable;
mod shared_connections;
mod shared_context_bounds;
mod shared_context_misuse;
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

/// The tests that [`in_turns`], [`in_threads`], [`by_itself`] and [`across_processes`] all run. They use
/// only the suite's `Party`, which may be in another process.
macro_rules! tests_of_parties {
    ($net:expr) => {
        tests! { $net;
            calls:
                every_send_call_reaches_every_receive_call
                messages_of_every_size_arrive
                largest_messages_arrive
                vectors_gather_and_scatter_messages
                raw_buffer_is_not_written_beyond_its_end
                sends_flagged_more_arrive_without_a_following_post;
            entries:
                completion_has_the_fields_of_its_format
                one_read_returns_many_entries_in_order
                separate_queues_report_sends_and_receives_separately
                read_of_zero_entries_drives_progress;
            cq_fields:
                completion_fields_match_every_send_and_receive_call
                completion_fields_match_peeks_and_claims
                error_entries_describe_the_failed_operation
                every_remote_data_value_arrives_with_its_flag
                errors_are_read_one_by_one
                strerror_describes_every_provider_error;
            sources:
                source_is_the_address_vector_entry_of_the_sender
                unknown_source_is_unspecified
                removed_source_is_unspecified
                source_is_the_lowest_of_several_entries
                source_is_unspecified_without_the_capability
                unknown_source_error_has_the_whole_completion
                reported_source_address_can_be_inserted
                unknown_source_errors_keep_completion_order
                failed_receive_from_an_unknown_source_reports_the_failure
                source_is_looked_up_when_its_entry_is_written
                unknown_source_errors_overrun_an_unprotected_queue
                peek_reports_an_unknown_source
                unreported_success_reports_no_unknown_source
                separate_receive_queue_reports_unknown_sources;
            directed:
                directed_receive_takes_only_messages_of_its_source
                receive_from_unspecified_source_takes_any_message
                directed_and_undirected_receives_match_in_posting_order
                directed_receive_fails_when_its_source_closes
                directed_receive_fails_when_a_send_to_its_source_is_refused
                directed_receive_fails_when_its_source_closed_before_the_first_send
                directed_receive_without_the_capability_is_refused;
            truncation:
                long_message_is_truncated_with_etrunc
                truncation_affects_neither_sender_nor_next_message
                truncation_errors_keep_completion_order
                empty_buffer_truncates_any_nonempty_message;
            ordering:
                messages_of_mixed_sizes_match_in_order
                messages_of_one_tag_are_received_in_send_order
                earliest_matching_receive_takes_a_message
                tagged_and_untagged_messages_match_separately
                tags_are_matched_bit_by_bit
                messages_in_both_directions_match_in_order
                message_does_not_overtake_a_write
                message_arrives_after_earlier_writes_at_every_level
                message_arrives_after_delivered_writes_without_an_order
                fenced_and_later_sends_arrive_after_earlier_writes
                read_does_not_overtake_a_write
                write_does_not_overtake_a_write
                write_does_not_overtake_a_read
                message_does_not_overtake_a_read
                read_does_not_overtake_a_read
                fetch_does_not_overtake_a_read
                access_does_not_overtake_messages
                strictly_ordered_operations_take_effect_one_by_one;
            completion_order:
                sends_and_accesses_complete_in_posting_order
                failed_access_completes_in_posting_order
                unreported_operations_end_in_posting_order;
            bounds:
                sends_awaiting_a_match_leave_queue_room_to_other_operations
                sends_stay_outstanding_until_the_queue_has_room
                received_messages_wait_for_room_in_the_completion_queue
                receives_beyond_the_receive_depth_are_refused;
            overrun:
                overrun_queue_returns_its_entries_then_the_error_for_good
                overrun_loses_errors_as_it_loses_successes
                separate_queues_are_overrun_separately
                queue_read_in_time_loses_nothing;
            levels:
                match_may_be_the_default_level
                receive_with_any_level_takes_its_message
                strongest_of_several_levels_applies
                send_of_every_level_completes
                delivery_level_needs_no_posted_receive
                match_level_needs_a_posted_receive
                unmatched_send_delays_no_later_match
                cancelled_receive_matches_no_message
                truncated_message_counts_as_matched
                match_level_completes_while_the_receivers_queue_is_full
                every_kind_of_message_completes_at_every_level
                messages_to_own_endpoint_complete_at_every_level
                match_level_sends_complete_whatever_the_order_of_receives;
            fence:
                match_fence_waits_until_preceding_sends_are_matched
                fence_waits_for_unreported_and_injected_sends
                fenced_send_may_be_unreported_or_injected
                fences_of_every_level_complete_in_order
                fence_delays_no_send_to_another_peer
                operations_after_a_fence_do_not_pass_it
                fence_with_nothing_before_it_completes
                fence_orders_messages_to_own_endpoint
                fenced_send_may_be_cancelled
                fence_after_a_cancelled_fence_waits_for_all_earlier_matches
                operations_behind_a_fence_fail_when_the_peer_closes
                every_fenced_operation_waits_for_a_match
                every_operation_behind_a_fence_waits_for_a_match
                fenced_atomic_operation_waits_for_a_match
                fenced_access_waits_for_matches_of_injected_messages
                every_fenced_operation_follows_a_long_write
                every_fenced_operation_follows_a_long_read
                fenced_operation_completes_after_a_failed_access;
            durability:
                committed_write_is_durable_at_completion
                uncommitted_write_is_durable_after_a_fenced_commit
                remote_data_of_a_committed_write_reports_durable_bytes
                default_flag_commits_writes
                commit_to_volatile_memory_fails
                commit_without_the_capability_is_refused;
            peek:
                peek_reports_a_message_and_leaves_it
                peek_without_a_message_fails_and_leaves_nothing_posted
                peek_misses_messages_that_progress_has_not_received
                peek_finds_messages_that_arrived_before_a_read_completion
                peeks_that_read_no_queue_make_progress
                peek_finds_the_earliest_match
                peek_with_a_source_finds_only_its_messages
                peek_skips_messages_taken_by_a_posted_receive
                claimed_message_is_received_only_by_its_claim
                discarded_message_is_never_received
                claimed_send_matches_only_when_received
                claim_of_an_unclaimed_or_received_message_fails
                claimed_message_is_truncated_to_its_buffer
                arriving_message_may_be_peeked_claimed_and_discarded
                message_held_by_its_sender_may_be_peeked_claimed_and_discarded
                claimed_message_outlives_its_sender
                closing_with_claimed_messages_fails_their_sends
                peek_needs_no_room_among_posted_receives
                peek_finds_messages_to_own_endpoint;
            multi_receive:
                messages_fill_a_buffer_in_send_order
                stream_of_messages_fills_buffer_after_buffer
                messages_of_several_senders_fill_one_buffer
                unexpected_messages_go_into_a_buffer_posted_later
                message_that_does_not_fit_goes_to_the_next_receive
                message_longer_than_an_empty_buffer_is_truncated
                buffer_keeps_the_minimum_set_when_posted
                completion_gives_the_message_offset_if_the_format_has_it
                selective_completion_reports_only_the_release_of_a_buffer
                cancelled_buffer_is_released_with_an_error
                directed_buffer_fails_when_its_source_closes
                buffer_takes_no_message_while_the_queue_is_full
                buffer_overruns_an_unprotected_queue
                buffer_is_not_written_after_its_endpoint_closes
                match_level_completes_when_a_buffer_takes_the_message
                buffer_takes_messages_to_own_endpoint
                default_flag_makes_receives_multi_receive
                invalid_multi_receive_buffers_are_refused;
            credit:
                many_long_messages_arrive_through_a_small_budget
                discarded_messages_return_credit;
            selective:
                success_is_reported_only_with_the_completion_flag
                completion_level_alone_requests_no_completion
                flags_of_a_call_replace_the_default_flags
                inject_call_reports_no_success
                failure_is_always_reported
                truncation_is_always_reported;
            failures:
                send_without_a_listener_fails_with_econnrefused
                send_succeeds_after_a_refused_peer_starts_listening
                injections_to_an_absent_peer_report_econnrefused
                reopened_peer_is_reached_at_its_old_address;
            restart:
                messages_of_a_closed_predecessor_still_arrive
                operations_on_a_closed_predecessor_fail_once_and_miss_its_successor
                hub_exchanges_messages_with_each_reopened_peer;
            misuse:
                unknown_fabric_address_is_refused
                invalid_default_op_flags_fail_with_ebadflags
                operations_without_the_capability_are_refused
                inject_beyond_its_limit_is_refused
                vectors_beyond_the_segment_limit_are_refused;
            cancel:
                cancelled_receive_completes_with_ecanceled
                cancel_of_unposted_or_ended_operation_fails_with_enoent
                cancelled_receive_takes_no_message
                cancel_ends_only_the_oldest_receive_with_its_context
                cancel_of_a_transmitted_send_fails_with_enoent;
            naming:
                name_is_specific_and_has_a_port
                wildcard_endpoint_is_reached_by_its_name
                name_of_another_endpoint_fails_with_eaddrinuse
                sixteen_endpoints_exchange_messages_pairwise;
            closing:
                objects_may_be_dropped_in_any_order
                posted_messages_arrive_after_the_sender_closes
                unmatched_messages_arrive_after_the_sender_closes
                injected_messages_arrive_after_the_sender_closes
                fenced_message_arrives_after_its_sender_closes_amid_connects
                dropped_disabled_endpoint_frees_its_address;
            rma:
                every_write_call_reaches_the_region
                completed_write_of_every_level_is_in_the_region
                every_read_call_reads_the_region
                accesses_of_every_size_move_every_byte
                access_beyond_rights_or_bounds_is_refused_and_the_next_succeeds
                target_refuses_accesses_that_its_capabilities_lack
                write_with_remote_data_completes_at_the_target
                write_with_remote_data_waits_for_room_at_the_target
                accesses_beyond_the_limit_of_a_link_complete
                rma_and_messages_flow_both_ways_at_once
                endpoint_accesses_its_own_region
                fence_waits_for_preceding_accesses
                selective_completion_hides_success_and_reports_failure
                memory_of_a_closed_region_is_never_accessed
                registration_with_a_key_in_use_fails_with_enokey
                accesses_fail_when_the_target_closes
                rma_without_the_capability_is_refused;
            atomics:
                every_atomic_call_updates_the_region
                every_operation_updates_every_datatype
                arrays_of_every_length_are_updated_completely
                injected_atomics_apply_in_order_and_report_nothing
                posted_atomics_take_effect_after_the_initiator_closes
                atomics_take_effect_in_posting_order
                atomics_beyond_the_limit_of_a_link_complete
                atomics_rma_and_messages_flow_both_ways_at_once
                endpoint_updates_its_own_region
                fence_waits_for_preceding_atomics
                atomics_complete_at_every_level
                selective_completion_hides_success_and_reports_failure
                memory_of_a_closed_region_is_never_accessed
                atomics_fail_when_the_target_closes;
            atomic_rights:
                access_beyond_rights_or_bounds_is_refused_and_the_next_succeeds
                target_refuses_accesses_that_its_capabilities_lack
                initiator_without_read_or_write_capability_is_refused
                atomic_without_the_capability_is_refused;
            empty_operations:
                atomic_on_no_elements_completes_without_effect
                atomic_on_no_elements_needs_no_region
                atomic_on_no_elements_that_is_not_offered_is_refused
                fence_waits_for_empty_operations
                access_of_no_bytes_needs_no_region
                remote_data_with_no_bytes_and_no_region_arrives;
            ignored_flags:
                send_with_meaningless_flags_arrives
                receive_with_meaningless_flags_takes_its_message
                peek_with_meaningless_flags_finds_its_message
                access_with_meaningless_flags_takes_effect
                atomic_with_meaningless_flags_takes_effect
                trigger_multicast_and_atomic_commit_flags_are_refused;
            atomic_exclusion:
                concurrent_updates_by_all_parties_are_each_applied_once
                compare_and_swap_lock_excludes_concurrent_holders;
            shareable:
                mapped_region_is_written_and_read_correctly
                immediate_completions_wait_for_room_in_the_queue
                immediate_completions_overrun_an_unprotected_queue
                accesses_to_a_mapped_region_are_counted_though_unreported
                message_arrives_after_preceding_writes_to_a_mapped_region
                rights_and_bounds_hold_for_a_mapped_region
                shareable_region_of_a_read_only_target_refuses_writes
                access_to_a_closed_shareable_region_fails
                regions_beyond_the_mapping_limit_are_accessed
                write_with_remote_data_to_a_mapped_region_notifies_its_owner
                access_to_a_mapped_region_fails_when_its_owner_closes;
            counters:
                messages_are_counted_at_both_ends
                accesses_are_counted_at_both_ends
                updating_atomics_are_counted_as_writes_by_the_region
                counted_access_has_changed_the_region
                accesses_to_a_mapped_region_are_counted
                unreported_operations_are_counted
                failures_are_counted_as_errors
                operations_on_an_unreachable_peer_are_counted_as_errors
                peeks_are_not_counted_as_receives
                multi_receive_counts_each_message
                full_completion_queue_delays_no_counting
                send_is_counted_only_at_its_completion_level
                operation_on_own_endpoint_is_counted_at_both_ends
                operations_that_fail_with_their_peer_are_counted;
            threads:
                two_threads_play_ping_pong
                two_threads_flood_each_other;
        }
    };
}

/// The tests in which a party makes no progress for a while, or in which a few passes over all parties
/// must complete everything.
macro_rules! tests_of_sleepers {
    ($net:expr) => {
        tests! { $net;
            entries:
                read_of_a_nonempty_queue_drives_progress;
            bounds:
                sends_beyond_the_transmit_depth_are_refused
                refused_posts_have_no_effect;
            overrun:
                unprotected_sends_are_bounded_only_by_the_transmit_depth
                reads_of_an_overrun_queue_drive_progress;
            levels:
                small_inject_complete_send_completes_without_receiver_progress
                inject_complete_message_is_lost_without_error_when_the_receiver_closes
                match_level_waits_for_the_receiver
                default_level_comes_from_the_endpoint
                transmit_and_delivery_levels_wait_for_the_receiver;
            fence:
                inject_fence_waits_for_completion_of_preceding_sends
                fenced_message_waits_for_responses_to_preceding_accesses;
            completion_order:
                operation_awaiting_earlier_completions_counts_towards_the_depth;
            ordering:
                access_to_a_mapped_region_does_not_overtake_messages;
            credit:
                unexpected_messages_beyond_the_budget_wait_at_the_sender
                waiting_sends_proceed_as_messages_are_received
                flood_by_one_peer_delays_no_other_peer
                messages_beyond_the_whole_budget_arrive_when_received
                send_waiting_for_credit_may_be_cancelled
                closing_sender_waits_for_credit
                floods_in_both_directions_all_arrive
                flood_to_own_endpoint_waits_for_credit
                sends_waiting_for_credit_fail_when_the_receiver_closes;
            failures:
                operations_on_a_closed_peer_fail;
            rma:
                access_waits_for_a_sleeping_target
                post_with_invalid_arguments_is_refused;
            atomics:
                atomic_waits_for_a_sleeping_target;
            atomic_rights:
                post_with_invalid_arguments_is_refused;
        }
    };
}

/// The tests of shared receive contexts. A context and its endpoints are objects of one process.
macro_rules! tests_of_shared_contexts {
    ($net:expr) => {
        tests! { $net;
            shared_contexts:
                receives_posted_before_binding_serve_every_endpoint
                messages_of_each_peer_keep_their_order
                receive_takes_an_earlier_unexpected_message
                tagged_and_untagged_receives_take_messages_of_their_kind
                long_message_is_truncated_at_its_endpoint
                directed_receive_takes_messages_of_its_source_at_any_endpoint
                directed_receive_fails_when_the_last_link_to_its_source_ends
                directed_receive_fails_when_no_endpoint_reaches_its_source
                multi_receive_buffer_takes_messages_of_all_endpoints
                cancelled_receive_is_reported_by_the_first_endpoint
                peek_finds_messages_of_any_endpoint
                closed_endpoint_discards_its_messages_and_leaves_receives_posted
                endpoints_join_and_leave_while_messages_arrive
                selective_endpoint_reports_only_requested_receives
                counters_count_receives_of_their_endpoint;
            shared_context_waits:
                repeated_peeks_find_a_message_arriving_at_any_endpoint
                sleeping_reader_wakes_for_a_post
                sleeping_reader_wakes_for_a_cancel
                concurrent_posts_and_reads_receive_all_messages
                concurrent_posts_and_reads_of_one_queue_receive_all_messages;
            shared_context_bounds:
                cancelled_receive_of_an_empty_context_is_reported_by_the_first_endpoint
                full_queue_of_one_endpoint_delays_no_other
                multi_receive_buffer_serves_other_endpoints_while_one_queue_is_full
                receives_beyond_the_depth_are_refused
                messages_beyond_a_small_budget_all_arrive;
            shared_context_misuse:
                directed_receive_without_endpoints_is_refused
                directed_receive_without_the_capability_is_refused
                close_of_a_context_with_endpoints_fails_with_ebusy
                invalid_bindings_and_calls_of_shared_contexts_are_refused;
            shared_context_works:
                receive_that_completes_at_post_triggers_deferred_work
                triggered_receive_of_a_context_is_posted_at_its_threshold
                deferred_receives_of_a_context_are_counted_at_the_receiving_endpoint
                deferred_receive_that_reports_to_its_endpoints_counter_counts_once
                deferred_receive_is_counted_while_its_queue_is_full
                waiting_receives_of_a_context_are_cancelled
                deferred_receive_refused_when_due_fails_at_the_oldest_endpoint
                triggered_claim_of_a_context_receives_the_claimed_message
                deferred_claim_of_a_context_receives_the_claimed_message
                deferred_multi_receive_of_a_context_completes_at_the_release_of_its_buffer
                dropping_the_last_handle_of_a_context_discards_its_work
                invalid_waiting_receive_of_a_context_is_refused;
        }
    };
}

/// The tests that need all parties in one process, because they use an object itself (`expect_local`,
/// `local_domain`), or share one between parties.
macro_rules! tests_of_objects {
    ($net:expr) => {
        tests! { $net;
            // The closure that takes entries uses the queue, so it cannot run in another process.
            entries:
                read_each_closure_may_call_queue_and_endpoints;
            // Two endpoints share one queue, which is an object of one process.
            bounds:
                operations_of_endpoints_sharing_a_full_queue_all_complete;
            // A thread sleeps on a queue of this process.
            sources:
                unknown_source_wakes_a_blocked_reader;
            directed:
                receive_from_a_refused_source_wakes_a_blocked_reader;
            // These tests read a queue before it has endpoints, and after.
            cq_fields:
                queue_holds_the_requested_entry_count
                queue_without_endpoints_is_empty
                unread_entries_outlive_the_endpoint_until_the_queue_closes
                closing_a_queue_frees_unread_buffers;
            // Only the process that has posted a buffer sees whether the buffer was dropped. The second test
            // uses two domains of one process.
            overrun:
                overrun_frees_the_buffers_of_lost_entries
                endpoints_take_resource_management_from_the_domain;
            // These tests are about single objects, most of them before a peer exists.
            misuse:
                endpoint_not_enabled_refuses_posts
                enable_without_queues_or_address_vector_fails
                second_binding_of_a_queue_or_vector_fails_with_ebusy
                endpoint_with_unsupported_info_fails_with_einval
                binding_across_domains_is_refused
                close_of_an_object_bound_to_a_disabled_endpoint_is_refused
                close_of_an_object_in_use_fails_with_ebusy;
            // Only the process that has posted a buffer sees whether the same buffer is returned.
            rejected:
                disabled_endpoint_returns_every_buffer
                post_to_an_unknown_peer_returns_every_buffer
                post_without_the_capability_returns_every_buffer
                post_to_a_full_queue_returns_every_buffer
                oversized_vector_and_claim_without_a_message_return_their_buffers
                returned_buffer_may_be_posted_again;
            reusable:
                reusable_buffer_takes_message_after_message
                truncated_message_fills_a_reusable_buffer
                cancelled_receive_returns_its_reusable_buffer_empty
                receive_from_a_closed_peer_returns_its_reusable_buffer
                refused_receive_returns_its_reusable_buffer
                shared_context_fills_reusable_buffers;
            // Only code in the same process can drop, close, forget and share handles like this.
            safe_code:
                unreported_access_frees_its_buffer
                dropped_endpoint_frees_posted_buffers
                forgotten_endpoint_still_receives_and_keeps_its_objects_busy
                objects_close_in_any_order_or_are_busy
                objects_may_be_dropped_while_a_thread_polls
                endpoint_closes_when_the_last_thread_drops_its_handle
                endpoint_may_be_dropped_amid_traffic_both_ways;
            // These tests use an endpoint without a peer, or the loopback network inside this process.
            naming:
                endpoint_has_the_name_it_was_given
                two_domains_carry_messages_at_once
                endpoint_exchanges_messages_with_itself;
            // Regions belong to a domain, with or without a peer.
            rma:
                refused_post_returns_its_buffers
                invalid_registrations_are_refused
                mr_mode_decides_keys_and_addresses;
            // One test shares memory between two domains, which only threads of one process can do. The
            // other tests need no peer.
            atomic_rights:
                atomic_queries_report_exactly_the_supported_operations
                refused_post_returns_its_buffers;
            atomic_exclusion:
                concurrent_updates_over_two_transports_are_each_applied_once;
            // Counters, and what they are bound to, are objects of a domain in this process. Threads of this
            // process wait for the counters.
            binding:
                endpoint_needs_a_counter_or_queue_for_each_operation
                one_counter_counts_for_several_endpoints_and_regions
                invalid_counter_bindings_are_refused
                region_is_accessible_only_after_it_is_enabled;
            late_binding:
                counter_bound_after_enabling_counts_later_operations
                counter_bound_after_enabling_wakes_its_waiters
                access_counter_bound_after_mapping_counts_accesses
                queue_bound_after_enabling_wakes_its_reader
                queue_bound_after_enabling_reports_later_operations
                enabling_twice_changes_nothing;
            counter_waits:
                counter_waits_wake_for_endpoint_events
                counter_wait_wakes_for_remote_accesses_to_a_region
                counter_wait_ends_when_an_operation_fails
                poll_of_counter_and_queue_descriptors_wakes_for_both
                counter_wait_wakes_while_another_thread_polls
                counter_wait_survives_closing_endpoints_and_regions;
            // Works refer to counters and endpoints of one process.
            deferred_receives:
                deferred_claim_receives_the_message_that_a_deferred_peek_claimed
                deferred_peeks_and_claims_are_counted_but_not_reported_by_default
                application_receives_what_a_deferred_peek_claimed
                deferred_multi_receive_completes_at_the_release_of_its_buffer
                deferred_multi_receive_buffer_is_cancelled_by_its_context;
            triggered:
                every_kind_of_deferred_work_waits_for_its_threshold
                work_is_reported_only_on_request
                work_that_reports_to_its_endpoints_own_counter_counts_once
                works_run_in_threshold_order
                completed_work_triggers_further_work
                work_with_a_reached_threshold_runs_at_once
                errors_count_towards_a_threshold
                endpoint_and_region_events_trigger_work
                work_waits_while_its_endpoint_has_no_room
                work_stays_due_when_its_counter_is_lowered
                triggered_operations_complete_as_ordinary_ones
                triggered_peek_claim_and_discard_act_at_their_threshold
                triggered_operation_is_cancelled_by_its_context
                blocked_readers_wake_for_triggered_work
                concurrent_counting_and_queueing_runs_each_work_once;
            work_ends:
                cancelled_and_flushed_work_never_runs
                cancel_does_not_mistake_work_numbers_for_contexts
                due_work_of_a_closing_full_endpoint_is_not_counted
                work_that_holds_the_last_endpoint_handle_is_discarded
                work_that_is_refused_when_due_fails
                work_that_fails_is_counted_and_reported
                close_of_a_counter_that_work_depends_on_fails_with_ebusy
                closing_an_endpoint_discards_its_work
                invalid_deferred_work_is_refused;
            // The members of a set are objects of one process.
            wait_sets:
                wait_set_wakes_for_events_of_any_member
                wait_set_wakes_an_epoll_set
                two_wait_set_descriptors_are_polled_at_once;
            poll_sets:
                poll_set_reports_and_drives_every_member
                close_of_a_poll_set_member_fails_with_ebusy;
            // Contexts belong to a domain, as their endpoints do.
            transmit_contexts:
                endpoints_that_share_a_context_complete_in_their_own_queues
                invalid_uses_of_transmit_contexts_are_refused
                close_of_a_transmit_context_in_use_fails_with_ebusy;
            // Files are mapped by the test's own domain.
            durability:
                registered_file_shares_its_content_with_the_region
                persistent_registration_of_volatile_memory_is_refused;
            // Threads share an endpoint or a queue. Across processes, calls would come one after the
            // other.
            threads:
                one_endpoint_serves_several_threads
                queues_shared_crosswise_do_not_deadlock;
            // Threads of one process sleep on its queues.
            waiting:
                messages_of_every_size_wake_both_sides
                completions_of_every_level_wake_the_sender
                sender_wakes_when_another_thread_posts_the_match
                errors_wake_a_blocked_reader
                closing_peer_wakes_a_blocked_reader
                timeout_ends_a_blocking_read
                signal_ends_all_current_waits_or_the_next
                blocking_read_waits_for_the_threshold
                threshold_beyond_the_depth_acts_as_the_depth
                several_threads_block_on_one_queue
                blocked_reader_wakes_while_another_thread_polls
                queue_of_one_direction_drives_the_whole_endpoint
                endpoints_open_and_close_under_a_blocked_reader
                overrun_ends_every_wait
                several_queue_descriptors_are_polled_at_once
                queue_without_a_wait_object_refuses_waits;
        }
        tests_of_shared_contexts! { $net }
    };
}

/// The tests of an endpoint of this process and peers in others.
macro_rules! tests_of_peer_processes {
    ($net:expr) => {
        tests! { $net;
            waiting:
                killed_peer_wakes_a_blocked_reader;
        }
    };
}

/// The tests of transports whose endpoints map memory of each other.
macro_rules! tests_of_mapped_memory {
    ($net:expr) => {
        tests! { $net;
            shareable:
                mapped_region_is_accessed_while_its_owner_is_stopped;
        }
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

/// The tests of endpoints with connections, which share a process.
macro_rules! tests_of_connections {
    ($net:expr) => {
        tests! { $net;
            connections:
                accepted_request_connects_both_endpoints
                rejected_request_fails_with_econnrefused
                connect_without_a_listener_fails_with_econnrefused
                connection_carries_messages_both_ways
                connection_carries_writes_with_remote_data
                connection_carries_fenced_rma_and_atomics
                send_before_connection_fails_with_enotconn
                unread_request_leaves_the_event_queue_when_its_requester_closes
                accept_after_requester_closed_fails_with_econnaborted
                waiting_requests_are_refused_when_the_listener_closes
                request_is_accepted_after_its_first_endpoint_closes
                sixty_concurrent_requests_are_all_answered
                requests_beyond_the_backlog_are_refused
                endpoint_takes_over_address_of_passive_endpoint
                passive_endpoint_may_be_named_before_it_listens
                invalid_connection_calls_are_refused
                close_of_a_bound_event_queue_fails_with_ebusy
                completion_queue_reads_drive_a_connection;
            connection_order:
                receives_posted_early_complete_in_send_order
                receives_posted_late_complete_in_send_order
                tagged_and_untagged_receives_complete_in_send_order
                multi_receive_messages_complete_in_send_order
                truncated_receives_complete_in_send_order
                connections_of_a_shared_context_keep_send_order;
            shutdown:
                messages_sent_before_a_shutdown_arrive_before_its_event
                operations_fail_when_the_connection_ends
                send_of_a_received_message_succeeds_although_the_receiver_shuts_down
                send_of_a_received_message_succeeds_although_the_receiver_closes_amid_sends
                simultaneous_shutdowns_reach_both_sides
                long_message_in_flight_arrives_whole_or_fails_at_shutdown
                accepted_request_connects_although_the_server_closes_at_once
                connection_objects_may_be_dropped_in_any_order;
            event_waiting:
                event_wait_wakes_for_connection_events
                event_wait_wakes_for_connection_failures
                blocked_completion_read_completes_the_connection
                threads_blocked_on_event_and_completion_queues_both_wake
                application_event_wakes_every_waiter;
            shared_connections:
                connections_share_receives
                closed_connection_leaves_shared_receives_posted;
            triggered_connections:
                deferred_work_of_connected_endpoints_waits_for_its_threshold
                received_messages_trigger_an_answer
                work_queued_before_the_connection_runs_if_due_after_it
                work_due_after_a_shutdown_fails_with_enotconn
                receive_due_after_a_shutdown_takes_an_earlier_message
                work_under_way_fails_when_the_connection_ends
                closing_a_connected_endpoint_discards_only_its_own_work;
            wait_sets:
                wait_set_wakes_for_events_and_completions;
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

// These modules use the macros above, so they come last.
mod across_processes;
mod by_itself;
mod in_threads;
mod in_turns;
