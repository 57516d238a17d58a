//! The request of an application to `getinfo`, built field by field.

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, InfoFlags, Mode, OpFlags, Order};

use crate::fabric::Fabric;
use crate::info::{AvType, EndpointType, Info, MrMode, Progress, ResourceManagement, Threading};

/// A request to [`getinfo`](crate::getinfo()): node, service, flags, and the hints themselves, which are an
/// [`Info`]. See `fi_getinfo(3)`.
///
/// homespun chooses values for fields that the hints leave open. Every result meets or exceeds the hints,
/// with the exceptions that [`getinfo`](crate::getinfo()) lists. The methods `node`, `service`, `source` and
/// `numeric_host` set the other arguments of `getinfo`. Every other method sets fields of [`Info`].
///
/// ```
/// use homespun::{Caps, Fabric, Hints};
///
/// let fabric = Fabric::new();
/// // The best info for tagged messages over shared memory.
/// let info = fabric.info(&Hints::new().caps(Caps::TAGGED).domain("shm"))?;
/// let domain = fabric.domain(&info)?;
///
/// // All infos for a peer, by the name of its host and its port.
/// for info in fabric.infos(&Hints::new().node("localhost").service(7471))? {
///     println!("{:?} from {:?} to {:?}", info.domain.name, info.src_addr, info.dest_addr);
/// }
///
/// // The address for an endpoint of this process.
/// let info = fabric.info(&Hints::new().domain("tcp").node("127.0.0.1").service(0).source())?;
/// assert_eq!(info.src_addr.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:0"));
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[must_use = "hints do nothing until a fabric is asked with them"]
pub struct Hints {
    node: Option<String>,
    service: Option<String>,
    flags: InfoFlags,
    info: Info,
}

impl Hints {
    /// Returns hints that ask for nothing.
    pub fn new() -> Hints {
        Hints::default()
    }

    /// The peer's host; with [`source`](Self::source), this host. A name or a numeric address.
    pub fn node(mut self, node: impl Into<String>) -> Hints {
        self.node = Some(node.into());
        self
    }

    /// The peer's port or service; with [`source`](Self::source), the endpoint's own port or service. A
    /// number, or a name that the system knows. With `source`, 0 lets the system choose a port.
    #[expect(clippy::needless_pass_by_value, reason = "a number or a text, as it comes")]
    pub fn service(mut self, service: impl ToString) -> Hints {
        self.service = Some(service.to_string());
        self
    }

    /// Says that the node and the service are the endpoint's own address, not the peer's
    /// ([`InfoFlags::SOURCE`]).
    pub fn source(mut self) -> Hints {
        self.flags |= InfoFlags::SOURCE;
        self
    }

    /// Says that the node is a numeric address, so no name is looked up ([`InfoFlags::NUMERIC_HOST`]).
    pub fn numeric_host(mut self) -> Hints {
        self.flags |= InfoFlags::NUMERIC_HOST;
        self
    }

    /// The capabilities that the endpoint must have ([`Info::caps`]). homespun adds capabilities that cost
    /// nothing. Without this call the endpoint gets all capabilities, except those that are granted only on
    /// request.
    pub fn caps(self, caps: Caps) -> Hints {
        self.with(|info| info.caps = caps)
    }

    /// The modes that the application supports ([`Info::mode`],
    /// [`RxAttr::mode`](crate::info::RxAttr::mode)). The best info has none of them: with
    /// [`Mode::RX_CQ_DATA`], further infos that have this mode follow the others.
    pub fn mode(self, mode: Mode) -> Hints {
        self.with(|info| {
            info.mode = mode;
            info.rx.mode = mode;
        })
    }

    /// The domain: `"auto"`, `"shm"` or `"tcp"` ([`DomainAttr::name`](crate::info::DomainAttr::name)).
    pub fn domain(self, name: impl Into<String>) -> Hints {
        let name = name.into();
        self.with(|info| info.domain.name = Some(name))
    }

    /// The kind of endpoint ([`EpAttr::ep_type`](crate::info::EpAttr::ep_type)).
    pub fn ep_type(self, ep_type: EndpointType) -> Hints {
        self.with(|info| info.ep.ep_type = Some(ep_type))
    }

    /// The format of all addresses: IPv4 or IPv6 ([`Info::addr_format`]).
    pub fn addr_format(self, format: AddressFormat) -> Hints {
        self.with(|info| info.addr_format = Some(format))
    }

    /// The endpoint's own address, instead of node and service ([`Info::src_addr`]).
    pub fn src_addr(self, address: Address) -> Hints {
        self.with(|info| info.src_addr = Some(address))
    }

