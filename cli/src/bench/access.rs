//! Access through the fabric to memory of the process that follows.
//!
//! That process has a region, which the leading one maps where the domain has such memory. While it is
//! accessed, its owner drives its endpoint, so that it does its part where the target has one. An empty
//! message says that this is over.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use homespun::flags::Caps;

use crate::exchange::channel::{Channel, Ended, Local};
use crate::exchange::measure::{self, Metric};
use crate::exchange::place::Place;
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::Failure;

/// What is done to the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Bytes are written.
    Write,
    /// Bytes are read.
    Read,
    /// A number is added to an integer of 64 bits, and what it was before comes back.
    FetchAdd,
}

/// What both endpoints need for that, besides what messages need.
pub(super) const CAPS: Caps = Caps::RMA.union(Caps::ATOMIC);

/// The length of an integer that is added to.
const INTEGER_BYTES: usize = size_of::<u64>();

impl Operation {
    pub(super) const ALL: [Operation; 3] = [Operation::Write, Operation::Read, Operation::FetchAdd];

    /// Its name, as results have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::FetchAdd => "fetch-add",
        }
    }

    /// The sizes in which it is measured, where these are asked for.
    pub(super) fn sizes(self, asked: &[usize]) -> &[usize] {
        match self {
            Operation::Write | Operation::Read => asked,
            Operation::FetchAdd => &[INTEGER_BYTES],
        }
    }

    /// What so many accesses at once need in this process.
    fn locals(self, size_bytes: usize, count: u32) -> Vec<Local> {
        match self {
            Operation::Write => {
                let source = Bytes::from(vec![1; size_bytes]);
                (0..count).map(|_| Local::Write(source.clone())).collect()
            }
            Operation::Read => (0..count).map(|_| Local::Read(measure::zeroed(size_bytes))).collect(),
            Operation::FetchAdd => {
                // To add nothing is as much work as to add something, and memory stays as it was written.
                let nothing = Bytes::from_static(&[0; INTEGER_BYTES]);
                let fetch_add =
                    |_| Local::FetchAdd { operand: nothing.clone(), result: measure::zeroed(INTEGER_BYTES) };
                (0..count).map(fetch_add).collect()
            }
        }
    }
}

/// Makes the accesses of a run: one by one from post to completion, or many at once.
pub(super) fn lead(
    channel: &mut Channel<'_>,
    place: Place,
    operation: Operation,
    metric: Metric,
    run: &Run,
) -> Result<Timing, Failure> {
    let window = match metric {
        Metric::Latency => 1,
        Metric::Bandwidth => run.window,
    };
    let mut accesses = Accesses { channel, place, free: operation.locals(run.size_bytes, window), window };
    // Memory that can be mapped is so from its first access on.
    accesses.one()?;
    let timing = match metric {
        Metric::Latency => measure::round_trips_of(run, || accesses.one())?,
        Metric::Bandwidth => {
            accesses.channel.expect_more(true)?;
            let timing = measure::messages_of(run, |count| {
                let start = Instant::now();
                (0..count).try_for_each(|_| accesses.post())?;
                accesses.settle()?;
                Ok(start.elapsed())
            })?;
            accesses.channel.expect_more(false)?;
            timing
        }
    };
    channel.send(Bytes::new())?;
    while !matches!(channel.wait()?, Ended::Sent(_)) {}
    Ok(timing)
}

/// Does the part of the region's owner, who may have a core of their own.
pub(super) fn follow(channel: &mut Channel<'_>, has_own_core: bool) -> Result<(), Failure> {
    channel.receive(BytesMut::new())?;
    loop {
        match channel.wait_as_target(has_own_core) {
            Ok(Ended::Received(..)) => return Ok(()),
            // Nothing comes to this side while its memory is accessed, however long that takes. The other
            // process minds the time, and this one ends with it.
            Ok(Ended::Sent(_)) | Err(Failure::Stalled { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Accesses of one kind.
struct Accesses<'c, 'p> {
    channel: &'c mut Channel<'p>,
    place: Place,
    /// What is not in use.
    free: Vec<Local>,
    /// How many are in flight at most.
    window: u32,
}

impl Accesses<'_, '_> {
    /// Makes one access, and waits for its end.
    fn one(&mut self) -> Result<(), Failure> {
        self.post()?;
        self.settle()
    }

    /// Posts the next access, when there is room for it.
    fn post(&mut self) -> Result<(), Failure> {
        let local = match self.free.pop() {
            Some(local) => local,
            None => self.channel.wait_for_access()?,
        };
        self.channel.access(local, self.place)
    }

    /// Waits until all have ended.
    fn settle(&mut self) -> Result<(), Failure> {
        while self.free.len() < self.window as usize {
            self.free.push(self.channel.wait_for_access()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use homespun::Address;

    use super::*;
    use crate::exchange::channel::Settings;
    use crate::exchange::pattern::Direction;
    use crate::exchange::port::{self, Port};
    use crate::exchange::target::Target;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn settings(direction: Direction, timeout: Duration) -> Settings {
        Settings { direction, tagged: true, check: false, timeout }
    }

    /// Every operation, size and metric between two endpoints of this process, each in a thread of its own.
    fn measure_in(domain: &str, sizes: &[usize], owner_timeout: Duration) {
        let (steps, told) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let (answer, answered) = mpsc::channel::<Address>();
        let name = domain.to_owned();
        let largest = sizes.iter().copied().max().unwrap_or_default();
        let owner = thread::spawn(move || {
            let any = Target { host: "127.0.0.1".into(), port: 0 };
            let port = Port::listening(&any, Some(&name), CAPS).unwrap();
            let region = port.share(largest).unwrap();
            say.send((port.address(), Place { key: region.key(), address: region.address() })).unwrap();
            let settings = settings(Direction::ToClient, owner_timeout);
            let mut channel = Channel::open(&port, answered.recv().unwrap(), settings).unwrap();
            for () in told {
                follow(&mut channel, false).unwrap();
            }
            let mut written = vec![0; largest];
            region.read_at(0, &mut written).unwrap();
            written
        });
        let (address, place) = said.recv().unwrap();
        let (port, address) = Port::towards(&Target::from(address), Some(domain), CAPS).unwrap();
        answer.send(port.address()).unwrap();
        let mut channel = Channel::open(&port, address, settings(Direction::ToServer, TIMEOUT)).unwrap();
        for operation in Operation::ALL {
            for &size_bytes in operation.sizes(sizes) {
                for metric in [Metric::Latency, Metric::Bandwidth] {
                    steps.send(()).unwrap();
                    let run = Run::new(size_bytes, Some(70));
                    assert!(lead(&mut channel, place, operation, metric, &run).unwrap().each_us > 0.0);
                }
            }
        }
        drop(steps);
        assert_eq!(owner.join().unwrap(), vec![1; largest]);
    }

    #[test]
    fn memory_of_every_domain_is_accessed_in_every_way_and_size() {
        for domain in port::domains().unwrap() {
            measure_in(&domain, &[0, 1, 8, 1000, 100_000], TIMEOUT);
        }
    }

    #[test]
    fn the_owner_of_the_memory_does_not_mind_the_time() {
        for domain in port::domains().unwrap() {
            measure_in(&domain, &[8], Duration::ZERO);
        }
    }
}
