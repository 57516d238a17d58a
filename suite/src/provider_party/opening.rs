//! Opens a party behind the C interface: asks the provider for what the setup needs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::net::{Ipv4Addr, SocketAddr};

use homespun::CqFormat;
use homespun::Errno;
use homespun::flags::{BindFlags, Caps, InfoFlags, Mode, OpFlags, Order};
use homespun::info::{MrMode, ResourceManagement};
use homespun_host::abi::domain::{FidAv, FidDomain};
use homespun_host::abi::endpoint::FidEp;
use homespun_host::abi::eq::FiCqAttr;
use homespun_host::abi::info::FiInfo;
use homespun_host::abi::{
    FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_RM_DISABLED,
    FI_RM_ENABLED,
};
use homespun_host::{InfoList, Libfabric, Object, av_attr, cq_attr};

use super::connections::Connections;
use super::names::name_from_bytes;
use super::posted::Posted;
use super::{Counters, ProviderParty, ReadQueue, Refused, not_offered, open_counter};
use crate::call::{AddressForm, Opened};
use crate::counters::EVENTS;
use crate::form::NameForm;
use crate::provider::{Granted, Provider};
use crate::setup::BOTH;
use crate::setup::Setup;

const FI_EP_MSG: u32 = 1;
const FI_EP_RDM: u32 = 3;

/// What a test asks of every endpoint, if the provider has it: a party with the default setup has all
/// capabilities.
const WISHES: [Caps; 5] =
    [Caps::DIRECTED_RECV, Caps::MULTI_RECV, Caps::SOURCE, Caps::RMA_EVENT, Caps::ATOMIC];

/// Opens a party.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) libfabric: Libfabric,
    pub(super) provider: Provider,
    pub(super) setup: Setup,
    /// Whether a side of connections is opened, which opens its endpoints later.
    pub(super) is_side: bool,
}

impl Opening {
    pub(super) fn open(self) -> Result<(ProviderParty, Opened), Refused> {
        let setup = &self.setup;
        let mut info = self.find_info()?;
        let tx_op_flags = setup.tx_op_flags.bits();
        info.tx_attr_mut().op_flags = tx_op_flags;
        let fabric = self.libfabric.open_fabric(&info)?;
        let domain = fabric.open_domain(&info)?;
        let cq = self.open_cq(&domain)?;
        let receive_cq = setup.separate_queues.then(|| self.open_cq(&domain)).transpose()?;
        let (mut ep, mut av, mut counters, mut connections) = (None, None, Vec::new(), None);
        let name = if self.is_side {
            let is_padded = !self.provider.is_homespun();
            let opened = Connections::open(&self.libfabric, &fabric, &domain, &cq.cq, &info, is_padded);
            connections = Some(opened?);
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
        } else {
            let opened = self.open_endpoint(&domain, &info, &cq, receive_cq.as_ref())?;
            let name = opened.0.name()?;
            (ep, av, counters) = (Some(opened.0), Some(opened.1), opened.2);
            name_from_bytes(&name).into_address()
        };
        // SAFETY: every info of a list has the attributes.
        let (granted, mr_mode) = unsafe {
            let (tx, rx) = (&*info.first().tx_attr, &*info.first().rx_attr);
            let granted = Granted {
                caps: Caps::from_bits_retain(info.first().caps),
                tx_order: Order::from_bits_retain(tx.msg_order),
                rx_order: Order::from_bits_retain(rx.msg_order),
                completion_order: Order::from_bits_retain(tx.comp_order),
                cq_data_bytes: (*info.first().domain_attr).cq_data_size,
                tx_size_ops: tx.size,
                rx_size_ops: rx.size,
                inject_bytes: tx.inject_size,
                iov_limit: tx.iov_limit,
            };
            (granted, (*info.first().domain_attr).mr_mode)
        };
        let name = AddressForm(name);
        let depth_entries = setup.cq_depth_entries;
        let opened = Opened { name, depth_entries, format: cq.format, granted: Some(granted) };
        let party = ProviderParty {
            drives_itself: !setup.asleep,
            opening: self,
            levels: HashMap::new(),
            caps: granted.caps,
            mr_mode: MrMode::from_bits_retain(mr_mode.cast_unsigned()),
            ep,
            cq,
            receive_cq,
            av,
            domain,
            connections,
            counters,
            posted: Posted::default(),
            rooms: BTreeMap::new(),
            regions: Vec::new(),
            names: BTreeMap::new(),
        };
        Ok((party, opened))
    }

    /// Opens an endpoint without connections, and enables it.
    fn open_endpoint(
        &self,
        domain: &Object<FidDomain>,
        info: &InfoList,
        cq: &ReadQueue,
        receive_cq: Option<&ReadQueue>,
    ) -> Result<(Object<FidEp>, Object<FidAv>, Counters), Refused> {
        let setup = &self.setup;
        // SAFETY: no attribute is a pointer that is not null.
        let av = unsafe { domain.open_av(av_attr()) }?;
        let ep = domain.open_endpoint(info)?;
        let selective = if setup.selective { BindFlags::SELECTIVE_COMPLETION } else { BindFlags::empty() };
        let at_first = if receive_cq.is_some() { BindFlags::TRANSMIT } else { BOTH };
        ep.bind(&cq.cq, (at_first | selective).bits())?;
        if let Some(receive_cq) = receive_cq {
            ep.bind(&receive_cq.cq, (BindFlags::RECV | selective).bits())?;
        }
        ep.bind(&av, 0)?;
        let mut counters = Vec::new();
        for event in EVENTS.into_iter().filter(|_| setup.counts) {
            let counter = open_counter(domain)?;
            let bound = ep.bind(&counter, event.bits());
            bound.map_err(|errno| not_offered("a counter of this event", errno))?;
            counters.push((event, counter));
        }
        ep.enable()?;
        Ok((ep, av, counters))
    }

