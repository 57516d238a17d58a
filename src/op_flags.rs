//! The flags of posted operations: which flags each kind of operation uses, and which flags it refuses. Also
//! converts flags into options for the pump.
//!
//! An operation ignores flags that have no meaning for it, as other providers do: programs pass such flags
//! from their defaults or from other calls. It refuses a flag that changes the meaning of another argument,
//! or a flag whose promise homespun cannot keep.

use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{
    FlushKind, Level, PeekAction, RmaLocal, Signalled, TransmitOp, TransmitOptions,
};

use crate::post::ReceiveKind;
use crate::{is_any_planted, mutated};

/// The flags of all transmit operations.
const TRANSMIT_FLAGS: OpFlags =
    OpFlags::COMPLETION.union(OpFlags::MORE).union(OpFlags::FENCE).union(SEND_LEVELS);

/// The flags of a send.
const SEND_FLAGS: OpFlags = TRANSMIT_FLAGS.union(OpFlags::INJECT).union(OpFlags::REMOTE_CQ_DATA);

/// The flags of a write.
const WRITE_FLAGS: OpFlags =
    TRANSMIT_FLAGS.union(OpFlags::INJECT).union(OpFlags::REMOTE_CQ_DATA).union(OpFlags::COMMIT_COMPLETE);

/// The flags of a read. A read injects nothing.
const READ_FLAGS: OpFlags = TRANSMIT_FLAGS;

/// The flags of an atomic operation. By `fi_atomic(3)` an atomic operation carries no remote completion
/// data.
const ATOMIC_FLAGS: OpFlags = TRANSMIT_FLAGS.union(OpFlags::INJECT);

/// The flags of a flush. Its kind says what must be durable when it completes.
const FLUSH_FLAGS: OpFlags = TRANSMIT_FLAGS;

/// The completion levels of sends.
const SEND_LEVELS: OpFlags = OpFlags::INJECT_COMPLETE
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

/// The default flags that transmit operations of an endpoint may have. Only writes use `COMMIT_COMPLETE`:
/// see [`without_commit`].
pub(crate) const TRANSMIT_DEFAULT_FLAGS: OpFlags =
    OpFlags::COMPLETION.union(OpFlags::INJECT).union(OpFlags::MORE).union(OpFlags::LEVELS);

/// The default flags that receives may have. The completion level of a receive matters only to
/// devices that read the received data.
pub(crate) const RECEIVE_DEFAULT_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::MULTI_RECV)
    .union(SEND_LEVELS.difference(OpFlags::MATCH_COMPLETE));

/// The flags that make a receive a special one.
///
/// `FI_DISCARD` is not one of them. Without a peek or a claim, the flag is for the buffered receives of
/// `fi_msg(3)`, which homespun does not have.
pub(crate) const RECEIVE_KINDS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::MULTI_RECV);

/// `FI_TRIGGER` and `FI_XPU_TRIGGER`: the operation waits for an event (`fi_trigger(3)`). Instead, an
/// application calls [`Endpoint::trigger`](crate::Endpoint::trigger) to make an operation wait for a
/// counter.
const TRIGGER: OpFlags = OpFlags::TRIGGER.union(OpFlags::from_bits_retain(1 << 44));

/// `FI_MULTICAST`: the destination is the address of a group (`fi_msg(3)`).
const MULTICAST: OpFlags = OpFlags::from_bits_retain(1 << 5);

/// The flags that an operation refuses if it makes memory of a peer durable: a write or a persistent flush.
const DURABLE_REFUSED: OpFlags = TRIGGER.union(MULTICAST);

/// The flags that the other transmit operations refuse. Their completion cannot say that anything is durable.
const VOLATILE_REFUSED: OpFlags = DURABLE_REFUSED.union(OpFlags::COMMIT_COMPLETE);

/// The flags that a receive refuses.
const RECEIVE_REFUSED: OpFlags = TRIGGER.union(OpFlags::COMMIT_COMPLETE);

