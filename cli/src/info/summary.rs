//! What each domain offers, as a table.

use homespun::flags::Caps;
use homespun::info::Info;

use super::render;
use crate::plain_table::{new_table, render_table};
use crate::size;

const HEADING: [&str; 6] = ["domain", "endpoints", "addresses", "reaches", "message", "injected"];

/// The number of columns of words, before those of numbers.
const WORDS: usize = 4;

/// A table with a row for each domain, in the order of the infos.
pub(super) fn render_summary(infos: &[Info]) -> String {
    let mut domains: Vec<(&str, Vec<&Info>)> = Vec::new();
    for info in infos {
        let name = info.domain.name.as_deref().unwrap_or("any");
        match domains.iter_mut().find(|(known, _)| *known == name) {
            Some((_, infos)) => infos.push(info),
            None => domains.push((name, vec![info])),
        }
    }
    let mut table = new_table(HEADING, WORDS);
    for (name, infos) in domains {
        let reaches_others = infos.iter().any(|info| info.caps.contains(Caps::REMOTE_COMM));
        let largest = |bytes: fn(&Info) -> usize| {
            let bytes = infos.iter().map(|info| bytes(info)).max().unwrap_or_default();
            size::format_with_unit(bytes as u64)
        };
        table.add_row([
            name.to_owned(),
            join_distinct(infos.iter().filter_map(|info| info.ep.ep_type).map(render::endpoint_type_name)),
            join_distinct(infos.iter().filter_map(|info| info.addr_format).map(render::family_name)),
            if reaches_others { "other hosts" } else { "this host" }.to_owned(),
            largest(|info| info.ep.max_msg_size_bytes),
            largest(|info| info.tx.inject_size_bytes),
        ]);
    }
    render_table(&table)
}

/// The different words, in the order of their first occurrence.
fn join_distinct<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut distinct = Vec::new();
    for word in words {
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct.join(", ")
}

#[cfg(test)]
mod tests {
    use homespun::AddressFormat;
    use homespun::info::EndpointType;

    use super::*;

    fn make_info(domain: &str, ep_type: EndpointType, format: AddressFormat) -> Info {
        let mut info = Info { addr_format: Some(format), ..Info::default() };
        info.domain.name = Some(domain.into());
        info.ep.ep_type = Some(ep_type);
        info.ep.max_msg_size_bytes = 1 << 40;
        info.tx.inject_size_bytes = 4096;
        if domain == "tcp" {
            info.caps = Caps::REMOTE_COMM;
        }
        info
    }

    #[test]
    fn summary_has_a_row_for_each_domain() {
        let infos = [
            make_info("tcp", EndpointType::Rdm, AddressFormat::SockaddrIn),
            make_info("shm", EndpointType::Rdm, AddressFormat::SockaddrIn),
            make_info("tcp", EndpointType::Rdm, AddressFormat::SockaddrIn6),
            make_info("tcp", EndpointType::Msg, AddressFormat::SockaddrIn),
        ];
        let rows: Vec<String> = render_summary(&infos)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows,
            [
                "domain endpoints addresses reaches message injected",
                "tcp FI_EP_RDM, FI_EP_MSG IPv4, IPv6 other hosts 1 TiB 4 KiB",
                "shm FI_EP_RDM IPv4 this host 1 TiB 4 KiB",
            ]
        );
    }
}
