//! The flags of posted operations: which of them each kind of operation keeps, which it cannot ignore, and
//! what they become on the way to the pump.
//!
//! An operation ignores the flags that have no meaning for it, as other providers do: programs pass them on
//! from their default flags, from other calls and from newer headers. It refuses only a flag that changes the
//! meaning of another argument.

use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::{Level, PeekAction, RmaLocal, Signalled, TransmitOp, TransmitOptions};

use crate::post::ReceiveKind;

/// The flags that every transmit operation has.
const TRANSMIT_FLAGS: OpFlags =
    OpFlags::COMPLETION.union(OpFlags::MORE).union(OpFlags::FENCE).union(SEND_LEVELS);

/// The flags that a send has.
const SEND_FLAGS: OpFlags = TRANSMIT_FLAGS.union(OpFlags::INJECT).union(OpFlags::REMOTE_CQ_DATA);

/// The flags that a write has.
const WRITE_FLAGS: OpFlags =
    TRANSMIT_FLAGS.union(OpFlags::INJECT).union(OpFlags::REMOTE_CQ_DATA).union(OpFlags::COMMIT_COMPLETE);

/// The flags that a read has. It injects nothing.
const READ_FLAGS: OpFlags = TRANSMIT_FLAGS;

/// The flags that an atomic operation has. `fi_atomic(3)` has no remote data for a completion at the target.
const ATOMIC_FLAGS: OpFlags = TRANSMIT_FLAGS.union(OpFlags::INJECT);

/// The completion levels of sends.
const SEND_LEVELS: OpFlags = OpFlags::INJECT_COMPLETE
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

/// The default flags that transmit operations of an endpoint may have. Only writes look at
/// `COMMIT_COMPLETE`.
pub(crate) const TRANSMIT_DEFAULT_FLAGS: OpFlags =
    OpFlags::COMPLETION.union(OpFlags::INJECT).union(OpFlags::MORE).union(OpFlags::LEVELS);

/// The default flags that receives may have. The levels only say when received data must be visible to
/// devices, and host memory always is.
pub(crate) const RECEIVE_DEFAULT_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::MULTI_RECV)
    .union(SEND_LEVELS.difference(OpFlags::MATCH_COMPLETE));

/// The flags that make a receive another than an ordinary one.
///
/// `FI_DISCARD` by itself is for the buffered receives of `fi_msg(3)`, which endpoints here do not have; and
/// as a capability its bit is `FI_NAMED_RX_CTX`. So it is not among them.
pub(crate) const RECEIVE_KINDS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::MULTI_RECV);

/// `FI_TRIGGER` and `FI_XPU_TRIGGER`: the operation waits (`fi_trigger(3)`). One that waits for a
/// counter is posted by [`Endpoint::trigger`](crate::Endpoint::trigger), which names the counter.
const TRIGGER: OpFlags = OpFlags::TRIGGER.union(OpFlags::from_bits_retain(1 << 44));

/// `FI_MULTICAST`: the destination is the address of a group (`fi_msg(3)`).
const MULTICAST: OpFlags = OpFlags::from_bits_retain(1 << 5);

/// The flags that a send refuses.
const SEND_REFUSED: OpFlags = TRIGGER.union(MULTICAST);

/// The flags that a read or a write refuses.
const ACCESS_REFUSED: OpFlags = SEND_REFUSED;

/// The flags that an atomic operation refuses. It does not make its result durable.
const ATOMIC_REFUSED: OpFlags = ACCESS_REFUSED.union(OpFlags::COMMIT_COMPLETE);

/// The flags that a receive refuses.
const RECEIVE_REFUSED: OpFlags = TRIGGER;

/// How an operation with these flags is carried out, at an endpoint with these default flags.
/// A level that they do not name is the default one.
///
/// # Errors
///
/// [`Misuse::Flags`] for a flag that the operation refuses.
#[inline(always)]
pub(crate) fn options_from_flags(
    op: &TransmitOp,
    flags: OpFlags,
    default: OpFlags,
    signalled: Signalled,
) -> Result<TransmitOptions, Error> {
    let (known, levels, refused) = match op {
        TransmitOp::Send { .. } => (SEND_FLAGS, SEND_LEVELS, SEND_REFUSED),
        TransmitOp::Rma { local: RmaLocal::Write { .. }, .. } => {
            (WRITE_FLAGS, OpFlags::LEVELS, ACCESS_REFUSED)
        }
        TransmitOp::Rma { local: RmaLocal::Read(_), .. } => (READ_FLAGS, OpFlags::LEVELS, ACCESS_REFUSED),
        TransmitOp::Atomic { .. } => (ATOMIC_FLAGS, SEND_LEVELS, ATOMIC_REFUSED),
    };
    refuse_flags(flags, refused)?;
    let flags = flags & known;
    Ok(TransmitOptions {
        level: level_of(if flags.intersects(levels) { flags } else { default & levels }),
        signalled,
        inject: flags.contains(OpFlags::INJECT),
        fence: flags.contains(OpFlags::FENCE),
    })
}

