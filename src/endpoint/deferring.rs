//! Prepares operations that wait for a counter. The endpoint converts and checks an operation before the
//! wait begins.

use std::sync::Arc;

use homespun_engine::buffer::{Buffer, Destination, Source};
use homespun_engine::error::{Error, Misuse, ObjectState, Unsupported};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{AtomicLocal, Signalled, TransmitOp};
use homespun_engine::rejected::Rejected;

use super::rma::{make_read_op, make_write_op};
use super::{AtomicMsg, CompareAtomicMsg, Endpoint, FetchAtomicMsg, ReadMsg, SendMsg, WriteMsg};
use crate::mutated;
use crate::post::Post;
use crate::poster::Poster;
use crate::receives::ReceivePoster;
use crate::tag::Tag;
use crate::trigger::Operation;
use crate::works::domain::WorkDomain;
use crate::works::work::DeferredPost;

impl<S, D> Operation<S, D> {
    /// Returns the flags of the operation.
    pub(crate) fn flags(&self) -> OpFlags {
        match self {
            Operation::Send(send) => send.flags,
            Operation::Receive(receive) => receive.flags,
            Operation::Read(read) => read.flags,
            Operation::Write(write) => write.flags,
            Operation::Atomic(atomic) => atomic.flags,
            Operation::FetchAtomic(atomic) => atomic.flags,
            Operation::CompareAtomic(atomic) => atomic.flags,
        }
    }

    /// Converts the operation into a post that can wait for a counter. If some of the operation's memory is
    /// refused, memory that was lent before is dropped.
    pub(crate) fn into_deferred_post(
        self,
        endpoint: &Endpoint,
        lend_source: impl Fn(S) -> Result<Source, Rejected<Buffer>>,
        lend_destination: impl Fn(D) -> Result<Destination, Rejected<Buffer>>,
    ) -> Result<DeferredPost, Rejected<Buffer>> {
        let post = match self {
            Operation::Send(SendMsg { buffers, to, tag, data, context, .. }) => Post::new(
                to,
                TransmitOp::Send { source: lend_source(buffers)?, tag: tag.map(|Tag(tag)| tag), data },
                context,
            ),
            Operation::Receive(receive) => {
                let post = endpoint.make_waiting_receive(receive, lend_destination)?;
                return Ok(DeferredPost::Receive(post));
            }
            Operation::Read(ReadMsg { buffers, from, memory, context, .. }) => {
                Post::new(from, make_read_op(lend_destination(buffers)?, memory), context)
            }
            Operation::Write(WriteMsg { buffers, to, memory, data, context, .. }) => {
                Post::new(to, make_write_op(lend_source(buffers)?, data, memory), context)
            }
            Operation::Atomic(AtomicMsg { operands, target, context, .. }) => {
                let operand = lend_source(operands)?;
                Post::new(target.peer, target.into_transmit_op(AtomicLocal::Base { operand }), context)
            }
            Operation::FetchAtomic(FetchAtomicMsg { operands, results, target, context, .. }) => {
                let (operand, result) = (lend_source(operands)?, lend_destination(results)?);
                Post::new(
                    target.peer,
                    target.into_transmit_op(AtomicLocal::Fetch { operand, result }),
                    context,
                )
            }
            Operation::CompareAtomic(CompareAtomicMsg {
                operands,
                compares,
                results,
                target,
                context,
                ..
            }) => {
                let (operand, compare) = (lend_source(operands)?, lend_source(compares)?);
                let local = AtomicLocal::Compare { operand, compare, result: lend_destination(results)? };
                Post::new(target.peer, target.into_transmit_op(local), context)
            }
        };
        Ok(DeferredPost::Transmit(post))
    }
}

impl Endpoint {
    /// Checks that a post may wait as a [triggered operation](crate::trigger), and sets the options of the
    /// post. The end of the operation will be reported as usual. Returns the endpoint that will post the
    /// operation.
    pub(crate) fn prepare_triggered_post(
        &self,
        post: &mut DeferredPost,
        flags: OpFlags,
    ) -> Result<Arc<dyn Poster>, Error> {
        let pump = self.prepare_waiting_post(post, flags)?;
        if let DeferredPost::Transmit(post) = post
            && post.request.options.inject
        {
            post.request.op.copy_borrowed_memory();
        }
        Ok(pump)
    }

    /// Checks that a post may wait as [deferred work](crate::trigger), and sets the options of the post.
    /// Returns the endpoint that will post the operation.
    pub(crate) fn prepare_deferred_post(
        &self,
        post: &mut DeferredPost,
        flags: OpFlags,
    ) -> Result<Arc<dyn Poster>, Error> {
        let pump = self.prepare_waiting_post(post, flags)?;
        if let DeferredPost::Transmit(post) = post {
            post.request.options.signalled = Signalled::Deferred;
            if mutated!("fi_trigger/work-is-not-read-early") {
                post.request.op.copy_borrowed_memory();
            }
        }
        Ok(pump)
    }

    fn prepare_waiting_post(
        &self,
        post: &mut DeferredPost,
        flags: OpFlags,
    ) -> Result<Arc<dyn Poster>, Error> {
        if !mutated!("fi_trigger/trigger-capability") {
            self.shared.check_caps(Caps::TRIGGER)?;
        }
        let flags = flags - OpFlags::TRIGGER;
        match post {
            DeferredPost::Transmit(post) => _ = self.prepare_post(post, flags)?,
            DeferredPost::Receive(post) => {
                self.prepare_receive(post, flags)?;
                if self.shared.shares_receive_context() {
                    return Err(Misuse::NotSupported(Unsupported::SharedContextReceive).into());
                }
            }
        }
        let pump = self.shared.pump.get().ok_or(Misuse::State(ObjectState::EndpointNotEnabled))?;
        Ok(pump.clone())
    }

    pub(crate) fn work_domain(&self) -> &dyn WorkDomain {
        &*self.shared.domain
    }
}
