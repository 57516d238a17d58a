use std::collections::BTreeMap;
use std::net::SocketAddr;

use homespun_engine::errno::Errno;
use proptest::prelude::*;

use super::*;

fn open_vector() -> AddressVector {
    AddressVector::open(&AvAttr::default(), AddressFormat::SockaddrIn, DomainId::allocate())
        .expect("a vector")
}

fn parse_address(text: &str) -> Address {
    Address::from(text.parse::<SocketAddr>().expect("a socket address"))
}

fn make_peer_address(port: u16) -> Address {
    Address::from(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn insert_ports(av: &AddressVector, ports: &[u16]) -> Vec<u64> {
    let peers: Vec<Address> = ports.iter().map(|&port| make_peer_address(port)).collect();
    av.insert(&peers).into_iter().map(|result| result.expect("a good address").0).collect()
}

#[test]
fn refused_address_leaves_its_index_unused() {
    let av = open_vector();
    let mixed = [
        make_peer_address(10),
        parse_address("[::1]:10"),
        parse_address("0.0.0.0:10"),
        make_peer_address(0),
        make_peer_address(14),
    ];
    let results = av.insert(&mixed);
    assert_eq!(results[0], Ok(FabricAddress(0)));
    for (index, why) in [(1, "format"), (2, "wildcard"), (3, "port")] {
        let error = results[index].clone().expect_err("a bad address");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(av.lookup(FabricAddress(index as u64)).unwrap_err().errno(), Errno::EINVAL);
    }
    assert_eq!(results[4], Ok(FabricAddress(4)));
    assert_eq!(insert_ports(&av, &[11]), [1], "an unused index is the lowest that is free");
    let all_bad = open_vector();
    assert!(all_bad.insert(&[make_peer_address(0)]).iter().all(Result::is_err));
    assert_eq!(insert_ports(&all_bad, &[10]), [0]);
}

#[test]
fn removal_ignores_addresses_that_are_not_there() {
    let av = open_vector();
    insert_ports(&av, &[10, 11]);
    let absent = [5, FabricAddress::UNSPECIFIED.0, 1 << 40].map(FabricAddress);
    av.remove(&absent);
    av.remove(&[]);
    assert_eq!(av.len(), 2);
    av.remove(&[FabricAddress(0), FabricAddress(0), absent[0]]);
    assert_eq!(av.len(), 1);
}

#[test]
fn insert_svc_inserts_an_address_of_the_vectors_format() {
    let av = open_vector();
    let inserted = av.insert_svc("127.0.0.1", "7471").expect("a numeric address");
    assert_eq!(av.lookup(inserted), Ok(make_peer_address(7471)));
    let named = av.insert_svc("localhost", "7472").expect("localhost has an IPv4 address");
    assert_eq!(av.lookup(named).map(|address| address.port()), Ok(7472));
    assert_eq!(av.insert_svc("::1", "7471").unwrap_err().errno(), Errno::ENODATA);
    assert_eq!(av.insert_svc("127.0.0.1", "0").unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(av.len(), 2);
}

#[test]
fn every_change_of_an_address_vector_gives_a_new_version() {
    let av = open_vector();
    let fresh = av.version();
    insert_ports(&av, &[10]);
    let filled = av.version();
    assert_ne!(fresh, filled);
    assert_eq!(av.lookup(FabricAddress(0)), Ok(make_peer_address(10)));
    assert_eq!(av.version(), filled);
    av.clone().remove(&[FabricAddress(0)]);
    assert_ne!(av.version(), filled, "a clone is the same vector");
}

/// Shows fi_av/asynchronous-insertion.
#[test]
fn opening_with_unsupported_attribute_is_refused() {
    let open = |attr: AvAttr| AddressVector::open(&attr, AddressFormat::SockaddrIn, DomainId::allocate());
    let none = AvAttr::default();
    let unsupported = [
        AvAttr { name: Some("shared".into()), ..none.clone() },
        AvAttr { flags: AvFlags::EVENT, ..none.clone() },
    ];
    for attr in unsupported {
        assert_eq!(open(attr.clone()).unwrap_err().errno(), Errno::ENOSYS, "{attr:?}");
    }
    let ignored = AvAttr { flags: AvFlags::READ, rx_ctx_bits: 16, ..none.clone() };
    assert!(open(ignored).is_ok(), "there is nothing to share, and one receive context");
    let unknown = AvAttr { flags: AvFlags::from_bits_retain(1), ..none.clone() };
    assert_eq!(open(unknown).unwrap_err().errno(), Errno::EBADFLAGS);
    let map = AvAttr { av_type: Some(AvType::Map), flags: AvFlags::SYMMETRIC, ..none.clone() };
    assert_eq!(open(map).expect("a map").av_type(), AvType::Map);
    let huge = AvAttr { count: usize::MAX, ..none };
    assert_eq!(open(huge).expect("the count is a hint").av_type(), AvType::Table);
}

#[test]
fn straddr_prints_the_format_before_the_address() {
    assert_eq!(straddr(make_peer_address(5000)), "fi_sockaddr_in://127.0.0.1:5000");
    assert_eq!(straddr(parse_address("[::1]:5000")), "fi_sockaddr_in6://[::1]:5000");
}

/// A step of a random test. Ports and indices come from small ranges, so that steps often use the same
/// ones.
#[derive(Debug, Clone)]
enum Step {
    /// Port 0 is refused.
    Insert(Vec<u16>),
    Remove(Vec<u64>),
}

fn arbitrary_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop::collection::vec(0_u16..6, 0..5).prop_map(Step::Insert),
        prop::collection::vec(0_u64..12, 0..4).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..40)
}

/// A model of the vector: a plain map in which every lookup searches.
#[derive(Default)]
struct Model(BTreeMap<u64, Address>);

impl Model {
    fn insert(&mut self, ports: &[u16]) -> Vec<Option<u64>> {
        let vacant: Vec<u64> = (0..).filter(|index| !self.0.contains_key(index)).take(ports.len()).collect();
        let insert = |(&port, index)| {
            (port != 0).then(|| self.0.insert(index, make_peer_address(port))).map(|_| index)
        };
        ports.iter().zip(vacant).map(insert).collect()
    }

    fn remove(&mut self, indices: &[u64]) {
        self.0.retain(|index, _| !indices.contains(index));
    }

    fn reverse_lookup(&self, address: Address) -> Option<u64> {
        self.0.iter().find(|&(_, &known)| known == address).map(|(&index, _)| index)
    }
}

proptest! {
    #[test]
    fn address_vector_agrees_with_a_map_model(steps in arbitrary_steps()) {
        let av = open_vector();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Insert(ports) => {
                    let peers: Vec<Address> = ports.iter().map(|&port| make_peer_address(port)).collect();
                    let inserted = av.insert(&peers).into_iter();
                    let inserted = inserted.map(|result| result.ok().map(|address| address.0));
                    prop_assert_eq!(inserted.collect::<Vec<_>>(), model.insert(&ports));
                }
                Step::Remove(indices) => {
                    let addresses: Vec<_> = indices.iter().map(|&index| FabricAddress(index)).collect();
                    av.remove(&addresses);
                    model.remove(&indices);
                }
            }
            prop_assert_eq!(av.len(), model.0.len());
            for index in 0..24 {
                prop_assert_eq!(av.lookup(FabricAddress(index)).ok(), model.0.get(&index).copied());
            }
            for port in 0..6 {
                let peer = make_peer_address(port);
                let found = av.reverse_lookup(&peer).map(|address| address.0);
                prop_assert_eq!(found, model.reverse_lookup(peer));
            }
        }
    }
}
