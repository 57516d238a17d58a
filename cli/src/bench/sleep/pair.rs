//! Two processes that exchange messages through a provider, and the process that tells them what to do.

use std::time::Duration;

use super::Setup;
use super::contender::Contender;
use super::order::{Answer, Opened, Order, RoundTrips, Slept};
use super::peer::Wait;
use crate::bench::percentiles::Counts;
use crate::failure::Failure;
use crate::peer_process::PeerProcess;

/// The hidden command of both processes.
const PEER: &str = "bench-peer";

/// How long the processes may take to close their endpoints and to end. Then they are killed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Why there is no figure.
#[derive(Debug)]
pub(super) enum Setback {
    /// The provider does not offer it.
    NotOffered(String),
    /// It failed.
    Failed(String),
    /// There is no libfabric, or the processes cannot be started: nothing can be measured at all.
    Fatal(Failure),
}

impl From<Failure> for Setback {
    /// What one pair of processes fails at is no reason not to measure others.
    fn from(failure: Failure) -> Setback {
        Setback::Failed(failure.to_string())
    }
}

/// Two processes, each with an endpoint of one provider, that know each other.
#[derive(Debug)]
pub(super) struct Pair {
    leader: PeerProcess,
    follower: PeerProcess,
    provider: String,
    libfabric: (u16, u16),
}

impl Pair {
    /// Starts both, and makes them partners.
    pub(super) fn start(contender: &Contender, wait: Wait, setup: &Setup<'_>) -> Result<Pair, Setback> {
        let (own, other) = setup.placement.cores.unzip();
        let mut leader = start_peer(contender, wait, setup, own)?;
        let mut follower = start_peer(contender, wait, setup, other)?;
        let led = opened(&mut leader)?;
        let followed = opened(&mut follower)?;
        order(&mut leader, &Order::Meet(followed.address))?;
        order(&mut follower, &Order::Meet(led.address))?;
        expect(&mut leader, |answer| matches!(answer, Answer::Done).then_some(()))?;
        expect(&mut follower, |answer| matches!(answer, Answer::Done).then_some(()))?;
        Ok(Pair { leader, follower, provider: led.provider, libfabric: led.libfabric })
    }

    /// The name of the provider in full.
    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// The version of libfabric, major and minor.
    pub(super) fn libfabric(&self) -> (u16, u16) {
        self.libfabric
    }

    /// Measures single round trips.
    pub(super) fn round_trips(&mut self, trips: RoundTrips) -> Result<Counts, Setback> {
        order(&mut self.follower, &Order::Follow(trips))?;
        expect(&mut self.follower, |answer| matches!(answer, Answer::Ready).then_some(()))?;
        order(&mut self.leader, &Order::Lead(trips))?;
        let led = expect(&mut self.leader, |answer| match answer {
            Answer::Halves(counts) => Some(counts),
            _ => None,
        });
        let counts = led.map_err(|setback| self.explained_by_follower(setback))?;
        expect(&mut self.follower, |answer| matches!(answer, Answer::Done).then_some(()))?;
        Ok(counts)
    }

    /// Lets both sleep at once.
    pub(super) fn sleep(&mut self, duration_ms: u64) -> Result<[Slept; 2], Setback> {
        order(&mut self.leader, &Order::Sleep(duration_ms))?;
        order(&mut self.follower, &Order::Sleep(duration_ms))?;
        let slept = |answer| match answer {
            Answer::Slept(slept) => Some(slept),
            _ => None,
        };
        Ok([expect(&mut self.leader, slept)?, expect(&mut self.follower, slept)?])
    }

    /// Lets both close their endpoints, so that a provider leaves nothing behind.
    pub(super) fn close(mut self) {
        for process in [&mut self.leader, &mut self.follower] {
            // Without this the process has ended already.
            let _ = order(process, &Order::Close);
        }
        self.leader.end_within(CLOSE_MAX);
        self.follower.end_within(CLOSE_MAX);
    }

    /// If the leader waited in vain, the other process may know why.
    fn explained_by_follower(&mut self, setback: Setback) -> Setback {
        match self.follower.waiting_line().map(|line| serde_json::from_str(&line)) {
            Some(Ok(Answer::Failed(reason))) => Setback::Failed(reason),
            Some(_) => setback,
            None => match self.follower.blamed_for(Failure::PeerGone) {
                ended @ Failure::PeerEnded { .. } => Setback::Failed(ended.to_string()),
                _ => setback,
            },
        }
    }
}

fn start_peer(
    contender: &Contender,
    wait: Wait,
    setup: &Setup<'_>,
    core: Option<usize>,
) -> Result<PeerProcess, Setback> {
    let libfabric = setup
        .libfabric
        .to_str()
        .ok_or_else(|| Setback::Fatal(Failure::Load { reason: "its path is not in UTF-8".into() }))?;
    let max_bytes = setup.sizes.iter().copied().max().unwrap_or_default().to_string();
    let mut arguments = vec![PEER, "--libfabric", libfabric];
    arguments.extend(["--provider", &contender.provider, "--wait", wait.word(), "--max-bytes", &max_bytes]);
    // While both sleep neither says anything.
    let timeout = setup.placement.timeout + Duration::from_millis(setup.idle_ms);
    let started = PeerProcess::start_in(&contender.environment, &arguments, core, timeout);
    started.map_err(Setback::Fatal)
}

fn opened(process: &mut PeerProcess) -> Result<Opened, Setback> {
    expect(process, |answer| match answer {
        Answer::Open(opened) => Some(opened),
        _ => None,
    })
}

fn order(process: &mut PeerProcess, order: &Order) -> Result<(), Setback> {
    let line = serde_json::to_string(order).map_err(|error| Setback::Fatal(Failure::Output(error.into())))?;
    Ok(process.tell(line)?)
}

/// Waits for an answer, of which `wanted` makes what is wanted.
fn expect<T>(process: &mut PeerProcess, wanted: impl Fn(Answer) -> Option<T>) -> Result<T, Setback> {
    loop {
        let line = process.next_line()?;
        match serde_json::from_str(&line).map_err(|_| Failure::PeerTalk)? {
            Answer::Ongoing => {}
            Answer::NoLibfabric(reason) => return Err(Setback::Fatal(Failure::Load { reason })),
            Answer::NotOffered(reason) => return Err(Setback::NotOffered(reason)),
            Answer::Failed(reason) => return Err(Setback::Failed(reason)),
            answer => return wanted(answer).ok_or(Failure::PeerTalk.into()),
        }
    }
}
