//! A queue of addresses that are to be checked.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use homespun_engine::address::Address;

/// Addresses that are to be checked. Hosts take turns, so that one host with many claims does not delay
/// those of others.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    by_host: HashMap<IpAddr, VecDeque<Address>>,
    /// The hosts with an address in the queue, in the order of their turns.
    turns: VecDeque<IpAddr>,
}

impl DueQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn push(&mut self, address: Address) {
        let host = address.ip();
        let waiting = self.by_host.entry(host).or_default();
        if waiting.is_empty() {
            self.turns.push_back(host);
        }
        waiting.push_back(address);
    }

    pub(super) fn pop(&mut self) -> Option<Address> {
        let host = self.turns.pop_front()?;
        let waiting = self.by_host.get_mut(&host)?;
        let address = waiting.pop_front();
        if waiting.is_empty() {
            self.by_host.remove(&host);
        } else {
            self.turns.push_back(host);
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn address(host: u8, port: u16) -> Address {
        SocketAddr::from(([10, 0, 0, host], port)).into()
    }

    #[test]
    fn hosts_take_turns() {
        let mut queue = DueQueue::default();
        (1..=3).for_each(|port| queue.push(address(1, port)));
        queue.push(address(2, 1));
        assert_eq!(queue.pop(), Some(address(1, 1)));
        queue.push(address(3, 1));
        let rest: Vec<Address> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [address(2, 1), address(1, 2), address(3, 1), address(1, 3)]);
        assert!(queue.is_empty() && queue.by_host.is_empty());
    }
}
