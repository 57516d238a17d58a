//! An [`Info`] as text.

use std::fmt::{Debug, Display, Write};

use bitflags::Flags;
use homespun::info::{
    DomainAttr, EndpointType, EpAttr, FabricAttr, Info, PROVIDER_NAME, Progress, RxAttr, SHARED_CONTEXT,
    TxAttr,
};
use homespun::{Address, AddressFormat};

use crate::console::wrap;
use crate::size;

/// The indentation of lines, in characters.
const INDENT: usize = 4;

/// The width of line names, in characters.
const SHORT_NAME_WIDTH: usize = 14;

/// The width of attribute names, in characters.
const FULL_NAME_WIDTH: usize = 22;

/// The attributes by which users choose an endpoint: addresses, capabilities and limits.
pub(super) fn render_short(info: &Info) -> String {
    let mut text = Text::new(SHORT_NAME_WIDTH);
    text.add_heading(&format_heading(info));
    text.add_line("from", describe_source(info));
    if let Some(peer) = info.dest_addr {
        text.add_line("to", peer);
    }
    let FabricAttr { name, prov_version, .. } = &info.fabric;
    let fabric = or_unspecified(name.as_deref());
    text.add_line("provider", format!("{PROVIDER_NAME} {prov_version}, fabric {fabric}"));
    text.add_line("protocol", format_protocol_number_and_version(&info.ep));
    text.add_line("capabilities", format_flags(&info.caps));
    let Info { tx, rx, ep, .. } = info;
    let (message, inject) = (format_bytes(ep.max_msg_size_bytes), format_bytes(tx.inject_size_bytes));
    text.add_line("message", format!("at most {message}, {inject} if injected"));
    text.add_line("depth", format!("{} sends, {} receives", tx.size_ops, rx.size_ops));
    text.add_line("iov", format!("{} segments to send from, {} to receive to", tx.iov_limit, rx.iov_limit));
    text.add_line("progress", or_unspecified(info.domain.data_progress.map(describe_progress)));
    text.written
}

/// The findings about this host, each with the domain that it concerns.
pub(super) fn render_findings(findings: &[(&str, String)]) -> String {
    let mut text = Text::new(SHORT_NAME_WIDTH);
    text.add_heading("found on this host");
    for (domain, finding) in findings {
        text.add_line(domain, finding);
    }
    text.written
}

/// Every attribute of an info.
pub(super) fn render_full(info: &Info) -> String {
    let Info { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric } = info;
    let mut text = Text::new(FULL_NAME_WIDTH);
    text.add_heading(&format_heading(info));
    text.add_line("caps", format_flags(caps));
    text.add_line("mode", format_flags(mode));
    text.add_line("addr_format", or_unspecified(addr_format.map(family_name)));
    text.add_line("src_addr", or_unspecified(*src_addr));
    text.add_line("dest_addr", or_unspecified(*dest_addr));
    render_transmit(&mut text, tx);
    render_receive(&mut text, rx);
    render_endpoint(&mut text, ep);
    render_full_domain(&mut text, domain);
    render_full_fabric(&mut text, fabric);
    text.written
}

fn render_transmit(text: &mut Text, tx: &TxAttr) {
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
    text.add_heading("  transmit");
    text.add_line("caps", format_flags(caps));
    text.add_line("mode", format_flags(mode));
    text.add_line("op_flags", format_flags(op_flags));
    text.add_line("msg_order", format_order_flags(msg_order));
    text.add_line("comp_order", format_order_flags(comp_order));
    text.add_line("inject_size", format_bytes(*inject_size_bytes));
    text.add_line("size", size_ops);
    text.add_line("iov_limit", iov_limit);
    text.add_line("rma_iov_limit", rma_iov_limit);
    text.add_line("tclass", tclass);
}

fn render_receive(text: &mut Text, rx: &RxAttr) {
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
    text.add_heading("  receive");
    text.add_line("caps", format_flags(caps));
    text.add_line("mode", format_flags(mode));
    text.add_line("op_flags", format_flags(op_flags));
    text.add_line("msg_order", format_order_flags(msg_order));
    text.add_line("comp_order", format_order_flags(comp_order));
    text.add_line("total_buffered_recv", format_bytes(*total_buffered_recv_bytes));
    text.add_line("size", size_ops);
    text.add_line("iov_limit", iov_limit);
}

