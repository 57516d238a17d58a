//! Counted messages with one peer.

use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::OpFlags;
use homespun::{Address, CompletionError, Error, FabricAddress, Misuse, OperationError, Rejected};

use super::pattern::{Direction, Pattern};
use super::place::Place;
use super::port::{Event, PROBE_TAG, Port};
use crate::failure::Failure;

/// How often in vain a queue is read before other threads are let run between reads. Where both sides share a core,
/// nothing would happen otherwise until the kernel takes the core away.
const SPINS_BEFORE_YIELD: u32 = 256;

/// How often in vain a queue is read between looks at the clock.
const SPINS_PER_CLOCK: u32 = 64;

/// How long nothing happens before the peer is asked whether it is there. A receive does not fail when its sender dies,
/// a probe does.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// The largest message that is not counted: a greeting, or the answer to it.
pub(crate) const CONTROL_MAX_BYTES: usize = 8 * 1024;

/// A port's conversation with one peer.
///
/// The messages of each direction are numbered from 0. In a tagged conversation the number is the tag, and each receive
/// takes its own number only.
#[derive(Debug)]
pub(crate) struct Channel<'a> {
    port: &'a Port,
    peer: FabricAddress,
    address: Address,
    settings: Settings,
    /// The contexts of this conversation, which no other of the port has: what an earlier one left behind may end
    /// during this one.
    contexts: Contexts,
    /// How many messages were sent.
    sent: u64,
    /// How many receives were posted.
    posted: u64,
    /// How many messages have come.
    received: u64,
}

/// The contexts of one conversation's operations: its number, and in the lower bits that of a message.
#[derive(Debug, Clone, Copy)]
struct Contexts {
    conversation: u64,
}

/// How many bits of a context are for the number of a message: more than plans can ask for.
const SEQUENCE_BITS: u32 = 48;

/// In place of a message's number, for probes.
const PROBE: u64 = (1 << SEQUENCE_BITS) - 1;

/// In place of a message's number, for messages that are not counted.
const CONTROL: u64 = PROBE - 1;

/// In place of a message's number, for access to the memory of the peer.
const ACCESS: u64 = CONTROL - 1;

impl Contexts {
    fn of(self, sequence: u64) -> u64 {
        self.conversation << SEQUENCE_BITS | sequence
    }

    /// What this context stands for, if it is one of these.
    fn sequence(self, context: u64) -> Option<u64> {
        let sequence = context & PROBE;
        (context == self.of(sequence)).then_some(sequence)
    }
}

/// How a conversation is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Which way this side sends.
    pub(crate) direction: Direction,
    /// Whether messages have tags.
    pub(crate) tagged: bool,
    /// Whether every byte is looked at.
    pub(crate) check: bool,
    /// How long nothing may happen.
    pub(crate) timeout: Duration,
}

/// Something that was posted has ended well.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The message was sent.
    Sent(Bytes),
    /// A message has come, with its number.
    Received(u64, BytesMut),
}

/// What an access to the memory of the peer needs at this side, which comes back when it has ended.
#[derive(Debug)]
pub(crate) enum Local {
    /// What is written.
    Write(Bytes),
    /// Where what is read goes.
    Read(BytesMut),
    /// What is added to an integer of 64 bits, and where goes what it was.
    FetchAdd { operand: Bytes, result: BytesMut },
}

/// What messages are like, in words.
pub(crate) fn kind(tagged: bool, check: bool) -> String {
    let tagged = if tagged { "tagged" } else { "untagged" };
    let check = if check { ", every byte checked" } else { "" };
    format!("{tagged} messages{check}")
}

