//! The interfaces of the host's default routes, from the kernel's routing tables.

use std::fs;

use homespun_engine::address::AddressFormat;

/// The routing tables in the `proc` file system (`proc(5)`).
const IPV4_TABLE: &str = "/proc/net/route";
const IPV6_TABLE: &str = "/proc/net/ipv6_route";

/// Flags of a route (`linux/route.h`): `UP` for a usable route, `REJECT` for a route that refuses all
/// packets.
const RTF_UP: u32 = 0x1;
const RTF_REJECT: u32 = 0x200;

/// The interfaces of all default routes of this format, in the kernel's order of preference. Empty if there
/// is no default route, or if the table cannot be read.
pub(crate) fn default_route_interfaces(format: AddressFormat) -> Vec<String> {
    match format {
        AddressFormat::SockaddrIn => interfaces_by_metric(&read_table(IPV4_TABLE), parse_ipv4_line),
        AddressFormat::SockaddrIn6 => interfaces_by_metric(&read_table(IPV6_TABLE), parse_ipv6_line),
    }
}

/// A default route.
struct DefaultRoute<'a> {
    /// The kernel prefers the route with the smallest metric.
    metric: u32,
    interface: &'a str,
}

fn read_table(table: &str) -> String {
    // A host without IPv6 has no table for IPv6, and a sandbox may hide both tables.
    fs::read_to_string(table).unwrap_or_default()
}

fn interfaces_by_metric<'a>(
    table: &'a str,
    parse: impl Fn(&'a str) -> Option<DefaultRoute<'a>>,
) -> Vec<String> {
    let mut routes: Vec<DefaultRoute<'_>> = table.lines().filter_map(parse).collect();
    routes.sort_by_key(|route| route.metric);
    routes.into_iter().map(|route| route.interface.to_owned()).collect()
}

/// Parses a line of `/proc/net/route`: interface, destination, gateway, flags, references, uses, metric,
/// mask and others. `None` if the line is not a usable default route.
fn parse_ipv4_line(line: &str) -> Option<DefaultRoute<'_>> {
    let mut words = line.split_whitespace();
    let interface = words.next()?;
    let destination = parse_hexadecimal(words.next()?)?;
    let flags = parse_hexadecimal(words.nth(1)?)?;
    // Unlike the other numbers, the metric is decimal.
    let metric = words.nth(2)?.parse().ok()?;
    let mask = parse_hexadecimal(words.next()?)?;
    (destination == 0 && mask == 0 && is_usable(flags)).then_some(DefaultRoute { metric, interface })
}

/// Parses a line of `/proc/net/ipv6_route`: destination, its prefix length, source, its prefix length, next
/// hop, metric, references, uses, flags, interface. `None` if the line is not a usable default route.
fn parse_ipv6_line(line: &str) -> Option<DefaultRoute<'_>> {
    let mut words = line.split_whitespace();
    let destination = u128::from_str_radix(words.next()?, 16).ok()?;
    let prefix_len = parse_hexadecimal(words.next()?)?;
    let metric = parse_hexadecimal(words.nth(3)?)?;
    let flags = parse_hexadecimal(words.nth(2)?)?;
    let interface = words.next()?;
    (destination == 0 && prefix_len == 0 && is_usable(flags)).then_some(DefaultRoute { metric, interface })
}

fn parse_hexadecimal(word: &str) -> Option<u32> {
    u32::from_str_radix(word, 16).ok()
}

fn is_usable(flags: u32) -> bool {
    flags & (RTF_UP | RTF_REJECT) == RTF_UP
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
tun0\t00000000\t0108000A\t0003\t0\t0\t50\t00000080\t0\t0\t0
eth1\t00000000\t0101A8C0\t0002\t0\t0\t1\t00000000\t0\t0\t0
*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
";

    const IPV6: &str = "\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 \
00000100 00000001 00000000 00000001     eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 \
00000400 00000002 00000000 00000003     wlan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 \
00000064 00000002 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 \
ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn ipv4_default_routes_are_ordered_by_metric() {
        assert_eq!(interfaces_by_metric(IPV4, parse_ipv4_line), ["eth0", "wlan0"]);
    }

    #[test]
    fn ipv6_default_routes_are_ordered_by_metric() {
        assert_eq!(interfaces_by_metric(IPV6, parse_ipv6_line), ["eth0", "wlan0"]);
    }

    #[test]
    fn malformed_line_is_no_route() {
        let ipv4 = IPV4.lines().nth(3).expect("a default route");
        let ipv6 = IPV6.lines().nth(2).expect("a default route");
        assert!(parse_ipv4_line(ipv4).is_some() && parse_ipv6_line(ipv6).is_some());
        // In the IPv4 line, columns after the mask do not matter. In the IPv6 line, the interface is last.
        let mask_end = ipv4.rfind("\t0\t0\t0").expect("its end");
        for end in 0..mask_end - "0000000".len() {
            assert!(parse_ipv4_line(&ipv4[..end]).is_none(), "{:?}", &ipv4[..end]);
        }
        for end in 0..ipv6.len() - "eth0".len() {
            assert!(parse_ipv6_line(&ipv6[..end]).is_none(), "{:?}", &ipv6[..end]);
        }
        for (good, bad) in [("0003", "x003"), ("100", "-1"), ("0101A8C0\t0003", "0003")] {
            assert!(parse_ipv4_line(&ipv4.replace(good, bad)).is_none(), "{bad}");
        }
        assert!(parse_ipv6_line(&ipv6.replace("00000064", "100000064")).is_none());
    }
}