fn render_endpoint(text: &mut Text, ep: &EpAttr) {
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
    text.add_heading("  endpoint");
    text.add_line("type", or_unspecified(ep_type.map(describe_endpoint_type)));
    text.add_line("protocol", format_protocol_number_and_version(ep));
    text.add_line("max_msg_size", format_bytes(*max_msg_size_bytes));
    text.add_line("msg_prefix_size", format_bytes(*msg_prefix_size_bytes));
    text.add_line("max_order_raw_size", format_bytes(*max_order_raw_size_bytes));
    text.add_line("max_order_war_size", format_bytes(*max_order_war_size_bytes));
    text.add_line("max_order_waw_size", format_bytes(*max_order_waw_size_bytes));
    text.add_line("mem_tag_format", format!("{mem_tag_format:#018x}"));
    text.add_line("tx_ctx_cnt", format_context_count(*tx_ctx_cnt));
    text.add_line("rx_ctx_cnt", format_context_count(*rx_ctx_cnt));
    text.add_line("auth_key_size", format_bytes(auth_key.len()));
}

fn render_full_domain(text: &mut Text, domain: &DomainAttr) {
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
    text.add_heading("  domain");
    text.add_line("name", or_unspecified(name.as_deref()));
    text.add_line("threading", variant_name(*threading));
    text.add_line("control_progress", or_unspecified(control_progress.map(describe_progress)));
    text.add_line("data_progress", or_unspecified(data_progress.map(describe_progress)));
    text.add_line("resource_mgmt", variant_name(*resource_mgmt));
    text.add_line("av_type", variant_name(*av_type));
    text.add_line("mr_mode", format_flags(mr_mode));
    text.add_line("mr_key_size", format_bytes(*mr_key_size_bytes));
    text.add_line("cq_data_size", format_bytes(*cq_data_size_bytes));
    text.add_line("cq_cnt", cq_cnt);
    text.add_line("ep_cnt", ep_cnt);
    text.add_line("tx_ctx_cnt", tx_ctx_cnt);
    text.add_line("rx_ctx_cnt", rx_ctx_cnt);
    text.add_line("max_ep_tx_ctx", max_ep_tx_ctx);
    text.add_line("max_ep_rx_ctx", max_ep_rx_ctx);
    text.add_line("max_ep_stx_ctx", max_ep_stx_ctx);
    text.add_line("max_ep_srx_ctx", max_ep_srx_ctx);
    text.add_line("cntr_cnt", cntr_cnt);
    text.add_line("mr_iov_limit", mr_iov_limit);
    text.add_line("caps", format_flags(caps));
    text.add_line("mode", format_flags(mode));
    text.add_line("auth_key_size", format_bytes(auth_key.len()));
    text.add_line("max_err_data", format_bytes(*max_err_data_bytes));
    text.add_line("mr_cnt", mr_cnt);
    text.add_line("tclass", tclass);
}

fn render_full_fabric(text: &mut Text, fabric: &FabricAttr) {
    let FabricAttr { name, prov_name, prov_version, api_version } = fabric;
    text.add_heading("  fabric");
    text.add_line("name", or_unspecified(name.as_deref()));
    text.add_line("prov_name", prov_name.as_deref().unwrap_or(PROVIDER_NAME));
    text.add_line("prov_version", prov_version);
    text.add_line("api_version", api_version);
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

    fn add_heading(&mut self, heading: &str) {
        self.written.push_str(heading);
        self.written.push('\n');
    }

    fn add_line(&mut self, name: &str, value: impl Display) {
        let Text { written, name_width } = self;
        let indent = " ".repeat(INDENT + *name_width);
        let value = wrap(&value.to_string(), &format!("{:INDENT$}{name:name_width$}", ""), &indent);
        // Writing to a string does not fail.
        let _ = writeln!(written, "{value}");
    }
}

fn format_heading(info: &Info) -> String {
    let domain = info.domain.name.as_deref().unwrap_or("any domain");
    let endpoint = or_unspecified(info.ep.ep_type.map(describe_endpoint_type));
    let format = info.addr_format.map_or("any address", family_name);
    format!("{domain}: {endpoint} over {format}")
}

