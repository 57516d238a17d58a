//! An endpoint with what it needs: the way of both sides into the fabric.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use homespun::flags::{BindFlags, Caps, MrAccess};
use homespun::{
    Address, AddressVector, AvAttr, Buffer, Completion, CompletionError, CompletionQueue, CqAttr, Domain,
    Endpoint, Error, Fabric, FabricAddress, Hints, Info, MemoryRegion, MrAttr, OperationError, ReadError,
};

use super::target::Target;
use crate::failure::Failure;

/// How many operations fit in each direction: more than the window of any [`Run`](super::run::Run), with the probes
/// that may go out meanwhile.
const DEPTH_OPS: usize = 512;

/// The tag of empty messages that only show whether their receiver is there. No counted message has it.
pub(crate) const PROBE_TAG: u64 = u64::MAX;

/// The context of the receive for such messages.
const PROBE_CONTEXT: u64 = u64::MAX;

/// An enabled endpoint, its completion queue and its address vector.
///
/// It takes probes in at any time, whoever sends them; they are no [`Event`].
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    pub(crate) av: AddressVector,
    domain: Domain,
    address: Address,
    conversations: Cell<u64>,
}

/// The key of memory that is shared, where it can be chosen.
const REGION_KEY: u64 = 1;

/// How many conversations have numbers of their own; then the numbers begin again.
const CONVERSATIONS: u64 = 0xfff0;

/// Something that a port's owner posted has ended.
#[derive(Debug)]
pub(crate) enum Event {
    /// The message was sent, or written to the memory of a peer.
    Sent {
        /// The context of the send.
        context: u64,
        /// The message, on its way back.
        message: Bytes,
    },
    /// A message has come, or was read from the memory of a peer.
    Received {
        /// The context of the receive.
        context: u64,
        /// The message's tag; 0 without one.
        tag: u64,
        /// The buffer of the receive, cut to the message.
        message: BytesMut,
    },
    /// What an element of the memory of a peer was before it was changed has come.
    Fetched {
        /// The context of the operation.
        context: u64,
        /// What it was changed by, on its way back.
        operand: Bytes,
        /// What it was.
        result: BytesMut,
    },
    /// The operation failed.
    Failed(Box<CompletionError>),
}

impl Event {
    /// The context of the operation that has ended.
    pub(crate) fn context(&self) -> u64 {
        match self {
            Event::Sent { context, .. }
            | Event::Received { context, .. }
            | Event::Fetched { context, .. } => *context,
            Event::Failed(failed) => failed.completion.context,
        }
    }
}

impl Port {
    /// Opens an endpoint where peers are waited for, with these capabilities besides those that messages need.
    pub(crate) fn listening(at: &Target, domain: Option<&str>, besides: Caps) -> Result<Port, Failure> {
        let info = Fabric::new().info(&hints(at, domain, besides).source())?;
        Port::open(&info, &at.to_string())
    }

    /// Opens an endpoint that can reach a peer, as [`listening`](Self::listening), and says what the peer's address is.
    pub(crate) fn towards(
        peer: &Target,
        domain: Option<&str>,
        besides: Caps,
    ) -> Result<(Port, Address), Failure> {
        let info = Fabric::new().info(&hints(peer, domain, besides))?;
        let address = info.dest_addr.ok_or(Failure::NoData("an address of the peer"))?;
        let at = info.src_addr.map_or_else(|| "any address".into(), |address| address.to_string());
        Ok((Port::open(&info, &at)?, address))
    }

    fn open(info: &Info, at: &str) -> Result<Port, Failure> {
        let domain = Fabric::new().domain(info)?;
        let cq = domain.open_cq(&CqAttr::default())?;
        let av = domain.open_av(&AvAttr::default())?;
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        let address = endpoint.name().map_err(|error| match error {
            Error::System { errno, .. } => Failure::Bind { at: at.into(), error: errno },
            error => error.into(),
        })?;
        endpoint.enable()?;
        let port = Port { endpoint, cq, av, domain, address, conversations: Cell::new(0) };
        port.expect_probe()?;
        Ok(port)
    }

    /// The address that peers reach the endpoint under.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// The domain that the endpoint is in.
    pub(crate) fn domain(&self) -> &str {
        self.endpoint.info().domain.name.as_deref().unwrap_or("unnamed")
    }

