//! The flags of posted operations: which of them each kind of operation keeps, and which it cannot ignore.
//!
//! An operation ignores the flags that have no meaning for it, as other providers do: programs pass them on
//! from their default flags, from other calls and from newer headers. It refuses only a flag that changes the
//! meaning of another argument.

use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::Level;

use super::peek::ARRIVED_FLAGS;

/// What a send may be flagged with by default.
const SEND_DEFAULT_FLAGS: OpFlags =
    OpFlags::COMPLETION.union(OpFlags::INJECT).union(OpFlags::MORE).union(SEND_LEVELS);

/// The flags that a send has.
pub(super) const SEND_FLAGS: OpFlags =
    SEND_DEFAULT_FLAGS.union(OpFlags::FENCE).union(OpFlags::REMOTE_CQ_DATA);

/// The completion levels of sends.
pub(super) const SEND_LEVELS: OpFlags = OpFlags::INJECT_COMPLETE
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

/// What the endpoint's transmit operations may be flagged with by default. Only writes look at
/// `COMMIT_COMPLETE`.
pub(super) const TRANSMIT_DEFAULT_FLAGS: OpFlags = SEND_DEFAULT_FLAGS.union(OpFlags::COMMIT_COMPLETE);

/// What receives may be flagged with by default. The levels only say when received data must be visible to
/// devices, and host memory always is.
pub(super) const RECEIVE_DEFAULT_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::MULTI_RECV)
    .union(SEND_LEVELS.difference(OpFlags::MATCH_COMPLETE));

/// The flags that make a receive another than an ordinary one: about a message that has arrived already, or
/// for many messages.
pub(super) const RECEIVE_KINDS: OpFlags = ARRIVED_FLAGS.union(OpFlags::MULTI_RECV);

/// `FI_TRIGGER` and `FI_XPU_TRIGGER`: the context is a `struct fi_triggered_context`, and the operation waits for
/// what it says (`fi_trigger(3)`).
const TRIGGER: OpFlags = OpFlags::from_bits_retain(1 << 20 | 1 << 44);

/// `FI_MULTICAST`: the destination is the address of a group (`fi_msg(3)`).
const MULTICAST: OpFlags = OpFlags::from_bits_retain(1 << 5);

/// The flags that a transmit operation was posted with, without those that have no meaning for it.
///
/// # Errors
///
/// [`Misuse::Flags`] for a triggered operation, and for one to a group.
#[inline(always)]
pub(super) fn transmit_flags(flags: OpFlags, known: OpFlags) -> Result<OpFlags, Error> {
    refuse(flags, TRIGGER.union(MULTICAST))?;
    Ok(flags & known)
}

/// As [`transmit_flags`], for an atomic operation.
///
/// # Errors
///
/// [`Misuse::Flags`] also for `COMMIT_COMPLETE`: an atomic operation does not make its result durable.
#[inline(always)]
pub(super) fn atomic_flags(flags: OpFlags, known: OpFlags) -> Result<OpFlags, Error> {
    refuse(flags, OpFlags::COMMIT_COMPLETE)?;
    transmit_flags(flags, known)
}

/// Whether a receive may be posted with these flags. It looks only at those that it has.
///
/// # Errors
///
/// [`Misuse::Flags`] for a triggered receive.
#[inline(always)]
pub(super) fn check_receive_flags(flags: OpFlags) -> Result<(), Error> {
    refuse(flags, TRIGGER)
}

/// Refuses default flags that are not known: an endpoint that drops one would break a promise about all
/// operations.
pub(super) fn check_default_flags(flags: OpFlags, known: OpFlags) -> Result<(), Error> {
    refuse(flags, flags - known)
}

#[inline(always)]
fn refuse(flags: OpFlags, refused: OpFlags) -> Result<(), Error> {
    let refused = flags.bits() & refused.bits();
    if refused == 0 { Ok(()) } else { Err(Misuse::Flags(refused).into()) }
}

/// The strongest level that the flags name.
pub(super) fn level_of(flags: OpFlags) -> Level {
    if flags.contains(OpFlags::COMMIT_COMPLETE) {
        Level::Commit
    } else if flags.contains(OpFlags::MATCH_COMPLETE) {
        Level::Match
    } else if flags.contains(OpFlags::DELIVERY_COMPLETE) {
        Level::Delivery
    } else if flags.contains(OpFlags::TRANSMIT_COMPLETE) {
        Level::Transmit
    } else {
        Level::Inject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_level_counts() {
        assert_eq!(level_of(OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE), Level::Transmit);
        assert_eq!(level_of(OpFlags::TRANSMIT_COMPLETE | OpFlags::DELIVERY_COMPLETE), Level::Delivery);
        assert_eq!(level_of(SEND_LEVELS), Level::Match);
        assert_eq!(level_of(OpFlags::LEVELS), Level::Commit);
        assert_eq!(level_of(OpFlags::FENCE), Level::Inject);
    }
}
