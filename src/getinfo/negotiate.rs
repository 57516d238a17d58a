//! Compares hints with the capabilities and limits of a provider.
//!
//! By `fi_getinfo(3)`, a provider is offered only if it meets or exceeds every hint that is not zero. Each
//! refusal names the unmet hint. Hints in fields that only describe homespun are ignored.

use homespun_engine::address::AddressFormat;
use homespun_engine::error::{Misuse, Unmet};
use homespun_engine::flags::{Caps, Mode, OpFlags, Order};
use homespun_engine::limits::{
    CONNECTION_DATA_MAX_BYTES, DEPTH_MAX_OPS, INJECT_MAX_BYTES, IOV_LIMIT, KEY_MAX_BYTES, KEY_MIN_BYTES,
    RX_DEPTH_DEFAULT_OPS, TX_DEPTH_DEFAULT_OPS, UNEXPECTED_BUDGET_DEFAULT_BYTES, UNEXPECTED_BUDGET_MAX_BYTES,
    UNEXPECTED_BUDGET_MIN_BYTES,
};
use homespun_engine::transport::ProviderAttr;

use crate::endpoint_type::UNCONNECTED_CAPS;
use crate::info::{
    DomainAttr, EndpointType, EpAttr, FABRIC_NAME, FabricAttr, Info, MrMode, PROTOCOL, PROTOCOL_VERSION,
    PROVIDER_NAME, PROVIDER_VERSION, Progress, ResourceManagement, RxAttr, SHARED_CONTEXT, TAG_GENERIC,
    Threading, TxAttr, Version,
};
use crate::mutated;
use crate::op_flags::{RECEIVE_DEFAULT_FLAGS, TRANSMIT_DEFAULT_FLAGS};

/// The capabilities of messages. Every provider has them, since the engine implements them.
const MESSAGE_CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::SEND)
    .union(Caps::RECV)
    .union(Caps::FENCE)
    .union(Caps::MULTI_RECV);

/// The capabilities that are granted only on request. `SOURCE_ERR` reports a message of an unknown sender as
/// an error; an application that does not expect this would take it for a failure. `TRIGGER` makes
/// counters slower.
const CAPS_IF_ASKED: Caps = Caps::SOURCE_ERR.union(Caps::TRIGGER);

/// The capabilities of access to memory. Every provider has them, since the engine implements them.
const RMA_CAPS: Caps = ACCESSES.union(RMA_DIRECTIONS);

/// The two kinds of access to memory.
const ACCESSES: Caps = Caps::RMA.union(Caps::ATOMIC);

/// The capability that every target of accesses gets. It costs nothing while no counter is bound.
const TARGET_CAPS: Caps = Caps::RMA_EVENT;

/// The capability that every endpoint with RMA gets. It costs nothing while no write asks for durability.
const RMA_EXTRAS: Caps = Caps::RMA_PMEM;

/// The directions of access to memory.
const RMA_DIRECTIONS: Caps = INITIATED.union(TARGETED);
const INITIATED: Caps = Caps::READ.union(Caps::WRITE);
const TARGETED: Caps = Caps::REMOTE_READ.union(Caps::REMOTE_WRITE);

/// The capabilities that concern the transmit side.
const TX_CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::SEND)
    .union(Caps::FENCE)
    .union(Caps::TRIGGER)
    .union(ACCESSES)
    .union(INITIATED)
    .union(RMA_EXTRAS);

/// The capabilities that concern the receive side.
const RX_CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::RECV)
    .union(Caps::MULTI_RECV)
    .union(Caps::TRIGGER)
    .union(SOURCE_CAPS)
    .union(ACCESSES)
    .union(TARGETED)
    .union(TARGET_CAPS)
    .union(RMA_EXTRAS);

/// The capabilities of receives that concern the sender's address.
const SOURCE_CAPS: Caps = Caps::SOURCE.union(Caps::SOURCE_ERR).union(Caps::DIRECTED_RECV);

/// The size of remote completion data in bytes.
const CQ_DATA_BYTES: usize = 8;

