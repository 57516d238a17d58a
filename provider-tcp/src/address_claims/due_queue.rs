//! A queue of addresses that are to be checked.

use std::collections::{BTreeMap, HashMap};

use homespun_engine::address::Address;
use homespun_engine::source_host::SourceHost;

/// Addresses to check. Hosts take turns, so a host with many addresses does not delay the checks of other
/// hosts.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    by_host: HashMap<SourceHost, DueAddresses>,
    /// The hosts with an address in the queue, in the order of their turns.
    turns: BTreeMap<u64, SourceHost>,
    /// The last number that was given out as a ticket or a turn.
    count: u64,
}

/// The place of an address in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// The addresses of one host, by their tickets.
#[derive(Debug)]
struct DueAddresses {
    turn: u64,
    addresses: BTreeMap<u64, Address>,
}

impl DueQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn push(&mut self, address: Address) -> Ticket {
        let ticket = self.next_number();
        let host = SourceHost::of(address);
        if let Some(due) = self.by_host.get_mut(&host) {
            due.addresses.insert(ticket, address);
        } else {
            self.queue_host(host, BTreeMap::from([(ticket, address)]));
        }
        Ticket(ticket)
    }

    /// Whether a host with an address in the queue is eligible.
    pub(super) fn has_eligible(&self, is_eligible: impl Fn(SourceHost) -> bool) -> bool {
        self.turns.values().any(|host| is_eligible(*host))
    }

    /// Takes an address of the first eligible host, in the order of turns. The other hosts keep their turns.
    pub(super) fn pop(&mut self, is_eligible: impl Fn(SourceHost) -> bool) -> Option<Address> {
        let (turn, host) = self.turns.iter().find(|(_, host)| is_eligible(**host))?;
        let (turn, host) = (*turn, *host);
        self.turns.remove(&turn);
        let mut addresses = self.by_host.remove(&host)?.addresses;
        let (_, address) = addresses.pop_first()?;
        if !addresses.is_empty() {
            self.queue_host(host, addresses);
        }
        Some(address)
    }

    /// Removes the entry of an address with this ticket, unless it was popped.
    pub(super) fn remove(&mut self, address: Address, Ticket(ticket): Ticket) {
        let host = SourceHost::of(address);
        let Some(due) = self.by_host.get_mut(&host) else { return };
        due.addresses.remove(&ticket);
        if due.addresses.is_empty() {
            self.turns.remove(&due.turn);
            self.by_host.remove(&host);
        }
    }

    /// Gives a host the last turn.
    fn queue_host(&mut self, host: SourceHost, addresses: BTreeMap<u64, Address>) {
        let turn = self.next_number();
        self.turns.insert(turn, host);
        self.by_host.insert(host, DueAddresses { turn, addresses });
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn address(host: u8, port: u16) -> Address {
        SocketAddr::from(([10, 0, 0, host], port)).into()
    }

    fn pop(queue: &mut DueQueue) -> Option<Address> {
        queue.pop(|_| true)
    }

    #[test]
    fn hosts_take_turns() {
        let mut queue = DueQueue::default();
        for port in 1..=3 {
            queue.push(address(1, port));
        }
        queue.push(address(2, 1));
        assert_eq!(pop(&mut queue), Some(address(1, 1)));
        queue.push(address(3, 1));
        let rest: Vec<Address> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(rest, [address(2, 1), address(1, 2), address(3, 1), address(1, 3)]);
        assert!(queue.is_empty() && queue.by_host.is_empty());
    }

    #[test]
    fn removed_address_leaves_the_turns_of_the_others() {
        let mut queue = DueQueue::default();
        let tickets = [1, 2].map(|host| [1, 2].map(|port| queue.push(address(host, port))));
        queue.remove(address(1, 1), tickets[0][0]);
        queue.remove(address(2, 1), tickets[1][0]);
        queue.remove(address(2, 2), tickets[1][1]);
        assert_eq!(pop(&mut queue), Some(address(1, 2)));
        // An old ticket removes no later entry of its address.
        queue.push(address(1, 2));
        queue.remove(address(1, 2), tickets[0][1]);
        assert_eq!((pop(&mut queue), pop(&mut queue)), (Some(address(1, 2)), None));
        assert!(queue.is_empty() && queue.by_host.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_their_turns() {
        let of_network = |network: u16, host| -> Address {
            SocketAddr::from(([0x2001, 0xdb8, 0, network, 0, 0, 0, host], 1)).into()
        };
        let mut queue = DueQueue::default();
        for host in 1..=3 {
            queue.push(of_network(1, host));
        }
        queue.push(of_network(2, 1));
        let order: Vec<Address> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(order, [of_network(1, 1), of_network(2, 1), of_network(1, 2), of_network(1, 3)]);
    }

    #[test]
    fn host_that_is_not_eligible_keeps_its_turn() {
        let mut queue = DueQueue::default();
        for host in 1..=3 {
            queue.push(address(host, 1));
        }
        let is_other = |host| host != SourceHost::of(address(1, 1));
        assert!(queue.has_eligible(is_other));
        assert_eq!(queue.pop(is_other), Some(address(2, 1)));
        assert_eq!(pop(&mut queue), Some(address(1, 1)));
        assert_eq!(queue.pop(is_other), Some(address(3, 1)));
        queue.push(address(1, 2));
        assert!(!queue.has_eligible(is_other) && queue.pop(is_other).is_none());
    }
}