    /// The peer's address, instead of node and service ([`Info::dest_addr`]).
    pub fn dest_addr(self, address: Address) -> Hints {
        self.with(|info| info.dest_addr = Some(address))
    }

    /// The calls that the application serialises
    /// ([`DomainAttr::threading`](crate::info::DomainAttr::threading)).
    pub fn threading(self, threading: Threading) -> Hints {
        self.with(|info| info.domain.threading = Some(threading))
    }

    /// The kind of progress for data transfer and for control operations
    /// ([`DomainAttr::data_progress`](crate::info::DomainAttr::data_progress),
    /// [`DomainAttr::control_progress`](crate::info::DomainAttr::control_progress)).
    pub fn progress(self, progress: Progress) -> Hints {
        self.with(|info| {
            info.domain.data_progress = Some(progress);
            info.domain.control_progress = Some(progress);
        })
    }

    /// Whether completion queues are protected from overruns
    /// ([`DomainAttr::resource_mgmt`](crate::info::DomainAttr::resource_mgmt)).
    pub fn resource_mgmt(self, resource_mgmt: ResourceManagement) -> Hints {
        self.with(|info| info.domain.resource_mgmt = Some(resource_mgmt))
    }

    /// The kind of address vector ([`DomainAttr::av_type`](crate::info::DomainAttr::av_type)).
    pub fn av_type(self, av_type: AvType) -> Hints {
        self.with(|info| info.domain.av_type = Some(av_type))
    }

    /// The duties that the application accepts when it registers memory
    /// ([`DomainAttr::mr_mode`](crate::info::DomainAttr::mr_mode)).
    pub fn mr_mode(self, mr_mode: MrMode) -> Hints {
        self.with(|info| info.domain.mr_mode = mr_mode)
    }

    /// The size of the keys of memory regions, from 4 to 8 bytes; any other number stands for 8
    /// ([`DomainAttr::mr_key_size_bytes`](crate::info::DomainAttr::mr_key_size_bytes)).
    ///
    /// ```
    /// use homespun::flags::MrAccess;
    /// use homespun::{Fabric, Hints, MrAttr};
    ///
    /// let fabric = Fabric::new();
    /// let domain = fabric.domain(&fabric.info(&Hints::new().mr_key_size_bytes(4))?)?;
    /// let region = domain.register(4096, &MrAttr::granting(MrAccess::REMOTE_READ))?;
    /// assert!(u32::try_from(region.key()).is_ok());
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub fn mr_key_size_bytes(self, size_bytes: usize) -> Hints {
        self.with(|info| info.domain.mr_key_size_bytes = size_bytes)
    }

    /// The kinds of operations to one peer that take effect in the order of posting
    /// ([`TxAttr::msg_order`](crate::info::TxAttr::msg_order),
    /// [`RxAttr::msg_order`](crate::info::RxAttr::msg_order)).
    pub fn msg_order(self, order: Order) -> Hints {
        self.with(|info| {
            info.tx.msg_order = order;
            info.rx.msg_order = order;
        })
    }

    /// The default flags of sends ([`TxAttr::op_flags`](crate::info::TxAttr::op_flags)).
    pub fn tx_op_flags(self, flags: OpFlags) -> Hints {
        self.with(|info| info.tx.op_flags = flags)
    }

    /// The default flags of receives ([`RxAttr::op_flags`](crate::info::RxAttr::op_flags)).
    pub fn rx_op_flags(self, flags: OpFlags) -> Hints {
        self.with(|info| info.rx.op_flags = flags)
    }

    /// The size up to which the application must be able to inject messages
    /// ([`TxAttr::inject_size_bytes`](crate::info::TxAttr::inject_size_bytes)).
    pub fn inject_size_bytes(self, size_bytes: usize) -> Hints {
        self.with(|info| info.tx.inject_size_bytes = size_bytes)
    }

    /// The size of the largest message that the application needs
    /// ([`EpAttr::max_msg_size_bytes`](crate::info::EpAttr::max_msg_size_bytes)).
    pub fn max_msg_size_bytes(self, size_bytes: usize) -> Hints {
        self.with(|info| info.ep.max_msg_size_bytes = size_bytes)
    }

    /// The number of sends that may be outstanding ([`TxAttr::size_ops`](crate::info::TxAttr::size_ops)).
    pub fn tx_size_ops(self, size_ops: usize) -> Hints {
        self.with(|info| info.tx.size_ops = size_ops)
    }

    /// The number of receives that may be outstanding
    /// ([`RxAttr::size_ops`](crate::info::RxAttr::size_ops)).
    pub fn rx_size_ops(self, size_ops: usize) -> Hints {
        self.with(|info| info.rx.size_ops = size_ops)
    }

