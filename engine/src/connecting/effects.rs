//! What a connection asks for.

use crate::address::Address;
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::peer_id::PeerId;
use crate::transport::LinkId;
use crate::wire::Header;

/// What a connection has done beside its own state: its caller carries it out.
///
/// None of it comes back to the connection before the call that caused it has returned.
pub(crate) trait ConnectionEffects {
    /// Reports an event to the application. There is always room for it.
    fn report(&mut self, event: ConnectionReport);

    /// Has a link carry messages from now on, to this instance at this address. Returns what the
    /// endpoint there is called.
    fn establish(&mut self, link: LinkId, address: Address, instance: u64) -> PeerId;

    /// Sends the peer of a link that carries messages a header.
    fn owe(&mut self, link: LinkId, header: Header);

    /// Ends a link that carries no messages.
    fn abort_handshake_link(&mut self, link: LinkId, reason: &'static str);

    /// Ends all receives, since nothing will arrive.
    fn end_receives(&mut self, error: &OperationError);

    /// Asks for the [time](super::Connection::advance_time), since a
    /// [timeout](super::Connection::awaits_timeout) runs.
    fn arm_timeout(&mut self);
}
