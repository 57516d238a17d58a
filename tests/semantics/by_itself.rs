//! Transports with automatic progress: the library's progress thread drives the endpoints. IPv6 is left out,
//! since it would test nothing more. Over the example of a backend, which has no descriptor to sleep on,
//! only the tests of `tests_of_parties` run.

/// The tests of endpoints with connections, of waits for several objects, of late binding, and of
/// work that waits for counters, with automatic progress.
macro_rules! tests_of_connections_by_themselves {
    ($net:expr) => {
        tests! { $net;
            connections:
                connection_is_made_without_reads_by_the_application
                unread_request_leaves_the_event_queue_when_its_requester_closes
                accepted_request_connects_both_endpoints
                rejected_request_fails_with_econnrefused
                connection_carries_messages_both_ways
                sixty_concurrent_requests_are_all_answered;
            connection_order:
                receives_posted_early_complete_in_send_order
                connections_of_a_shared_context_keep_send_order;
            shutdown:
                messages_sent_before_a_shutdown_arrive_before_its_event
                simultaneous_shutdowns_reach_both_sides
                connection_objects_may_be_dropped_in_any_order;
            event_waiting:
                event_wait_wakes_for_connection_events
                threads_blocked_on_event_and_completion_queues_both_wake;
            wait_sets:
                wait_set_wakes_for_events_of_any_member
                wait_set_wakes_for_events_and_completions;
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
            shared_connections:
                connections_share_receives
                closed_connection_leaves_shared_receives_posted;
            triggered:
                every_kind_of_deferred_work_waits_for_its_threshold
                completed_work_triggers_further_work
                endpoint_and_region_events_trigger_work
                work_waits_while_its_endpoint_has_no_room
                blocked_readers_wake_for_triggered_work
                concurrent_counting_and_queueing_runs_each_work_once;
            triggered_connections:
                deferred_work_of_connected_endpoints_waits_for_its_threshold
                received_messages_trigger_an_answer
                work_queued_before_the_connection_runs_if_due_after_it
                work_due_after_a_shutdown_fails_with_enotconn
                receive_due_after_a_shutdown_takes_an_earlier_message
                work_under_way_fails_when_the_connection_ends
                closing_a_connected_endpoint_discards_only_its_own_work;
            late_binding:
                counter_bound_after_enabling_counts_later_operations
                counter_bound_after_enabling_wakes_its_waiters
                access_counter_bound_after_mapping_counts_accesses
                queue_bound_after_enabling_wakes_its_reader
                queue_bound_after_enabling_reports_later_operations;
        }
    };
}

mod backend {
    tests_of_parties! { crate::networks::example_backend(homespun_suite::Turns::Automatic) }
}
mod tcp4 {
    tests_of_parties! { crate::networks::tcp4(homespun_suite::Turns::Automatic) }
    tests_of_connections_by_themselves! { crate::networks::tcp4(homespun_suite::Turns::Automatic) }
}
mod shm4 {
    tests_of_parties! { crate::networks::shm4(homespun_suite::Turns::Automatic) }
    tests_of_connections_by_themselves! { crate::networks::shm4(homespun_suite::Turns::Automatic) }
}
mod mixed4 {
    tests_of_parties! { crate::networks::mixed4(homespun_suite::Turns::Automatic) }
    tests_of_connections_by_themselves! { crate::networks::mixed4(homespun_suite::Turns::Automatic) }
}
