//! The order of a connection: its receives complete in the order in which their messages were sent, however
//! these travel.

use homespun::{Completion, Endpoint, Errno, Error, FabricAddress, OperationError};

use crate::shared_connections::connected;
use crate::suite::connecting::{Side, close, completion, end, pair};
use crate::suite::payload::{payload, received, room};
use crate::suite::{Deadline, Net};

/// What posts are given in place of an address, which is not looked at.
const NOWHERE: FabricAddress = FabricAddress(0x5eed);

/// Each long message, which its receiver fetches or asks for, is followed by shorter ones of every kind.
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

fn len_bytes(number: u64) -> usize {
    LENS_BYTES[number as usize % LENS_BYTES.len()]
}

/// Posts a send, for which there is room when both sides have gone on for a while.
fn send(from: &Endpoint, number: u64, tag: Option<u64>, sides: &[&Side; 2]) {
    let deadline = Deadline::new();
    loop {
        let message = payload(number, len_bytes(number));
        let posted = match tag {
            Some(tag) => from.tsend(message, NOWHERE, tag, number).map_err(Error::from),
            None => from.send(message, NOWHERE, number).map_err(Error::from),
        };
        match posted {
            Ok(()) => return,
            Err(error) => assert_eq!(error.errno(), Errno::EAGAIN),
        }
        sides.iter().for_each(|side| side.progress());
        deadline.pause("room for a send");
    }
}

#[track_caller]
fn assert_is_message(completion: &Completion, number: u64) {
    assert_eq!(completion.len_bytes, len_bytes(number), "the length of message {number}");
    assert!(received(&completion.buffer) == payload(number, len_bytes(number)), "message {number}");
}

/// Has the receives of all messages complete at the first of these, with these contexts.
#[track_caller]
fn assert_complete_in_order(contexts: impl Iterator<Item = u64>, sides: &[&Side; 2]) {
    for (number, context) in contexts.enumerate() {
        let completion = completion(sides);
        assert_eq!(completion.context, context, "the receive that completes as number {number}");
        assert_is_message(&completion, number as u64);
    }
}

pub(crate) fn receives_posted_early_complete_in_the_order_of_sending(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    for context in 0..COUNT {
        other.recv(room(LONGEST_BYTES), NOWHERE, context).unwrap();
    }
    for number in 0..COUNT {
        send(&one, number, None, &[&client, &server]);
    }
    assert_complete_in_order(0..COUNT, &[&server, &client]);
}

pub(crate) fn receives_posted_late_complete_in_the_order_of_sending(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    for rest in 0..2 {
        for number in 0..COUNT {
            send(&one, number, None, &[&client, &server]);
        }
        // In the second round some of them are still on their way.
        for _ in 0..[100, 3][rest] {
            client.progress();
            server.progress();
        }
        for context in 0..COUNT {
            other.recv(room(LONGEST_BYTES), NOWHERE, context).unwrap();
        }
        assert_complete_in_order(0..COUNT, &[&server, &client]);
    }
}

pub(crate) fn tagged_and_untagged_receives_complete_in_one_order(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    let is_tagged = |number: u64| number % 3 != 1;
    for number in (0..COUNT).rev().filter(|number| is_tagged(*number)) {
        other.trecv(room(LONGEST_BYTES), NOWHERE, number, 0, number).unwrap();
    }
    for number in (0..COUNT).filter(|number| !is_tagged(*number)) {
        other.recv(room(LONGEST_BYTES), NOWHERE, number).unwrap();
    }
    for number in 0..COUNT {
        send(&one, number, is_tagged(number).then_some(number), &[&client, &server]);
    }
    assert_complete_in_order(0..COUNT, &[&server, &client]);
}

pub(crate) fn messages_in_one_buffer_complete_in_the_order_of_sending(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    let total_bytes: usize = (0..COUNT).map(|number| len_bytes(number) + 64).sum();
    other.recv_multi(room(total_bytes), NOWHERE, 7).unwrap();
    for number in 0..COUNT {
        send(&one, number, None, &[&client, &server]);
    }
    assert_complete_in_order((0..COUNT).map(|_| 7), &[&server, &client]);
    assert_eq!(other.cancel(7), Ok(()), "the buffer has room left");
}

pub(crate) fn truncated_receives_keep_their_place(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    let has_room = |number: u64| number % 4 != 2;
    for number in 0..COUNT {
        let room_bytes = if has_room(number) { LONGEST_BYTES } else { len_bytes(number) / 2 };
        other.recv(room(room_bytes), NOWHERE, number).unwrap();
    }
    for number in 0..COUNT {
        send(&one, number, None, &[&client, &server]);
    }
    for number in 0..COUNT {
        match end(&[&server, &client]) {
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

pub(crate) fn connections_of_a_shared_context_each_keep_their_order(net: &Net) {
    /// The number of the first message of the second connection.
    const SECOND: u64 = 1000 * LENS_BYTES.len() as u64;
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    let (first, first_served) = connected(&client, &server, &context);
    let (second, second_served) = connected(&client, &server, &context);
    for number in 0..2 * COUNT {
        context.recv(room(LONGEST_BYTES), NOWHERE, number).unwrap();
    }
    for number in 0..COUNT {
        send(&first, number, None, &[&client, &server]);
        send(&second, SECOND + number, None, &[&client, &server]);
    }
    let mut next = [0, SECOND];
    for _ in 0..2 * COUNT {
        let completion = completion(&[&server, &client]);
        let content = received(&completion.buffer);
        // An empty message may be that of either, which leaves its own next one to be found.
        let by = next.iter().position(|number| content == payload(*number, len_bytes(*number)));
        next[by.expect("the next message of a connection")] += 1;
    }
    close((first, second, first_served, second_served), &[&client, &server]);
}
