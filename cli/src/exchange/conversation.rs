//! Numbered messages to and from one peer.

use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::OpFlags;
use homespun::{Address, CompletionError, Error, FabricAddress, OperationError, Rejected, RemoteMemory, Tag};

use super::measure;
use super::pattern::{MessageDirection, Pattern};
use super::port::{PROBE_TAG, Port, PortEvent};
use super::remote_region::RemoteRegion;
use crate::failure::CommandFailure;

/// The number of empty reads of the queue in one wait, after which each further empty read yields.
/// Otherwise a peer on the same core could run only when the kernel preempts this thread.
const SPINS_BEFORE_YIELD: u32 = 256;

/// The number of empty reads of the queue between two reads of the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// The conversation probes the peer each time this long passes without an event. A receive without a link
/// does not notice that the peer is gone. A probe opens a link, and fails if the peer is gone.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// The largest control message. Control messages are a greeting and the answer to it, and have no
/// number.
pub(crate) const CONTROL_MAX_BYTES: usize = 8 * 1024;

/// A port's conversation with one peer.
///
/// The messages of each direction are numbered from 0. In a tagged conversation the number is the tag,
/// and each receive accepts only the message with its own number.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    port: &'a Port,
    peer: FabricAddress,
    address: Address,
    settings: Settings,
    /// The contexts of this conversation. Earlier conversations on the port have other contexts, because
    /// operations of an earlier conversation may complete during this conversation.
    contexts: Contexts,
    /// Whether messages are sent from memory that near peers map.
    uses_send_buffers: bool,
    /// The last message in such memory. It is sent again, so that the peer maps its memory only once.
    mapped_message: Bytes,
    /// The number of messages that this side has sent.
    sent: u64,
    /// The number of receives that this side has posted.
    posted: u64,
    /// The number of messages that this side has received.
    received: u64,
}

/// The contexts of a conversation's operations. The upper bits are the number of the conversation, the
/// lower bits the number of a message.
#[derive(Debug, Clone, Copy)]
struct Contexts {
    conversation: u64,
}

/// The number of lower bits in a context, which hold the number of a message. They suffice for every
/// measurement.
const SEQUENCE_BITS: u32 = 48;

/// The sequence number of all probes.
const PROBE: u64 = (1 << SEQUENCE_BITS) - 1;

/// The sequence number of all control messages.
const CONTROL: u64 = PROBE - 1;

/// The sequence number of all accesses to the memory of the peer.
const ACCESS: u64 = CONTROL - 1;

impl Contexts {
    fn context_for(self, sequence: u64) -> u64 {
        self.conversation << SEQUENCE_BITS | sequence
    }

    /// The sequence number in `context`, if the context belongs to this conversation.
    fn sequence_if_own(self, context: u64) -> Option<u64> {
        let sequence = context & PROBE;
        (context == self.context_for(sequence)).then_some(sequence)
    }
}

/// The settings of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// The direction in which this side sends.
    pub(crate) direction: MessageDirection,
    /// Whether messages have tags.
    pub(crate) tagged: bool,
    /// Whether every byte is checked.
    pub(crate) check: bool,
    /// The longest time that the conversation waits without an event.
    pub(crate) timeout: Duration,
}

/// A successful completion.
#[derive(Debug)]
pub(crate) enum Completed {
    /// The message was sent.
    Sent(Bytes),
    /// A message has arrived, with its number.
    Received(u64, BytesMut),
}

/// The local buffers of an access to the memory of the peer. The completion returns the buffers.
#[derive(Debug)]
pub(crate) enum AccessBuffers {
    /// The source of a write.
    Write(Bytes),
    /// The destination of a read.
    Read(BytesMut),
    /// The operand and the result of a fetch-add on a 64-bit integer.
    FetchAdd { operand: Bytes, result: BytesMut },
}

/// Describes the messages in words.
pub(crate) fn describe_messages(tagged: bool, check: bool) -> String {
    let tagged = if tagged { "tagged" } else { "untagged" };
    let check = if check { ", every byte checked" } else { "" };
    format!("{tagged} messages{check}")
}

