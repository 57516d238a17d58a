//! What is run: decided by the client, told to the server.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use homespun::Address;

/// The largest message that is measured.
pub(super) const SIZE_MAX_BYTES: u64 = 64 << 20;

/// How often one size is tried at most.
pub(super) const ITERATIONS_MAX: u32 = 1 << 30;

/// How many sizes one client may ask for.
pub(super) const RUNS_MAX: usize = 64;

/// How many messages are in flight when bandwidth is measured.
pub(super) const WINDOW_MAX_MESSAGES: u32 = 64;

/// How many bytes are in flight at most when bandwidth is measured, unless two messages have more.
pub(super) const WINDOW_MAX_BYTES: u64 = 4 << 20;

/// The fewest messages in flight with which one can be sent while another is.
const WINDOW_MIN_MESSAGES: u32 = 2;

/// How long the round trips of one size should take by default, all together.
const LATENCY_BUDGET_NS: u64 = 150_000_000;

/// How long the messages of one size should take by default when bandwidth is measured.
const BANDWIDTH_BUDGET_NS: u64 = 100_000_000;

/// What a round trip takes, roughly, without its bytes.
const ROUND_TRIP_NS: u64 = 24_000;

/// What a message takes among many, roughly, without its bytes.
const MESSAGE_NS: u64 = 1_000;

/// How many bytes travel in a nanosecond, roughly.
const BYTES_PER_NS: u64 = 2;

/// How often a size is tried at least by default.
const ITERATIONS_MIN: u64 = 16;

/// How many rounds the messages that measure bandwidth are divided into at most. The median over rounds is what is
/// reported.
const ROUNDS_MAX: u32 = 9;

/// How many windows full of messages a round has at least: its beginning and its end are not to count for much.
const ROUND_MIN_WINDOWS: u32 = 4;

/// How many round trips go by, at most, before measuring begins.
const WARMUP_MAX: u32 = 1_000;

/// What is done with one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The length of every message.
    pub(super) size_bytes: usize,
    /// How many round trips are made before those that are measured.
    pub(super) warmup: u32,
    /// How many round trips are measured.
    pub(super) round_trips: u32,
    /// How many messages go one way when bandwidth is measured.
    pub(super) messages: u32,
    /// How many of these are in flight at once.
    pub(super) window: u32,
}

/// What is done with one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whether messages have tags.
    pub(super) tagged: bool,
    /// Whether every byte is looked at.
    pub(super) check: bool,
    pub(super) runs: Vec<Run>,
}

/// The first message of a client: where it is to be answered, and what it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) from: Address,
    /// The plan, or why there is none that can be followed.
    pub(super) plan: Result<Plan, &'static str>,
}

/// The first word of every greeting.
const MAGIC: &str = "homespun-pingpong";

/// The version of what client and server do with each other.
const VERSION: &str = "1";

impl Run {
    /// What to do with messages of this size; without `iterations`, as often as is done in a good part of a second.
    pub(super) fn new(size_bytes: usize, iterations: Option<u32>) -> Run {
        let size = size_bytes as u64;
        let scaled = |budget_ns: u64, each_ns: u64| {
            u32::try_from((budget_ns / each_ns).max(ITERATIONS_MIN)).unwrap_or(u32::MAX)
        };
        let round_trips = scaled(LATENCY_BUDGET_NS, ROUND_TRIP_NS + 2 * size / BYTES_PER_NS);
        let messages = scaled(BANDWIDTH_BUDGET_NS, MESSAGE_NS + size / BYTES_PER_NS);
        let round_trips = iterations.unwrap_or(round_trips);
        let fitting = WINDOW_MAX_BYTES / size.max(1);
        let window =
            u32::try_from(fitting).unwrap_or(u32::MAX).clamp(WINDOW_MIN_MESSAGES, WINDOW_MAX_MESSAGES);
        Run {
            size_bytes,
            warmup: (round_trips / 10 + 2).min(WARMUP_MAX),
            round_trips,
            messages: iterations.unwrap_or(messages),
            window,
        }
    }

    /// How many rounds the messages that measure bandwidth are divided into.
    pub(super) fn rounds(&self) -> u32 {
        (self.messages / (self.window * ROUND_MIN_WINDOWS)).clamp(1, ROUNDS_MAX)
    }

    /// Whether a server goes along with this.
    fn is_acceptable(&self) -> bool {
        let Run { size_bytes, warmup, round_trips, messages, window } = *self;
        size_bytes as u64 <= SIZE_MAX_BYTES
            && warmup <= WARMUP_MAX
            && (1..=ITERATIONS_MAX).contains(&round_trips)
            && (1..=ITERATIONS_MAX).contains(&messages)
            && (1..=WINDOW_MAX_MESSAGES).contains(&window)
            && (window <= WINDOW_MIN_MESSAGES || u64::from(window) * size_bytes as u64 <= WINDOW_MAX_BYTES)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { size_bytes, warmup, round_trips, messages, window } = self;
        write!(f, "{size_bytes}:{warmup}:{round_trips}:{messages}:{window}")
    }
}

