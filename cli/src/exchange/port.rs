//! An endpoint with its completion queue and its address vector.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use homespun::flags::{BindFlags, Caps, MrAccess};
use homespun::params::Params;
use homespun::{
    Address, AddressVector, AvAttr, Buffer, Completion, CompletionError, CompletionQueue, CqAttr, Domain,
    Endpoint, Error, Fabric, FabricAddress, Hints, Info, MemoryRegion, MrAttr, OperationError, ReadError,
    Tag,
};

use super::host_and_port::HostAndPort;
use crate::failure::CommandFailure;

/// The transmit size and the receive size of the endpoint. Each exceeds the window of any
/// [`Run`](super::run::Run), plus the probes that are sent meanwhile.
const DEPTH_OPS: usize = 512;

/// The tag of probes. A probe is an empty message that shows whether its receiver is alive. No numbered
/// message has this tag.
pub(crate) const PROBE_TAG: u64 = u64::MAX;

/// The context of the receive for probes.
const PROBE_CONTEXT: u64 = u64::MAX;

/// An enabled endpoint, its completion queue and its address vector.
///
/// At any time the port receives probes (messages with [`PROBE_TAG`]) from any peer. A probe causes no
/// [`PortEvent`].
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    pub(crate) av: AddressVector,
    domain: Domain,
    address: Address,
    conversations: Cell<u64>,
}

/// The requested key of the region that peers access. A domain that chooses keys itself ignores the
/// request.
const REGION_KEY: u64 = 1;

/// How many different numbers conversations get before the numbers repeat.
const CONVERSATIONS: u64 = 0xfff0;

