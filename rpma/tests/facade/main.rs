//! What applications may rely on, over every transport. Each file has one topic; `over_every_transport!`
//! makes a test of each function for each transport.

mod accesses;
mod channels;
mod connections;
mod failures;
mod flushes;
mod harness;
mod messages;
mod prelude;
mod shared_receives;

/// Makes a test of each function for each transport.
macro_rules! over_every_transport {
    ($($module:ident: $($test:ident)*;)*) => {
        over_every_transport! { @tests tcp Tcp $($module: $($test)*;)* }
        over_every_transport! { @tests shm Shm $($module: $($test)*;)* }
        over_every_transport! { @tests auto Auto $($module: $($test)*;)* }
    };
    (@tests $transport:ident $domain:ident $($module:ident: $($test:ident)*;)*) => {
        mod $transport {
            use homespun_rpma::DomainName;

            use crate::harness::Net;

            $(mod $module {
                $(#[test]
                fn $test() {
                    crate::$module::$test(&super::Net::new(super::DomainName::$domain));
                })*
            })*
        }
    };
}

over_every_transport! {
    connections:
        accepted_request_connects_both_sides
        dropped_request_is_rejected
        request_without_an_answer_is_unreachable
        addresses_of_both_formats_connect
        disconnect_closes_both_sides
        disconnect_before_the_connection_fails
        dropped_connection_closes_the_other_side
        disconnect_carries_out_posted_sends_first
        end_of_the_connection_flushes_posted_receives
        private_data_has_a_limit
        polled_request_is_returned_next
        last_event_ends_the_waits_of_all_threads;
    messages:
        message_fills_its_receive
        immediate_data_arrives_in_host_order
        message_that_has_arrived_can_be_received_after_the_end
        receives_posted_before_the_connection_take_the_first_messages
        deregistration_ends_the_receives_that_wait
        receives_outlive_another_region_of_their_memory
        send_without_a_report_completes_only_on_error
        too_many_posts_are_refused;
    accesses:
        read_copies_the_memory_of_the_peer
        write_changes_the_memory_of_the_peer
        write_with_immediate_data_takes_a_receive
        atomic_write_follows_earlier_writes
        operations_need_regions_with_their_usage;
    flushes:
        flush_makes_earlier_writes_visible
        only_a_persistent_flush_makes_its_range_durable
        persistent_flush_needs_direct_writes
        flush_needs_the_usage_of_the_region;
    failures:
        access_with_an_unknown_key_fails
        access_beyond_the_region_fails
        access_without_the_right_fails
        flush_beyond_the_region_fails
        operations_after_a_failure_are_flushed
        message_longer_than_its_receive_fails
        deregistered_region_is_out_of_reach;
    channels:
        main_queue_has_no_receives_beside_a_receive_queue
        next_fails_if_there_is_no_completion
        next_each_takes_several_completions_in_order
        wait_returns_when_a_completion_comes
        descriptor_is_readable_while_there_is_a_completion
        nonblocking_wait_fails_without_a_completion
        dropped_connection_ends_a_wait
        threads_that_share_a_queue_take_each_completion_once
        shared_channel_names_the_queue_with_the_oldest_completion
        shared_channel_wakes_for_both_queues
        waits_fit_the_sharing_of_the_channel
        sends_are_posted_while_another_thread_reads_a_shared_channel
        receive_queue_has_the_failed_receives
        dropped_connection_leaves_completions_that_found_a_full_queue
        shared_channel_refuses_receives_while_too_many_are_unread;
    shared_receives:
        messages_of_all_connections_take_shared_receives
        shared_receives_complete_in_the_connection_without_a_queue
        shared_receives_outlive_a_connection
        deregistration_ends_shared_receives
        shared_receive_queue_wakes_for_every_connection
        writes_with_immediate_data_take_shared_receives
        connection_with_shared_receives_refuses_its_own
        receives_are_refused_while_a_shared_channel_keeps_too_many
        receives_are_refused_while_completions_of_dropped_connections_are_kept
        shared_channel_beside_a_shared_queue_is_refused
        dropped_connection_leaves_its_completions_in_the_queue_and_the_descriptor_readable;
}
