//! A process with some of the peers. It makes passes while the hub connects, and while the hub exchanges
//! messages with its first peer.

use std::thread;

use homespun::{Bytes, BytesMut, FabricAddress, OpenEndpoint, OperationKind};

use crate::clock::now_ns;
use crate::hub::{TO_HUB, TO_PEER, open_endpoint, parse_addresses, read};
use crate::process::{arguments, commands, raise_descriptor_limit};
use crate::row::MESSAGE;
use crate::{Result, processors};

/// What the process does until the next command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Nothing.
    Rest,
    /// Passes of the peers whose message has not arrived, or has not been sent. Others would only take
    /// processor time from the hub.
    Progress,
    /// Passes of the first peer, which sends each message back.
    Echo,
}

pub(crate) fn run() -> Result<()> {
    raise_descriptor_limit()?;
    let commands = commands();
    let arguments = arguments();
    let peers = (0..arguments[1].parse()?)
        .map(|_| open_endpoint(&arguments[0]))
        .collect::<Result<Vec<OpenEndpoint>>>()?;
    let mut addresses = String::new();
    for peer in &peers {
        // One for the message by which the hub connects, and one for the first that is sent back.
        post_receive(peer)?;
        post_receive(peer)?;
        addresses.push_str(&format!(" {}", peer.endpoint.name()?.socket_addr()));
    }
    println!("at{addresses}");
    let hub = parse_addresses(&commands.recv()?)?[0];
    let hubs =
        peers.iter().map(|peer| Ok(peer.av.insert_one(hub)?)).collect::<Result<Vec<FabricAddress>>>()?;
    let mut activity = Activity::Rest;
    let mut unconnected: Vec<usize> = (0..peers.len()).collect();
    loop {
        let command =
            if activity == Activity::Rest { commands.recv().ok() } else { commands.try_recv().ok() };
        match command.as_deref() {
            Some("progress") => activity = Activity::Progress,
            Some("connect") => {
                println!("connecting {}", now_ns());
                for (peer, hub) in peers.iter().zip(&hubs) {
                    peer.endpoint.tsend(Bytes::from_static(MESSAGE), *hub, TO_HUB, 1)?;
                }
                activity = Activity::Progress;
            }
            Some("echo") => {
                processors::stay_on_last()?;
                activity = Activity::Echo;
            }
            Some("rest") => {
                activity = Activity::Rest;
                println!("resting");
            }
            _ => {}
        }
        match activity {
            Activity::Rest => {}
            Activity::Progress => {
                let before = unconnected.len();
                let mut still_unconnected = Vec::with_capacity(before);
                for number in unconnected {
                    if read(&peers[number].cq)?.is_none() {
                        still_unconnected.push(number);
                    }
                }
                unconnected = still_unconnected;
                if unconnected.len() == before {
                    thread::yield_now();
                } else if unconnected.is_empty() {
                    println!("connected {}", now_ns());
                }
            }
            Activity::Echo => echo(&peers[0], hubs[0])?,
        }
    }
}

fn post_receive(peer: &OpenEndpoint) -> Result<()> {
    Ok(peer.endpoint.trecv(BytesMut::zeroed(MESSAGE.len()), FabricAddress::UNSPECIFIED, TO_PEER, 2)?)
}

/// Makes a pass of a peer. If a message has arrived, sends it back.
fn echo(peer: &OpenEndpoint, hub: FabricAddress) -> Result<()> {
    if read(&peer.cq)?.is_some_and(|completion| completion.kind() == OperationKind::Receive) {
        post_receive(peer)?;
        peer.endpoint.tsend(Bytes::from_static(MESSAGE), hub, TO_HUB, 3)?;
    }
    Ok(())
}
