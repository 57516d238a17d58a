//! The tests of messages from send buffers, whose parties are in this process.

macro_rules! tests_of_send_buffers {
    ($net:expr) => {
        tests! { $net;
            send_buffers:
                messages_of_all_lengths_arrive_from_a_buffer
                pieces_of_buffers_and_other_memory_arrive
                buffer_is_overwritten_between_messages
                buffer_dropped_before_its_message_arrives_keeps_its_bytes
                messages_from_many_buffers_arrive
                write_from_a_buffer_arrives;
        }
    };
}