impl FromStr for Run {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "a size is not described as it should be";
        let mut numbers = text.split(':').map(|number| number.parse::<u32>().map_err(|_| BAD));
        let mut next = || numbers.next().unwrap_or(Err(BAD));
        let run = Run {
            size_bytes: next()? as usize,
            warmup: next()?,
            round_trips: next()?,
            messages: next()?,
            window: next()?,
        };
        if numbers.next().is_some() {
            return Err(BAD);
        }
        if !run.is_acceptable() {
            return Err("a size, a number of iterations or a window is beyond what is served");
        }
        Ok(run)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tagged={} check={} runs=", self.tagged, self.check)?;
        for (index, run) in self.runs.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{run}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let mut value = |key: &str| words.next().and_then(|word| word.strip_prefix(key));
        let flag = |word: Option<&str>| word.and_then(|word| word.parse().ok());
        let tagged = flag(value("tagged=")).ok_or("the plan does not say whether messages have tags")?;
        let check = flag(value("check=")).ok_or("the plan does not say whether data is checked")?;
        let runs = value("runs=").ok_or("the plan has no sizes")?;
        if words.next().is_some() {
            return Err("the plan goes on after its end");
        }
        if runs.split(',').count() > RUNS_MAX {
            return Err("the plan has too many sizes");
        }
        let runs = runs.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Plan { tagged, check, runs })
    }
}

impl Greeting {
    /// The greeting as it is sent.
    pub(super) fn text(from: Address, plan: &Plan) -> String {
        format!("{MAGIC} {VERSION} {from} {plan}")
    }

    /// Reads what came as the first message; `None` if it is no greeting.
    pub(super) fn parse(message: &[u8]) -> Option<Greeting> {
        let text = std::str::from_utf8(message).ok()?;
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next();
        let (magic, version, from) = (word()?, word()?, word()?.parse::<SocketAddr>().ok()?);
        if magic != MAGIC {
            return None;
        }
        let plan = match version {
            VERSION => word().unwrap_or_default().parse(),
            _ => Err("client and server are of different versions"),
        };
        Some(Greeting { from: from.into(), plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let runs = [0, 1, 4096, 4 << 20].map(|size| Run::new(size, None)).to_vec();
        Plan { tagged: true, check: false, runs }
    }

    fn address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn a_greeting_arrives_as_it_was_sent() {
        for from in ["127.0.0.1:7471", "[::1]:7471", "[fe80::1%2]:1"].map(address) {
            let text = Greeting::text(from, &plan());
            assert_eq!(Greeting::parse(text.as_bytes()), Some(Greeting { from, plan: Ok(plan()) }));
        }
    }

    #[test]
    fn no_part_of_a_greeting_is_one() {
        let text = Greeting::text(address("127.0.0.1:1"), &plan());
        let last = text.rfind(':').unwrap() + 1;
        for end in 0..last {
            if let Some(greeting) = Greeting::parse(&text.as_bytes()[..end]) {
                assert!(greeting.plan != Ok(plan()), "{:?}", &text[..end]);
            }
        }
    }

    #[test]
    fn what_a_server_should_not_do_is_refused() {
        let refused = [
            "",
            "tagged=true check=true",
            "tagged=true check=true runs=",
            "tagged=yes check=true runs=1:1:1:1:1",
            "tagged=true check=true runs=1:1:1:1",
            "tagged=true check=true runs=1:1:1:1:1:1",
            "tagged=true check=true runs=1:1:1:1:1 more",
            "tagged=true check=true runs=1:1:1:1:1,",
            "tagged=true check=true runs=1:1:0:1:1",
            "tagged=true check=true runs=1:1:1:1:65",
            "tagged=true check=true runs=1048576:1:1:1:64",
            "tagged=true check=true runs=67108865:1:1:1:1",
            "tagged=true check=true runs=1:1:4294967295:1:1",
            "tagged=true check=true runs=-1:1:1:1:1",
        ];
        for text in refused {
            assert!(text.parse::<Plan>().is_err(), "{text:?}");
        }
        let many = vec!["1:1:1:1:1"; RUNS_MAX + 1].join(",");
        let too_many = format!("tagged=true check=true runs={many}").parse::<Plan>();
        assert_eq!(too_many, Err("the plan has too many sizes"));
    }

    #[test]
    fn a_client_of_another_version_can_still_be_answered() {
        let greeting = Greeting::parse(b"homespun-pingpong 2 127.0.0.1:9 whatever").unwrap();
        assert_eq!(greeting.from, address("127.0.0.1:9"));
        assert!(greeting.plan.is_err());
    }

    #[test]
    fn every_run_that_is_made_is_served() {
        for power in 0..=26 {
            for iterations in [None, Some(1), Some(20), Some(ITERATIONS_MAX)] {
                let run = Run::new(1 << power, iterations);
                assert_eq!(run.to_string().parse(), Ok(run));
                assert!((1..=run.messages).contains(&run.rounds()), "{run}");
            }
        }
        assert_eq!(Run::new(0, None).window, WINDOW_MAX_MESSAGES);
        assert_eq!(Run::new(4 << 20, None).window, WINDOW_MIN_MESSAGES);
    }
}
