//! Measures how fast the leader accesses a region of the follower, through the fabric.
//!
//! The follower registers the region. If the domain offers mapped memory, the leader maps the region.
//! During the measurement the follower drives its endpoint, because some accesses need work of the
//! target. At the end the leader sends an empty message.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use homespun::flags::Caps;

use crate::exchange::conversation::{AccessBuffers, Completed, Conversation};
use crate::exchange::measure::{self, Metric};
use crate::exchange::remote_region::RemoteRegion;
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// An operation on the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessOperation {
    /// Write bytes.
    Write,
    /// Read bytes.
    Read,
    /// Add a number to a 64-bit integer, and fetch its previous value.
    FetchAdd,
}

/// The capabilities that both endpoints need for accesses, besides those for messages.
pub(super) const CAPS: Caps = Caps::RMA.union(Caps::ATOMIC);

/// The length of the integer on which fetch-add operates.
const INTEGER_BYTES: usize = size_of::<u64>();

impl AccessOperation {
    pub(super) const ALL: [AccessOperation; 3] =
        [AccessOperation::Write, AccessOperation::Read, AccessOperation::FetchAdd];

    /// The operation's name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            AccessOperation::Write => "write",
            AccessOperation::Read => "read",
            AccessOperation::FetchAdd => "fetch-add",
        }
    }

    /// The sizes for which to measure the operation, given the requested sizes.
    pub(super) fn sizes_to_measure(self, requested: &[usize]) -> &[usize] {
        match self {
            AccessOperation::Write | AccessOperation::Read => requested,
            AccessOperation::FetchAdd => &[INTEGER_BYTES],
        }
    }

    /// The local buffers of `count` accesses in flight.
    fn allocate_buffers(self, size_bytes: usize, count: u32) -> Vec<AccessBuffers> {
        match self {
            AccessOperation::Write => {
                let source = Bytes::from(vec![1; size_bytes]);
                (0..count).map(|_| AccessBuffers::Write(source.clone())).collect()
            }
            AccessOperation::Read => {
                (0..count).map(|_| AccessBuffers::Read(measure::zeroed_buffer(size_bytes))).collect()
            }
            AccessOperation::FetchAdd => {
                // Adding zero costs as much as adding any other number, and does not change the memory.
                let nothing = Bytes::from_static(&[0; INTEGER_BYTES]);
                let fetch_add = |_| AccessBuffers::FetchAdd {
                    operand: nothing.clone(),
                    result: measure::zeroed_buffer(INTEGER_BYTES),
                };
                (0..count).map(fetch_add).collect()
            }
        }
    }
}

/// Makes the accesses of a run, as the leader. For latency one access is in flight at a time, for
/// bandwidth a whole window of accesses.
pub(super) fn lead(
    conversation: &mut Conversation<'_>,
    place: RemoteRegion,
    operation: AccessOperation,
    metric: Metric,
    run: &Run,
) -> Result<Timing, CommandFailure> {
    let window = match metric {
        Metric::Latency => 1,
        Metric::Bandwidth => run.window,
    };
    let mut accesses =
        Accesses { conversation, place, free: operation.allocate_buffers(run.size_bytes, window), window };
    // Make one access before the measurement: it maps the region, if the domain can map regions.
    accesses.access_once()?;
    let timing = match metric {
        Metric::Latency => measure::time_round_trips(run, || accesses.access_once())?,
        Metric::Bandwidth => {
            accesses.conversation.set_fi_more(true)?;
            let timing = measure::time_message_rounds(run, |count| {
                let start = Instant::now();
                (0..count).try_for_each(|_| accesses.post_within_window())?;
                accesses.wait_for_all_accesses()?;
                Ok(start.elapsed())
            })?;
            accesses.conversation.set_fi_more(false)?;
            timing
        }
    };
    conversation.send(Bytes::new())?;
    while !matches!(conversation.wait_for_message()?, Completed::Sent(_)) {}
    Ok(timing)
}

