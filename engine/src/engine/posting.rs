//! Posts operations on peers. If nothing holds an operation back, the operation goes to the
//! transport at once. Otherwise it waits in the queue of its peer.

use std::mem;

use super::Engine;
use super::direct::Attempt;
use super::transmit::{caps_for_payload, send_eager};
use crate::buffer::Source;
use crate::completion::{EndedOperation, Sink};
use crate::error::{Again, Error, Misuse};
use crate::link::SendProtocol;
use crate::mutated;
use crate::operation::{OneSided, Send, Signalled, TransmitOp, TransmitOptions, TransmitRequest};
use crate::peer_id::PeerId;
use crate::transport::{Sent, Transport};
use crate::wire::Message;

impl Engine {
    /// Posts an operation on a peer. The operation goes to the transport at once, unless something
    /// holds it back: queued operations, the link, credit, the order or a fence. If the call fails,
    /// the memory of the operation stays in `request`.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] when [`Config::tx_depth_ops`](super::Config::tx_depth_ops) operations
    /// are outstanding. Also for an injected write if
    /// [`INJECT_QUEUE_MAX_OPS`](crate::limits::INJECT_QUEUE_MAX_OPS) operations are queued for the
    /// peer. [`Misuse::TooLong`] if the length exceeds
    /// [`Config::message_max_bytes`](super::Config::message_max_bytes), or if an atomic operation
    /// has more elements than [`count_max`](crate::atomic::AtomicKind::count_max).
    ///
    /// [`Misuse::NoAtomic`] if there is no such atomic operation. [`Misuse::Memory`] if a length of
    /// an atomic operation is not a whole number of elements, or if the lengths of operands,
    /// comparands and results differ.
    #[inline]
    pub fn post(
        &mut self,
        to: PeerId,
        request: &mut TransmitRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.post_after_attempt(Attempt::NotMade, to, request, transport, sink)
    }

