//! Bare loops: they do only the necessary work of messages. Their times are lower bounds for the
//! fabric's times.
//!
//! Each bare loop moves messages between the same two processes by one mechanism, without headers,
//! matching or completions. It has only as much flow control as keeps the sender from overrunning the
//! receiver.

mod memcpy;
mod memory;
mod poller;
mod pulls;
mod ring;
mod signal;
mod socket;
#[expect(unsafe_code, reason = "shares memory with another process and reads from its memory")]
mod sys;

use std::io;
use std::net::TcpStream;
use std::time::Instant;

pub(super) use self::memcpy::{Copies, Copying, time_copies, time_memcpy};
pub(super) use self::memory::BareMemory;
pub(super) use self::poller::BarePoller;
use self::pulls::Pulls;
use self::ring::BareRing;
pub(super) use self::ring::SLOT_MAX_BYTES;
use self::socket::Socket;
use super::step::{Step, Way};
use crate::exchange::measure::{self, Metric};
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// One process's end of a bare loop.
pub(super) trait Loop {
    /// Sends one message.
    fn send(&mut self) -> Result<(), CommandFailure>;

    /// Waits for one message and receives it.
    fn receive(&mut self) -> Result<(), CommandFailure>;

    /// Sends many messages.
    fn send_many(&mut self, count: u32) -> Result<(), CommandFailure> {
        (0..count).try_for_each(|_| self.send())
    }

    /// Waits for many messages and receives them.
    fn receive_many(&mut self, count: u32) -> Result<(), CommandFailure> {
        (0..count).try_for_each(|_| self.receive())
    }

    /// Waits until the other process no longer needs this end.
    fn await_peer_done(&mut self) -> Result<(), CommandFailure> {
        Ok(())
    }

    /// Signals to the other process that this process is ready, or done.
    fn send_signal(&mut self) -> Result<(), CommandFailure>;

    /// Waits for the signal of the other process.
    fn await_signal(&mut self) -> Result<(), CommandFailure>;
}

/// The medium between the two processes.
#[derive(Debug)]
pub(super) enum Medium {
    /// Shared memory.
    Memory {
        /// The shared segment.
        memory: BareMemory,
        /// The process id of the other process.
        other_pid: i32,
    },
    /// A TCP connection.
    Socket(TcpStream),
}

impl Medium {
    /// Makes a medium of a TCP connection between the two processes.
    pub(super) fn from_tcp_stream(stream: io::Result<TcpStream>) -> Result<Medium, CommandFailure> {
        stream
            .and_then(|stream| socket::set_nodelay_and_nonblocking(&stream).map(|()| Medium::Socket(stream)))
            .map_err(|error| CommandFailure::Bare { doing: "connecting", error })
    }

    /// Prepares this process's end of a loop. The leader must do this before the follower, because the
    /// leader clears the shared memory.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::PeerProtocol`] if the step's way needs another medium.
    pub(super) fn prepare_loop_end<'a>(
        &'a self,
        step: &Step,
        poller: &'a BarePoller,
    ) -> Result<Box<dyn Loop + 'a>, CommandFailure> {
        if let Medium::Memory { memory, .. } = self {
            memory.clear_if_leader();
        }
        match (self, step.way) {
            (Medium::Memory { memory, .. }, Way::Ring) => Ok(Box::new(BareRing::new(memory, poller, step))),
            (Medium::Memory { memory, .. }, Way::Pipelined(chunk)) => {
                Ok(Box::new(BareRing::new_chunked(memory, poller, step, chunk.len_bytes())))
            }
            (Medium::Memory { memory, other_pid }, Way::Readv | Way::Memcpy) => {
                Ok(Box::new(Pulls::new(memory, poller, *other_pid, step)?))
            }
            (Medium::Socket(stream), Way::Socket) => Ok(Box::new(Socket::new(stream, poller, step))),
            _ => Err(CommandFailure::PeerProtocol),
        }
    }
}

/// Measures as the leader: half round trips, or one-way messages.
pub(super) fn lead(end: &mut dyn Loop, step: &Step) -> Result<Timing, CommandFailure> {
    let run = &step.run;
    let timing = match step.metric {
        Metric::Latency => measure::time_round_trips(run, || {
            end.send()?;
            end.receive()
        })
        .map(Timing::halved),
        Metric::Bandwidth => measure::time_message_rounds(run, |count| {
            end.await_signal()?;
            let start = Instant::now();
            end.send_many(count)?;
            end.await_signal()?;
            Ok(start.elapsed())
        }),
    }?;
    end.await_peer_done()?;
    Ok(timing)
}

/// Takes the follower's part of the measurement.
pub(super) fn follow(end: &mut dyn Loop, step: &Step) -> Result<(), CommandFailure> {
    let run = &step.run;
    match step.metric {
        Metric::Latency => (0..run.warmup + run.round_trips).try_for_each(|_| {
            end.receive()?;
            end.send()
        }),
        Metric::Bandwidth => measure::message_counts_of_rounds(run).try_for_each(|count| {
            end.send_signal()?;
            end.receive_many(count)?;
            end.send_signal()
        }),
    }?;
    end.await_peer_done()
}