/// Whether the success of an operation with these flags is reported, at an endpoint whose completions are
/// selective or not.
#[inline(always)]
pub(crate) fn signalled_by_flags(is_selective: bool, flags: OpFlags) -> Signalled {
    if !is_selective || flags.contains(OpFlags::COMPLETION) { Signalled::Yes } else { Signalled::No }
}

/// Returns the kind of a receive whose flags have some of [`RECEIVE_KINDS`]. The manual page has peeks for
/// tagged messages; here they do the same for untagged ones. It lets `FI_DISCARD` go with a peek or a claim.
/// It has no multi-receive buffers for tagged messages: there the flag has no meaning.
#[cold]
pub(crate) fn special_receive_kind(
    flags: OpFlags,
    is_tagged: bool,
    min_free_bytes: usize,
) -> Result<ReceiveKind, Misuse> {
    let has = |flag| flags.contains(flag);
    match (has(OpFlags::PEEK), has(OpFlags::CLAIM), has(OpFlags::DISCARD)) {
        (true, true, true) => Err(Misuse::Invalid(Argument::DiscardedClaim)),
        (true, true, false) => Ok(ReceiveKind::Peek(PeekAction::Claim)),
        (true, false, true) => Ok(ReceiveKind::Peek(PeekAction::Discard)),
        (true, false, false) => Ok(ReceiveKind::Peek(PeekAction::Keep)),
        (false, true, true) => Ok(ReceiveKind::Discard),
        (false, true, false) => Ok(ReceiveKind::Claimed),
        (false, false, _) if is_tagged => Ok(ReceiveKind::Single),
        (false, false, _) => Ok(ReceiveKind::Multi { min_free_bytes }),
    }
}

/// Whether a receive may be posted with these flags. It looks only at those that it has.
///
/// # Errors
///
/// [`Misuse::Flags`] for a flag that it refuses.
#[inline(always)]
pub(crate) fn check_receive_flags(flags: OpFlags) -> Result<(), Error> {
    refuse_flags(flags, RECEIVE_REFUSED)
}

/// Refuses default flags that are not known: an endpoint that drops one would break a promise about all
/// operations.
pub(crate) fn check_default_flags(flags: OpFlags, known: OpFlags) -> Result<(), Error> {
    refuse_flags(flags, flags - known)
}

#[inline(always)]
fn refuse_flags(flags: OpFlags, refused: OpFlags) -> Result<(), Error> {
    let refused = flags.bits() & refused.bits();
    if refused == 0 { Ok(()) } else { Err(Misuse::Flags(refused).into()) }
}

/// The strongest level that the flags name.
pub(crate) fn level_of(flags: OpFlags) -> Level {
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
    fn strongest_of_several_level_flags_counts() {
        assert_eq!(level_of(OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE), Level::Transmit);
        assert_eq!(level_of(OpFlags::TRANSMIT_COMPLETE | OpFlags::DELIVERY_COMPLETE), Level::Delivery);
        assert_eq!(level_of(SEND_LEVELS), Level::Match);
        assert_eq!(level_of(OpFlags::LEVELS), Level::Commit);
        assert_eq!(level_of(OpFlags::FENCE), Level::Inject);
    }

    #[test]
    fn each_level_flag_means_its_own_level() {
        let levels: Vec<Level> = OpFlags::LEVELS.iter().map(level_of).collect();
        assert_eq!(levels.len(), OpFlags::LEVELS.bits().count_ones() as usize);
        for (at, level) in levels.iter().enumerate() {
            assert!(!levels[..at].contains(level), "{level:?} for two flags");
        }
    }

    #[test]
    fn receive_kind_follows_the_flags() {
        let (peek, claim, discard) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
        for (flags, kind) in [
            (peek, ReceiveKind::Peek(PeekAction::Keep)),
            (peek | claim, ReceiveKind::Peek(PeekAction::Claim)),
            (peek | discard | OpFlags::MULTI_RECV, ReceiveKind::Peek(PeekAction::Discard)),
            (claim, ReceiveKind::Claimed),
            (claim | discard | OpFlags::COMPLETION, ReceiveKind::Discard),
        ] {
            assert_eq!(special_receive_kind(flags, true, 16), Ok(kind));
            assert_eq!(special_receive_kind(flags, false, 16), Ok(kind));
        }
        let multi = OpFlags::MULTI_RECV;
        let many = ReceiveKind::Multi { min_free_bytes: 16 };
        assert_eq!(special_receive_kind(multi, false, 16), Ok(many));
        assert_eq!(special_receive_kind(multi, true, 16), Ok(ReceiveKind::Single));
        assert!(matches!(special_receive_kind(peek | claim | discard, true, 0), Err(Misuse::Invalid(_))));
    }
}
