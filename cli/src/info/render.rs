//! An [`Info`] as text.

use std::fmt::{Debug, Display, Write};

use bitflags::Flags;
use homespun::info::{
    DomainAttr, EndpointType, EpAttr, FabricAttr, Info, PROVIDER_NAME, Progress, RxAttr, SHARED_CONTEXT,
    TxAttr,
};
use homespun::{Address, AddressFormat};

use crate::size;

/// The width of line names, in characters.
const SHORT_NAME_WIDTH: usize = 14;

/// The width of attribute names, in characters.
const FULL_NAME_WIDTH: usize = 22;

/// The attributes by which users choose: addresses, capabilities, limits.
pub(super) fn in_short(info: &Info) -> String {
    let mut text = Text::new(SHORT_NAME_WIDTH);
    text.heading(&heading(info));
    text.line("from", source(info));
    if let Some(peer) = info.dest_addr {
        text.line("to", peer);
    }
    text.line("protocol", protocol(&info.ep));
    text.line("capabilities", names(&info.caps));
    let Info { tx, rx, ep, .. } = info;
    let (message, inject) = (bytes(ep.max_msg_size_bytes), bytes(tx.inject_size_bytes));
    text.line("message", format!("at most {message}, {inject} if injected"));
    text.line("depth", format!("{} sends, {} receives", tx.size_ops, rx.size_ops));
    text.line("iov", format!("{} segments to send from, {} to receive to", tx.iov_limit, rx.iov_limit));
    text.line("progress", optional(info.domain.data_progress.map(progress)));
    text.written
}

/// The findings about this host, each with its domain.
pub(super) fn found(findings: &[(&str, String)]) -> String {
    let mut text = Text::new(SHORT_NAME_WIDTH);
    text.heading("\nfound on this host");
    for (domain, finding) in findings {
        text.line(domain, finding);
    }
    text.written
}

/// Every attribute of an info.
pub(super) fn in_full(info: &Info) -> String {
    let Info { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric } = info;
    let mut text = Text::new(FULL_NAME_WIDTH);
    text.heading(&heading(info));
    text.line("caps", names(caps));
    text.line("mode", names(mode));
    text.line("addr_format", optional(addr_format.map(family)));
    text.line("src_addr", optional(*src_addr));
    text.line("dest_addr", optional(*dest_addr));
    transmit(&mut text, tx);
    receive(&mut text, rx);
    endpoint(&mut text, ep);
    domain_in_full(&mut text, domain);
    fabric_in_full(&mut text, fabric);
    text.written
}

fn transmit(text: &mut Text, tx: &TxAttr) {
    let TxAttr {
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        inject_size_bytes,
        size_ops,
        iov_limit,
        rma_iov_limit,
        tclass,
    } = tx;
    text.heading("  transmit");
    text.line("caps", names(caps));
    text.line("mode", names(mode));
    text.line("op_flags", names(op_flags));
    text.line("msg_order", orders(msg_order));
    text.line("comp_order", orders(comp_order));
    text.line("inject_size", bytes(*inject_size_bytes));
    text.line("size", size_ops);
    text.line("iov_limit", iov_limit);
    text.line("rma_iov_limit", rma_iov_limit);
    text.line("tclass", tclass);
}

fn receive(text: &mut Text, rx: &RxAttr) {
    let RxAttr {
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        total_buffered_recv_bytes,
        size_ops,
        iov_limit,
    } = rx;
    text.heading("  receive");
    text.line("caps", names(caps));
    text.line("mode", names(mode));
    text.line("op_flags", names(op_flags));
    text.line("msg_order", orders(msg_order));
    text.line("comp_order", orders(comp_order));
    text.line("total_buffered_recv", bytes(*total_buffered_recv_bytes));
    text.line("size", size_ops);
    text.line("iov_limit", iov_limit);
}