/// Serves the leader's accesses, as the owner of the region. `has_own_core`: no other process needs the
/// core of this process.
pub(super) fn follow(conversation: &mut Conversation<'_>, has_own_core: bool) -> Result<(), CommandFailure> {
    conversation.post_receive(BytesMut::new())?;
    loop {
        match conversation.wait_as_target(has_own_core) {
            Ok(Completed::Received(..)) => return Ok(()),
            // No message comes while the leader accesses the region, so ignore the time-out of this
            // process. The leader has a time-out, and this process ends with the leader.
            Ok(Completed::Sent(_)) | Err(CommandFailure::Stalled { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// The accesses of a run, as the leader makes them.
struct Accesses<'c, 'p> {
    conversation: &'c mut Conversation<'p>,
    place: RemoteRegion,
    /// The buffers of accesses that are not in flight.
    free: Vec<AccessBuffers>,
    /// The largest number of accesses in flight.
    window: u32,
}

impl Accesses<'_, '_> {
    /// Makes one access, and waits for its completion.
    fn access_once(&mut self) -> Result<(), CommandFailure> {
        self.post_within_window()?;
        self.wait_for_all_accesses()
    }

    /// Posts the next access as soon as fewer than `window` are in flight.
    fn post_within_window(&mut self) -> Result<(), CommandFailure> {
        let local = match self.free.pop() {
            Some(local) => local,
            None => self.conversation.wait_for_access()?,
        };
        self.conversation.post_access(local, self.place)
    }

    /// Waits for the completions of all accesses.
    fn wait_for_all_accesses(&mut self) -> Result<(), CommandFailure> {
        while self.free.len() < self.window as usize {
            self.free.push(self.conversation.wait_for_access()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use homespun::Address;

    use super::*;
    use crate::exchange::conversation::Settings;
    use crate::exchange::host_and_port::HostAndPort;
    use crate::exchange::pattern::MessageDirection;
    use crate::exchange::port::{self, Port};

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn make_settings(direction: MessageDirection, timeout: Duration) -> Settings {
        Settings { direction, tagged: true, check: false, timeout }
    }

    /// Measures every operation, size and metric. Both endpoints are in this process, each in its own
    /// thread.
    fn measure_every_access(domain: &str, sizes: &[usize], owner_timeout: Duration) {
        let (send_step, steps) = crossbeam_channel::unbounded::<()>();
        let (send_address, addresses) = crossbeam_channel::unbounded();
        let (answer, answered) = crossbeam_channel::unbounded::<Address>();
        let name = domain.to_owned();
        let largest = sizes.iter().copied().max().unwrap_or_default();
        let owner = thread::spawn(move || {
            let any = HostAndPort { host: "127.0.0.1".into(), port: 0 };
            let port = Port::open_listening(&any, Some(&name), CAPS).unwrap();
            let region = port.register_shared(largest).unwrap();
            send_address
                .send((port.address(), RemoteRegion { key: region.key(), address: region.address() }))
                .unwrap();
            let settings = make_settings(MessageDirection::ToClient, owner_timeout);
            let mut conversation = Conversation::open(&port, answered.recv().unwrap(), settings).unwrap();
            for () in steps {
                follow(&mut conversation, false).unwrap();
            }
            let mut written = vec![0; largest];
            region.read_at(0, &mut written).unwrap();
            written
        });
        let (address, place) = addresses.recv().unwrap();
        let (port, address) = Port::open_to_peer(&HostAndPort::from(address), Some(domain), CAPS).unwrap();
        answer.send(port.address()).unwrap();
        let mut conversation =
            Conversation::open(&port, address, make_settings(MessageDirection::ToServer, TIMEOUT)).unwrap();
        for operation in AccessOperation::ALL {
            for &size_bytes in operation.sizes_to_measure(sizes) {
                for metric in [Metric::Latency, Metric::Bandwidth] {
                    send_step.send(()).unwrap();
                    let run = Run::new(size_bytes, Some(70));
                    assert!(lead(&mut conversation, place, operation, metric, &run).unwrap().each_us > 0.0);
                }
            }
        }
        drop(send_step);
        assert_eq!(owner.join().unwrap(), vec![1; largest]);
    }

    #[test]
    fn accesses_in_every_domain_operation_and_size_are_measured() {
        for domain in port::domain_names().unwrap() {
            measure_every_access(&domain, &[0, 1, 8, 1000, 100_000], TIMEOUT);
        }
    }

    #[test]
    fn region_owner_ignores_the_timeout() {
        for domain in port::domain_names().unwrap() {
            measure_every_access(&domain, &[8], Duration::ZERO);
        }
    }
}
