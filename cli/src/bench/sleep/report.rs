//! The results of `bench --only sleep`. `--json` prints them as a document, `--against` prints them in
//! the field `sleep` of its document, and the tables show them.
//!
//! Later versions keep the names and meanings of fields, and may add fields. A field is `null` if it was not
//! measured.

use serde::Serialize;

use super::order::Slept;
use super::{Attempt, ContenderResults, Setup};
use crate::bench::percentiles::{Percentiles, Times};
use crate::exchange::measure::median;
use crate::failure::CommandFailure;

/// Providers of an installed libfabric, side by side.
#[derive(Debug, Serialize)]
pub(in crate::bench) struct SleepReport {
    /// The version of homespun.
    pub(super) homespun_version: &'static str,
    /// The library: a path, or a name that the loader searches for.
    pub(super) libfabric: String,
    /// The version of libfabric; `null` if no provider could be opened.
    pub(super) libfabric_version: Option<String>,
    /// The cores of the two processes; `null` if the system chose them.
    pub(super) cores: Option<[usize; 2]>,
    /// The number of turns of each contender.
    pub(super) rounds: u32,
    /// How long a pair slept in each round.
    pub(super) idle_ms: u64,
    /// homespun's plugin in each domain, followed by its rivals.
    pub(super) contenders: Vec<ContenderReport>,
}

/// The results of one contender.
#[derive(Debug, Serialize)]
pub(super) struct ContenderReport {
    /// `homespun/shm`, `homespun/tcp`, or libfabric's name of the provider.
    pub(super) name: String,
    /// The full name of the provider that libfabric opened, with its layers; `null` if libfabric opened
    /// none.
    pub(super) provider: Option<String>,
    /// The name of the homespun contender with which this contender is compared; `null` for homespun
    /// itself.
    pub(super) rival_of: Option<String>,
    /// Round trips while both processes poll their queue (`FI_WAIT_NONE`).
    pub(super) polled: LatencyReport,
    /// Round trips while both processes sleep on the descriptor of their queue (`FI_WAIT_FD`).
    pub(super) descriptor: LatencyReport,
    /// The two processes while they slept and no message came.
    pub(super) idle: IdleReport,
}

/// Round trips in which both processes wait in the same way: both poll, or both sleep on a descriptor.
#[derive(Debug, Serialize)]
pub(super) struct LatencyReport {
    /// The reason why there are no figures. With figures, both fields of [`ShortfallFields`] are `null`.
    #[serde(flatten)]
    pub(super) shortfall: ShortfallFields,
    /// One entry for each size, in the requested order.
    pub(super) sizes: Vec<SleepSizeReport>,
}

/// Halves of the times of single round trips of one size.
#[derive(Debug, Serialize)]
pub(super) struct SleepSizeReport {
    pub(super) size_bytes: usize,
    #[serde(flatten)]
    pub(super) percentiles: Percentiles,
    /// homespun's median divided by this contender's median: below 1 homespun is faster. `null` for
    /// homespun itself.
    pub(super) p50_ratio: Option<f64>,
    /// homespun's 99th percentile divided by this contender's 99th percentile. `null` for homespun
    /// itself.
    pub(super) p99_ratio: Option<f64>,
}

/// Two processes that sleep, after they have exchanged messages and before they exchange messages again.
#[derive(Debug, Serialize)]
pub(super) struct IdleReport {
    #[serde(flatten)]
    pub(super) shortfall: ShortfallFields,
    /// The wait object: `FI_WAIT_FD`, or `FI_WAIT_UNSPEC` in `fi_cq_sread`.
    pub(super) wait_object: &'static str,
    /// Milliseconds of processor time a second, of the leader and of the follower: medians over rounds.
    pub(super) processor_ms_per_s: Option<[f64; 2]>,
    /// Wake-ups a second of the leader and of the follower: medians over rounds. A refused attempt to
    /// sleep counts as a wake-up.
    pub(super) wake_ups_per_s: Option<[f64; 2]>,
}

/// The reason why there are no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shortfall {
    NotOffered(String),
    Failure(String),
}

/// A [`Shortfall`] as two fields. Both are `None` if there are figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShortfallFields {
    /// Why the provider does not offer the feature.
    pub(super) not_offered: Option<String>,
    /// The failure.
    pub(super) failure: Option<String>,
}

