//! All measurements of one domain. The fabric and the bare loops take turns.

use clap::ValueEnum;

use super::access::AccessOperation;
use super::bare::{Copying, SLOT_MAX_BYTES};
use super::contest::{BareAccess, Contest, Measuring, Rounds};
use super::pair::{EndpointSpec, MediumKind, Pair, Placement, leader_conversation_settings};
use super::report::{AccessReport, DomainReport, Medians, SizeReport};
use super::step::{Chunk, Way};
use super::table;
use crate::console::Console;
use crate::exchange::conversation::Conversation;
use crate::failure::CommandFailure;
use crate::size;

/// The smallest size at which a cross-memory copy may be the fastest bare loop. For smaller messages a
/// ring is faster.
const READV_MIN_BYTES: usize = 16 * 1024;

/// A domain that has a bare loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasuredDomain {
    Shm,
    Tcp,
}

/// A measurement that can be requested alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Messages.
    Messages,
    /// Messages from memory that the receiver maps, in the domain shm.
    #[value(name = "send-buffers")]
    SendBuffers,
    /// Access to memory of the other process.
    Accesses,
    /// Providers of an installed libfabric, polled and asleep.
    #[value(name = "sleep")]
    Waiting,
}

/// The settings for the measurements of each domain.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    pub(super) sizes: &'a [usize],
    /// `None` measures everything.
    pub(super) only: Option<Kind>,
    pub(super) rounds: u32,
    /// The approximate time of each measurement in a round.
    pub(super) round_ms: u32,
    pub(super) tagged: bool,
    pub(super) placement: Placement,
    /// Whether rows are printed as they are measured.
    pub(super) shows_rows: bool,
}

impl MeasuredDomain {
    pub(super) const ALL: [MeasuredDomain; 2] = [MeasuredDomain::Shm, MeasuredDomain::Tcp];

    /// The domain that uses the same medium as this provider of libfabric. An unknown provider counts as
    /// one over TCP.
    pub(super) fn of_provider(provider: &str) -> MeasuredDomain {
        match provider.split(';').next() {
            Some("shm" | "sm2") => MeasuredDomain::Shm,
            _ => MeasuredDomain::Tcp,
        }
    }

    /// The domain's name in `getinfo`.
    pub(super) fn name(self) -> &'static str {
        match self {
            MeasuredDomain::Shm => "shm",
            MeasuredDomain::Tcp => "tcp",
        }
    }

    pub(super) fn medium_kind(self) -> MediumKind {
        match self {
            MeasuredDomain::Shm => MediumKind::Memory,
            MeasuredDomain::Tcp => MediumKind::Socket,
        }
    }

    /// The bare loops that may be the fastest for messages of a size.
    pub(super) fn candidate_bare_ways(self, size_bytes: usize, can_readv: bool) -> Vec<Way> {
        match self {
            MeasuredDomain::Tcp => vec![Way::Socket],
            MeasuredDomain::Shm => {
                let pipelined = Chunk::ALL.into_iter().filter(|chunk| chunk.len_bytes() < size_bytes);
                // A longer message takes several slots, which the pipelined ways measure.
                let ring = (size_bytes <= SLOT_MAX_BYTES).then_some(Way::Ring);
                let readv = (can_readv && size_bytes >= READV_MIN_BYTES).then_some(Way::Readv);
                ring.into_iter().chain(readv).chain(pipelined.map(Way::Pipelined)).collect()
            }
        }
    }

    /// The bare loop that this operation on memory is compared with.
    fn bare_access(self, operation: AccessOperation) -> BareAccess {
        match (self, operation) {
            (MeasuredDomain::Shm, AccessOperation::Write) => BareAccess::Copies(Copying::To),
            (MeasuredDomain::Shm, AccessOperation::Read) => BareAccess::Copies(Copying::From),
            // The target carries out a fetch-add, so the operation takes a request and an answer.
            (MeasuredDomain::Shm, AccessOperation::FetchAdd) => BareAccess::Messages(Way::Ring),
            (MeasuredDomain::Tcp, _) => BareAccess::Messages(Way::Socket),
        }
    }
}