/// The largest length of an error's `err_data`. `err_data` holds the address of an unknown source, or the
/// data with which an application rejected a connection.
const ERR_DATA_MAX_BYTES: usize = CONNECTION_DATA_MAX_BYTES;
const _: () = assert!(AddressFormat::SockaddrIn6.len_bytes() <= ERR_DATA_MAX_BYTES);

/// The number of remote segments that one access to memory names.
const RMA_IOV_LIMIT: usize = 1;

/// The recommended number of completion queues; only memory limits it.
const CQ_COUNT: usize = 1 << 16;

/// The recommended number of counters; only memory limits it.
const COUNTER_COUNT: usize = 1 << 16;

/// The recommended number of endpoints. Each endpoint has a port. There are twice as many ports as this.
const EP_COUNT: usize = 1 << 15;

/// The orders that cost nothing. homespun keeps them anyway, so it grants them without a request.
const ORDERS_FOR_FREE: Order = Order::SAS.union(Order::RMA_RAR).union(Order::ATOMIC_RAR);

/// The orders of reads and writes. Each constant holds three orders: of all accesses, of RMA alone, and of
/// atomic operations alone.
const RAR_ORDERS: Order = Order::RAR.union(Order::RMA_RAR).union(Order::ATOMIC_RAR);
const RAW_ORDERS: Order = Order::RAW.union(Order::RMA_RAW).union(Order::ATOMIC_RAW);
const WAR_ORDERS: Order = Order::WAR.union(Order::RMA_WAR).union(Order::ATOMIC_WAR);
const WAW_ORDERS: Order = Order::WAW.union(Order::RMA_WAW).union(Order::ATOMIC_WAW);

/// Returns the types of endpoints that can meet the hints, best first.
///
/// # Errors
///
/// [`Misuse::Unmet`] if the hints ask for a type that no provider supports.
pub(super) fn candidate_ep_types(hints: &Info) -> Result<Vec<EndpointType>, Misuse> {
    match hints.ep.ep_type {
        None => Ok(EndpointType::OFFERED.to_vec()),
        Some(asked) if EndpointType::OFFERED.contains(&asked) => Ok(vec![asked]),
        Some(_) if mutated!("fi_cq/transmit-of-unreliable-endpoint") => Ok(EndpointType::OFFERED.to_vec()),
        Some(_) => Err(Misuse::Unmet(Unmet::Datagrams)),
    }
}

/// Returns the provider's offer for endpoints of this type that meets the hints, without addresses.
///
/// # Errors
///
/// Always [`Misuse::Unmet`], naming the unmet hint.
pub(super) fn make_offer(
    provider: &ProviderAttr,
    ep_type: EndpointType,
    hints: &Info,
) -> Result<Info, Misuse> {
    let caps = negotiate_caps(provider, ep_type, hints.caps)?;
    let [tx_order, rx_order] = negotiate_message_orders(hints)?;
    let tx = TxAttr { msg_order: tx_order, ..negotiate_tx(&hints.tx, caps, provider)? };
    let rx = RxAttr { msg_order: rx_order, ..negotiate_rx(&hints.rx, caps)? };
    Ok(Info {
        caps,
        mode: modes_of_mutants(),
        addr_format: None,
        src_addr: None,
        dest_addr: None,
        ep: negotiate_ep(&hints.ep, ep_type, &tx, &rx, provider)?,
        tx,
        rx,
        domain: negotiate_domain(&hints.domain, hints.fabric.api_version, provider)?,
        fabric: negotiate_fabric(&hints.fabric)?,
    })
}

/// Whether the hints name [`Mode::RX_CQ_DATA`] for the endpoint and for its receive side. Programs that
/// merely support the mode name it for the endpoint alone.
pub(super) fn names_rx_cq_data(hints: &Info) -> bool {
    (hints.mode & hints.rx.mode).contains(Mode::RX_CQ_DATA)
}

