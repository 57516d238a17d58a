//! Starts and controls two processes that exchange messages through a provider.

use std::time::Duration;

use super::Setup;
use super::contender::SleepContender;
use super::order::{Answer, Opened, RoundTrips, Slept, StepOrder};
use super::peer::Wait;
use crate::bench::percentiles::Counts;
use crate::failure::CommandFailure;
use crate::peer_process::PeerProcess;

/// The hidden command of both processes.
const PEER: &str = "bench-peer";

/// How long a process may take to close its endpoint and end, before it gets SIGTERM.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The reason why there is no figure.
#[derive(Debug)]
pub(super) enum MeasureError {
    /// The provider does not offer the feature.
    NotOffered(String),
    /// The measurement failed.
    Failed(String),
    /// libfabric cannot be loaded, or the processes cannot be started. So nothing can be measured at
    /// all.
    Fatal(CommandFailure),
}

impl From<CommandFailure> for MeasureError {
    /// Converts to [`MeasureError::Failed`]: the failure of one pair does not end the measurement of
    /// others.
    fn from(failure: CommandFailure) -> MeasureError {
        MeasureError::Failed(failure.to_string())
    }
}

/// Two processes. Each has an endpoint of the same provider, and the address of the other process's
/// endpoint.
#[derive(Debug)]
pub(super) struct SleepPair {
    leader: PeerProcess,
    follower: PeerProcess,
    provider: String,
    libfabric: (u16, u16),
}

impl SleepPair {
    /// Starts both processes, and gives each the address of the other.
    pub(super) fn start(
        contender: &SleepContender,
        wait: Wait,
        setup: &Setup<'_>,
    ) -> Result<SleepPair, MeasureError> {
        let (own, other) = setup.placement.cores.unzip();
        let mut leader = start_peer(contender, wait, setup, own)?;
        let mut follower = start_peer(contender, wait, setup, other)?;
        let led = await_opened(&mut leader)?;
        let followed = await_opened(&mut follower)?;
        send_order(&mut leader, &StepOrder::SetPeer(followed.address))?;
        send_order(&mut follower, &StepOrder::SetPeer(led.address))?;
        await_answer(&mut leader, |answer| matches!(answer, Answer::Done).then_some(()))?;
        await_answer(&mut follower, |answer| matches!(answer, Answer::Done).then_some(()))?;
        Ok(SleepPair { leader, follower, provider: led.provider, libfabric: led.libfabric })
    }

    /// The provider's full name.
    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// The version of libfabric, major and minor.
    pub(super) fn libfabric_version(&self) -> (u16, u16) {
        self.libfabric
    }

    /// Measures single round trips.
    pub(super) fn measure_round_trips(&mut self, trips: RoundTrips) -> Result<Counts, MeasureError> {
        send_order(&mut self.follower, &StepOrder::Follow(trips))?;
        await_answer(&mut self.follower, |answer| matches!(answer, Answer::Ready).then_some(()))?;
        send_order(&mut self.leader, &StepOrder::Lead(trips))?;
        let led = await_answer(&mut self.leader, |answer| match answer {
            Answer::Halves(counts) => Some(counts),
            _ => None,
        });
        let counts = led.map_err(|error| self.replace_by_follower_reason(error))?;
        await_answer(&mut self.follower, |answer| matches!(answer, Answer::Done).then_some(()))?;
        Ok(counts)
    }

    /// Lets both processes sleep at the same time.
    pub(super) fn sleep_both(&mut self, duration_ms: u64) -> Result<[Slept; 2], MeasureError> {
        send_order(&mut self.leader, &StepOrder::Sleep(duration_ms))?;
        send_order(&mut self.follower, &StepOrder::Sleep(duration_ms))?;
        let slept = |answer| match answer {
            Answer::Slept(slept) => Some(slept),
            _ => None,
        };
        Ok([await_answer(&mut self.leader, slept)?, await_answer(&mut self.follower, slept)?])
    }

    /// Lets both processes close their endpoints, so that the provider cleans up.
    pub(super) fn close(mut self) {
        for process in [&mut self.leader, &mut self.follower] {
            // This fails if the process has already ended.
            let _ = send_order(process, &StepOrder::Close);
        }
        self.leader.wait_or_terminate(CLOSE_MAX);
        self.follower.wait_or_terminate(CLOSE_MAX);
    }

    /// Replaces an error of the leader by the follower's reason, if there is one. The follower may know
    /// why the leader waited in vain.
    fn replace_by_follower_reason(&mut self, error: MeasureError) -> MeasureError {
        match self.follower.try_next_line().map(|line| serde_json::from_str(&line)) {
            Some(Ok(Answer::Failed(reason))) => MeasureError::Failed(reason),
            Some(_) => error,
            None => match self.follower.add_exit_status(CommandFailure::PeerGone) {
                ended @ CommandFailure::PeerEnded { .. } => MeasureError::Failed(ended.to_string()),
                _ => error,
            },
        }
    }
}

fn start_peer(
    contender: &SleepContender,
    wait: Wait,
    setup: &Setup<'_>,
    core: Option<usize>,
) -> Result<PeerProcess, MeasureError> {
    let libfabric = setup.libfabric.to_str().ok_or_else(|| {
        MeasureError::Fatal(CommandFailure::Load { reason: "its path is not in UTF-8".into() })
    })?;
    let max_bytes = setup.sizes.iter().copied().max().unwrap_or_default().to_string();
    let mut arguments = vec![PEER, "--libfabric", libfabric];
    arguments.extend([
        "--provider",
        &contender.provider,
        "--wait",
        wait.cli_name(),
        "--max-bytes",
        &max_bytes,
    ]);
    // While the processes sleep, they write no line. So the time-out includes that time.
    let timeout = setup.placement.timeout + Duration::from_millis(setup.idle_ms);
    let started = PeerProcess::start_with_environment(&contender.environment, &arguments, core, timeout);
    started.map_err(MeasureError::Fatal)
}

fn await_opened(process: &mut PeerProcess) -> Result<Opened, MeasureError> {
    await_answer(process, |answer| match answer {
        Answer::Open(opened) => Some(opened),
        _ => None,
    })
}

fn send_order(process: &mut PeerProcess, order: &StepOrder) -> Result<(), MeasureError> {
    let line = serde_json::to_string(order)
        .map_err(|error| MeasureError::Fatal(CommandFailure::Output(error.into())))?;
    Ok(process.write_line(line)?)
}

/// Waits for an answer, which `convert` turns into the result.
fn await_answer<T>(
    process: &mut PeerProcess,
    convert: impl Fn(Answer) -> Option<T>,
) -> Result<T, MeasureError> {
    loop {
        let line = process.await_line()?;
        match serde_json::from_str(&line).map_err(|_| CommandFailure::PeerProtocol)? {
            Answer::Ongoing => {}
            Answer::NoLibfabric(reason) => return Err(MeasureError::Fatal(CommandFailure::Load { reason })),
            Answer::NotOffered(reason) => return Err(MeasureError::NotOffered(reason)),
            Answer::Failed(reason) => return Err(MeasureError::Failed(reason)),
            answer => return convert(answer).ok_or(CommandFailure::PeerProtocol.into()),
        }
    }
}