impl<'a> Conversation<'a> {
    pub(crate) fn open(
        port: &'a Port,
        address: Address,
        settings: Settings,
    ) -> Result<Conversation<'a>, CommandFailure> {
        let peer = port.av.insert_one(address)?;
        let contexts = Contexts { conversation: port.allocate_conversation_number() };
        Ok(Conversation {
            port,
            peer,
            address,
            settings,
            contexts,
            uses_send_buffers: false,
            mapped_message: Bytes::new(),
            sent: 0,
            posted: 0,
            received: 0,
        })
    }

    /// The peer's address.
    pub(crate) fn peer_address(&self) -> Address {
        self.address
    }

    /// Whether every byte is checked.
    pub(crate) fn is_checked(&self) -> bool {
        self.settings.check
    }

    /// The largest message that [`inject`](Self::inject) takes.
    pub(crate) fn inject_max_bytes(&self) -> usize {
        self.port.endpoint.info().tx.inject_size_bytes
    }

    /// Sets or clears `FI_MORE` for sends and accesses. With this flag the endpoint may hold operations
    /// back, so that several travel together. The next wait for a completion sends what the endpoint
    /// holds back.
    pub(crate) fn set_fi_more(&self, more: bool) -> Result<(), CommandFailure> {
        let flags = if more { OpFlags::MORE } else { OpFlags::empty() };
        Ok(self.port.endpoint.set_tx_op_flags(flags)?)
    }

    /// Sets whether [`make_message`](Self::make_message) uses memory that near peers map.
    pub(crate) fn use_send_buffers(&mut self, uses_send_buffers: bool) {
        self.uses_send_buffers = uses_send_buffers;
    }

    /// Makes a message of this length. Its pages are already allocated.
    pub(crate) fn make_message(&mut self, size_bytes: usize) -> Result<Bytes, CommandFailure> {
        if !self.uses_send_buffers {
            return Ok(measure::zeroed_buffer(size_bytes).freeze());
        }
        if self.mapped_message.len() != size_bytes {
            self.mapped_message = self.port.allocate_send_buffer(size_bytes)?;
        }
        Ok(self.mapped_message.clone())
    }

    /// The content of the next message to send.
    pub(crate) fn pattern_of_next_send(&self, size_bytes: usize) -> Pattern {
        Pattern::new(self.settings.direction, self.sent, size_bytes)
    }

    /// Sends a message. The completion returns its buffer in [`Completed::Sent`].
    pub(crate) fn send(&mut self, message: Bytes) -> Result<(), CommandFailure> {
        let Conversation { port, peer, sent, .. } = *self;
        let context = self.contexts.context_for(sent);
        // The endpoint's transmit size exceeds every window, so this send does not fail with `EAGAIN`.
        if self.settings.tagged {
            port.endpoint.tsend(message, peer, Tag(sent), context)?;
        } else {
            port.endpoint.send(message, peer, context)?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Sends a small message without a completion.
    pub(crate) fn inject(&mut self, message: &[u8]) -> Result<(), CommandFailure> {
        let Conversation { port, peer, sent, .. } = *self;
        let tag = self.settings.tagged.then_some(sent);
        self.post_with_retry(|| port.endpoint.inject(message, peer, tag.map(Tag), None))?;
        self.sent += 1;
        Ok(())
    }

    /// Posts an access to the memory of the peer. After its completion,
    /// [`wait_for_access`](Self::wait_for_access) returns the buffers.
    pub(crate) fn post_access(
        &mut self,
        local: AccessBuffers,
        at: RemoteRegion,
    ) -> Result<(), CommandFailure> {
        let Conversation { port, peer, .. } = *self;
        let (context, RemoteRegion { key, address }) = (self.contexts.context_for(ACCESS), at);
        // The transmit size exceeds every window, so no post fails with `EAGAIN`.
        match local {
            AccessBuffers::Write(source) => {
                port.endpoint.write(source, peer, RemoteMemory { address, key }, context)?;
            }
            AccessBuffers::Read(buffer) => {
                port.endpoint.read(buffer, peer, RemoteMemory { address, key }, context)?;
            }
            AccessBuffers::FetchAdd { operand, result } => {
                let (datatype, op) = (Datatype::Uint64, AtomicOp::Sum);
                let target = AtomicTarget { peer, memory: RemoteMemory { address, key }, datatype, op };
                port.endpoint.fetch_atomic(operand, result, target, context)?;
            }
        }
        Ok(())
    }

    /// Posts a receive for the first message of the peer that has no receive yet.
    pub(crate) fn post_receive(&mut self, buffer: BytesMut) -> Result<(), CommandFailure> {
        let Conversation { port, peer, posted, .. } = *self;
        let context = self.contexts.context_for(posted);
        if self.settings.tagged {
            port.endpoint.trecv(buffer, peer, Tag(posted), context)?;
        } else {
            port.endpoint.recv(buffer, peer, context)?;
        }
        self.posted += 1;
        Ok(())
    }

    /// Sends a control message, and waits for the control message that answers it.
    pub(crate) fn send_question_and_await_answer(&self, question: Bytes) -> Result<BytesMut, CommandFailure> {
        let endpoint = &self.port.endpoint;
        let context = self.contexts.context_for(CONTROL);
        endpoint.recv(BytesMut::zeroed(CONTROL_MAX_BYTES), self.peer, context)?;
        // With transmit completion the send fails if no process listens at the peer's address.
        let flags = OpFlags::TRANSMIT_COMPLETE;
        endpoint.sendmsg(SendMsg {
            buffers: vec![question],
            to: self.peer,
            context,
            flags,
            ..SendMsg::default()
        })?;
        loop {
            match self.await_event()? {
                PortEvent::Received { message, .. } => return Ok(message),
                PortEvent::Sent { .. } | PortEvent::Fetched { .. } => {}
                PortEvent::Failed(failed) => {
                    return Err(CommandFailure::from_first_contact(self.address, failed.error));
                }
            }
        }
    }

    /// Sends a control message as an answer.
    pub(crate) fn send_answer(&self, text: &str) -> Result<(), CommandFailure> {
        self.post_with_retry(|| self.port.endpoint.inject(text.as_bytes(), self.peer, None, None))
    }

    /// Waits until a send or a receive completes. Skips completions of fetch-adds. No write or read may
    /// be in flight: its completion would be taken for the completion of a message.
    pub(crate) fn wait_for_message(&mut self) -> Result<Completed, CommandFailure> {
        self.wait_for_message_yielding_if(true)
    }

    /// Waits for a completion while the peer accesses this process's memory. Yields to other threads
    /// unless this thread has a core of its own.
    pub(crate) fn wait_as_target(&mut self, has_own_core: bool) -> Result<Completed, CommandFailure> {
        self.wait_for_message_yielding_if(!has_own_core)
    }

    fn wait_for_message_yielding_if(&mut self, yields: bool) -> Result<Completed, CommandFailure> {
        loop {
            return match self.poll_until_own_event(yields)? {
                PortEvent::Sent { message, .. } => Ok(Completed::Sent(message)),
                PortEvent::Received { context, tag, message } => {
                    let sequence = self.contexts.sequence_if_own(context).unwrap_or_default();
                    if self.settings.tagged && tag != sequence {
                        return Err(CommandFailure::Tag { address: self.address, sequence, tag });
                    }
                    self.received += 1;
                    Ok(Completed::Received(sequence, message))
                }
                // A fetch-add has completed. No caller of this function waits for that.
                PortEvent::Fetched { .. } => continue,
                PortEvent::Failed(failed) => Err(self.completion_failure(*failed)),
            };
        }
    }

    /// Waits until an access completes. No message may be in flight: its completion would be skipped.
    pub(crate) fn wait_for_access(&mut self) -> Result<AccessBuffers, CommandFailure> {
        loop {
            let event = self.await_event()?;
            let is_access = event.context() == self.contexts.context_for(ACCESS);
            return match event {
                // An access has failed, or a probe: the peer is gone.
                PortEvent::Failed(failed) => Err(self.completion_failure(*failed)),
                _ if !is_access => continue,
                PortEvent::Sent { message, .. } => Ok(AccessBuffers::Write(message)),
                PortEvent::Received { message, .. } => Ok(AccessBuffers::Read(message)),
                PortEvent::Fetched { operand, result, .. } => Ok(AccessBuffers::FetchAdd { operand, result }),
            };
        }
    }

    /// Waits for an event of this conversation.
    fn await_event(&self) -> Result<PortEvent, CommandFailure> {
        self.poll_until_own_event(true)
    }

    fn poll_until_own_event(&self, yields: bool) -> Result<PortEvent, CommandFailure> {
        let mut timer = IdleTimer { yields, ..IdleTimer::new(self) };
        loop {
            let Some(event) = self.port.poll()? else {
                timer.probe_or_time_out()?;
                continue;
            };
            if self.contexts.sequence_if_own(event.context()).is_some() {
                return Ok(event);
            }
        }
    }

    /// Checks the length, and if requested every byte, of a received message.
    pub(crate) fn verify_message(
        &self,
        sequence: u64,
        message: &[u8],
        size_bytes: usize,
    ) -> Result<(), CommandFailure> {
        let address = self.address;
        let actual_bytes = message.len();
        if actual_bytes != size_bytes {
            return Err(CommandFailure::Length {
                address,
                sequence,
                actual_bytes,
                expected_bytes: size_bytes,
            });
        }
        if !self.settings.check {
            return Ok(());
        }
        let pattern = Pattern::new(self.settings.direction.opposite(), sequence, size_bytes);
        pattern.verify(message).map_err(|mismatch| CommandFailure::Corrupt {
            address,
            sequence,
            size_bytes,
            offset: mismatch.offset,
            actual: mismatch.actual,
            expected: mismatch.expected,
        })
    }

    /// Converts the failure of an operation.
    fn completion_failure(&self, failed: CompletionError) -> CommandFailure {
        let CompletionError { completion, error, .. } = failed;
        let address = self.address;
        match error {
            OperationError::Truncated { overflow_bytes } => CommandFailure::TooLong {
                address,
                sequence: completion.context & PROBE,
                expected_bytes: completion.len_bytes,
                overflow_bytes,
            },
            error => CommandFailure::Lost { address, error },
        }
    }

    /// Repeats `attempt` until the endpoint has room for the operation.
    fn post_with_retry(&self, mut attempt: impl FnMut() -> Result<(), Error>) -> Result<(), CommandFailure> {
        let mut timer = IdleTimer::new(self);
        loop {
            match attempt() {
                Err(Error::Again(_)) => {
                    self.port.cq.progress();
                    timer.probe_or_time_out()?;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Sends a probe, which fails if the peer is gone.
    fn send_probe(&self) -> Result<(), CommandFailure> {
        // Without transmit completion a probe would succeed as soon as it is posted.
        let (flags, context) = (OpFlags::TRANSMIT_COMPLETE, self.contexts.context_for(PROBE));
        let probe =
            SendMsg { to: self.peer, tag: Some(Tag(PROBE_TAG)), context, flags, ..SendMsg::default() };
        match self.port.endpoint.sendmsg(probe) {
            // `Again` means that many operations are in flight. If the peer is gone, they fail, so no
            // probe is needed.
            Ok(()) | Err(Rejected { error: Error::Again(_), .. }) => Ok(()),
            Err(rejected) => Err(rejected.into()),
        }
    }
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        // Cancel the remaining receives. Otherwise they could take messages of a later peer at this
        // address. If a cancel fails, the receive has completed or is about to complete.
        for sequence in self.received..self.posted {
            let _ = self.port.endpoint.cancel(self.contexts.context_for(sequence));
        }
        // This conversation inserted the address, and no other conversation uses it.
        self.port.av.remove(&[self.peer]);
    }
}

/// Measures the time without an event, and limits it.
struct IdleTimer<'a> {
    conversation: &'a Conversation<'a>,
    /// Whether to yield to other threads.
    yields: bool,
    spins: u32,
    since: Option<Instant>,
    probes: u32,
}

impl<'a> IdleTimer<'a> {
    fn new(conversation: &'a Conversation<'a>) -> IdleTimer<'a> {
        IdleTimer { conversation, yields: true, spins: 0, since: None, probes: 0 }
    }

    /// Counts an empty read of the queue. Probes the peer now and then. Fails after the time-out.
    fn probe_or_time_out(&mut self) -> Result<(), CommandFailure> {
        self.spins = self.spins.wrapping_add(1);
        if self.yields && self.spins > SPINS_BEFORE_YIELD {
            thread::yield_now();
        }
        if !self.spins.is_multiple_of(SPINS_PER_CLOCK) {
            return Ok(());
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let Settings { timeout, .. } = self.conversation.settings;
        if waited > timeout {
            return Err(CommandFailure::Stalled { address: self.conversation.address, timeout });
        }
        if waited > PROBE_INTERVAL * (self.probes + 1) {
            self.probes += 1;
            self.conversation.send_probe()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use homespun::flags::Caps;

    use super::*;
    use crate::exchange::host_and_port::HostAndPort;

    #[test]
    fn wait_for_access_fails_with_a_probe_of_a_peer_that_is_gone() {
        let any = || HostAndPort { host: "127.0.0.1".into(), port: 0 };
        let gone = Port::open_listening(&any(), Some("tcp"), Caps::empty()).unwrap();
        let address = gone.address();
        drop(gone);
        let waiter = thread::spawn(move || {
            let port = Port::open_listening(&any(), Some("tcp"), Caps::empty()).unwrap();
            let (direction, timeout) = (MessageDirection::ToServer, Duration::from_secs(60));
            let settings = Settings { direction, tagged: true, check: false, timeout };
            Conversation::open(&port, address, settings).unwrap().wait_for_access().map(drop)
        });
        let failed = waiter.join().unwrap();
        assert!(matches!(failed, Err(CommandFailure::Lost { .. })), "{failed:?}");
    }
}