/// Returns an offer for endpoints that have [`Mode::RX_CQ_DATA`], besides this one.
///
/// # Errors
///
/// [`Unmet::RxCqDataAlone`] if the endpoints have no untagged receives.
pub(super) fn with_rx_cq_data(offer: &Info) -> Result<Info, Misuse> {
    require(offer.caps.contains(Caps::MSG | Caps::RECV), Unmet::RxCqDataAlone)?;
    let mut offer = offer.clone();
    offer.mode |= Mode::RX_CQ_DATA;
    offer.rx.mode |= Mode::RX_CQ_DATA;
    Ok(offer)
}

/// Whether an endpoint with these capabilities is a target of writes.
pub(super) fn is_target_of_writes(caps: Caps) -> bool {
    caps.contains(Caps::RMA | Caps::REMOTE_WRITE)
}

/// The modes that mutants put into each answer.
fn modes_of_mutants() -> Mode {
    let mut modes = Mode::empty();
    if mutated!("fi_endpoint/context-structures") {
        modes |= Mode::from_bits_retain(1 << 59);
    }
    if mutated!("fi_msg/buffered-receives") || mutated!("fi_cq/buffered-receives") {
        modes |= Mode::from_bits_retain(1 << 51);
    }
    if mutated!("fi_msg/prefix-of-messages") {
        modes |= Mode::from_bits_retain(1 << 58);
    }
    modes
}

/// Returns the capabilities that say which hosts the provider reaches.
fn reach_caps(provider: &ProviderAttr) -> Caps {
    let mut reach = Caps::empty();
    reach.set(Caps::LOCAL_COMM, provider.local);
    reach.set(Caps::REMOTE_COMM, provider.remote);
    reach
}

/// If no capability is requested, returns all except [`CAPS_IF_ASKED`]. Otherwise returns the requested
/// capabilities, the capabilities that they imply, and the secondary capabilities that cost nothing.
fn negotiate_caps(provider: &ProviderAttr, ep_type: EndpointType, asked: Caps) -> Result<Caps, Misuse> {
    let offered = MESSAGE_CAPS | RMA_CAPS | TARGET_CAPS | RMA_EXTRAS | reach_caps(provider);
    let offered = offered | ep_type.source_caps();
    if asked.is_empty() {
        return Ok(offered);
    }
    let of_sources = asked & (UNCONNECTED_CAPS | Caps::SOURCE_ERR);
    require(of_sources.is_empty() || !ep_type.is_connected(), Unmet::ConnectionSource)?;
    let mut missing = asked.difference(offered | CAPS_IF_ASKED);
    if mutated!("fi_cq/device-memory") {
        missing -= Caps::HMEM;
    }
    if mutated!("fi_msg/variable-messages") {
        missing -= Caps::from_bits_retain(1 << 48);
    }
    if mutated!("fi_trigger/xpu-triggers") {
        missing -= Caps::from_bits_retain(1 << 44);
    }
    require(missing.is_empty(), Unmet::Caps(missing))?;
    let names_source = asked.contains(Caps::SOURCE) || !asked.contains(Caps::SOURCE_ERR);
    require(names_source, Unmet::SourceErrAlone)?;
    let asked = with_primary_caps(asked);
    let mut caps =
        with_implied_directions(asked, Caps::SEND | Caps::RECV | RMA_DIRECTIONS) | reach_caps(provider);
    // A fence costs nothing if it is not used.
    caps.set(Caps::FENCE, asked.contains(Caps::FENCE) || caps.intersects(Caps::SEND | INITIATED));
    // `MULTI_RECV` costs nothing while no multi-receive buffer is posted. Only untagged messages use such
    // buffers.
    caps.set(Caps::MULTI_RECV, asked.contains(Caps::MULTI_RECV) || caps.contains(Caps::MSG | Caps::RECV));
    let is_target = caps.intersects(ACCESSES) && caps.intersects(TARGETED);
    require(is_target || !asked.intersects(TARGET_CAPS), Unmet::RmaEventAlone)?;
    caps.set(TARGET_CAPS, is_target);
    caps.set(RMA_EXTRAS, caps.contains(Caps::RMA));
    Ok(caps)
}

