//! The effects that a target asks its caller for.

use crate::completion::EndedOperation;
use crate::flags::CounterEvents;
use crate::receiver::KeptCredit;
use crate::transport::LinkId;
use crate::wire::Header;

/// The effects of a target outside its own state, which its caller carries out.
///
/// No effect may call the target before the call that caused it has returned.
pub(crate) trait TargetEffects {
    /// Reports a peer's write with remote data.
    ///
    /// # Errors
    ///
    /// Returns the completion if there is no room.
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation>;

    /// Counts an access of a peer to a region.
    fn count(&mut self, events: CounterEvents);

    /// Sends a header to the peer of a link, behind the headers queued for it.
    fn owe(&mut self, link: LinkId, header: Header);

    /// Sends the peer of a link its [next read](super::Target::next_outgoing_read).
    fn owe_read(&mut self, link: LinkId);

    /// Gives back credit of this cost.
    fn return_credit(&mut self, link: LinkId, cost_bytes: u64);

    /// Keeps credit of this cost while a completion waits for room.
    fn keep_credit(&mut self, link: LinkId, cost_bytes: u64) -> Option<KeptCredit>;

    /// Gives back credit that was kept.
    fn free_kept_credit(&mut self, kept: KeptCredit);
}
