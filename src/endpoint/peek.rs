//! Receives that concern a message which has arrived already: `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD` of `fi_tagged(3)`.
//!
//! What they do is told at [`RecvMsg`](super::RecvMsg). The manual page has them for tagged messages; here they do the same
//! for untagged ones.

use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::Found;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::pump::{Drive, ReceivePost};

/// The flags that make a receive concern a message which has arrived already.
///
/// `FI_DISCARD` by itself is for the buffered receives of `fi_msg(3)`, which endpoints here do not have; and
/// as a capability its bit is `FI_NAMED_RX_CTX`. So it does not make a receive such a one.
pub(super) const ARRIVED_FLAGS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM);

/// What is to be done about such a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Look whether there is one.
    Peek(Found),
    /// Receive the claimed one.
    Receive,
    /// Throw the claimed one away.
    Discard,
}

impl Deed {
    /// What flags with some of [`ARRIVED_FLAGS`] ask for. The manual page lets `FI_DISCARD` go with either of
    /// them.
    fn of(flags: OpFlags) -> Result<Deed, Misuse> {
        let has = |flag| flags.contains(flag);
        match (has(OpFlags::PEEK), has(OpFlags::CLAIM), has(OpFlags::DISCARD)) {
            (true, false, false) => Ok(Deed::Peek(Found::Stays)),
            (true, true, false) => Ok(Deed::Peek(Found::IsClaimed)),
            (true, false, true) => Ok(Deed::Peek(Found::IsDiscarded)),
            (false, _, false) => Ok(Deed::Receive),
            (false, _, true) => Ok(Deed::Discard),
            (true, true, true) => Err(Misuse::Invalid("FI_DISCARD with both FI_PEEK and FI_CLAIM")),
        }
    }
}

impl Endpoint {
    /// Does what a receive asks for whose flags have some of [`ARRIVED_FLAGS`], unless it is to receive a claimed message:
    /// that is to be posted, as the answer says, by [`Drive::receive_claimed`].
    #[cold]
    pub(super) fn look_at_arrived(
        &self,
        from: FabricAddress,
        tagged: Option<(u64, u64)>,
        context: u64,
        flags: OpFlags,
    ) -> Result<Option<(&dyn Drive, ReceivePost)>, Error> {
        let (pump, post) = self.receive(from, tagged, context, flags)?;
        match Deed::of(flags)? {
            Deed::Peek(then) => pump.peek(post, then)?,
            Deed::Receive => return Ok(Some((pump, post))),
            Deed::Discard => pump.discard_claimed(tagged.is_some(), context)?,
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_is_to_be_done() {
        let (peek, claim, discard) = (OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD);
        assert_eq!(Deed::of(peek), Ok(Deed::Peek(Found::Stays)));
        assert_eq!(Deed::of(peek | claim), Ok(Deed::Peek(Found::IsClaimed)));
        assert_eq!(Deed::of(peek | discard), Ok(Deed::Peek(Found::IsDiscarded)));
        assert_eq!(Deed::of(claim), Ok(Deed::Receive));
        assert_eq!(Deed::of(claim | discard | OpFlags::COMPLETION), Ok(Deed::Discard));
        assert!(matches!(Deed::of(peek | claim | discard), Err(Misuse::Invalid(_))));
    }
}
