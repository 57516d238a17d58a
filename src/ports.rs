//! The range of ports for endpoints whose port is left to the system.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

use homespun_engine::errno::Errno;
use homespun_engine::error::ExhaustedPorts;

/// A range of ports, both ends included: the value of [`PORTS`](crate::params::PORTS). As text it is
/// `7000-7099`, or one number.
///
/// ```
/// use homespun::params::PortRange;
///
/// let ports: PortRange = "7000-7099".parse().unwrap();
/// assert_eq!((ports.len(), ports.to_string().as_str()), (100, "7000-7099"));
/// assert!("7099-7000".parse::<PortRange>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    low: u16,
    high: u16,
}

#[expect(clippy::len_without_is_empty, reason = "it never is")]
impl PortRange {
    /// Returns the ports from the lowest to the highest. Returns `None` if the range is empty or includes 0.
    pub fn new(ports: RangeInclusive<u16>) -> Option<PortRange> {
        let (low, high) = ports.into_inner();
        (0 < low && low <= high).then_some(PortRange { low, high })
    }

    /// Returns the number of ports.
    pub fn len(&self) -> usize {
        usize::from(self.high - self.low) + 1
    }

    /// Whether the port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    /// Returns the description of an error: no port of the range is free.
    pub(crate) fn exhausted(self) -> ExhaustedPorts {
        ExhaustedPorts { low: self.low, high: self.high }
    }

    /// Opens an object at the first free port. Tries each port once, from a port that depends on `seed`. So
    /// processes that open many objects at once seldom try the same ports.
    ///
    /// # Errors
    ///
    /// EADDRINUSE if no port is free. Any other error of `open` ends the search.
    pub(crate) fn open_at_free_port<T>(
        self,
        seed: u64,
        mut open: impl FnMut(u16) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // The remainder is less than the number of ports, so the conversion and the sum do not overflow.
        let start = self.low + (seed % self.len() as u64) as u16;
        for port in (start..=self.high).chain(self.low..start) {
            match open(port) {
                Err(Errno::EADDRINUSE) => {}
                other => return other,
            }
        }
        Err(Errno::EADDRINUSE)
    }
}

const EXPECTED: &str = "a range of ports, the lower one first, such as 7000-7099";

impl FromStr for PortRange {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, io::Error> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let ends = low.trim().parse().ok().zip(high.trim().parse().ok());
        ends.and_then(|(low, high)| PortRange::new(low..=high))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, EXPECTED))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn port_range_is_parsed_and_printed() {
        let read = |text: &str| text.parse::<PortRange>().ok().map(|ports| ports.to_string());
        assert_eq!(read("7000-7099").as_deref(), Some("7000-7099"));
        assert_eq!(read(" 1 - 65535 ").as_deref(), Some("1-65535"));
        assert_eq!(read("80").as_deref(), Some("80-80"));
        for nonsense in ["", "-", "0-5", "9-8", "1-65536", "1-2-3", "some", "-7"] {
            assert_eq!(read(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn ports_are_tried_once_until_free_or_other_error() {
        for (ports, seed) in [(7000..=7004, 0), (7000..=7004, 3), (1..=u16::MAX, u64::MAX), (80..=80, 9)] {
            let ports = PortRange::new(ports).unwrap();
            let mut tried = BTreeSet::new();
            let refused = ports.open_at_free_port(seed, |port| -> Result<(), Errno> {
                assert!(ports.contains(port) && tried.insert(port), "{port}");
                Err(Errno::EADDRINUSE)
            });
            assert_eq!((refused, tried.len()), (Err(Errno::EADDRINUSE), ports.len()));
        }
        let ports = PortRange::new(7000..=7004).unwrap();
        let free = |port| if port == 7001 { Ok(port) } else { Err(Errno::EADDRINUSE) };
        assert_eq!(ports.open_at_free_port(3, free), Ok(7001));
        let mut tries = 0;
        let refused = ports.open_at_free_port(3, |_| -> Result<(), Errno> {
            tries += 1;
            Err(Errno::EACCES)
        });
        assert_eq!((refused, tries), (Err(Errno::EACCES), 1));
    }
}