fn endpoint(text: &mut Text, ep: &EpAttr) {
    let EpAttr {
        ep_type,
        protocol: _,
        protocol_version: _,
        max_msg_size_bytes,
        msg_prefix_size_bytes,
        max_order_raw_size_bytes,
        max_order_war_size_bytes,
        max_order_waw_size_bytes,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        auth_key,
    } = ep;
    text.heading("  endpoint");
    text.line("type", optional(ep_type.map(endpoint_type)));
    text.line("protocol", protocol(ep));
    text.line("max_msg_size", bytes(*max_msg_size_bytes));
    text.line("msg_prefix_size", bytes(*msg_prefix_size_bytes));
    text.line("max_order_raw_size", bytes(*max_order_raw_size_bytes));
    text.line("max_order_war_size", bytes(*max_order_war_size_bytes));
    text.line("max_order_waw_size", bytes(*max_order_waw_size_bytes));
    text.line("mem_tag_format", format!("{mem_tag_format:#018x}"));
    text.line("tx_ctx_cnt", contexts(*tx_ctx_cnt));
    text.line("rx_ctx_cnt", contexts(*rx_ctx_cnt));
    text.line("auth_key_size", bytes(auth_key.len()));
}

fn domain_in_full(text: &mut Text, domain: &DomainAttr) {
    let DomainAttr {
        name,
        threading,
        control_progress,
        data_progress,
        resource_mgmt,
        av_type,
        mr_mode,
        mr_key_size_bytes,
        cq_data_size_bytes,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps,
        mode,
        auth_key,
        max_err_data_bytes,
        mr_cnt,
        tclass,
    } = domain;
    text.heading("  domain");
    text.line("name", optional(name.as_deref()));
    text.line("threading", choice(*threading));
    text.line("control_progress", optional(control_progress.map(progress)));
    text.line("data_progress", optional(data_progress.map(progress)));
    text.line("resource_mgmt", choice(*resource_mgmt));
    text.line("av_type", choice(*av_type));
    text.line("mr_mode", names(mr_mode));
    text.line("mr_key_size", bytes(*mr_key_size_bytes));
    text.line("cq_data_size", bytes(*cq_data_size_bytes));
    text.line("cq_cnt", cq_cnt);
    text.line("ep_cnt", ep_cnt);
    text.line("tx_ctx_cnt", tx_ctx_cnt);
    text.line("rx_ctx_cnt", rx_ctx_cnt);
    text.line("max_ep_tx_ctx", max_ep_tx_ctx);
    text.line("max_ep_rx_ctx", max_ep_rx_ctx);
    text.line("max_ep_stx_ctx", max_ep_stx_ctx);
    text.line("max_ep_srx_ctx", max_ep_srx_ctx);
    text.line("cntr_cnt", cntr_cnt);
    text.line("mr_iov_limit", mr_iov_limit);
    text.line("caps", names(caps));
    text.line("mode", names(mode));
    text.line("auth_key_size", bytes(auth_key.len()));
    text.line("max_err_data", bytes(*max_err_data_bytes));
    text.line("mr_cnt", mr_cnt);
    text.line("tclass", tclass);
}

fn fabric_in_full(text: &mut Text, fabric: &FabricAttr) {
    let FabricAttr { name, prov_name, prov_version, api_version } = fabric;
    text.heading("  fabric");
    text.line("name", optional(name.as_deref()));
    text.line("prov_name", prov_name.as_deref().unwrap_or(PROVIDER_NAME));
    text.line("prov_version", prov_version);
    text.line("api_version", api_version);
}

/// Indented lines under headings.
#[derive(Debug)]
struct Text {
    written: String,
    name_width: usize,
}

impl Text {
    fn new(name_width: usize) -> Text {
        Text { written: String::new(), name_width }
    }

    fn heading(&mut self, heading: &str) {
        self.written.push_str(heading);
        self.written.push('\n');
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let Text { written, name_width } = self;
        // Writing to a string does not fail.
        let _ = writeln!(written, "    {name:name_width$}{value}");
    }
}

fn heading(info: &Info) -> String {
    let domain = info.domain.name.as_deref().unwrap_or("any domain");
    let endpoint = optional(info.ep.ep_type.map(endpoint_type));
    let format = info.addr_format.map_or("any address", family);
    let fabric = info.fabric.name.as_deref().unwrap_or("unnamed");
    let provider = info.fabric.prov_name.as_deref().unwrap_or(PROVIDER_NAME);
    let version = info.fabric.prov_version;
    format!("{domain}: {endpoint} over {format} (provider {provider} {version}, fabric {fabric})")
}