/// A completion of an operation.
#[derive(Debug)]
pub(crate) enum PortEvent {
    /// A send, or a write to the memory of a peer, has completed.
    Sent {
        /// The context of the operation.
        context: u64,
        /// The buffer of the message or of the write.
        message: Bytes,
    },
    /// A receive, or a read from the memory of a peer, has completed.
    Received {
        /// The context of the operation.
        context: u64,
        /// The message's tag; 0 if it has none.
        tag: u64,
        /// The buffer of the receive or read, truncated to the bytes that have arrived.
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

impl PortEvent {
    /// The context of the completed operation.
    pub(crate) fn context(&self) -> u64 {
        match self {
            PortEvent::Sent { context, .. }
            | PortEvent::Received { context, .. }
            | PortEvent::Fetched { context, .. } => *context,
            PortEvent::Failed(failed) => failed.completion.context,
        }
    }
}

impl Port {
    /// Opens an endpoint that listens at `at`. It has the capabilities for messages and those in
    /// `extra`.
    pub(crate) fn open_listening(
        at: &HostAndPort,
        domain: Option<&str>,
        extra: Caps,
    ) -> Result<Port, CommandFailure> {
        let info = Fabric::new().info(&build_hints(at, domain, extra).source())?;
        Port::open(&info, &at.to_string())
    }

    /// Opens an endpoint that can reach `peer`. Also returns the peer's address. The endpoint has the
    /// capabilities for messages and those in `extra`.
    pub(crate) fn open_to_peer(
        peer: &HostAndPort,
        domain: Option<&str>,
        extra: Caps,
    ) -> Result<(Port, Address), CommandFailure> {
        let info = Fabric::new().info(&build_hints(peer, domain, extra))?;
        let address = info.dest_addr.ok_or(CommandFailure::NoPeerAddress)?;
        let at = info.src_addr.map_or_else(|| "any address".into(), |address| address.to_string());
        Ok((Port::open(&info, &at)?, address))
    }

    fn open(info: &Info, at: &str) -> Result<Port, CommandFailure> {
        let domain = Fabric::new().domain(info)?;
        let cq = domain.open_cq(&CqAttr::default())?;
        let av = domain.open_av(&AvAttr::default())?;
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        let address = endpoint.name().map_err(|error| match error {
            Error::Bind { errno, exhausted: None, .. } | Error::System { errno, .. } => {
                CommandFailure::Bind { at: at.into(), error: errno }
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

    /// Registers memory of this length, or of one byte if the length is 0. Peers may read and write the
    /// memory. Peers may map it if the domain allows that.
    pub(crate) fn register_shared(&self, len_bytes: usize) -> Result<MemoryRegion, CommandFailure> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = MrAttr { access, requested_key: Some(REGION_KEY), shareable: true, ..MrAttr::default() };
        Ok(self.domain.register(len_bytes.max(1), &attr)?)
    }

    /// Allocates a message of this length in memory that near peers map, if the domain has such memory.
    pub(crate) fn allocate_send_buffer(&self, len_bytes: usize) -> Result<Bytes, CommandFailure> {
        let mut buffer = self.domain.allocate_send_buffer(len_bytes)?;
        // Write to it, so that its pages are allocated now.
        if let Some(bytes) = buffer.get_mut() {
            bytes.fill(1);
        }
        Ok(buffer.bytes())
    }

    /// Returns a number, at least 1, for the contexts of a new conversation.
    pub(crate) fn allocate_conversation_number(&self) -> u64 {
        let number = self.conversations.get() % CONVERSATIONS + 1;
        self.conversations.set(number);
        number
    }

    /// Drives the endpoint, and returns a completion if there is one.
    pub(crate) fn poll(&self) -> Result<Option<PortEvent>, CommandFailure> {
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
            Buffer::Received(message) => Ok(Some(PortEvent::Received { context, tag: tag.0, message })),
            Buffer::Sent(message) => Ok(Some(PortEvent::Sent { context, message })),
            Buffer::Fetched(fetched) => match (fetched.operand, fetched.result) {
                (Buffer::Sent(operand), Buffer::Received(result)) => {
                    Ok(Some(PortEvent::Fetched { context, operand, result }))
                }
                _ => unreachable!("each was handed over in one piece"),
            },
            // A probe has completed, or a question that the caller no longer needs.
            _ => Ok(None),
        }
    }

    fn poll_error(&self) -> Result<Option<PortEvent>, CommandFailure> {
        let Ok(Some(error)) = self.cq.read_error() else { return Ok(None) };
        // A peer may send a probe that is not empty. Such a message, too, counts as a probe.
        if matches!(error.error, OperationError::Truncated { .. })
            && error.completion.context == PROBE_CONTEXT
        {
            self.post_probe_receive()?;
            return Ok(None);
        }
        Ok(Some(PortEvent::Failed(Box::new(error))))
    }

    fn post_probe_receive(&self) -> Result<(), CommandFailure> {
        let nothing = BytesMut::new();
        Ok(self.endpoint.trecv(nothing, FabricAddress::UNSPECIFIED, Tag(PROBE_TAG), PROBE_CONTEXT)?)
    }
}

/// The sorted names of the domains that `getinfo` returns: auto, shm and tcp. The environment variable
/// `FI_HOMESPUN_DOMAIN`, if set, restricts `getinfo` to one domain.
pub(crate) fn domain_names() -> Result<Vec<String>, CommandFailure> {
    domain_names_of(&Fabric::new())
}

/// As [`domain_names`], but asks this fabric.
fn domain_names_of(fabric: &Fabric) -> Result<Vec<String>, CommandFailure> {
    let mut names: Vec<String> = Vec::new();
    for info in fabric.infos(&Hints::new())? {
        names.extend(info.domain.name.filter(|name| !names.contains(name)));
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the requested domain's name in the spelling of `getinfo`. Returns `None` if no domain is
/// requested.
///
/// # Errors
///
/// [`CommandFailure::NoDomain`] if the requested domain does not exist, and any failure of `getinfo`.
pub(crate) fn find_domain(requested: Option<&str>) -> Result<Option<String>, CommandFailure> {
    // Ignore FI_HOMESPUN_DOMAIN, which would restrict `getinfo` to one domain. A requested domain takes
    // precedence over this variable.
    let params = Params { domain: None, ..Params::from_env() };
    let available = domain_names_of(&Fabric::with_params(params))?;
    let Some(requested) = requested else { return Ok(None) };
    match available.iter().find(|name| name.eq_ignore_ascii_case(requested)) {
        Some(name) => Ok(Some(name.clone())),
        None => Err(CommandFailure::NoDomain { requested: requested.to_owned(), available }),
    }
}

fn build_hints(target: &HostAndPort, domain: Option<&str>, extra: Caps) -> Hints {
    let hints = Hints::new()
        .node(&target.host)
        .service(target.port)
        .caps(Caps::MSG | Caps::TAGGED | Caps::DIRECTED_RECV | extra)
        .tx_size_ops(DEPTH_OPS)
        .rx_size_ops(DEPTH_OPS);
    if let Some(domain) = domain { hints.domain(domain) } else { hints }
}