/// Returns the options of an operation with these flags. If they name no completion level, the level of the
/// endpoint's default flags applies.
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
        TransmitOp::Send { .. } => (SEND_FLAGS, SEND_LEVELS, VOLATILE_REFUSED),
        TransmitOp::Rma { local: RmaLocal::Write { .. }, .. } => {
            (WRITE_FLAGS, OpFlags::LEVELS, DURABLE_REFUSED)
        }
        TransmitOp::Rma { local: RmaLocal::Read(_), .. } => (READ_FLAGS, SEND_LEVELS, VOLATILE_REFUSED),
        TransmitOp::Atomic { .. } => (ATOMIC_FLAGS, SEND_LEVELS, VOLATILE_REFUSED),
        TransmitOp::Flush { kind: FlushKind::Persistent, .. } => (FLUSH_FLAGS, SEND_LEVELS, DURABLE_REFUSED),
        TransmitOp::Flush { .. } => (FLUSH_FLAGS, SEND_LEVELS, VOLATILE_REFUSED),
    };
    let refused = if mutated!("fi_msg/multicast-transfers") { refused - MULTICAST } else { refused };
    check_no_refused_flags(flags, refused)?;
    let flags = flags & known;
    Ok(TransmitOptions {
        level: strongest_level(if flags.intersects(levels) { flags } else { default & levels }),
        signalled,
        inject: flags.contains(OpFlags::INJECT)
            || mutated!("fi_cq/inject-level-is-not-inject-call") && flags.contains(OpFlags::INJECT_COMPLETE),
        fence: flags.contains(OpFlags::FENCE),
    })
}

/// Whether a send with these flags may take the send lane: it awaits no reply of the peer, and no flag asks
/// for more than a completion.
#[inline(always)]
pub(crate) fn may_send_at_once(flags: OpFlags, default: OpFlags) -> bool {
    const PLAIN: OpFlags = OpFlags::COMPLETION.union(OpFlags::INJECT_COMPLETE);
    (flags | default).bits() & !PLAIN.bits() == 0 && !is_any_planted()
}

/// Whether a receive with these flags may take the receive lane: no flag asks for more than a completion.
#[inline(always)]
pub(crate) fn may_wait_in_lane(flags: OpFlags) -> bool {
    (flags - OpFlags::COMPLETION).is_empty() && !is_any_planted()
}

/// Returns whether the completion queue gets an entry if an operation with these flags succeeds.
/// `is_selective` says that the endpoint reports only operations with `FI_COMPLETION`.
#[inline(always)]
pub(crate) fn signalled_from_flags(is_selective: bool, flags: OpFlags) -> Signalled {
    let is_selective = is_selective && !mutated!("fi_endpoint/selective-completion");
    let is_asked = flags.contains(OpFlags::COMPLETION)
        || mutated!("fi_cq/level-requests-no-completion") && flags.intersects(OpFlags::LEVELS);
    if !is_selective || is_asked { Signalled::Yes } else { Signalled::No }
}

/// Returns the kind of a receive whose flags have some of [`RECEIVE_KINDS`]. Untagged receives may peek,
/// too. `FI_DISCARD` needs a peek or a claim. Tagged receives ignore `FI_MULTI_RECV`, since multi-receive
/// buffers are for untagged messages.
///
/// # Errors
///
/// [`Misuse::Invalid`] if the flags peek, claim and discard at once.
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
        (true, false, true) if mutated!("fi_tagged/discard-with-peek") => {
            Ok(ReceiveKind::Peek(PeekAction::Keep))
        }
        (true, false, true) => Ok(ReceiveKind::Peek(PeekAction::Discard)),
        (true, false, false) => Ok(ReceiveKind::Peek(PeekAction::Keep)),
        (false, true, true) if mutated!("fi_tagged/discard-with-claim") => Ok(ReceiveKind::Claimed),
        (false, true, true) => Ok(ReceiveKind::Discard),
        (false, true, false) => Ok(ReceiveKind::Claimed),
        (false, false, _) if is_tagged => Ok(ReceiveKind::Single),
        (false, false, _) => Ok(ReceiveKind::Multi { min_free_bytes }),
    }
}