    /// Registers memory that peers may read and write, and map where there is such memory. It has at least one byte.
    pub(crate) fn share(&self, len_bytes: usize) -> Result<MemoryRegion, Failure> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = MrAttr { access, requested_key: REGION_KEY, shareable: true, ..MrAttr::default() };
        Ok(self.domain.register(len_bytes.max(1), &attr)?)
    }

    /// A number from 1 on, to tell the operations of one conversation from those of others.
    pub(crate) fn next_conversation(&self) -> u64 {
        let number = self.conversations.get() % CONVERSATIONS + 1;
        self.conversations.set(number);
        number
    }

    /// Drives the endpoint, and returns what has ended, if anything has.
    pub(crate) fn poll(&self) -> Result<Option<Event>, Failure> {
        let completion = match self.cq.read() {
            Ok(completion) => completion,
            Err(ReadError::Empty) => return Ok(None),
            Err(ReadError::ErrorAvailable) => return self.poll_error(),
            Err(error) => unreachable!("a polled queue of a domain with resource management: {error}"),
        };
        let Completion { context, tag, buffer, .. } = completion;
        match buffer {
            Buffer::Received(_) if context == PROBE_CONTEXT => {
                self.expect_probe()?;
                Ok(None)
            }
            Buffer::Received(message) => Ok(Some(Event::Received { context, tag, message })),
            Buffer::Sent(message) => Ok(Some(Event::Sent { context, message })),
            Buffer::Fetched(fetched) => match (fetched.operand, fetched.result) {
                (Buffer::Sent(operand), Buffer::Received(result)) => {
                    Ok(Some(Event::Fetched { context, operand, result }))
                }
                _ => unreachable!("each was handed over in one piece"),
            },
            // Sends of a channel that are probes, or questions of which nothing is needed any more.
            _ => Ok(None),
        }
    }

    fn poll_error(&self) -> Result<Option<Event>, Failure> {
        let Ok(error) = self.cq.read_error() else { return Ok(None) };
        // Anybody may send a probe that is not empty, and it is as good as any.
        if matches!(error.error, OperationError::Truncated { .. })
            && error.completion.context == PROBE_CONTEXT
        {
            self.expect_probe()?;
            return Ok(None);
        }
        Ok(Some(Event::Failed(Box::new(error))))
    }

    fn expect_probe(&self) -> Result<(), Failure> {
        let (anybody, nothing) = (FabricAddress::UNSPECIFIED, BytesMut::new());
        Ok(self.endpoint.trecv(nothing, anybody, PROBE_TAG, 0, PROBE_CONTEXT)?)
    }
}

/// The names of the domains that there are: shared memory first, then as `getinfo` has them.
pub(crate) fn domains() -> Result<Vec<String>, Failure> {
    domains_of(&Fabric::new())
}

/// As [`domains`], of this fabric.
fn domains_of(fabric: &Fabric) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for info in fabric.infos(&Hints::new())? {
        names.extend(info.domain.name.filter(|name| !names.contains(name)));
    }
    names.sort_by_key(|name| name != "shm");
    Ok(names)
}

/// Makes sure that there is a domain of this name, if one is asked for.
///
/// # Errors
///
/// [`Failure::NoDomain`], which names those that there are.
pub(crate) fn require_domain(asked: Option<&str>) -> Result<(), Failure> {
    require_domain_of(&Fabric::new(), asked)
}

/// As [`require_domain`], of this fabric.
///
/// # Errors
///
/// [`Failure::NoDomain`], which names those that there are.
pub(crate) fn require_domain_of(fabric: &Fabric, asked: Option<&str>) -> Result<(), Failure> {
    let there = domains_of(fabric)?;
    match asked.filter(|asked| !there.iter().any(|name| name == asked)) {
        Some(asked) => Err(Failure::NoDomain { asked: asked.to_owned(), there }),
        None => Ok(()),
    }
}

fn hints(target: &Target, domain: Option<&str>, besides: Caps) -> Hints {
    let hints = Hints::new()
        .node(&target.host)
        .service(target.port)
        .caps(Caps::MSG | Caps::TAGGED | Caps::DIRECTED_RECV | besides)
        .tx_size_ops(DEPTH_OPS)
        .rx_size_ops(DEPTH_OPS);
    if let Some(domain) = domain { hints.domain(domain) } else { hints }
}
