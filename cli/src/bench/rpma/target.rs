//! The target: the second process of the measurement. It offers memory and a mapped file, and its main
//! thread waits for the end of the connection, as servers of librpma do.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use homespun_rpma::{ConnectionEvent, Endpoint, PeerConfig, RemoteMemoryRegion, Usage};

use super::memory::Mapping;
use super::pair::open_peer;
use crate::bench::survey::MeasuredDomain;
use crate::console::Console;
use crate::cores;
use crate::failure::CommandFailure;
use crate::peer_process;

/// The word that the target writes before the port at which it listens.
pub(super) const LISTENING: &str = "listening";

/// The other process of `bench --rpma`.
#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// The domain of the connection.
    #[arg(long)]
    domain: String,
    /// The file to map.
    #[arg(long)]
    file: PathBuf,
    /// How many bytes of memory, and of the file, the other process may write to.
    #[arg(long)]
    region_bytes: usize,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// The leader's time-out. This process needs none, since it ends with the leader.
    #[arg(long)]
    timeout: u64,
}

/// What the target tells with its answer to the request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    /// Memory, for flushes to visibility.
    pub(super) memory: RemoteMemoryRegion,
    /// The mapped file, for persistent flushes.
    pub(super) file: RemoteMemoryRegion,
    /// What the target says of its persistent memory.
    pub(super) config: PeerConfig,
}

/// Serves one connection until its end.
pub(crate) fn run(arguments: &TargetArguments, console: &Console) -> Result<(), CommandFailure> {
    // If the leader is killed, it cannot remove the file. The end of the connection may be noticed first.
    let remove_file = {
        let file = arguments.file.clone();
        move || drop(fs::remove_file(file))
    };
    peer_process::exit_with_parent(remove_file.clone());
    serve(arguments, console).map_err(|failure| {
        remove_file();
        CommandFailure::InPeer(Box::new(failure))
    })
}

fn serve(arguments: &TargetArguments, console: &Console) -> Result<(), CommandFailure> {
    if let Some(core) = arguments.core {
        // The thread that serves the other process starts later, and stays on the same core.
        cores::pin_thread_to_core(core)?;
    }
    let domain = MeasuredDomain::ALL.into_iter().find(|domain| domain.name() == arguments.domain);
    let peer = open_peer(domain.ok_or(CommandFailure::PeerProtocol)?)?;
    let endpoint = Endpoint::listen(&peer, &Ipv4Addr::LOCALHOST.to_string(), 0)?;
    let mapping = |doing| move |error: io::Error| CommandFailure::Bare { doing, error };
    let memory = Mapping::of_memory(arguments.region_bytes).map_err(mapping("mapping memory"))?;
    let file = OpenOptions::new().read(true).write(true).open(&arguments.file);
    let file = file
        .and_then(|file| Mapping::of_file(&file, arguments.region_bytes))
        .map_err(mapping("mapping the file"))?;
    let memory = memory.register(&peer, Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY)?;
    let file = file.register(&peer, Usage::WRITE_DST | Usage::FLUSH_TYPE_PERSISTENT)?;
    let offer = Offer {
        memory: memory.as_remote(),
        file: file.as_remote(),
        config: PeerConfig { direct_write_to_pmem: true },
    };
    console.print_line(format_args!("{LISTENING} {}", endpoint.address().port()))?;
    let connection = endpoint.next_connection_request(None)?.connect(&offer.to_private_data())?;
    loop {
        match connection.next_event()? {
            ConnectionEvent::Established => {}
            ConnectionEvent::Closed => return Ok(()),
            event => return Err(CommandFailure::NotConnected(event)),
        }
    }
}

impl Offer {
    /// The offer as private data of a connection.
    fn to_private_data(self) -> Vec<u8> {
        let Offer { memory, file, config } = self;
        [&memory.descriptor()[..], &file.descriptor(), &config.descriptor()].concat()
    }

    /// Reads the private data of a connection.
    pub(super) fn from_private_data(data: &[u8]) -> Result<Offer, CommandFailure> {
        let (memory, rest) = data
            .split_at_checked(RemoteMemoryRegion::DESCRIPTOR_BYTES)
            .ok_or(CommandFailure::PeerProtocol)?;
        let (file, config) = rest
            .split_at_checked(RemoteMemoryRegion::DESCRIPTOR_BYTES)
            .ok_or(CommandFailure::PeerProtocol)?;
        let wrong = |_| CommandFailure::PeerProtocol;
        Ok(Offer {
            memory: RemoteMemoryRegion::from_descriptor(memory).map_err(wrong)?,
            file: RemoteMemoryRegion::from_descriptor(file).map_err(wrong)?,
            config: PeerConfig::from_descriptor(config).map_err(wrong)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_survives_private_data_and_truncated_data_is_refused() {
        let region = |first: u8| {
            let descriptor: Vec<u8> = (first..first + RemoteMemoryRegion::DESCRIPTOR_BYTES as u8).collect();
            RemoteMemoryRegion::from_descriptor(&descriptor).expect("a usage that is not 0")
        };
        let config = PeerConfig { direct_write_to_pmem: true };
        let offer = Offer { memory: region(1), file: region(100), config };
        let data = offer.to_private_data();
        assert_eq!(Offer::from_private_data(&data).unwrap(), offer);
        for len_bytes in 0..data.len() {
            let read = Offer::from_private_data(&data[..len_bytes]);
            assert!(matches!(read, Err(CommandFailure::PeerProtocol)), "{len_bytes}: {read:?}");
        }
    }
}
