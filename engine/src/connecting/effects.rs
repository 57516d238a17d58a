//! The effects that a connection asks its caller for.

use crate::address::Address;
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::peer_id::PeerId;
use crate::transport::{AddressProof, LinkId};
use crate::wire::Header;

/// What a connection asks of its caller: effects outside its own state.
///
/// The caller must not call the connection from an effect.
pub(crate) trait ConnectionEffects {
    /// Reports an event to the application. There is always room for it.
    fn report(&mut self, event: ConnectionReport);

    /// Makes a handshake link carry messages from now on, and returns the link's peer. The peer has
    /// this address and instance; `proof` says how this side knows.
    fn add_message_link(
        &mut self,
        link: LinkId,
        address: Address,
        instance: u64,
        proof: AddressProof,
    ) -> PeerId;

    /// Queues a header for the peer of a link that carries messages.
    fn queue_header(&mut self, link: LinkId, header: Header);

    /// Ends a link that carries no messages.
    fn abort_handshake_link(&mut self, link: LinkId, reason: &'static str);

    /// Fails all receives, since no message can arrive any more.
    fn fail_all_receives(&mut self, error: &OperationError);

    /// Asks the caller to [advance the time](super::Connection::advance_time) from now on, because
    /// a [timeout](super::Connection::awaits_timeout) is running.
    fn arm_timeout(&mut self);
}