/// Adds each primary capability that a requested secondary capability needs. Other providers do not refuse a
/// secondary capability alone, so homespun does not either.
fn with_primary_caps(asked: Caps) -> Caps {
    let mut caps = asked;
    if asked.contains(Caps::MULTI_RECV) {
        caps |= Caps::MSG;
    }
    if asked.intersects(RMA_EXTRAS) {
        caps |= Caps::RMA;
    }
    if asked.intersects(TARGET_CAPS) && !caps.intersects(ACCESSES) {
        caps |= ACCESSES;
    }
    caps
}

/// Adds directions to a request that names none. Messages get `SEND` and `RECV`, and accesses get their four
/// directions. Without accesses, `FENCE` implies `SEND`. Each of [`SOURCE_CAPS`] implies `RECV`. Only
/// `possible` directions are added.
fn with_implied_directions(asked: Caps, possible: Caps) -> Caps {
    let mut implied = Caps::empty();
    if !asked.intersects(Caps::SEND | Caps::RECV) {
        let messages = asked.intersects(Caps::MSG | Caps::TAGGED);
        let is_fenced = asked.contains(Caps::FENCE) && !asked.intersects(ACCESSES);
        implied.set(Caps::SEND, messages || is_fenced);
        implied.set(Caps::RECV, messages || asked.intersects(SOURCE_CAPS));
    }
    if asked.intersects(ACCESSES) && !asked.intersects(RMA_DIRECTIONS) {
        implied |= RMA_DIRECTIONS;
    }
    asked | implied & possible
}

fn negotiate_tx(asked: &TxAttr, caps: Caps, provider: &ProviderAttr) -> Result<TxAttr, Misuse> {
    let asked_caps = asked.caps - RX_CAPS.difference(TX_CAPS);
    let is_subset = caps.contains(asked_caps) || mutated!("fi_endpoint/subset-of-capabilities");
    require(is_subset, Unmet::TransmitCaps)?;
    require(TRANSMIT_DEFAULT_FLAGS.contains(asked.op_flags), Unmet::TransmitFlags)?;
    let is_to_be_durable = asked.op_flags.contains(OpFlags::COMMIT_COMPLETE);
    require(!is_to_be_durable || caps.contains(Caps::RMA_PMEM), Unmet::CommitAlone)?;
    require(Order::STRICT.contains(asked.comp_order), Unmet::TransmitCompletionOrder)?;
    let inject_max_bytes = INJECT_MAX_BYTES.min(max_msg_size_bytes(provider));
    require(asked.inject_size_bytes <= inject_max_bytes, Unmet::InjectSize { max_bytes: inject_max_bytes })?;
    require(asked.size_ops <= DEPTH_MAX_OPS, Unmet::TransmitDepth)?;
    require(asked.iov_limit <= IOV_LIMIT, Unmet::TransmitSegments)?;
    require(asked.rma_iov_limit <= RMA_IOV_LIMIT, Unmet::RemoteSegments)?;
    Ok(TxAttr {
        caps: negotiate_side_caps(asked_caps, caps, TX_CAPS, Caps::SEND | INITIATED),
        mode: Mode::empty(),
        op_flags: asked.op_flags,
        msg_order: Order::empty(),
        comp_order: if asked.comp_order.is_empty() { Order::empty() } else { Order::STRICT },
        inject_size_bytes: inject_max_bytes,
        size_ops: or_default(asked.size_ops, TX_DEPTH_DEFAULT_OPS),
        iov_limit: IOV_LIMIT,
        rma_iov_limit: RMA_IOV_LIMIT,
        tclass: 0,
    })
}

