//! The effects that a target asks its caller for.

use crate::completion::EndedOperation;
use crate::flags::CounterEvents;
use crate::receiver::KeptCredit;
use crate::transport::LinkId;
use crate::wire::Header;

/// What a target asks of its caller: effects outside its own state.
///
/// The caller must not call the target from an effect.
pub(crate) trait TargetEffects {
    /// Reports a peer's write with remote data.
    ///
    /// # Errors
    ///
    /// Returns the completion if there is no room.
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation>;

    /// Counts an access of a peer to a region.
    fn count(&mut self, events: CounterEvents);

    /// Sends a header to the peer of a link, after the headers that are queued for this peer.
    fn owe(&mut self, link: LinkId, header: Header);

    /// Sends the peer of a link the data of its [next read](super::Target::next_outgoing_read).
    fn owe_read_data(&mut self, link: LinkId);

    /// Returns credit to the peer of a link.
    fn return_credit(&mut self, link: LinkId, cost_bytes: u64);

    /// Keeps credit of a link's peer while a completion waits for room.
    fn withhold_credit(&mut self, link: LinkId, cost_bytes: u64) -> Option<KeptCredit>;

    /// Returns credit that was kept.
    fn free_kept_credit(&mut self, kept: KeptCredit);
}