/// Buffers for arriving messages, used in turn. There are as many buffers as the fabric posts receives,
/// so that a bare loop and the fabric use the same amount of memory.
#[derive(Debug)]
struct Buffers {
    buffers: Vec<Vec<u8>>,
    next: usize,
}

impl Buffers {
    fn new(size_bytes: usize, count: u32) -> Buffers {
        // The buffers are not zero, so that the kernel allocates their pages now.
        let buffers = (0..count).map(|_| vec![BLANK; size_bytes]).collect();
        Buffers { buffers, next: 0 }
    }

    #[inline]
    fn next_buffer(&mut self) -> &mut [u8] {
        let current = self.next;
        self.next = if current + 1 == self.buffers.len() { 0 } else { current + 1 };
        &mut self.buffers[current]
    }
}

/// The content of a buffer before a message arrives.
const BLANK: u8 = 0xff;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::bench::step::Chunk;
    use crate::exchange::run::Run;

    const METRICS: [Metric; 2] = [Metric::Latency, Metric::Bandwidth];

    fn make_poller() -> BarePoller {
        BarePoller::new(Arc::new(AtomicBool::new(false)), Duration::from_secs(30), false)
    }

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    /// Measures every size in both metrics. Both ends are in this process, each in its own thread.
    fn measure_between_threads(
        way: Way,
        sizes: &'static [usize],
        leading: &Medium,
        following: impl FnOnce() -> Medium + Send + 'static,
    ) {
        let (send_step, steps) = crossbeam_channel::unbounded::<Step>();
        let (signal, signals) = crossbeam_channel::unbounded();
        let follower = thread::spawn(move || {
            let (medium, poller) = (following(), make_poller());
            for step in steps {
                let mut end = medium.prepare_loop_end(&step, &poller).unwrap();
                signal.send(()).unwrap();
                follow(&mut *end, &step).unwrap();
                signal.send(()).unwrap();
            }
        });
        let poller = make_poller();
        for &size_bytes in sizes {
            for metric in METRICS {
                let step = Step { way, metric, run: Run::new(size_bytes, Some(600)) };
                let mut end = leading.prepare_loop_end(&step, &poller).unwrap();
                send_step.send(step).unwrap();
                signals.recv().unwrap();
                assert!(lead(&mut *end, &step).unwrap().each_us > 0.0);
                signals.recv().unwrap();
            }
        }
        drop(send_step);
        follower.join().unwrap();
    }

    fn measure_over_shared_memory(way: Way, sizes: &'static [usize]) {
        let memory = BareMemory::create().unwrap();
        let path = PathBuf::from(memory.proc_fd_path());
        let leading = Medium::Memory { memory, other_pid: own_pid() };
        measure_between_threads(way, sizes, &leading, move || Medium::Memory {
            memory: BareMemory::open(&path).unwrap(),
            other_pid: own_pid(),
        });
    }

    #[test]
    fn ring_carries_messages_of_every_size() {
        measure_over_shared_memory(Way::Ring, &[0, 8, 56, 57, 1000, 32 * 1024 + 1, 300_000]);
    }

    #[test]
    fn pipelined_ring_carries_messages_of_every_size() {
        for chunk in Chunk::ALL {
            measure_over_shared_memory(Way::Pipelined(chunk), &[1, 4096, 16 * 1024 + 1, 300_000]);
        }
    }

    #[test]
    fn cross_memory_copies_carry_messages_of_every_size() {
        let memory = BareMemory::create().unwrap();
        // A process can read its own memory, unless the system forbids process_vm_readv(2) altogether.
        if memory.check_readv_access(own_pid()).is_ok() {
            measure_over_shared_memory(Way::Readv, &[1, 1000, 16 * 1024, 1 << 20]);
        }
    }

    #[test]
    fn copies_from_mapped_memory_carry_messages_of_every_size() {
        measure_over_shared_memory(Way::Memcpy, &[1, 1000, 16 * 1024, 1 << 20]);
    }

    #[test]
    fn socket_carries_messages_of_every_size() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let leading = Medium::from_tcp_stream(TcpStream::connect(address)).unwrap();
        measure_between_threads(Way::Socket, &[0, 8, 1000, 300_000], &leading, move || {
            Medium::from_tcp_stream(listener.accept().map(|(stream, _)| stream)).unwrap()
        });
    }

    #[test]
    fn step_over_another_medium_is_refused() {
        let medium = Medium::Memory { memory: BareMemory::create().unwrap(), other_pid: own_pid() };
        let poller = make_poller();
        let step = Step { way: Way::Socket, metric: Metric::Latency, run: Run::new(8, Some(1)) };
        let refused = medium.prepare_loop_end(&step, &poller);
        assert!(matches!(refused.map(|_| ()), Err(CommandFailure::PeerProtocol)));
    }
}
