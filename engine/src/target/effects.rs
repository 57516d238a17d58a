//! The effects that a target asks its caller for.

use crate::completion::EndedOperation;
use crate::flags::CounterEvents;
use crate::link_fault::NoMemory;
use crate::receiver::{HeldCredit, WriteNotice};
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

    /// Gives the notice of a write with remote data to a posted receive, or keeps it until there is one. The
    /// notice takes over the credit that the write has cost.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] to keep the notice.
    fn give_to_receive(&mut self, link: LinkId, notice: WriteNotice) -> Result<(), NoMemory>;

    /// Counts an access of a peer to a region.
    fn count(&mut self, events: CounterEvents);

    /// Queues a header for the peer of a link, after earlier headers.
    fn queue_header(&mut self, link: LinkId, header: Header);

    /// Queues the [count](super::Target::written_count) of the counted writes of the link's peer, after
    /// all headers.
    fn queue_written_count(&mut self, link: LinkId);

    /// Queues the data of the [next read](super::Target::next_outgoing_read) of the link's peer.
    fn queue_read_data(&mut self, link: LinkId);

    /// Returns credit to the peer of a link.
    fn return_credit(&mut self, link: LinkId, cost_bytes: u64);

    /// Holds credit of the link's peer until a completion finds room. Returns `None` if the link
    /// has ended.
    fn hold_credit(&mut self, link: LinkId, cost_bytes: u64) -> Option<HeldCredit>;

    /// Returns held credit.
    fn return_held_credit(&mut self, held: HeldCredit);
}
