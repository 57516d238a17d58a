//! The checks of two connected endpoints: the [checks](crate::model::check) of every history, and the order
//! in which receives complete.

use super::run::Observed;
use crate::model::check::{self, Promise};

pub(super) fn check_observed(observed: &Observed) {
    check::check_history(&observed.history, Promise::Everything);
    assert_untagged_receives_end_in_send_order(observed);
    assert_buffer_messages_end_in_send_order(observed);
    assert_receives_posted_first_end_in_send_order(observed);
}

/// Messages are numbered in the order of sending.
fn assert_in_order(messages: impl Iterator<Item = usize>, which: &str) {
    let messages: Vec<usize> = messages.collect();
    assert!(messages.is_sorted(), "{which} completed in the order of the messages {messages:?}");
}

fn assert_untagged_receives_end_in_send_order(observed: &Observed) {
    for received in &observed.received {
        let untagged = received.iter().filter(|(_, message)| observed.history.sends[*message].tag.is_none());
        assert_in_order(untagged.map(|(_, message)| *message), "untagged receives");
    }
}

fn assert_buffer_messages_end_in_send_order(observed: &Observed) {
    for receive in &observed.history.receives {
        if let Some(buffer) = &receive.buffer {
            assert_in_order(buffer.took.iter().copied(), "the messages of a buffer");
        }
    }
}

/// Receives posted first match each message as it arrives, tagged or not.
fn assert_receives_posted_first_end_in_send_order(observed: &Observed) {
    for received in &observed.received {
        let first = received.iter().filter(|(receive, _)| *receive < observed.posted_first);
        assert_in_order(first.map(|(_, message)| *message), "receives that were posted first");
    }
}