impl Survey<'_> {
    /// The number of progress steps of a domain.
    pub(super) fn progress_step_count(&self, domain: MeasuredDomain) -> usize {
        let messages = self.message_sizes().count() + self.send_buffer_sizes(domain).count();
        (messages + self.operations_with_sizes().count()) * self.rounds as usize
    }

    /// Measures a domain.
    pub(super) fn measure_domain(
        &self,
        domain: MeasuredDomain,
        console: &Console,
    ) -> Result<DomainReport, CommandFailure> {
        let region_bytes =
            self.operations_with_sizes().map(|(_, size_bytes)| size_bytes).max().unwrap_or_default();
        let fabric = EndpointSpec { domain: domain.name(), tagged: self.tagged, region_bytes };
        let mut pair = Pair::start(domain.medium_kind(), Some(fabric), self.placement)?;
        self.measure_with_pair(&mut pair, domain, console)
            .map_err(|failure| pair.add_follower_exit_status(failure))
    }

    /// The sizes of messages to measure.
    fn message_sizes(&self) -> impl Iterator<Item = usize> {
        self.sizes.iter().copied().filter(|_| matches!(self.only, None | Some(Kind::Messages)))
    }

    /// The sizes of messages to measure from memory that the receiver maps.
    fn send_buffer_sizes(&self, domain: MeasuredDomain) -> impl Iterator<Item = usize> {
        let is_measured =
            domain == MeasuredDomain::Shm && matches!(self.only, None | Some(Kind::SendBuffers));
        self.sizes.iter().copied().filter(move |size_bytes| is_measured && *size_bytes >= READV_MIN_BYTES)
    }

    /// The operations on memory to measure, each with its sizes.
    fn operations_with_sizes(&self) -> impl Iterator<Item = (AccessOperation, usize)> {
        let operations =
            AccessOperation::ALL.into_iter().filter(|_| matches!(self.only, None | Some(Kind::Accesses)));
        operations.flat_map(|operation| {
            let sizes = operation.sizes_to_measure(self.sizes).iter();
            sizes.map(move |size_bytes| (operation, *size_bytes))
        })
    }

    fn measure_with_pair(
        &self,
        pair: &mut Pair,
        domain: MeasuredDomain,
        console: &Console,
    ) -> Result<DomainReport, CommandFailure> {
        let (port, address) = pair.open_port_to_follower(domain.name())?;
        let mut conversation = Conversation::open(
            &port,
            address,
            leader_conversation_settings(self.tagged, self.placement.timeout),
        )?;
        let refusal = pair.readv_refusal().map(ToString::to_string);
        let can_readv = refusal.is_none();
        let mut measuring = Measuring { pair, conversation: &mut conversation, round_ms: self.round_ms };
        let mut sizes = Vec::new();
        let show = |line: String| if self.shows_rows { console.print_line(line) } else { Ok(()) };
        if self.message_sizes().next().is_some() {
            show(format!("\n{}", table::message_heading(domain.name())))?;
        }
        for size_bytes in self.message_sizes() {
            let ways = domain.candidate_bare_ways(size_bytes, can_readv);
            let has_memcpy = domain == MeasuredDomain::Shm && size_bytes >= READV_MIN_BYTES;
            let contest =
                Contest::prepare_for_messages(&mut measuring, Way::Fabric, &ways, size_bytes, has_memcpy)?;
            let name = size::format_with_unit(size_bytes as u64);
            let medians = self.measure_rounds(&contest, &mut measuring, domain, &name, console)?;
            let report = SizeReport::new(size_bytes, contest.bare_names(), medians);
            show(table::message_row(&report))?;
            sizes.push(report);
        }
        if let Some(refusal) = refusal.as_ref().filter(|_| !sizes.is_empty()) {
            show(table::format_readv_note(refusal))?;
        }
        if self.send_buffer_sizes(domain).next().is_some() {
            show(format!("\n{}", table::send_buffer_heading(domain.name())))?;
        }
        let mut send_buffers = Vec::new();
        for size_bytes in self.send_buffer_sizes(domain) {
            let (fabric, bare) = (Way::SendBuffers, &[Way::Memcpy]);
            let contest = Contest::prepare_for_messages(&mut measuring, fabric, bare, size_bytes, false)?;
            let name = format!("send buffers, {}", size::format_with_unit(size_bytes as u64));
            let medians = self.measure_rounds(&contest, &mut measuring, domain, &name, console)?;
            let report = SizeReport::new(size_bytes, contest.bare_names(), medians);
            show(table::message_row(&report))?;
            send_buffers.push(report);
        }
        if self.operations_with_sizes().next().is_some() {
            show(format!("\n{}", table::access_heading(domain.name())))?;
        }
        let mut accesses = Vec::new();
        for (operation, size_bytes) in self.operations_with_sizes() {
            let bare = domain.bare_access(operation);
            let contest = Contest::prepare_for_accesses(&mut measuring, operation, bare, size_bytes)?;
            let name = format!("{} {}", operation.name(), size::format_with_unit(size_bytes as u64));
            let medians = self.measure_rounds(&contest, &mut measuring, domain, &name, console)?;
            let figures = SizeReport::new(size_bytes, contest.bare_names(), medians);
            let report = AccessReport { operation: operation.name(), figures };
            show(table::access_row(&report))?;
            accesses.push(report);
        }
        Ok(DomainReport {
            domain: domain.name(),
            cross_memory_copy: (domain == MeasuredDomain::Shm).then_some(can_readv),
            cross_memory_copy_refusal: refusal,
            sizes,
            send_buffers,
            accesses,
        })
    }

    /// Measures all rounds of a contest. Shows `name` as the step of progress.
    fn measure_rounds(
        &self,
        contest: &Contest,
        measuring: &mut Measuring<'_, '_>,
        domain: MeasuredDomain,
        name: &str,
        console: &Console,
    ) -> Result<Medians, CommandFailure> {
        let mut rounds = Rounds::new();
        for round in 1..=self.rounds {
            console.show_step(format!("{}, {name}, round {round} of {}", domain.name(), self.rounds));
            contest.run_round(measuring, &mut rounds)?;
            console.advance_progress();
        }
        Ok(rounds.into_medians())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn candidate_bare_ways_depend_on_domain_size_and_readv() {
        let ways = |size_bytes, can_readv| -> Vec<&str> {
            let ways = MeasuredDomain::Shm.candidate_bare_ways(size_bytes, can_readv);
            ways.into_iter().map(Way::name).collect()
        };
        assert_eq!(ways(0, true), ["ring"]);
        assert_eq!(ways(8 << 10, true), ["ring", "pipelined-4K"]);
        assert_eq!(ways(16 << 10, true), ["ring", "process_vm_readv", "pipelined-4K", "pipelined-8K"]);
        assert_eq!(
            ways(64 << 10, false),
            Chunk::ALL[..4].iter().map(|chunk| Way::Pipelined(*chunk).name()).collect::<Vec<_>>()
        );
        assert_eq!(MeasuredDomain::Tcp.candidate_bare_ways(1 << 20, true), [Way::Socket]);
    }

    #[test]
    fn progress_counts_every_round_of_every_measurement() {
        let placement = Placement { cores: None, timeout: Duration::from_secs(1) };
        let steps = |domain, only| {
            let survey = Survey {
                sizes: &[8, 64, 16 << 10],
                only,
                rounds: 5,
                round_ms: 1,
                tagged: false,
                placement,
                shows_rows: false,
            };
            survey.progress_step_count(domain)
        };
        assert_eq!(steps(MeasuredDomain::Shm, Some(Kind::Messages)), 15);
        // Only long messages are pulled.
        assert_eq!(steps(MeasuredDomain::Shm, Some(Kind::SendBuffers)), 5);
        assert_eq!(steps(MeasuredDomain::Tcp, Some(Kind::SendBuffers)), 0);
        // Writes and reads have three sizes, and fetch-add has one.
        assert_eq!(steps(MeasuredDomain::Tcp, Some(Kind::Accesses)), 35);
        assert_eq!(steps(MeasuredDomain::Shm, None), 15 + 5 + 35);
        assert_eq!(steps(MeasuredDomain::Tcp, None), 15 + 35);
    }

    #[test]
    fn provider_is_compared_in_the_domain_of_its_medium() {
        assert_eq!(["shm", "sm2"].map(MeasuredDomain::of_provider), [MeasuredDomain::Shm; 2]);
        assert_eq!(
            ["tcp", "sockets", "tcp;ofi_rxm", "udp;ofi_rxd"].map(MeasuredDomain::of_provider),
            [MeasuredDomain::Tcp; 4]
        );
    }
}
