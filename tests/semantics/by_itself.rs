//! The transports with automatic progress: the library's progress thread drives the endpoints. IPv6 is left
//! out, since it would test nothing more. Over the example of a backend only the tests of `tests_of_parties`
//! run, since it has no descriptor to sleep on.

/// The tests with automatic progress of connections, waits for several objects, late binding and deferred
/// work.
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
        tests_of_shared_contexts! { $net }
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