/// Checks that a receive accepts these flags. Receives ignore flags that have no meaning for them.
///
/// # Errors
///
/// [`Misuse::Flags`] for a flag that a receive refuses.
#[inline(always)]
pub(crate) fn check_receive_flags(flags: OpFlags) -> Result<(), Error> {
    let levels =
        if mutated!("fi_cq/receive-level-delays-flush") { OpFlags::LEVELS } else { OpFlags::empty() };
    let is_too_weak =
        flags.contains(OpFlags::TRANSMIT_COMPLETE) && mutated!("fi_msg/receive-level-may-be-lower");
    let refused = RECEIVE_REFUSED | levels | if is_too_weak { flags } else { OpFlags::empty() };
    check_no_refused_flags(flags, refused)
}

/// Returns default flags for operations other than writes. They cannot keep `COMMIT_COMPLETE`, so they
/// complete at the next lower level.
pub(crate) fn without_commit(default: OpFlags) -> OpFlags {
    if default.contains(OpFlags::COMMIT_COMPLETE) {
        (default - OpFlags::COMMIT_COMPLETE) | OpFlags::DELIVERY_COMPLETE
    } else {
        default
    }
}

/// Refuses unknown default flags with [`Misuse::Flags`]: no operation of the endpoint would do what such a
/// flag promises.
pub(crate) fn check_default_flags(flags: OpFlags, known: OpFlags) -> Result<(), Error> {
    let known = if mutated!("fi_endpoint/endpoint-multicast") { known | MULTICAST } else { known };
    check_no_refused_flags(flags, flags - known)
}

/// Refuses default flags with `TRIGGER` if the object lacks the capability `TRIGGER`.
pub(crate) fn check_trigger_flag(flags: OpFlags, caps: Caps) -> Result<(), Error> {
    if flags.contains(OpFlags::TRIGGER) && !caps.contains(Caps::TRIGGER) {
        return Err(Misuse::Flags(OpFlags::TRIGGER.bits()).into());
    }
    Ok(())
}

#[inline(always)]
fn check_no_refused_flags(flags: OpFlags, refused: OpFlags) -> Result<(), Error> {
    let refused = if mutated!("fi_cq/flag-multicast") { refused - MULTICAST } else { refused };
    let refused = flags.bits() & refused.bits();
    if refused == 0 { Ok(()) } else { Err(Misuse::Flags(refused).into()) }
}

/// Returns the strongest level that the flags name.
pub(crate) fn strongest_level(flags: OpFlags) -> Level {
    if flags.contains(OpFlags::COMMIT_COMPLETE) {
        Level::Commit
    } else if flags.contains(OpFlags::MATCH_COMPLETE) && !mutated!("fi_cq/match-means-matched") {
        Level::Match
    } else if flags.contains(OpFlags::DELIVERY_COMPLETE) && !mutated!("fi_cq/delivery-means-processed") {
        Level::Delivery
    } else if flags.contains(OpFlags::TRANSMIT_COMPLETE) && !mutated!("fi_cq/transmit-of-reliable-endpoint") {
        Level::Transmit
    } else {
        Level::Inject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strongest_of_several_level_flags_applies() {
        assert_eq!(strongest_level(OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE), Level::Transmit);
        assert_eq!(strongest_level(OpFlags::TRANSMIT_COMPLETE | OpFlags::DELIVERY_COMPLETE), Level::Delivery);
        assert_eq!(strongest_level(SEND_LEVELS), Level::Match);
        assert_eq!(strongest_level(OpFlags::LEVELS), Level::Commit);
        assert_eq!(strongest_level(OpFlags::FENCE), Level::Inject);
    }

    #[test]
    fn each_level_flag_means_its_own_level() {
        let levels: Vec<Level> = OpFlags::LEVELS.iter().map(strongest_level).collect();
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
