//! The interfaces that a user allows: names, networks and exclusions.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Which interfaces' addresses an endpoint may give to its peers.
///
/// The text form is a list separated by commas: names of interfaces (`eth0`), networks (`10.0.0.0/8`) and
/// addresses (`10.0.0.7`), the most preferred first. A `^` before an element excludes this element and all
/// later elements, as in Open MPI and UCX. So `^docker0,10.8.0.0/16` excludes both elements, and
/// `eth0,eth1,^fd00::/8` allows two interfaces without their addresses in `fd00::/8`. If a list only
/// excludes, all other interfaces are allowed.
///
/// ```
/// use homespun_tcp::InterfaceSelector;
///
/// let selector: InterfaceSelector = "eth0,10.0.0.0/8,^docker0".parse().unwrap();
/// assert_eq!(selector.to_string(), "eth0,10.0.0.0/8,^docker0");
/// assert!("10.0.0.0/33".parse::<InterfaceSelector>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSelector {
    text: String,
    included: Vec<Pattern>,
    excluded: Vec<Pattern>,
}

/// What one element of the list stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Network(IpNet),
}

/// Why a text is no [`InterfaceSelector`]. The message says what the text should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceSelectorError {
    /// An element of the list is empty.
    #[error("a list of names and networks without empty elements")]
    EmptyElement,
    /// An element contains a slash, but is no network.
    #[error("a list of names and networks: {0:?} is no network such as 10.0.0.0/8")]
    Network(String),
}

impl InterfaceSelector {
    /// Returns the rank of an interface's address among the allowed addresses: 0 for the most preferred.
    /// `None` if the selector does not allow the address.
    pub(crate) fn rank(&self, name: &str, address: IpAddr) -> Option<usize> {
        let matches = |pattern: &Pattern| match pattern {
            Pattern::Name(wanted) => wanted == name,
            Pattern::Network(network) => network.contains(&address),
        };
        if self.excluded.iter().any(matches) {
            return None;
        }
        if self.included.is_empty() { Some(0) } else { self.included.iter().position(matches) }
    }
}

impl FromStr for InterfaceSelector {
    type Err = InterfaceSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut selector =
            InterfaceSelector { text: text.trim().into(), included: Vec::new(), excluded: Vec::new() };
        let mut excludes = false;
        for element in text.split(',').map(str::trim) {
            let element = match element.strip_prefix('^') {
                Some(rest) => {
                    excludes = true;
                    rest.trim_start()
                }
                None => element,
            };
            let list = if excludes { &mut selector.excluded } else { &mut selector.included };
            list.push(element.parse()?);
        }
        Ok(selector)
    }
}

impl FromStr for Pattern {
    type Err = InterfaceSelectorError;

    fn from_str(element: &str) -> Result<Self, Self::Err> {
        if element.is_empty() {
            return Err(InterfaceSelectorError::EmptyElement);
        }
        if let Ok(address) = element.parse::<IpAddr>() {
            return Ok(Pattern::Network(address.into()));
        }
        // No name of an interface contains a slash.
        if element.contains('/') {
            let network = element.parse().map_err(|_| InterfaceSelectorError::Network(element.into()))?;
            return Ok(Pattern::Network(network));
        }
        Ok(Pattern::Name(element.into()))
    }
}

impl fmt::Display for InterfaceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(selector: &str, name: &str, address: &str) -> Option<usize> {
        let selector: InterfaceSelector = selector.parse().expect("a selector");
        selector.rank(name, address.parse().expect("an address"))
    }

    #[test]
    fn names_and_networks_rank_in_their_order() {
        let selector = "eth1, 10.0.0.0/8,fd00::7";
        assert_eq!(rank(selector, "eth1", "192.0.2.1"), Some(0));
        assert_eq!(rank(selector, "eth0", "10.1.2.3"), Some(1));
        assert_eq!(rank(selector, "eth0", "fd00::7"), Some(2));
        assert_eq!(rank(selector, "eth0", "fd00::8"), None);
        assert_eq!(rank(selector, "eth10", "192.0.2.1"), None, "a name is not a prefix");
    }

    #[test]
    fn network_with_host_bits_is_the_whole_network() {
        assert_eq!(rank("10.1.2.3/8", "eth0", "10.9.9.9"), Some(0));
        assert_eq!(rank("0.0.0.0/0", "eth0", "fd00::1"), None, "the other family");
    }

    #[test]
    fn exclusion_covers_the_rest_of_the_list() {
        for selector in ["^docker0,10.8.0.0/16", "^docker0,^10.8.0.0/16"] {
            assert_eq!(rank(selector, "docker0", "172.17.0.1"), None, "{selector}");
            assert_eq!(rank(selector, "tun0", "10.8.0.2"), None, "{selector}");
            assert_eq!(rank(selector, "eth0", "192.0.2.1"), Some(0), "{selector}");
        }
        assert_eq!(rank("eth0,^10.0.0.0/8", "eth0", "10.0.0.1"), None);
        assert_eq!(rank("eth0,^10.0.0.0/8", "eth0", "192.0.2.1"), Some(0));
        assert_eq!(rank("eth0,^10.0.0.0/8", "eth1", "192.0.2.1"), None);
    }

    #[test]
    fn malformed_selector_is_refused() {
        for text in ["", ",", "eth0,", "^", "eth0,^", " "] {
            let refused = text.parse::<InterfaceSelector>();
            assert_eq!(refused, Err(InterfaceSelectorError::EmptyElement), "{text:?}");
        }
        for text in ["10.0.0.0/33", "10.0.0/8", "eth0/8", "fd00::/129", "10.0.0.0/", "/8"] {
            let refused = text.parse::<InterfaceSelector>();
            assert_eq!(refused, Err(InterfaceSelectorError::Network(text.into())), "{text:?}");
        }
    }
}
