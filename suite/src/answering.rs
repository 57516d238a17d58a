//! What carries out the calls of a test to a party.

use std::fmt::Debug;

use super::call::{RemoteAnswer, RemoteCall};

/// For this many rounds a party waits for a completion. Then it answers that there is none.
pub(super) const WAITING_ROUNDS: usize = 1000;

/// A party that carries out the calls of a test.
pub(super) trait PartyServer: Debug + Send {
    /// Whether the party is driven while no call is made.
    fn drives_itself(&self) -> bool;

    /// Drives the party once.
    fn progress(&self);

    fn execute_call(&mut self, call: RemoteCall) -> RemoteAnswer;
}
