//! The tests of shared receive contexts. A context and its endpoints are objects of one process.

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
            shared_context_remote_data:
                remote_data_takes_receives_of_a_shared_context_by_the_mode_of_its_endpoint;
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