impl SleepReport {
    pub(super) fn new(
        setup: &Setup<'_>,
        version: Option<(u16, u16)>,
        gathered: Vec<ContenderResults>,
    ) -> SleepReport {
        let mut contenders: Vec<ContenderReport> = Vec::new();
        for one in gathered {
            let rival = contenders.iter().find(|other| Some(&other.name) == one.contender.rival_of.as_ref());
            let report = ContenderReport::new(one, rival, setup.sizes);
            contenders.push(report);
        }
        SleepReport {
            homespun_version: env!("CARGO_PKG_VERSION"),
            cores: setup.placement.cores.map(|(own, other)| [own, other]),
            libfabric: setup.libfabric.to_string_lossy().into_owned(),
            libfabric_version: version.map(|(major, minor)| format!("{major}.{minor}")),
            rounds: setup.rounds,
            idle_ms: setup.idle_ms,
            contenders,
        }
    }
}

impl SleepReport {
    /// # Errors
    ///
    /// [`CommandFailure::ContendersFailed`] if a contender failed at something that it offers.
    pub(in crate::bench) fn require_success(&self) -> Result<(), CommandFailure> {
        match self.contenders.iter().filter(|contender| contender.has_failed()).count() {
            0 => Ok(()),
            failed => Err(CommandFailure::ContendersFailed { failed, all: self.contenders.len() }),
        }
    }
}

impl ContenderReport {
    fn has_failed(&self) -> bool {
        let ContenderReport { polled, descriptor, idle, .. } = self;
        [&polled.shortfall, &descriptor.shortfall, &idle.shortfall].iter().any(|part| part.failure.is_some())
    }

    fn new(gathered: ContenderResults, rival: Option<&ContenderReport>, sizes: &[usize]) -> ContenderReport {
        let ContenderResults { contender, provider, polled, descriptor, idle, idle_wait } = gathered;
        ContenderReport {
            polled: LatencyReport::new(polled, rival.map(|rival| &rival.polled), sizes),
            descriptor: LatencyReport::new(descriptor, rival.map(|rival| &rival.descriptor), sizes),
            idle: IdleReport::new(idle, idle_wait.fi_constant()),
            name: contender.name,
            provider,
            rival_of: contender.rival_of,
        }
    }
}

impl LatencyReport {
    fn new(attempt: Attempt<Vec<Times>>, rival: Option<&LatencyReport>, sizes: &[usize]) -> LatencyReport {
        // If a contender failed in a later round, the report omits its earlier results.
        let gathered = if attempt.is_ok() { attempt.gathered } else { Vec::new() };
        let figures = sizes.iter().zip(&gathered).filter_map(|(&size_bytes, times)| {
            let percentiles = times.percentiles()?;
            let own = rival.and_then(|rival| rival.sizes.iter().find(|size| size.size_bytes == size_bytes));
            let ratio = |of: fn(&Percentiles) -> f64| own.map(|own| of(&own.percentiles) / of(&percentiles));
            let (p50_ratio, p99_ratio) = (ratio(|of| of.p50_us), ratio(|of| of.p99_us));
            Some(SleepSizeReport { size_bytes, percentiles, p50_ratio, p99_ratio })
        });
        LatencyReport { sizes: figures.collect(), shortfall: ShortfallFields::new(attempt.shortfall) }
    }
}

impl IdleReport {
    fn new(attempt: Attempt<Vec<[Slept; 2]>>, wait_object: &'static str) -> IdleReport {
        let gathered = if attempt.is_ok() { attempt.gathered } else { Vec::new() };
        let medians = |of: fn(&Slept) -> f64| {
            let of_process =
                |process: usize| median(gathered.iter().map(|both| of(&both[process])).collect());
            (!gathered.is_empty()).then(|| [of_process(0), of_process(1)])
        };
        IdleReport {
            wait_object,
            processor_ms_per_s: medians(|slept| slept.processor_ms_per_s),
            wake_ups_per_s: medians(|slept| slept.wake_ups_per_s),
            shortfall: ShortfallFields::new(attempt.shortfall),
        }
    }
}

impl ShortfallFields {
    fn new(shortfall: Option<Shortfall>) -> ShortfallFields {
        match shortfall {
            None => ShortfallFields { not_offered: None, failure: None },
            Some(Shortfall::NotOffered(reason)) => {
                ShortfallFields { not_offered: Some(reason), failure: None }
            }
            Some(Shortfall::Failure(reason)) => ShortfallFields { not_offered: None, failure: Some(reason) },
        }
    }
}
