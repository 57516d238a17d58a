//! The tests in which a party makes no progress for a while, or in which a few passes over all parties
//! must complete everything.

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

/// The tests in which a party makes no progress, and its links must take all that it posts.
macro_rules! tests_of_links_with_room {
    ($net:expr) => {
        tests! { $net;
            levels:
                injected_bursts_arrive_without_further_calls_of_the_sender;
        }
    };
}
