//! What a target asks for.

use crate::completion::EndedOperation;
use crate::flags::CounterEvents;
use crate::receiver::KeptCredit;
use crate::transport::LinkId;
use crate::wire::Header;

/// What a target has done beside its own state: its caller carries it out.
///
/// None of it comes back to the target before the call that caused it has returned.
pub(crate) trait TargetEffects {
    /// Reports a peer's write with remote data.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation>;

    /// Counts what a peer has done with a region.
    fn count(&mut self, events: CounterEvents);

    /// Sends the peer of a link a header, behind the headers that it waits for already.
    fn owe(&mut self, link: LinkId, header: Header);

    /// Sends the peer of a link [what it reads](super::Target::next_outgoing_read).
    fn owe_read(&mut self, link: LinkId);

    /// Gives back the credit that something of this cost has held.
    fn return_credit(&mut self, link: LinkId, cost_bytes: u64);

    /// Keeps it for something that stays here for a while.
    fn keep_credit(&mut self, link: LinkId, cost_bytes: u64) -> Option<KeptCredit>;

    /// Gives back credit that was kept.
    fn free_kept_credit(&mut self, kept: KeptCredit);
}
