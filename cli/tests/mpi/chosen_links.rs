//! Which transports endpoints of the domain `auto` have chosen for their links. homespun's log tells.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The variables that make the ranks log their links.
pub(crate) const LOGGING: [(&str, &str); 2] = [("FI_LOG_LEVEL", "debug"), ("FI_LOG_PROV", "homespun")];

/// The transport that an endpoint has chosen for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chosen {
    SharedMemory,
    Tcp,
}

/// The endpoints of some ranks, and the transports of the links between each two endpoints.
#[derive(Debug)]
pub(crate) struct ChosenLinks {
    endpoints: BTreeSet<SocketAddr>,
    between: BTreeMap<[SocketAddr; 2], BTreeSet<Chosen>>,
}

impl ChosenLinks {
    /// Reads the log of each rank, which must have one endpoint.
    #[track_caller]
    pub(crate) fn parse(logs: &[String]) -> ChosenLinks {
        let mut links = ChosenLinks { endpoints: BTreeSet::new(), between: BTreeMap::new() };
        for log in logs {
            let addresses: Vec<&str> = find_values(log, " listening ", "address=").collect();
            let [own] = addresses[..] else { panic!("not one endpoint, but at {addresses:?}") };
            let own = own.parse().expect("an address");
            links.endpoints.insert(own);
            let to = find_values(log, " chosen ", "to=");
            for (to, carried) in to.zip(find_values(log, " chosen ", "carried=")) {
                let chosen = match carried.split('(').next() {
                    Some("Near") => Chosen::SharedMemory,
                    Some("Far") => Chosen::Tcp,
                    _ => panic!("neither near nor far: {carried}"),
                };
                let mut ends = [own, to.parse().expect("an address")];
                ends.sort_unstable();
                links.between.entry(ends).or_default().insert(chosen);
            }
            // A link that waits at a full backlog may later move to TCP.
            let moved = find_values(log, " moved to TCP ", "to=");
            assert_eq!(moved.count(), 0, "a link has left shared memory");
        }
        links
    }

    /// Fails the test unless each address has the expected number of endpoints, and each pair of
    /// endpoints has links. Links must use shared memory if both endpoints have the same IP address,
    /// otherwise TCP.
    #[track_caller]
    pub(crate) fn assert_near_if_same_host(&self, expected: &[(&str, usize)]) {
        let mut counts = BTreeMap::new();
        for endpoint in &self.endpoints {
            *counts.entry(endpoint.ip().to_string()).or_insert(0) += 1;
        }
        let expected = expected.iter().map(|&(address, count)| (address.to_owned(), count));
        assert_eq!(counts, expected.collect(), "the endpoints at each address");
        for &one in &self.endpoints {
            for &other in self.endpoints.range(one..).skip(1) {
                let is_near = one.ip() == other.ip();
                let chosen = if is_near { Chosen::SharedMemory } else { Chosen::Tcp };
                let expected = BTreeSet::from([chosen]);
                assert_eq!(self.between.get(&[one, other]), Some(&expected), "{one} and {other}: {self:#?}");
            }
        }
    }
}

/// The values of a field in the lines that contain a message.
fn find_values<'a>(log: &'a str, message: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = log.lines().filter(move |line| line.contains(message));
    lines.filter_map(move |line| line.split(' ').find_map(|word| word.strip_prefix(field)))
}
