//! The leader's view of the two processes: a connection to the target, and the time of a write with a flush.

use std::net::Ipv4Addr;

use homespun_rpma::{
    Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Error, FlushType,
    MemoryRegion, Peer, PeerAttr, RemoteMemoryRegion, Report, Status, Usage,
};

use super::flushed_file::FlushedFile;
use super::memory::Mapping;
use super::target::{LISTENING, Offer};
use crate::bench::bare::BarePoller;
use crate::bench::follower;
use crate::bench::pair::Placement;
use crate::bench::survey::MeasuredDomain;
use crate::cores;
use crate::exchange::measure;
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;
use crate::peer_process::PeerProcess;

/// The hidden command of the target.
const TARGET: &str = "bench-target";

/// The contexts of the operations. A completion belongs to the flush, unless the write has failed.
const WRITE: u64 = 1;
const FLUSH: u64 = 2;

/// This process and the target, connected.
#[derive(Debug)]
pub(super) struct RpmaPair {
    connection: Connection,
    /// What is written.
    source: MemoryRegion,
    offer: Offer,
    poller: BarePoller,
    /// Dropped last: the target is killed.
    process: PeerProcess,
}

/// Opens the peer of a process, in librpma's sense.
pub(super) fn open_peer(domain: MeasuredDomain) -> Result<Peer, CommandFailure> {
    let domain = match domain {
        MeasuredDomain::Shm => DomainName::Shm,
        MeasuredDomain::Tcp => DomainName::Tcp,
    };
    Ok(Peer::open(&PeerAttr { domain, ..PeerAttr::default() })?)
}

impl RpmaPair {
    /// Starts the target, which maps the file, and connects to it. Pins both processes if `placement` names
    /// cores. `region_bytes` is the length of the file, and of the target's memory.
    pub(super) fn start(
        domain: MeasuredDomain,
        file: &FlushedFile,
        region_bytes: usize,
        placement: Placement,
    ) -> Result<RpmaPair, CommandFailure> {
        let Placement { cores, timeout } = placement;
        if let Some((own, _)) = cores {
            cores::pin_thread_to_core(own)?;
        }
        let path = file.path();
        let path = path.to_str().ok_or_else(|| CommandFailure::PathNotUtf8 { path: path.to_owned() })?;
        let region_len = region_bytes.to_string();
        let arguments = [TARGET, "--domain", domain.name(), "--file", path, "--region-bytes", &region_len];
        let other = cores.map(|(_, other)| other);
        let mut process = PeerProcess::start_in_own_group(&arguments, other, timeout)?;
        let poller = BarePoller::new(process.ended_flag(), timeout, cores.is_some());
        let line = process.await_line()?;
        let port: u16 =
            follower::strip_keyword(&line, LISTENING)?.parse().map_err(|_| CommandFailure::PeerProtocol)?;

        let peer = open_peer(domain)?;
        let mapping = Mapping::of_memory(region_bytes)
            .map_err(|error| CommandFailure::Bare { doing: "mapping memory", error })?;
        mapping.write(&vec![1; region_bytes]);
        let source = mapping.register(&peer, Usage::WRITE_SRC)?;
        let config = ConnectionConfig { timeout, ..ConnectionConfig::default() };
        let address = Ipv4Addr::LOCALHOST.to_string();
        let connection = ConnectionRequest::new(&peer, &address, port, Some(&config))?.connect(b"")?;
        match connection.next_event()? {
            ConnectionEvent::Established => {}
            event => return Err(process.add_exit_status(CommandFailure::NotConnected(event))),
        }
        let offer = Offer::from_private_data(connection.private_data())?;
        connection.apply_remote_peer_config(offer.config);
        Ok(RpmaPair { connection, source, offer, poller, process })
    }

    /// Times writes of a run, each with a flush behind it. One write is in flight at a time.
    pub(super) fn time_flushes(
        &mut self,
        flush_type: FlushType,
        run: &Run,
    ) -> Result<Timing, CommandFailure> {
        let timed = measure::time_round_trips(run, || self.write_and_flush(flush_type, run.size_bytes));
        timed.map_err(|failure| self.process.add_exit_status(failure))
    }

    fn write_and_flush(&self, flush_type: FlushType, size_bytes: usize) -> Result<(), CommandFailure> {
        let RpmaPair { connection, source, poller, .. } = self;
        let target = self.target_region(flush_type);
        let written = source.slice(0, size_bytes).map_err(Error::from)?;
        connection.write(target.at(0), written, Report::OnError, WRITE)?;
        connection.flush(target, 0, size_bytes as u64, flush_type, Report::Always, FLUSH)?;
        let completion = poller.poll_until_some(|| match connection.completion_queue().next() {
            Ok(completion) => Ok(Some(completion)),
            Err(Error::NoCompletion) => Ok(None),
            Err(error) => Err(error.into()),
        })?;
        match completion.status {
            Status::Success => Ok(()),
            status => Err(CommandFailure::FlushFailed(status)),
        }
    }

    fn target_region(&self, flush_type: FlushType) -> &RemoteMemoryRegion {
        match flush_type {
            FlushType::Visibility => &self.offer.memory,
            FlushType::Persistent => &self.offer.file,
        }
    }
}
