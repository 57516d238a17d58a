//! Tests the parameters that environment variables set. A parameter is the default for what the application
//! leaves unspecified.

use std::collections::BTreeSet;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use homespun::error::Unmet;
use homespun::params::{Params, PortRange};
use homespun::{
    Address, AddressFormat, Bytes, BytesMut, CompletionQueue, CqAttr, Endpoint, Errno, Error, Fabric,
    FabricAddress, Hints, Info, Misuse, OpenEndpoint,
};

/// The time that a test waits for an event before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// After this many polls without an event, none is expected any more.
const SILENT_LOOKS: usize = 500;

/// The number of ports of each test.
const PORTS: u16 = 4;

/// Returns the first port of a test. The port is below the system's ephemeral ports, and depends on the
/// process.
fn first_port(test: u16) -> u16 {
    20_000 + (process::id() % 600) as u16 * 20 + 5 * test
}

fn make_fabric_with_ports(test: u16) -> Fabric {
    let ports = PortRange::new(first_port(test)..=first_port(test) + PORTS - 1);
    Fabric::with_params(Params { ports, ..Params::default() })
}

fn open_endpoint(fabric: &Fabric, info: &Info) -> Result<(Endpoint, CompletionQueue), Error> {
    let OpenEndpoint { endpoint, cq, .. } = fabric.domain(info)?.endpoint_builder(info).open()?;
    Ok((endpoint, cq))
}

/// Takes all ports of the range at an address that only this test uses.
fn check_endpoints_take_all_ports_of_the_range(test: u16, domain: &str, node: &str) {
    let fabric = make_fabric_with_ports(test);
    let info = fabric.info(&Hints::new().domain(domain).node(node).source()).unwrap();
    let open = |info: &Info| open_endpoint(&fabric, info).map(|(endpoint, ..)| endpoint);
    let mut endpoints: Vec<Endpoint> = (0..PORTS).map(|_| open(&info).unwrap()).collect();
    let name = |endpoint: &Endpoint| endpoint.name().unwrap();
    let ports: BTreeSet<u16> = endpoints.iter().map(|endpoint| name(endpoint).port()).collect();
    assert_eq!(ports, (first_port(test)..first_port(test) + PORTS).collect());
    let exhausted = open(&info).unwrap_err();
    assert_eq!(exhausted.errno(), Errno::EADDRINUSE, "all are taken");
    let (low, high) = (first_port(test), first_port(test) + PORTS - 1);
    let range = format!("all {PORTS} ports of FI_HOMESPUN_PORTS={low}-{high} are in use");
    assert!(exhausted.to_string().contains(&range), "{exhausted}");
    // The range does not limit ports that the application requests.
    let port = first_port(test) + PORTS;
    let elsewhere = Info { src_addr: info.src_addr.map(|address| address.with_port(port)), ..info.clone() };
    assert_eq!(name(&open(&elsewhere).unwrap()).port(), port);
    let given_up: Address = name(&endpoints.remove(2));
    assert_eq!(name(&open(&info).unwrap()), given_up, "the only one that is free again");
}

#[test]
fn endpoints_take_ports_from_the_range() {
    for (test, domain, node) in
        [(0, "tcp", "127.83.14.7"), (1, "shm", "127.83.14.8"), (3, "auto", "127.83.14.9")]
    {
        check_endpoints_take_all_ports_of_the_range(test, domain, node);
        check_endpoints_take_all_ports_of_the_range(test, domain, "::1");
    }
}

#[test]
fn wildcard_endpoint_takes_a_port_from_the_range() {
    for domain in ["auto", "tcp", "shm"] {
        let fabric = make_fabric_with_ports(2);
        let info = fabric.info(&Hints::new().domain(domain)).unwrap();
        assert!(info.src_addr.is_none_or(|address| !address.is_specific()));
        let (endpoint, ..) = open_endpoint(&fabric, &info).unwrap();
        assert!((first_port(2)..first_port(2) + PORTS).contains(&endpoint.name().unwrap().port()));
    }
}

fn make_fabric_with_interfaces(selector: &str) -> Fabric {
    Fabric::with_params(Params { iface: Some(selector.parse().unwrap()), ..Params::default() })
}

#[test]
fn wildcard_endpoint_reports_an_address_of_the_allowed_interfaces() {
    let fabric = make_fabric_with_interfaces("127.0.0.0/8");
    let infos = fabric.infos(&Hints::new().domain("TCP")).unwrap();
    let formats: Vec<_> = infos.iter().filter_map(|info| info.addr_format).collect();
    assert!(formats.iter().all(|format| *format == AddressFormat::SockaddrIn), "{formats:?}");
    let (endpoint, ..) = open_endpoint(&fabric, &infos[0]).unwrap();
    assert_eq!(endpoint.name().unwrap().ip().to_string(), "127.0.0.1");
}