fn negotiate_rx(asked: &RxAttr, caps: Caps) -> Result<RxAttr, Misuse> {
    let asked_caps = asked.caps - TX_CAPS.difference(RX_CAPS);
    require(caps.contains(asked_caps), Unmet::ReceiveCaps)?;
    require(RECEIVE_DEFAULT_FLAGS.contains(asked.op_flags), Unmet::ReceiveFlags)?;
    require(asked.comp_order.is_empty(), Unmet::ReceiveCompletionOrder)?;
    require(asked.size_ops <= DEPTH_MAX_OPS, Unmet::ReceiveDepth)?;
    require(asked.iov_limit <= IOV_LIMIT, Unmet::ReceiveSegments)?;
    Ok(RxAttr {
        caps: negotiate_side_caps(asked_caps, caps, RX_CAPS, Caps::RECV | TARGETED),
        mode: Mode::empty(),
        op_flags: asked.op_flags,
        msg_order: Order::empty(),
        comp_order: Order::empty(),
        total_buffered_recv_bytes: unexpected_budget_bytes(asked.total_buffered_recv_bytes),
        size_ops: or_default(asked.size_ops, RX_DEPTH_DEFAULT_OPS),
        iov_limit: IOV_LIMIT,
    })
}

/// Returns the attributes granted to a shared receive context that asks for `asked`.
pub(crate) fn grant_rx_attr(asked: &RxAttr) -> Result<RxAttr, Misuse> {
    let offered = MESSAGE_CAPS | RMA_CAPS | TARGET_CAPS | RMA_EXTRAS | UNCONNECTED_CAPS | CAPS_IF_ASKED;
    let mut granted = negotiate_rx(asked, offered)?;
    if asked.caps.is_empty() {
        granted.caps -= CAPS_IF_ASKED | Caps::DIRECTED_RECV;
    }
    require(Order::all().contains(asked.msg_order), Unmet::MessageOrder)?;
    granted.msg_order = with_implied_orders(asked.msg_order) | ORDERS_FOR_FREE;
    Ok(granted)
}

/// Returns the message orders of the transmit and the receive side: the requested orders, the orders that
/// they imply, and the orders that cost nothing. A size such as `max_order_raw_size_bytes` in the hints
/// requests its order, too, unless the hints name the order.
fn negotiate_message_orders(hints: &Info) -> Result<[Order; 2], Misuse> {
    let asked = [hints.tx.msg_order, hints.rx.msg_order];
    for asked in asked {
        require(Order::all().contains(asked), Unmet::MessageOrder)?;
    }
    let EpAttr { max_order_raw_size_bytes, max_order_war_size_bytes, max_order_waw_size_bytes, .. } =
        hints.ep;
    let sizes = [
        (max_order_raw_size_bytes, Order::RAW, RAW_ORDERS),
        (max_order_war_size_bytes, Order::WAR, WAR_ORDERS),
        (max_order_waw_size_bytes, Order::WAW, WAW_ORDERS),
    ];
    let meant = sizes.iter().filter(|(size_bytes, _, orders)| {
        *size_bytes > 0 && !asked.iter().any(|asked| asked.intersects(*orders))
    });
    let meant = meant.fold(Order::empty(), |meant, (_, order, _)| meant | *order);
    Ok(asked.map(|asked| with_implied_orders(asked | meant) | ORDERS_FOR_FREE))
}

/// Adds the orders that an order of all accesses implies: the same order of atomic operations alone, and of
/// RMA alone.
fn with_implied_orders(order: Order) -> Order {
    let wholes = [
        (Order::RAR, RAR_ORDERS),
        (Order::RAW, RAW_ORDERS),
        (Order::WAR, WAR_ORDERS),
        (Order::WAW, WAW_ORDERS),
    ];
    wholes
        .into_iter()
        .filter(|(whole, _)| order.contains(*whole))
        .fold(order, |order, (_, parts)| order | parts)
}

/// Returns the capabilities of one side of an endpoint: those of `asked`, or those of `endpoint` if `asked`
/// names none of this side. The result is empty if the endpoint has none of this side's `directions`.
fn negotiate_side_caps(asked: Caps, endpoint: Caps, applicable: Caps, directions: Caps) -> Caps {
    if !endpoint.intersects(directions) {
        return Caps::empty();
    }
    let asked = if asked.intersects(applicable) { asked } else { endpoint };
    with_implied_directions(asked, directions & endpoint) & applicable
}

