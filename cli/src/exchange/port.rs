//! An endpoint with its queue and address vector.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use homespun::flags::{BindFlags, Caps, MrAccess};
use homespun::{
    Address, AddressVector, AvAttr, Buffer, Completion, CompletionError, CompletionQueue, CqAttr, Domain,
    Endpoint, Error, Fabric, FabricAddress, Hints, Info, MemoryRegion, MrAttr, OperationError, ReadError,
    Tag,
};

use super::target::Target;
use crate::failure::Failure;

/// The depth of each direction: more than the window of any [`Run`](super::run::Run), with the probes in
/// between.
const DEPTH_OPS: usize = 512;

/// The tag of probes: empty messages that show whether their receiver is alive. No numbered message has it.
pub(crate) const PROBE_TAG: u64 = u64::MAX;

/// The context of the receive for probes.
const PROBE_CONTEXT: u64 = u64::MAX;

/// An enabled endpoint, its completion queue and its address vector.
///
/// It receives probes from any peer at any time; they are no [`Event`].
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    pub(crate) av: AddressVector,
    domain: Domain,
    address: Address,
    conversations: Cell<u64>,
}

/// The key of the shared region, if the domain lets the application choose keys.
const REGION_KEY: u64 = 1;

/// The number of distinct conversation numbers; after that they repeat.
const CONVERSATIONS: u64 = 0xfff0;

/// A completion of an operation.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message was sent, or written to the memory of a peer.
    Sent {
        /// The context of the send.
        context: u64,
        /// The message's buffer.
        message: Bytes,
    },
    /// A message has arrived, or was read from the memory of a peer.
    Received {
        /// The context of the receive.
        context: u64,
        /// The message's tag; 0 without one.
        tag: u64,
        /// The buffer of the receive, truncated to the message.
        message: BytesMut,
    },
    /// A fetching atomic operation on the memory of a peer has completed.
    Fetched {
        /// The context of the operation.
        context: u64,
        /// The operand's buffer.
        operand: Bytes,
        /// The previous value.
        result: BytesMut,
    },
    /// The operation failed.
    Failed(Box<CompletionError>),
}

impl Event {
    /// The context of the completed operation.
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
    /// Opens an endpoint that listens at `at`, with these capabilities besides those for messages.
    pub(crate) fn open_listening(at: &Target, domain: Option<&str>, extra: Caps) -> Result<Port, Failure> {
        let info = Fabric::new().info(&build_hints(at, domain, extra).source())?;
        Port::open(&info, &at.to_string())
    }