    /// The memory for unexpected messages
    /// ([`RxAttr::total_buffered_recv_bytes`](crate::info::RxAttr::total_buffered_recv_bytes)).
    pub fn total_buffered_recv_bytes(self, size_bytes: usize) -> Hints {
        self.with(|info| info.rx.total_buffered_recv_bytes = size_bytes)
    }

    /// Sets a field that has no method of its own.
    ///
    /// ```
    /// use homespun::Hints;
    ///
    /// let hints = Hints::new().with(|info| info.tx.iov_limit = 4);
    /// assert_eq!(hints.as_info().tx.iov_limit, 4);
    /// ```
    pub fn with(mut self, set: impl FnOnce(&mut Info)) -> Hints {
        set(&mut self.info);
        self
    }

    /// Returns the hints themselves, without node, service and flags.
    pub fn as_info(&self) -> &Info {
        &self.info
    }
}

/// Returns hints that ask for the attributes of this info, with no node and no service.
impl From<Info> for Hints {
    fn from(info: Info) -> Hints {
        Hints { info, ..Hints::default() }
    }
}

impl Fabric {
    /// Returns all infos that meet these hints, the best first. See [`getinfo`](Self::getinfo).
    ///
    /// # Errors
    ///
    /// As [`getinfo`](crate::getinfo()).
    pub fn infos(&self, hints: &Hints) -> Result<Vec<Info>, Error> {
        self.getinfo(hints.node.as_deref(), hints.service.as_deref(), hints.flags, Some(&hints.info))
    }

    /// Returns the best info that meets these hints. See [`getinfo`](Self::getinfo).
    ///
    /// # Errors
    ///
    /// As [`getinfo`](crate::getinfo()).
    pub fn info(&self, hints: &Hints) -> Result<Info, Error> {
        let best = self.infos(hints)?.into_iter().next();
        Ok(best.expect("an answer without an info is an error"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use homespun_engine::errno::Errno;

    use super::*;
    use crate::info::DomainAttr;
    use crate::params::Params;

    fn make_fabric() -> Fabric {
        Fabric::with_params(Params::default())
    }

    #[test]
    fn hints_builder_sets_the_fields_of_its_info() {
        let hints = Hints::new()
            .caps(Caps::TAGGED | Caps::SOURCE)
            .domain("shm")
            .ep_type(EndpointType::Rdm)
            .threading(Threading::Domain)
            .progress(Progress::Manual)
            .resource_mgmt(ResourceManagement::Disabled)
            .msg_order(Order::SAS)
            .inject_size_bytes(64)
            .tx_size_ops(8);
        let mut info = Info {
            caps: Caps::TAGGED | Caps::SOURCE,
            domain: DomainAttr {
                name: Some("shm".into()),
                threading: Some(Threading::Domain),
                control_progress: Some(Progress::Manual),
                data_progress: Some(Progress::Manual),
                resource_mgmt: Some(ResourceManagement::Disabled),
                ..DomainAttr::default()
            },
            ..Info::default()
        };
        info.ep.ep_type = Some(EndpointType::Rdm);
        info.tx.msg_order = Order::SAS;
        info.rx.msg_order = Order::SAS;
        info.tx.inject_size_bytes = 64;
        info.tx.size_ops = 8;
        assert_eq!(hints.as_info(), &info);
        assert_eq!(Hints::from(info.clone()), hints);
        let found = make_fabric().infos(&hints).unwrap();
        assert_eq!(Ok(found.clone()), make_fabric().getinfo(None, None, InfoFlags::empty(), Some(&info)));
        assert_eq!(Ok(&found[0]), make_fabric().info(&hints).as_ref());
    }

    #[test]
    fn node_and_service_are_the_destination_unless_source_is_called() {
        let there = Address::from(SocketAddr::from(([127, 0, 0, 1], 7471)));
        let hints = Hints::new().domain("tcp").node("127.0.0.1").service(7471).numeric_host();
        let info = make_fabric().info(&hints).unwrap();
        assert_eq!(info.dest_addr, Some(there));
        let info = make_fabric().info(&hints.source()).unwrap();
        assert_eq!((info.src_addr, info.dest_addr), (Some(there), None));
    }

    #[test]
    fn getinfo_fails_with_errno_of_the_unmet_hint() {
        let refused = make_fabric().info(&Hints::new().domain("token-ring")).unwrap_err();
        assert_eq!(refused.errno(), Errno::ENODATA);
        assert_eq!(make_fabric().infos(&Hints::new().source()).unwrap_err().errno(), Errno::EINVAL);
    }
}
