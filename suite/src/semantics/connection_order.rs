//! The order of a connection: its receives complete in the order of sending, whichever protocol each message
//! uses.

use super::prelude::*;
use super::shared_connections::connect_with_shared_context;

/// The lengths of the messages. The sender only announces a long message. Shorter messages of every kind
/// follow each long one.
const LENS_BYTES: [usize; 16] = [
    1 << 20,
    8,
    60_000,
    16_384,
    100,
    200_000,
    4096,
    0,
    300_000,
    8,
    1 << 19,
    20_000,
    (1 << 20) + 1,
    270_000,
    9000,
    1,
];

const ROUNDS: usize = 3;
const COUNT: u64 = (ROUNDS * LENS_BYTES.len()) as u64;
const LONGEST_BYTES: usize = (1 << 20) + 1;

fn message_len_bytes(number: u64) -> usize {
    LENS_BYTES[number as usize % LENS_BYTES.len()]
}

/// Posts a send. Drives both sides until there is room.
fn send_with_progress(from: &Endpoint, number: u64, tag: Option<u64>, sides: &[&Side; 2]) {
    let message = payload(number, message_len_bytes(number));
    post_with_progress(sides, || match tag {
        Some(tag) => from.tsend(message.clone(), NOWHERE, Tag(tag), number).map_err(Error::from),
        None => from.send(message.clone(), NOWHERE, number).map_err(Error::from),
    });
}

/// Posts an operation. Drives both sides until there is room.
fn post_with_progress(sides: &[&Side; 2], mut operation: impl FnMut() -> Result<(), Error>) {
    let deadline = Deadline::new();
    while let Err(error) = operation() {
        assert_eq!(error.errno(), Errno::EAGAIN);
        sides.iter().for_each(|side| side.progress());
        deadline.yield_or_panic("room for a send");
    }
}

#[track_caller]
fn assert_is_message(completion: &Completion, number: u64) {
    assert_eq!(completion.len_bytes, message_len_bytes(number), "the length of message {number}");
    assert!(
        received_bytes(&completion.buffer) == payload(number, message_len_bytes(number)),
        "message {number}"
    );
}

/// Checks that the receives with these contexts complete at the first side, in this order.
#[track_caller]
fn assert_complete_in_order(contexts: impl Iterator<Item = u64>, sides: &[&Side; 2]) {
    for (number, context) in contexts.enumerate() {
        let completion = next_completion_of_first_side(sides);
        assert_eq!(completion.context, context, "the receive that completes as number {number}");
        assert_is_message(&completion, number as u64);
    }
}

#[over(connected)]
fn receives_posted_late_complete_in_send_order(net: &Net) {
    let ((client, one), (server, other)) = open_connection(net);
    for rest in 0..2 {
        for number in 0..COUNT {
            send_with_progress(&one, number, None, &[&client, &server]);
        }
        // In the second round some messages are still in flight.
        for _ in 0..[100, 3][rest] {
            client.progress();
            server.progress();
        }
        for context in 0..COUNT {
            other.recv(marked_buffer(LONGEST_BYTES), NOWHERE, context).unwrap();
        }
        assert_complete_in_order(0..COUNT, &[&server, &client]);
    }
}

/// Shows fi_msg/receives-before-connect, fi_tagged/tagged-receives-before-connect, fi_cm/receive-at-any-time.
#[over(connected)]
fn truncated_receives_complete_in_send_order(net: &Net) {
    let ((client, one), (server, other)) = open_connection(net);
    let has_room = |number: u64| number % 4 != 2;
    for number in 0..COUNT {
        let room_bytes = if has_room(number) { LONGEST_BYTES } else { message_len_bytes(number) / 2 };
        other.recv(marked_buffer(room_bytes), NOWHERE, number).unwrap();
    }
    for number in 0..COUNT {
        send_with_progress(&one, number, None, &[&client, &server]);
    }
    for number in 0..COUNT {
        match next_operation_end_of_first_side(&[&server, &client]) {
            Ok((completion, _)) => {
                assert_eq!(completion.context, number);
                assert_is_message(&completion, number);
            }
            Err(failure) => {
                assert_eq!((failure.completion.context, has_room(number)), (number, false));
                assert!(matches!(failure.error, OperationError::Truncated { .. }), "{:?}", failure.error);
            }
        }
    }
}

#[over(connected, automatic)]
fn connections_of_a_shared_context_keep_send_order(net: &Net) {
    /// The number of the first message of the second connection.
    const SECOND: u64 = 1000 * LENS_BYTES.len() as u64;
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    let (first, first_served) = connect_with_shared_context(&client, &server, &context);
    let (second, second_served) = connect_with_shared_context(&client, &server, &context);
    for number in 0..2 * COUNT {
        context.recv(marked_buffer(LONGEST_BYTES), NOWHERE, number).unwrap();
    }
    // The number is also the remote data, which distinguishes empty messages.
    let send = |from: &Endpoint, number| {
        let message = payload(number, message_len_bytes(number));
        post_with_progress(&[&client, &server], || {
            Ok(from.senddata(message.clone(), number, NOWHERE, number)?)
        });
    };
    for number in 0..COUNT {
        send(&first, number);
        send(&second, SECOND + number);
    }
    let mut next = [0, SECOND];
    for _ in 0..2 * COUNT {
        let completion = next_completion_of_first_side(&[&server, &client]);
        let next = &mut next[usize::from(completion.data >= SECOND)];
        assert_eq!(completion.data, *next, "the next message of its connection");
        assert_is_message(&completion, *next);
        *next += 1;
    }
    close_with_progress((first, second, first_served, second_served), &[&client, &server]);
}