fn negotiate_ep(
    asked: &EpAttr,
    ep_type: EndpointType,
    tx: &TxAttr,
    rx: &RxAttr,
    provider: &ProviderAttr,
) -> Result<EpAttr, Misuse> {
    require(asked.protocol == 0 || asked.protocol == PROTOCOL, Unmet::Protocol)?;
    require(asked.protocol_version <= PROTOCOL_VERSION, Unmet::ProtocolVersion)?;
    let message_max_bytes = max_msg_size_bytes(provider);
    require(
        asked.max_msg_size_bytes <= message_max_bytes,
        Unmet::MessageSize { max_bytes: message_max_bytes },
    )?;
    let contexts = [asked.tx_ctx_cnt, asked.rx_ctx_cnt];
    let is_offered = |count: &usize| *count <= 1 || *count == SHARED_CONTEXT;
    require(contexts.iter().all(is_offered), Unmet::SeveralContexts)?;
    let has_no_key = asked.auth_key.is_empty() || mutated!("fi_endpoint/endpoint-authorization");
    require(has_no_key, Unmet::AuthorizationKeys)?;
    // Operations keep their order, whatever their size.
    let order = tx.msg_order | rx.msg_order;
    let ordered = |orders| if order.intersects(orders) { usize::MAX } else { 0 };
    Ok(EpAttr {
        ep_type: Some(ep_type),
        protocol: PROTOCOL,
        protocol_version: PROTOCOL_VERSION,
        max_msg_size_bytes: message_max_bytes,
        msg_prefix_size_bytes: if mutated!("fi_cq/len-with-prefix") { 8 } else { 0 },
        max_order_raw_size_bytes: ordered(RAW_ORDERS),
        max_order_war_size_bytes: ordered(WAR_ORDERS),
        max_order_waw_size_bytes: ordered(WAW_ORDERS),
        mem_tag_format: if asked.mem_tag_format == 0 { TAG_GENERIC } else { asked.mem_tag_format },
        tx_ctx_cnt: or_default(asked.tx_ctx_cnt, usize::from(!tx.caps.is_empty())),
        rx_ctx_cnt: or_default(asked.rx_ctx_cnt, usize::from(!rx.caps.is_empty())),
        auth_key: Vec::new(),
    })
}

/// Returns the attributes of the domain. Counts in the hints are ignored.
fn negotiate_domain(
    asked: &DomainAttr,
    api_version: Version,
    provider: &ProviderAttr,
) -> Result<DomainAttr, Misuse> {
    let reach = reach_caps(provider);
    require(asked.data_progress != Some(Progress::ControlUnified), Unmet::UnifiedDataProgress)?;
    require(
        asked.cq_data_size_bytes <= CQ_DATA_BYTES,
        Unmet::CompletionDataSize { max_bytes: CQ_DATA_BYTES },
    )?;
    require(asked.mr_iov_limit <= IOV_LIMIT, Unmet::RegionSegments)?;
    require(reach.contains(asked.caps), Unmet::DomainCaps)?;
    require(asked.auth_key.is_empty(), Unmet::AuthorizationKeys)?;
    require(
        asked.max_err_data_bytes <= ERR_DATA_MAX_BYTES,
        Unmet::ErrorDataSize { max_bytes: ERR_DATA_MAX_BYTES },
    )?;
    Ok(DomainAttr {
        name: Some(provider.domain.clone()),
        threading: Some(asked.threading.unwrap_or(Threading::Safe)),
        control_progress: Some(asked.control_progress.unwrap_or(Progress::Manual)),
        data_progress: Some(asked.data_progress.unwrap_or(Progress::Manual)),
        resource_mgmt: Some(asked.resource_mgmt.unwrap_or(ResourceManagement::Enabled)),
        // Unspecified stays unspecified: the domain supports both types, and neither is better.
        av_type: asked.av_type,
        mr_mode: negotiate_mr_mode(asked.mr_mode, api_version),
        mr_key_size_bytes: grant_key_size_bytes(asked.mr_key_size_bytes),
        cq_data_size_bytes: CQ_DATA_BYTES,
        cq_cnt: CQ_COUNT,
        ep_cnt: EP_COUNT,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: EP_COUNT,
        max_ep_srx_ctx: EP_COUNT,
        cntr_cnt: COUNTER_COUNT,
        mr_iov_limit: IOV_LIMIT,
        caps: reach,
        mode: Mode::empty(),
        auth_key: Vec::new(),
        max_err_data_bytes: if mutated!("fi_cq-1.4/err-data-amount") { 0 } else { ERR_DATA_MAX_BYTES },
        mr_cnt: 0,
        tclass: 0,
    })
}