fn describe_source(info: &Info) -> String {
    match info.src_addr {
        None => "every interface, a port that the system chooses".into(),
        Some(address) if !address.is_specific() => format!("every interface, {}", describe_port(address)),
        Some(address) => format!("{}, {}", address.ip(), describe_port(address)),
    }
}

fn describe_port(address: Address) -> String {
    match address.port() {
        0 => "a port that the system chooses".into(),
        port => format!("port {port}"),
    }
}

/// A short name of an address format.
pub(super) fn family_name(format: AddressFormat) -> &'static str {
    match format {
        AddressFormat::SockaddrIn => "IPv4",
        AddressFormat::SockaddrIn6 => "IPv6",
    }
}

fn describe_endpoint_type(kind: EndpointType) -> &'static str {
    match kind {
        EndpointType::Msg => "connected messages (FI_EP_MSG)",
        EndpointType::Dgram => "datagrams (FI_EP_DGRAM)",
        EndpointType::Rdm => "reliable messages (FI_EP_RDM)",
    }
}

/// The name of an endpoint type in C.
pub(super) fn endpoint_type_name(kind: EndpointType) -> &'static str {
    match kind {
        EndpointType::Msg => "FI_EP_MSG",
        EndpointType::Dgram => "FI_EP_DGRAM",
        EndpointType::Rdm => "FI_EP_RDM",
    }
}

fn describe_progress(progress: Progress) -> &'static str {
    match progress {
        Progress::Auto => "automatic",
        Progress::Manual => "manual: an application's calls drive it",
        Progress::ControlUnified => "manual: an application's calls drive it, one at a time",
    }
}

fn format_protocol_number_and_version(ep: &EpAttr) -> String {
    format!("{:#010x} version {}", ep.protocol, ep.protocol_version)
}

fn format_context_count(count: usize) -> String {
    if count == SHARED_CONTEXT { "shared".into() } else { count.to_string() }
}

/// A number of bytes with its unit.
fn format_bytes(count: usize) -> String {
    size::format_with_unit(count as u64)
}

/// The names of the set flags, as libfabric's header spells them.
fn format_flags(flags: &impl Flags) -> String {
    prefixed_flag_names("FI_", flags)
}

/// The names of the set flags of an ordering (`FI_ORDER_*`).
fn format_order_flags(flags: &impl Flags) -> String {
    prefixed_flag_names("FI_ORDER_", flags)
}

fn prefixed_flag_names(prefix: &str, flags: &impl Flags) -> String {
    let mut names: Vec<String> = flags.iter_names().map(|(name, _)| format!("{prefix}{name}")).collect();
    if names.is_empty() {
        names.push("none".into());
    }
    names.join(" ")
}

fn or_unspecified(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unspecified".into(), |value| value.to_string())
}

/// The name of an enum's variant, in lower case.
fn variant_name(value: Option<impl Debug>) -> String {
    value.map_or_else(|| "unspecified".into(), |value| format!("{value:?}").to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use homespun::flags::Caps;

    use super::*;

    fn make_info() -> Info {
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
        let text = render_short(&make_info());
        assert!(text.starts_with("tcp: reliable messages (FI_EP_RDM) over IPv4\n"), "{text}");
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
        let mut info = make_info();
        info.tx.msg_order = homespun::flags::Order::SAS;
        assert!(render_full(&info).contains("    msg_order             FI_ORDER_SAS\n"));
    }

    #[test]
    fn finding_is_shown_with_its_domain() {
        let text = render_findings(&[("shm", "a sentence".into())]);
        assert_eq!(text, "found on this host\n    shm           a sentence\n");
    }

    #[test]
    fn full_form_has_every_part_and_unspecified_attributes() {
        let text = render_full(&make_info());
        for part in ["\n  transmit\n", "\n  receive\n", "\n  endpoint\n", "\n  domain\n", "\n  fabric\n"] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(text.contains("    mr_mode               none\n"), "{text}");
        assert!(text.contains("    threading             unspecified\n"), "{text}");
    }
}