fn source(info: &Info) -> String {
    match info.src_addr {
        None => "every interface, a port that the system chooses".into(),
        Some(address) if !address.is_specific() => format!("every interface, {}", port(address)),
        Some(address) => format!("{}, {}", address.ip(), port(address)),
    }
}

fn port(address: Address) -> String {
    match address.port() {
        0 => "a port that the system chooses".into(),
        port => format!("port {port}"),
    }
}

fn family(format: AddressFormat) -> &'static str {
    match format {
        AddressFormat::SockaddrIn => "IPv4",
        AddressFormat::SockaddrIn6 => "IPv6",
    }
}

fn endpoint_type(kind: EndpointType) -> &'static str {
    match kind {
        EndpointType::Msg => "connected messages (FI_EP_MSG)",
        EndpointType::Dgram => "datagrams (FI_EP_DGRAM)",
        EndpointType::Rdm => "reliable messages (FI_EP_RDM)",
    }
}

fn progress(progress: Progress) -> &'static str {
    match progress {
        Progress::Auto => "automatic",
        Progress::Manual => "manual: an application's calls drive it",
        Progress::ControlUnified => "manual: an application's calls drive it, one at a time",
    }
}

fn protocol(ep: &EpAttr) -> String {
    format!("{:#010x} version {}", ep.protocol, ep.protocol_version)
}

fn contexts(count: usize) -> String {
    if count == SHARED_CONTEXT { "shared".into() } else { count.to_string() }
}

/// A number of bytes with its unit.
fn bytes(count: usize) -> String {
    size::with_unit(count as u64)
}

/// The names of the set flags, as the header spells them.
fn names(flags: &impl Flags) -> String {
    names_after("FI_", flags)
}

/// The same for an order.
fn orders(flags: &impl Flags) -> String {
    names_after("FI_ORDER_", flags)
}

fn names_after(prefix: &str, flags: &impl Flags) -> String {
    let mut names: Vec<String> = flags.iter_names().map(|(name, _)| format!("{prefix}{name}")).collect();
    if names.is_empty() {
        names.push("none".into());
    }
    names.join(" ")
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unspecified".into(), |value| value.to_string())
}

/// The name of an enum's variant, in lower case.
fn choice(value: Option<impl Debug>) -> String {
    value.map_or_else(|| "unspecified".into(), |value| format!("{value:?}").to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use homespun::flags::Caps;

    use super::*;

    fn info() -> Info {
        let mut info = Info {
            caps: Caps::MSG | Caps::TAGGED,
            addr_format: Some(AddressFormat::SockaddrIn),
            src_addr: Some(AddressFormat::SockaddrIn.wildcard().with_port(7471)),
            dest_addr: Some(SocketAddr::from(([127, 0, 0, 1], 80)).into()),
            ..Info::default()
        };
        info.domain.name = Some("tcp".into());
        info.ep.ep_type = Some(EndpointType::Rdm);
        info.ep.max_msg_size_bytes = 1 << 20;
        info.tx.inject_size_bytes = 100;
        info
    }

    #[test]
    fn short_form_has_addresses_capabilities_and_limits() {
        let text = in_short(&info());
        assert!(
            text.starts_with("tcp: reliable messages (FI_EP_RDM) over IPv4 (provider homespun "),
            "{text}"
        );
        for line in [
            "    from          every interface, port 7471\n",
            "    to            127.0.0.1:80\n",
            "    capabilities  FI_MSG FI_TAGGED\n",
            "    message       at most 1 MiB, 100 B if injected\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn order_flags_have_their_own_prefix() {
        let mut info = info();
        info.tx.msg_order = homespun::flags::Order::SAS;
        assert!(in_full(&info).contains("    msg_order             FI_ORDER_SAS\n"));
    }

    #[test]
    fn finding_is_shown_with_its_domain() {
        let text = found(&[("shm", "a sentence".into())]);
        assert_eq!(text, "\nfound on this host\n    shm           a sentence\n");
    }

    #[test]
    fn full_form_has_every_part_and_unspecified_attributes() {
        let text = in_full(&info());
        for part in ["\n  transmit\n", "\n  receive\n", "\n  endpoint\n", "\n  domain\n", "\n  fabric\n"] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(text.contains("    mr_mode               none\n"), "{text}");
        assert!(text.contains("    threading             unspecified\n"), "{text}");
    }
}
