//! The tests that need all parties in one process, because they use an object itself (`expect_local`,
//! `local_domain`), or share one between parties.

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
            // The call names memory of this process.
            cancel:
                receives_into_a_piece_of_memory_are_cancelled
                receives_of_a_context_into_a_piece_of_memory_are_cancelled;
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
                any_endpoint_takes_a_transmit_context_at_any_time;
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
                signal_handler_ends_every_wait
                several_queue_descriptors_are_polled_at_once
                queue_without_a_wait_object_refuses_waits;
        }
        tests_of_shared_contexts! { $net }
    };
}