#[test]
fn specific_address_needs_no_allowed_interface() {
    let fabric = make_fabric_with_interfaces("127.0.0.0/8");
    let hints = Hints::new().domain("tcp").node("::1").source();
    let Ok(info) = fabric.info(&hints) else {
        assert!(Fabric::new().info(&hints).is_err(), "IPv6 is there");
        return;
    };
    let (endpoint, ..) = open_endpoint(&fabric, &info).unwrap();
    assert_eq!(endpoint.name().unwrap().ip().to_string(), "::1");
}

#[test]
fn unmatched_interface_parameter_fails_and_lists_the_interfaces() {
    let fabric = make_fabric_with_interfaces("no-such-interface");
    let error = fabric.info(&Hints::new()).unwrap_err();
    assert!(matches!(error, Error::Misuse(Misuse::NoInterface(_))), "{error:?}");
    assert_eq!(error.errno(), Errno::ENODATA);
    let text = error.to_string();
    assert!(text.starts_with("FI_HOMESPUN_IFACE=no-such-interface matches no interface"), "{text}");
    assert!(text.contains("lo (127.0.0.1"), "{text}");
    // An info of a fabric without this parameter is refused, too.
    let info = Fabric::with_params(Params::default()).info(&Hints::new().domain("tcp")).unwrap();
    let refused = open_endpoint(&fabric, &info).unwrap_err();
    assert_eq!(refused.errno(), Errno::EADDRNOTAVAIL);
}

#[test]
fn getinfo_reports_the_lack_of_an_allowed_interface_of_the_format() {
    let fabric = make_fabric_with_interfaces("127.0.0.0/8");
    let hints = Hints::new().domain("tcp").addr_format(AddressFormat::SockaddrIn6);
    let Err(Error::Misuse(Misuse::Unmet(unmet))) = fabric.info(&hints) else { panic!("IPv6 is allowed") };
    let is_expected = matches!(unmet, Unmet::AllowedInterface(AddressFormat::SockaddrIn6))
        || unmet == Unmet::AddressFormat(AddressFormat::SockaddrIn6);
    assert!(is_expected, "{unmet}");
}

#[test]
fn depth_parameters_apply_unless_hints_give_depths() {
    let params = Params { tx_size_ops: 3, rx_size_ops: 2, cq_size_entries: 5, ..Params::default() };
    let fabric = Fabric::with_params(params);
    let info = fabric.info(&Hints::new().node("127.0.0.1").source()).unwrap();
    assert_eq!((info.tx.size_ops, info.rx.size_ops), (3, 2));
    let (endpoint, cq) = open_endpoint(&fabric, &info).unwrap();
    assert_eq!(cq.depth_entries(), 5);
    let posted = [(); 3].map(|()| endpoint.recv(BytesMut::new(), FabricAddress::UNSPECIFIED, 1));
    assert_eq!(posted.map(|posted| posted.err().map(|full| full.errno())), [None, None, Some(Errno::EAGAIN)]);
    let asked = fabric.info(&Hints::new().tx_size_ops(30).rx_size_ops(20)).unwrap();
    assert_eq!((asked.tx.size_ops, asked.rx.size_ops), (30, 20));
    let domain = fabric.domain(&asked).unwrap();
    let attr = CqAttr { size_entries: 50, ..CqAttr::default() };
    assert_eq!(domain.open_cq(&attr).unwrap().depth_entries(), 50);
}

#[test]
fn message_beyond_the_eager_limit_waits_for_its_receiver() {
    for (eager_bytes, leaves_at_once) in [(9, false), (10, true)] {
        let fabric = Fabric::with_params(Params { eager_bytes, ..Params::default() });
        let hints = Hints::new().domain("tcp").node("127.0.0.1").source();
        let [alice, bob] = [(); 2].map(|()| fabric.open_endpoint(&hints).unwrap());
        let to_alice = bob.av.insert_one(alice.endpoint.name().unwrap()).unwrap();
        bob.endpoint.send(Bytes::from_static(b"ten bytes."), to_alice, 7).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut looks = 0;
        while bob.cq.read().unwrap().is_none() {
            looks += 1;
            if !leaves_at_once && looks > SILENT_LOOKS {
                alice.cq.progress();
            }
            assert!(Instant::now() < deadline, "the message does not leave");
            thread::yield_now();
        }
        assert!(leaves_at_once || looks > SILENT_LOOKS, "a long message has left at once");
    }
}
