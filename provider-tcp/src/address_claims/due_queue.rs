//! A queue of addresses that are to be checked.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use homespun_engine::address::Address;

/// Addresses that are to be checked. Hosts take turns, so that a host with many addresses in the queue does
/// not delay the checks of other hosts.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    by_host: HashMap<IpAddr, DueAddresses>,
    /// The hosts with an address in the queue, in the order of their turns.
    turns: BTreeMap<u64, IpAddr>,
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
        let host = address.ip();
        if let Some(due) = self.by_host.get_mut(&host) {
            due.addresses.insert(ticket, address);
        } else {
            self.queue_host(host, BTreeMap::from([(ticket, address)]));
        }
        Ticket(ticket)
    }

    pub(super) fn pop(&mut self) -> Option<Address> {
        let (_, host) = self.turns.pop_first()?;
        let mut addresses = self.by_host.remove(&host)?.addresses;
        let (_, address) = addresses.pop_first()?;
        if !addresses.is_empty() {
            self.queue_host(host, addresses);
        }
        Some(address)
    }

    /// Removes the entry of an address with this ticket, unless it was popped.
    pub(super) fn remove(&mut self, address: Address, Ticket(ticket): Ticket) {
        let host = address.ip();
        let Some(due) = self.by_host.get_mut(&host) else { return };
        due.addresses.remove(&ticket);
        if due.addresses.is_empty() {
            self.turns.remove(&due.turn);
            self.by_host.remove(&host);
        }
    }

    /// Gives a host the last turn.
    fn queue_host(&mut self, host: IpAddr, addresses: BTreeMap<u64, Address>) {
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

    #[test]
    fn hosts_take_turns() {
        let mut queue = DueQueue::default();
        for port in 1..=3 {
            queue.push(address(1, port));
        }
        queue.push(address(2, 1));
        assert_eq!(queue.pop(), Some(address(1, 1)));
        queue.push(address(3, 1));
        let rest: Vec<Address> = std::iter::from_fn(|| queue.pop()).collect();
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
        assert_eq!(queue.pop(), Some(address(1, 2)));
        // An old ticket removes no later entry of its address.
        queue.push(address(1, 2));
        queue.remove(address(1, 2), tickets[0][1]);
        assert_eq!((queue.pop(), queue.pop()), (Some(address(1, 2)), None));
        assert!(queue.is_empty() && queue.by_host.is_empty());
    }
}
