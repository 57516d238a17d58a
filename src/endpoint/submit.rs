//! Checks an endpoint's transmit operations, turns their flags into options, and passes them to the pump.

use std::mem::ManuallyDrop;

use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{RmaLocal, TransmitOp, TransmitRequest};
use homespun_engine::rejected::Rejected;

use super::Endpoint;
use crate::endpoint_pump::EndpointPump;
use crate::mutated;
use crate::op_flags::options_from_flags;
use crate::owned::Owned;
use crate::post::Post;

impl Endpoint {
    /// Posts an operation with these flags. If the operation is refused, `post` keeps its memory.
    #[inline(always)]
    pub(super) fn post_with_flags(&self, post: &mut Post, flags: OpFlags) -> Result<(), Error> {
        self.prepare_post(post, flags)?.post(post)
    }

    /// Checks that an operation may be posted with these flags, and sets its options. Returns the pump to
    /// post it to.
    #[inline(always)]
    pub(super) fn prepare_post(&self, post: &mut Post, flags: OpFlags) -> Result<&dyn EndpointPump, Error> {
        if mutated!("fi_endpoint/enable-before-transfers") {
            self.enable()?;
        }
        let (pump, service) = self.shared.enabled_pump()?;
        let TransmitRequest { op, options, .. } = &mut post.request;
        let default = match op {
            TransmitOp::Rma { local: RmaLocal::Write { .. }, .. } => self.tx_op_flags(),
            _ => self.uncommitted_op_flags(),
        };
        let flags = flags_after_mutation(op, flags, default);
        *options = options_from_flags(op, flags, default, service.signalled_for_transmit(flags))?;
        self.shared.check_caps(op.required_caps(options.level))?;
        if options.inject && !ignores_inject_size(op) {
            self.check_inject_size(op.longest_injected_bytes())?;
        }
        post.more = flags.contains(OpFlags::MORE);
        Ok(pump)
    }

    /// Posts an operation with owned memory. If the operation is refused, returns the memory. In both cases
    /// `post` has no memory afterwards, so the caller need not drop it.
    #[inline(always)]
    pub(super) fn submit_owned<B: Owned>(
        &self,
        post: &mut ManuallyDrop<Post>,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        match self.post_with_flags(post, flags) {
            Ok(()) => Ok(()),
            Err(error) => Err(Rejected { error, returned: take_back_buffer(post) }),
        }
    }

    /// Checks that the endpoint has the needed capabilities and may inject this many bytes. Returns its
    /// pump.
    #[inline(always)]
    pub(super) fn pump_if_inject_allowed(
        &self,
        needed: Caps,
        len_bytes: usize,
    ) -> Result<&dyn EndpointPump, Error> {
        let (pump, _) = self.shared.enabled_pump()?;
        self.shared.check_caps(needed)?;
        if !mutated!("fi_msg/inject-size-limits-inject") {
            self.check_inject_size(len_bytes)?;
        }
        Ok(pump)
    }

    #[inline(always)]
    fn check_inject_size(&self, len_bytes: usize) -> Result<(), Error> {
        let max_bytes = self.shared.info.tx.inject_size_bytes;
        if len_bytes <= max_bytes {
            return Ok(());
        }
        Err(Misuse::TooLong { len_bytes: len_bytes as u64, max_bytes: max_bytes as u64 }.into())
    }
}

/// The flags of a call, unless a mutant adds the default flags to them, or drops `FI_COMPLETION`.
#[inline(always)]
fn flags_after_mutation(op: &TransmitOp, flags: OpFlags, default: OpFlags) -> OpFlags {
    let (merges_default, drops_completion) = match op {
        TransmitOp::Send { tag: Some(_), .. } => (mutated!("fi_tagged/tagged-flags-replace-defaults"), false),
        TransmitOp::Send { tag: None, .. } => {
            (mutated!("fi_msg/call-flags-replace-defaults"), mutated!("fi_msg/completion-flag"))
        }
        TransmitOp::Rma { .. } => (false, mutated!("fi_rma/rma-completion-flag")),
        TransmitOp::Atomic { .. } => (false, mutated!("fi_atomic/atomic-completion-flag")),
        TransmitOp::Flush { .. } => (false, false),
    };
    let flags = if drops_completion { flags - OpFlags::COMPLETION } else { flags };
    if merges_default { flags | default } else { flags }
}

/// Whether a mutant lets an operation with `FI_INJECT` have any length.
#[inline(always)]
fn ignores_inject_size(op: &TransmitOp) -> bool {
    match op {
        TransmitOp::Send { tag: Some(_), .. } => mutated!("fi_tagged/tagged-inject-limit"),
        TransmitOp::Send { tag: None, .. } => mutated!("fi_msg/inject-flag-limit"),
        TransmitOp::Rma { .. } => mutated!("fi_rma/rma-inject-limit"),
        TransmitOp::Atomic { .. } => mutated!("fi_atomic/atomic-inject-limit"),
        TransmitOp::Flush { .. } => false,
    }
}

/// Removes and returns the memory of a post that was refused.
#[cold]
fn take_back_buffer<B: Owned>(post: &mut Post) -> B {
    B::from_buffer(post.request.op.take_buffer())
}
