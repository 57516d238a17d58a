//! What the coordinator keeps of each link: what is being written to it, and what is being read from it.
//!
//! ```text
//!              +-- LinkTx ---------------------------------+   +-- LinkRx ------------------------+
//!  begun,      | the frame that the link has taken in part |   | the frame that has arrived in    |  began,
//!  taken,  --> | credit, levels, fences, order             |   | part, where neither receiver nor |  next
//!  answered    | accesses and offers without an answer     |   | target takes it piece by piece   |  <--
//!              | Debts: what the peer waits to hear        |   |                                  |
//!              +-------------------------------------------+   +----------------------------------+
//! ```
//!
//! Both are told what happened, and answer which operations of the link that concerns, by their numbers. They hold no
//! operation, no transport and no completion queue.

mod debts;
mod links;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub(crate) use self::debts::Debts;
pub(crate) use self::links::{Link, Links};
pub(crate) use self::rx::{Collected, Described, LinkRx};
pub(crate) use self::tx::{Effect, Frame, LinkTx, Mapped, MessageMark, Stage, Unended, Way, Writing, op_of};
