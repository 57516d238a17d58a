//! What a receiver asks for.

use crate::completion::{Completion, Failure};
use crate::flags::CounterEvents;
use crate::transport::LinkId;
use crate::wire::Header;

/// What a receiver has done beside its own state: its caller carries it out.
///
/// None of it comes back to the receiver before the call that caused it has returned.
pub(crate) trait Effects {
    /// Reports a receive, or a look at a message, that has succeeded.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn complete(&mut self, completion: Completion) -> Result<(), Completion>;

    /// Reports a receive, or a look at a message, that has failed.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn fail(&mut self, failure: Failure) -> Result<(), Failure>;

    /// Counts a receive that has succeeded.
    fn count(&mut self, events: CounterEvents);

    /// Counts a receive that has failed.
    fn count_error(&mut self, events: CounterEvents);

    /// Tells the peer of a link something, behind what it is to be told already.
    fn owe(&mut self, link: LinkId, header: Header);

    /// Tells the peer of a link how many messages [have arrived](super::Receiver::received_messages).
    fn owe_ack(&mut self, link: LinkId);

    /// Tells the peer of a link how much credit it [was granted](super::Receiver::granted_bytes).
    fn owe_credit(&mut self, link: LinkId);
}