/// Returns the size of keys for an application that asks for `asked` bytes: the size if keys of homespun can
/// have it, or else the full size. `fi_domain(3)` has the size of an answer, so the application learns it.
pub(crate) fn grant_key_size_bytes(asked: usize) -> usize {
    if (KEY_MIN_BYTES..KEY_MAX_BYTES).contains(&asked) { asked } else { KEY_MAX_BYTES }
}

/// Returns the modes of memory registration that the application must support: normally none. Hints with one
/// of the two modes from before libfabric 1.5 get that mode. An application written for such a version gets
/// `FI_MR_SCALABLE` if its hints name neither.
fn negotiate_mr_mode(asked: MrMode, api_version: Version) -> MrMode {
    let is_old = (Version::new(1, 0)..Version::new(1, 5)).contains(&api_version);
    if asked.contains(MrMode::BASIC) && !mutated!("fi_mr/mr-basic") {
        MrMode::BASIC
    } else if asked.contains(MrMode::SCALABLE) || is_old {
        MrMode::SCALABLE
    } else {
        let raw = if mutated!("fi_mr/mr-raw") { MrMode::RAW } else { MrMode::empty() };
        let hmem = if mutated!("fi_mr/device-regions") { MrMode::HMEM } else { MrMode::empty() };
        let unneeded = MrMode::LOCAL | MrMode::ALLOCATED | MrMode::MMU_NOTIFY | MrMode::COLLECTIVE;
        let unneeded = if mutated!("fi_mr/unneeded-mr-mode-is-cleared") { unneeded } else { MrMode::empty() };
        asked & (raw | hmem | unneeded)
    }
}

fn negotiate_fabric(asked: &FabricAttr) -> Result<FabricAttr, Misuse> {
    require(asked.name.as_deref().is_none_or(|name| name == FABRIC_NAME), Unmet::FabricName)?;
    require(asked.prov_name.as_deref().is_none_or(|name| name == PROVIDER_NAME), Unmet::ProviderName)?;
    Ok(FabricAttr {
        name: Some(FABRIC_NAME.into()),
        prov_name: Some(PROVIDER_NAME.into()),
        prov_version: PROVIDER_VERSION,
        api_version: asked.api_version,
    })
}

/// Returns the size of the provider's largest message, limited to what this machine can address.
fn max_msg_size_bytes(provider: &ProviderAttr) -> usize {
    usize::try_from(provider.max_message_bytes).unwrap_or(usize::MAX)
}

/// Returns the memory for unexpected messages: the requested size, clamped to the limits. By
/// `fi_endpoint(3)` the size is a hint, so no size is refused.
fn unexpected_budget_bytes(asked: usize) -> usize {
    or_default(asked, UNEXPECTED_BUDGET_DEFAULT_BYTES)
        .clamp(UNEXPECTED_BUDGET_MIN_BYTES, UNEXPECTED_BUDGET_MAX_BYTES)
}

/// Returns the requested value, or else the default.
fn or_default(asked: usize, default: usize) -> usize {
    if asked == 0 { default } else { asked }
}

fn require(is_met: bool, requirement: Unmet) -> Result<(), Misuse> {
    if is_met { Ok(()) } else { Err(Misuse::Unmet(requirement)) }
}

#[cfg(test)]
mod tests;
