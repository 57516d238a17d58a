//! The order of a connection: its receives complete in the order of sending, whichever protocol each message
//! uses.

use super::prelude::*;

/// The lengths of the messages. The sender only announces a long message. Shorter messages of every kind
/// follow each long one.
const LENS_BYTES: [usize; 7] = [1 << 20, 8, 60_000, 9000, 300_000, 0, LONGEST_BYTES];
const LONGEST_BYTES: usize = (1 << 20) + 1;

/// Shows fi_msg/receives-before-connect, fi_tagged/tagged-receives-before-connect, fi_cm/receive-at-any-time.
#[over(connected)]
fn receives_posted_before_connecting_take_messages(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let connecting = client.open_endpoint(CLIENT);
    connecting.enable().unwrap();
    connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    connecting.trecv(marked_buffer(8), NOWHERE, Tag(7), 2).unwrap();
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let accepting = server.accept(&next_request_of_first_side(&[&server, &client]), b"");
    expect_connected(&client, &server, b"");
    accepting.send(payload(1, 8), NOWHERE, 3).unwrap();
    accepting.tsend(payload(2, 8), NOWHERE, Tag(7), 4).unwrap();
    for context in [1, 2] {
        let completion = next_completion_of_first_side(&[&client, &server]);
        assert_eq!(completion.context, context);
        assert_eq!(received_bytes(&completion.buffer), payload(context, 8));
    }
}

#[over(connected)]
fn truncated_receives_complete_in_send_order(net: &Net) {
    let messages = || (0..).zip(LENS_BYTES.repeat(4));
    let has_room = |number: u64| number % 4 != 2;
    for is_posted_late in [false, true] {
        let ((client, one), (server, other)) = open_connection(net);
        let progress = || [&client, &server].into_iter().for_each(Side::progress);
        let post_receives = || {
            for (number, len_bytes) in messages() {
                let room_bytes = if has_room(number) { LONGEST_BYTES } else { len_bytes / 2 };
                other.recv(marked_buffer(room_bytes), NOWHERE, number).unwrap();
            }
        };
        if !is_posted_late {
            post_receives();
        }
        for (number, len_bytes) in messages() {
            let deadline = Deadline::new();
            while let Err(error) = one.send(payload(number, len_bytes), NOWHERE, number) {
                assert_eq!(error.errno(), Errno::EAGAIN);
                progress();
                deadline.yield_or_panic("room for a send");
            }
        }
        if is_posted_late {
            // Some messages have arrived, and others are in flight.
            (0..3).for_each(|_| progress());
            post_receives();
        }
        for (number, len_bytes) in messages() {
            match next_operation_end_of_first_side(&[&server, &client]) {
                Ok((completion, _)) => {
                    assert_eq!(completion.context, number);
                    assert!(received_bytes(&completion.buffer) == payload(number, len_bytes), "{number}");
                }
                Err(failure) => {
                    assert_eq!((failure.completion.context, has_room(number)), (number, false));
                    let room_bytes = len_bytes / 2;
                    let overflow_bytes = (len_bytes - room_bytes) as u64;
                    assert_eq!(failure.error, OperationError::Truncated { overflow_bytes });
                    let received = received_bytes(&failure.completion.buffer);
                    assert!(received == payload(number, len_bytes)[..room_bytes], "{number}");
                }
            }
        }
    }
}