    /// Opens an endpoint that can reach a peer, as [`listening`](Self::listening), and returns it with the
    /// peer's address.
    pub(crate) fn open_to_peer(
        peer: &Target,
        domain: Option<&str>,
        extra: Caps,
    ) -> Result<(Port, Address), Failure> {
        let info = Fabric::new().info(&build_hints(peer, domain, extra))?;
        let address = info.dest_addr.ok_or(Failure::NoPeerAddress)?;
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
            Error::Bind { errno, .. } | Error::System { errno, .. } => {
                Failure::Bind { at: at.into(), error: errno }
            }
            error => error.into(),
        })?;
        endpoint.enable()?;
        let port = Port { endpoint, cq, av, domain, address, conversations: Cell::new(0) };
        port.post_probe_receive()?;
        Ok(port)
    }

    /// The endpoint's address.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// The endpoint's domain.
    pub(crate) fn domain_name(&self) -> &str {
        self.endpoint.info().domain.name.as_deref().unwrap_or("unnamed")
    }

    /// Registers at least one byte of memory that peers may read and write, and map where the domain allows
    /// it.
    pub(crate) fn register_shared(&self, len_bytes: usize) -> Result<MemoryRegion, Failure> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = MrAttr { access, requested_key: Some(REGION_KEY), shareable: true, ..MrAttr::default() };
        Ok(self.domain.register(len_bytes.max(1), &attr)?)
    }

    /// A number from 1 on that distinguishes the operations of one conversation from those of others.
    pub(crate) fn allocate_conversation(&self) -> u64 {
        let number = self.conversations.get() % CONVERSATIONS + 1;
        self.conversations.set(number);
        number
    }

    /// Drives the endpoint, and returns a completion if there is one.
    pub(crate) fn poll(&self) -> Result<Option<Event>, Failure> {
        let completion = match self.cq.read() {
            Ok(Some(completion)) => completion,
            Ok(None) => return Ok(None),
            Err(ReadError::ErrorAvailable) => return self.poll_error(),
            Err(error) => unreachable!("a polled queue of a domain with resource management: {error}"),
        };
        let Completion { context, tag, buffer, .. } = completion;
        match buffer {
            Buffer::Received(_) if context == PROBE_CONTEXT => {
                self.post_probe_receive()?;
                Ok(None)
            }
            Buffer::Received(message) => Ok(Some(Event::Received { context, tag: tag.0, message })),
            Buffer::Sent(message) => Ok(Some(Event::Sent { context, message })),
            Buffer::Fetched(fetched) => match (fetched.operand, fetched.result) {
                (Buffer::Sent(operand), Buffer::Received(result)) => {
                    Ok(Some(Event::Fetched { context, operand, result }))
                }
                _ => unreachable!("each was handed over in one piece"),
            },
            // Probes of a channel, or questions that the caller no longer needs.
            _ => Ok(None),
        }
    }

    fn poll_error(&self) -> Result<Option<Event>, Failure> {
        let Ok(Some(error)) = self.cq.read_error() else { return Ok(None) };
        // A peer may send a probe that is not empty; it counts as a probe nevertheless.
        if matches!(error.error, OperationError::Truncated { .. })
            && error.completion.context == PROBE_CONTEXT
        {
            self.post_probe_receive()?;
            return Ok(None);
        }
        Ok(Some(Event::Failed(Box::new(error))))
    }

    fn post_probe_receive(&self) -> Result<(), Failure> {
        let nothing = BytesMut::new();
        Ok(self.endpoint.trecv(nothing, FabricAddress::UNSPECIFIED, Tag(PROBE_TAG), PROBE_CONTEXT)?)
    }
}

/// The names of the available domains: shared memory first, then in the order of `getinfo`.
pub(crate) fn domain_names() -> Result<Vec<String>, Failure> {
    domain_names_of(&Fabric::new())
}

/// As [`domains`], of this fabric.
fn domain_names_of(fabric: &Fabric) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for info in fabric.infos(&Hints::new())? {
        names.extend(info.domain.name.filter(|name| !names.contains(name)));
    }
    names.sort_by_key(|name| name != "shm");
    Ok(names)
}

/// Checks that there is a domain of this name, if `requested` names one.
///
/// # Errors
///
/// [`Failure::NoDomain`], which lists the available domains.
pub(crate) fn require_domain(requested: Option<&str>) -> Result<(), Failure> {
    require_domain_of(&Fabric::new(), requested)
}

/// As [`require_domain`], of this fabric.
///
/// # Errors
///
/// [`Failure::NoDomain`], which lists the available domains.
pub(crate) fn require_domain_of(fabric: &Fabric, requested: Option<&str>) -> Result<(), Failure> {
    let available = domain_names_of(fabric)?;
    match requested.filter(|requested| !available.iter().any(|name| name == requested)) {
        Some(requested) => Err(Failure::NoDomain { requested: requested.to_owned(), available }),
        None => Ok(()),
    }
}

fn build_hints(target: &Target, domain: Option<&str>, extra: Caps) -> Hints {
    let hints = Hints::new()
        .node(&target.host)
        .service(target.port)
        .caps(Caps::MSG | Caps::TAGGED | Caps::DIRECTED_RECV | extra)
        .tx_size_ops(DEPTH_OPS)
        .rx_size_ops(DEPTH_OPS);
    if let Some(domain) = domain { hints.domain(domain) } else { hints }
}