    /// As [`post`](Self::post), after an [attempt](Self::try_access_at_once) to make an access
    /// directly. This call does not repeat an attempt that was made.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    pub fn post_after_attempt(
        &mut self,
        attempt: Attempt,
        to: PeerId,
        request: &mut TransmitRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let TransmitRequest { op, options, context } = request;
        let (options, context) = (*options, *context);
        let TransmitOptions { level, signalled, inject, fence } = options;
        let awaits = level.awaited_reply();
        let (message, source, one_sided) = match op {
            TransmitOp::Send { source, tag, data } => {
                let len_bytes = source.len_bytes() as u64;
                self.check_length_and_depth(len_bytes)?;
                let message = Message { len_bytes, tag: *tag, data: *data, awaits };
                let turn = self.initiator.assign_turn(to);
                let source = mem::take(source);
                let send = Send {
                    source,
                    message,
                    context,
                    signalled,
                    may_be_fetched: !inject,
                    fence,
                    turn,
                    one_sided: None,
                };
                self.begin_send(to, send, inject, transport, sink);
                return Ok(());
            }
            TransmitOp::Rma { local, memory } => {
                let len_bytes = local.len_bytes() as u64;
                self.check_length_and_depth(
                    len_bytes + u64::from(mutated!("fi_rma/rma-length-up-to-max-msg-size")),
                )?;
                if inject && self.initiator.has_no_room_to_inject(to) {
                    return Err(Again::QueueFull.into());
                }
                // What is mapped now was not when the attempt was made.
                let is_newly_mapped =
                    self.has_offered_regions && self.map_region_if_offered(to, memory.key, transport);
                let may_try = attempt == Attempt::NotMade || is_newly_mapped;
                if may_try && self.try_direct_access(to, local, *memory, level, fence) {
                    let completion = EndedOperation::of_rma(context, local);
                    let (initiator, mut effects) = self.initiator_and_effects(sink);
                    initiator.report_immediate_access(to, completion, signalled, &mut effects);
                    return Ok(());
                }
                let (source, data, one_sided) = OneSided::of_rma(local.take(), *memory, level, fence);
                (Message { len_bytes, tag: None, data, awaits }, source, one_sided)
            }
            TransmitOp::Atomic { local, memory, op, datatype } => {
                let form = local.checked_form(*op, *datatype)?;
                self.check_length_and_depth(0)?;
                let (source, one_sided) = OneSided::of_atomic(local.take(), *memory, form);
                let len_bytes = form.len_bytes() as u64;
                (Message { len_bytes, tag: None, data: None, awaits }, source, one_sided)
            }
            TransmitOp::Flush { kind, memory, len_bytes } => {
                let (kind, memory, len_bytes) = (*kind, *memory, *len_bytes);
                self.check_length_and_depth(len_bytes)?;
                if !fence && self.try_flush_directly(to, kind, memory, len_bytes) {
                    let completion = EndedOperation::of_flush(context, len_bytes);
                    let (initiator, mut effects) = self.initiator_and_effects(sink);
                    initiator.report_immediate_access(to, completion, signalled, &mut effects);
                    return Ok(());
                }
                let message = Message { len_bytes, tag: None, data: None, awaits };
                (message, Source::default(), OneSided::of_flush(memory, kind))
            }
        };
        let send = Send {
            source,
            message,
            context,
            signalled,
            may_be_fetched: !inject && !one_sided.kind.is_atomic(),
            fence,
            turn: self.initiator.assign_turn(to),
            one_sided: Some(Box::new(one_sided)),
        };
        self.enqueue_and_transmit(to, send, inject, transport, sink);
        Ok(())
    }

    /// Whether the caller may report an operation that ends at post time. It may not while earlier
    /// completions wait for room, nor if completions keep an order.
    #[inline(always)]
    pub fn may_report_at_post_time(&self) -> bool {
        self.initiator.may_report_at_post_time()
    }

    /// Keeps the completion of an operation that has ended at post time until the sink has room for it.
    #[cold]
    pub fn report_end_at_post_time(&mut self, completion: EndedOperation, sink: &mut impl Sink) {
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.report_success(completion, &mut effects);
    }

    /// Checks the length of an operation, and that one more operation may be outstanding.
    #[inline(always)]
    pub(super) fn check_length_and_depth(&self, len_bytes: u64) -> Result<(), Error> {
        let max_bytes = self.config.message_max_bytes;
        if len_bytes > max_bytes - u64::from(mutated!("fi_msg/length-up-to-max-msg-size")) {
            return Err(Misuse::TooLong { len_bytes, max_bytes }.into());
        }
        if self.outstanding_transmits() >= self.config.tx_depth_ops
            && !mutated!("fi_msg/eagain-for-full-queue")
        {
            return Err(Again::QueueFull.into());
        }
        Ok(())
    }

    /// Begins a send. If a send without a fence ends at once, it never enters the operation table.
    #[inline(always)]
    fn begin_send(
        &mut self,
        to: PeerId,
        mut send: Send,
        inject: bool,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        let link_id = self.find_or_open_transmit_link(to, transport);
        let caps = caps_for_payload(transport, link_id, &send);
        let protocol = match self.links.get(link_id) {
            Some(link)
                if (self.initiator.has_none_queued(to) || mutated!("fi_endpoint/message-order"))
                    && link.tx.may_begin_message_given_credit() =>
            {
                link.tx.choose_protocol(&send, &caps, self.config.eager_max_bytes)
            }
            _ => SendProtocol::Waiting,
        };
        let sent = match protocol {
            SendProtocol::Eager if !send.fence => send_eager(transport, link_id, &caps, &send),
            SendProtocol::Waiting if !send.fence => Sent::Full,
            // The send must be in the operation table: it has a fence, or the peer needs its
            // number.
            _ => return self.enqueue_and_transmit(to, send, inject, transport, sink),
        };
        if inject
            && sent != Sent::Whole
            && !(send.signalled == Signalled::Yes && mutated!("fi_msg/inject-flag-copies"))
        {
            send.source.copy_borrowed_memory();
        }
        match sent {
            Sent::Whole => {
                send.source.release_raw_memory();
                self.record_eager_message_begun(link_id, &send.message);
                self.await_reply_or_complete_unqueued(link_id, send, sink);
            }
            Sent::Partial(taken_bytes) => {
                self.record_eager_message_begun(link_id, &send.message);
                let send = self.initiator.insert(send);
                self.record_partial_message(link_id, send, taken_bytes);
                self.initiator.activate(to);
            }
            Sent::Full => {
                self.initiator.enqueue(to, send);
                self.initiator.activate(to);
            }
        }
    }

    /// Queues an operation on a peer. Transmits as many of the peer's queued operations as the link
    /// takes.
    fn enqueue_and_transmit(
        &mut self,
        to: PeerId,
        send: Send,
        inject: bool,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        let id = self.initiator.enqueue(to, send);
        if self.transmit_until_full(to, transport, sink) {
            self.initiator.activate(to);
        }
        if inject {
            self.initiator.copy_borrowed_source(id);
        }
    }
}