    /// Asks the provider for an endpoint: with the capabilities of the setup, or with all that it has.
    fn find_info(&self) -> Result<InfoList, Refused> {
        let setup = &self.setup;
        if let Some(at) = &setup.at
            && let NameForm::Opaque(_) = NameForm::of(at)
        {
            return Err(Refused::NotOffered("a name that the test chooses".to_owned()));
        }
        if setup.user.is_some() || setup.sends_from_buffers {
            return Err(Refused::NotOffered("what homespun alone offers".to_owned()));
        }
        if !setup.caps.is_empty() {
            return self
                .getinfo(setup.caps, setup.tx_op_flags)
                .map_err(|errno| not_offered(&format!("an endpoint with {:?}", setup.caps), errno));
        }
        let kind = if self.is_side { "an endpoint with connections" } else { "an endpoint of this setup" };
        let found = self.getinfo(Caps::empty(), setup.tx_op_flags);
        let mut info = found.map_err(|errno| not_offered(kind, errno))?;
        let mut caps = Caps::from_bits_retain(info.first().caps);
        for wish in WISHES {
            if let Ok(with) = self.getinfo(caps | wish, setup.tx_op_flags) {
                caps = Caps::from_bits_retain(with.first().caps) | wish;
                info = with;
            }
        }
        Ok(info)
    }

    /// Whether the provider offers endpoints whose transmissions complete at this level by default.
    pub(super) fn offers_level(&self, level: OpFlags) -> bool {
        self.getinfo(self.setup.caps, level).is_ok()
    }

    fn getinfo(&self, caps: Caps, tx_op_flags: OpFlags) -> Result<InfoList, Errno> {
        let Provider { name, domain, .. } = &self.provider;
        let setup = &self.setup;
        let mut hints = self.libfabric.empty_hints();
        hints.set_provider_name(&CString::new(name.as_str()).expect("a name"));
        if let Some(domain) = domain {
            hints.set_domain_name(&CString::new(domain.as_str()).expect("a name"));
        }
        let mut mode = Mode::CONTEXT | Mode::CONTEXT2;
        if setup.rx_cq_data {
            mode |= Mode::RX_CQ_DATA;
        }
        hints.first_mut().caps = caps.bits();
        hints.first_mut().mode = mode.bits();
        hints.ep_attr_mut().r#type = if self.is_side { FI_EP_MSG } else { FI_EP_RDM };
        let mr_mode = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY | MrMode::ENDPOINT;
        hints.domain_attr_mut().mr_mode = mr_mode.bits().cast_signed();
        hints.domain_attr_mut().resource_mgmt = match setup.resource_mgmt {
            None => 0,
            Some(ResourceManagement::Disabled) => FI_RM_DISABLED,
            Some(ResourceManagement::Enabled) => FI_RM_ENABLED,
        };
        let order = setup.order.bits();
        hints.tx_attr_mut().msg_order = order;
        hints.tx_attr_mut().size = setup.tx_depth_ops;
        hints.tx_attr_mut().op_flags = tx_op_flags.bits();
        if setup.completes_in_order {
            hints.tx_attr_mut().comp_order = Order::STRICT.bits();
        }
        hints.rx_attr_mut().msg_order = order;
        hints.rx_attr_mut().total_buffered_recv = setup.unexpected_bytes;
        hints.rx_attr_mut().size = setup.rx_depth_ops;
        hints.rx_attr_mut().mode = (mode & Mode::RX_CQ_DATA).bits();
        let at = setup.at.map(|at| [at.ip().to_string(), at.port().to_string()]);
        let at = at.map(|texts| texts.map(|text| CString::new(text).expect("an address")));
        // A provider with an address format of its own refuses an IP address, or takes it for a name.
        let (node, service) = match &at {
            Some([node, service]) => (Some(node.as_c_str()), Some(service.as_c_str())),
            None if name == "shm" => (None, None),
            None => (Some(c"127.0.0.1"), None),
        };
        let flags = if node.is_some() { InfoFlags::SOURCE.bits() } else { 0 };
        let infos = self.libfabric.getinfo(node, service, flags, Some(&hints))?;
        let has_mode = |info: &&FiInfo| !setup.rx_cq_data || info.mode & Mode::RX_CQ_DATA.bits() != 0;
        infos.find_copy(has_mode).ok_or(Errno::ENODATA)
    }

    fn open_cq(&self, domain: &Object<FidDomain>) -> Result<ReadQueue, Refused> {
        let format = self.setup.cq_format.unwrap_or(CqFormat::Tagged);
        let attr = FiCqAttr { size: self.setup.cq_depth_entries, ..cq_attr(number_of_format(format)) };
        // SAFETY: no attribute is a pointer that is not null.
        Ok(ReadQueue { cq: unsafe { domain.open_cq(attr) }?, format })
    }
}

fn number_of_format(format: CqFormat) -> u32 {
    match format {
        CqFormat::Context => FI_CQ_FORMAT_CONTEXT,
        CqFormat::Msg => FI_CQ_FORMAT_MSG,
        CqFormat::Data => FI_CQ_FORMAT_DATA,
        CqFormat::Tagged => FI_CQ_FORMAT_TAGGED,
    }
}