impl<'a> Channel<'a> {
    pub(crate) fn open(port: &'a Port, address: Address, settings: Settings) -> Result<Channel<'a>, Failure> {
        let inserted = port.av.insert(&[address]).into_iter().next();
        let peer = inserted.unwrap_or(Err(Misuse::Invalid("the address of the peer").into()))?;
        let contexts = Contexts { conversation: port.next_conversation() };
        Ok(Channel { port, peer, address, settings, contexts, sent: 0, posted: 0, received: 0 })
    }

    /// The peer's address.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Whether every byte is looked at.
    pub(crate) fn is_checked(&self) -> bool {
        self.settings.check
    }

    /// The largest message that [`inject`](Self::inject) takes.
    pub(crate) fn inject_max_bytes(&self) -> usize {
        self.port.endpoint.info().tx.inject_size_bytes
    }

    /// Whether sends are followed by more of them at once, so that several may travel together (`FI_MORE`). What is held
    /// back leaves with the next [`wait`](Self::wait).
    pub(crate) fn expect_more(&self, more: bool) -> Result<(), Failure> {
        let flags = if more { OpFlags::MORE } else { OpFlags::empty() };
        Ok(self.port.endpoint.set_tx_op_flags(flags)?)
    }

    /// The content of the message that is sent next.
    pub(crate) fn next_pattern(&self, size_bytes: usize) -> Pattern {
        Pattern::new(self.settings.direction, self.sent, size_bytes)
    }

    /// Sends a message, which comes back as [`Ended::Sent`].
    pub(crate) fn send(&mut self, message: Bytes) -> Result<(), Failure> {
        let Channel { port, peer, sent, .. } = *self;
        let context = self.contexts.of(sent);
        // The port has room for more than is ever in flight, so this need not be tried again.
        if self.settings.tagged {
            port.endpoint.tsend(message, peer, sent, context)?;
        } else {
            port.endpoint.send(message, peer, context)?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Sends a small message; there is nothing to come back.
    pub(crate) fn inject(&mut self, message: &[u8]) -> Result<(), Failure> {
        let Channel { port, peer, sent, .. } = *self;
        let tag = self.settings.tagged.then_some(sent);
        self.post(|| port.endpoint.inject(message, peer, tag, None))?;
        self.sent += 1;
        Ok(())
    }

    /// Accesses the memory of the peer; [`wait_for_access`](Self::wait_for_access) tells of the end.
    pub(crate) fn access(&mut self, local: Local, at: Place) -> Result<(), Failure> {
        let Channel { port, peer, .. } = *self;
        let (context, Place { key, address }) = (self.contexts.of(ACCESS), at);
        // As with messages, there is room.
        match local {
            Local::Write(source) => port.endpoint.write(source, peer, address, key, context)?,
            Local::Read(buffer) => port.endpoint.read(buffer, peer, address, key, context)?,
            Local::FetchAdd { operand, result } => {
                let (datatype, op) = (Datatype::Uint64, AtomicOp::Sum);
                let target = AtomicTarget { peer, address, key, datatype, op };
                port.endpoint.fetch_atomic(operand, result, target, context)?;
            }
        }
        Ok(())
    }

    /// Posts a buffer for the next message that is not waited for yet.
    pub(crate) fn receive(&mut self, buffer: BytesMut) -> Result<(), Failure> {
        let Channel { port, peer, posted, .. } = *self;
        let context = self.contexts.of(posted);
        if self.settings.tagged {
            port.endpoint.trecv(buffer, peer, posted, 0, context)?;
        } else {
            port.endpoint.recv(buffer, peer, context)?;
        }
        self.posted += 1;
        Ok(())
    }

    /// Sends a message that is not counted and waits for the answer, which is not counted either.
    pub(crate) fn ask(&self, question: Bytes) -> Result<BytesMut, Failure> {
        let endpoint = &self.port.endpoint;
        let context = self.contexts.of(CONTROL);
        endpoint.recv(BytesMut::zeroed(CONTROL_MAX_BYTES), self.peer, context)?;
        // Fails if there is nobody, other than a send that is done as soon as it is on its way.
        let flags = OpFlags::TRANSMIT_COMPLETE;
        endpoint.sendmsg(SendMsg {
            buffers: vec![question],
            to: self.peer,
            context,
            flags,
            ..SendMsg::default()
        })?;
        loop {
            match self.next()? {
                Event::Received { message, .. } => return Ok(message),
                Event::Sent { .. } | Event::Fetched { .. } => {}
                Event::Failed(failed) => return Err(Failure::unreachable(self.address, failed.error)),
            }
        }
    }

    /// Sends an answer, which is not counted.
    pub(crate) fn answer(&self, text: &str) -> Result<(), Failure> {
        self.post(|| self.port.endpoint.inject(text.as_bytes(), self.peer, None, None))
    }

    /// Waits until something has ended.
    pub(crate) fn wait(&mut self) -> Result<Ended, Failure> {
        loop {
            return match self.next()? {
                Event::Sent { message, .. } => Ok(Ended::Sent(message)),
                Event::Received { context, tag, message } => {
                    let sequence = self.contexts.sequence(context).unwrap_or_default();
                    if self.settings.tagged && tag != sequence {
                        return Err(Failure::Tag { address: self.address, sequence, tag });
                    }
                    self.received += 1;
                    Ok(Ended::Received(sequence, message))
                }
                // Nobody waits for it any more.
                Event::Fetched { .. } => continue,
                Event::Failed(failed) => Err(self.failure(*failed)),
            };
        }
    }

    /// Waits until an access has ended, while no messages are under way.
    pub(crate) fn wait_for_access(&mut self) -> Result<Local, Failure> {
        loop {
            let event = self.next()?;
            if self.contexts.of(ACCESS) != event.context() {
                continue;
            }
            return match event {
                Event::Sent { message, .. } => Ok(Local::Write(message)),
                Event::Received { message, .. } => Ok(Local::Read(message)),
                Event::Fetched { operand, result, .. } => Ok(Local::FetchAdd { operand, result }),
                Event::Failed(failed) => Err(self.failure(*failed)),
            };
        }
    }

    /// Waits until something of this conversation has ended.
    fn next(&self) -> Result<Event, Failure> {
        let mut patience = Patience::new(self);
        loop {
            let Some(event) = self.port.poll()? else {
                patience.spin()?;
                continue;
            };
            if self.contexts.sequence(event.context()).is_some() {
                return Ok(event);
            }
        }
    }

    /// Sees that a received message is the one that was sent.
    pub(crate) fn verify(&self, sequence: u64, message: &[u8], size_bytes: usize) -> Result<(), Failure> {
        let address = self.address;
        let actual_bytes = message.len();
        if actual_bytes != size_bytes {
            return Err(Failure::Length { address, sequence, actual_bytes, expected_bytes: size_bytes });
        }
        if !self.settings.check {
            return Ok(());
        }
        let pattern = Pattern::new(self.settings.direction.opposite(), sequence, size_bytes);
        pattern.verify(message).map_err(|mismatch| Failure::Corrupt {
            address,
            sequence,
            size_bytes,
            offset: mismatch.offset,
            actual: mismatch.actual,
            expected: mismatch.expected,
        })
    }

    /// What the failure of an operation means.
    fn failure(&self, failed: CompletionError) -> Failure {
        let CompletionError { completion, error, .. } = failed;
        let address = self.address;
        match error {
            OperationError::Truncated { overflow_bytes } => Failure::TooLong {
                address,
                sequence: completion.context & PROBE,
                expected_bytes: completion.len_bytes,
                overflow_bytes,
            },
            error => Failure::Lost { address, error },
        }
    }

    /// Posts, as soon as there is room.
    fn post(&self, mut attempt: impl FnMut() -> Result<(), Error>) -> Result<(), Failure> {
        let mut patience = Patience::new(self);
        loop {
            match attempt() {
                Err(Error::Again(_)) => {
                    self.port.cq.progress();
                    patience.spin()?;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Asks whether the peer is there: if it is not, an operation fails.
    fn probe(&self) -> Result<(), Failure> {
        // A send that is done as soon as it is on its way would not tell.
        let (flags, context) = (OpFlags::TRANSMIT_COMPLETE, self.contexts.of(PROBE));
        let probe = SendMsg { to: self.peer, tag: Some(PROBE_TAG), context, flags, ..SendMsg::default() };
        match self.port.endpoint.sendmsg(probe) {
            // So much is on its way to the peer that its absence will show without this.
            Ok(()) | Err(Rejected { error: Error::Again(_), .. }) => Ok(()),
            Err(rejected) => Err(rejected.into()),
        }
    }
}

impl Drop for Channel<'_> {
    fn drop(&mut self) {
        // Receives that are left over must not take what another peer at this address will send. What cannot be
        // taken back is ending by itself.
        for sequence in self.received..self.posted {
            let _ = self.port.endpoint.cancel(self.contexts.of(sequence));
        }
        // The address was inserted by this channel, and no other uses it.
        let _ = self.port.av.remove(&[self.peer]);
    }
}

/// Waits without end only while something happens.
struct Patience<'a> {
    channel: &'a Channel<'a>,
    spins: u32,
    since: Option<Instant>,
    probes: u32,
}

impl<'a> Patience<'a> {
    fn new(channel: &'a Channel<'a>) -> Patience<'a> {
        Patience { channel, spins: 0, since: None, probes: 0 }
    }

    /// Nothing has happened once more.
    fn spin(&mut self) -> Result<(), Failure> {
        self.spins = self.spins.wrapping_add(1);
        if self.spins > SPINS_BEFORE_YIELD {
            thread::yield_now();
        }
        if !self.spins.is_multiple_of(SPINS_PER_CLOCK) {
            return Ok(());
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let Settings { timeout, .. } = self.channel.settings;
        if waited > timeout {
            return Err(Failure::Stalled { address: self.channel.address, timeout });
        }
        if waited > PROBE_INTERVAL * (self.probes + 1) {
            self.probes += 1;
            self.channel.probe()?;
        }
        Ok(())
    }
}
