//! Completion channels: what a thread waits on until a completion queue has something to read.

use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use homespun::mutated;
use parking_lot::Mutex;

use crate::completion::Completion;
use crate::error::Error;
use crate::kept_completions::{KeptCompletions, KeptReceives};
use crate::native_queue::NativeQueue;
use crate::wait_descriptor::{WaitDescriptor, is_nonblocking};

/// One of the queues of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// The main queue of a connection, or the only queue of the channel.
    Main,
    /// The receive queue of a connection, beside the main queue.
    Receive,
}

/// The queues that use a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One queue of a connection, which has the channel for itself.
    Own,
    /// The queue of a shared receive queue. Connections come and go.
    AcrossConnections,
    /// The main queue of a connection that asks for a shared channel, but has no receive queue.
    MainAlone,
    /// The main queue and the receive queue of a connection.
    MainAndReceive,
}

/// A completion channel. It has the completions of its queues in the order in which they came.
#[derive(Debug)]
pub(crate) struct Channel {
    sharing: Sharing,
    state: Mutex<State>,
    /// Set once the application has asked for it, or a thread has waited.
    descriptor: OnceLock<WaitDescriptor>,
    /// Whether the application has asked for the descriptor.
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct State {
    queues: Vec<Arc<NativeQueue>>,
    /// The index of the native queue to read first.
    first: usize,
    /// While one is kept, the descriptor is readable.
    kept: KeptCompletions,
}

impl Channel {
    /// `shared_receives` counts the receives that are kept, if they are those of a shared receive queue.
    pub(crate) fn new(sharing: Sharing, shared_receives: Option<Arc<KeptReceives>>) -> Arc<Channel> {
        let kept = KeptCompletions::new(shared_receives);
        let state = Mutex::new(State { queues: Vec::new(), first: 0, kept });
        let descriptor = OnceLock::new();
        Arc::new(Channel { sharing, state, descriptor, is_watched: AtomicBool::new(false) })
    }

    /// Whether the connection waits for the channel, and not one queue.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.sharing, Sharing::MainAlone | Sharing::MainAndReceive)
    }

    /// Adds a native queue.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_queue(&self, queue: &Arc<NativeQueue>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.add(queue.descriptor())?;
        }
        state.queues.push(queue.clone());
        self.arm_descriptor_if_watched_and_empty(&mut state);
        Ok(())
    }

    /// Takes note of native queues that have begun or ended. Either makes the descriptor readable.
    pub(crate) fn update_queues(&self) {
        self.arm_descriptor_if_watched_and_empty(&mut self.state.lock());
    }

    /// Moves the completions of a native queue to those that are kept. Returns their number. Each read makes
    /// room in the queue, so completions that wait at the endpoint follow.
    pub(crate) fn keep_completions(&self, queue: &NativeQueue) -> usize {
        let kept = &mut self.state.lock().kept;
        let before = kept.len();
        iter::from_fn(|| queue.read()).for_each(|completion| kept.push(completion));
        kept.len() - before
    }

    /// Whether fewer than `max` completions of a queue are kept because the application reads the other queue
    /// of the channel.
    pub(crate) fn keeps_fewer_than(&self, max: usize, role: Role) -> bool {
        if self.sharing != Sharing::MainAndReceive {
            return true;
        }
        let kept = &self.state.lock().kept;
        kept.len() < max || kept.iter().filter(|completion| self.role_of(completion) == role).count() < max
    }

    /// Returns the next completion of a queue.
    pub(crate) fn next(&self, role: Role) -> Option<Completion> {
        let mut state = self.state.lock();
        let kept = state.kept.pop(|completion| self.role_of(completion) == role);
        let mut next = kept.or_else(|| self.read_next(&mut state, role));
        let takes_later = mutated!("rpma_cq_get_completion/success-returns-first")
            || mutated!("rpma_cq_get_wc/returns-oldest-first");
        if takes_later && let Some(later) = self.read_next(&mut state, role) {
            next.replace(later).into_iter().for_each(|first| state.kept.push(first));
        }
        self.arm_descriptor_if_watched_and_empty(&mut state);
        next
    }

    /// Waits until there is a completion. Returns the queue that has the oldest one.
    ///
    /// # Errors
    ///
    /// [`Error::NoCompletion`] if there is none, and the application has set `O_NONBLOCK` on the descriptor,
    /// or the connection is gone. [`Error::Interrupted`]. The system's error: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(crate) fn wait(&self) -> Result<Role, Error> {
        loop {
            let may_sleep = {
                let mut state = self.state.lock();
                // Checked before the read: what comes before the end is not missed.
                let is_over = self.is_over(&state);
                self.remove_ended_queues(&mut state);
                if state.kept.is_empty()
                    && let Some(read) = state.read()
                {
                    if mutated!("rpma_conn_wait/oldest-completion-first")
                        && let Some(later) = state.read()
                    {
                        state.kept.push(later);
                    }
                    state.kept.push(read);
                }
                if let Some(oldest) = state.kept.oldest() {
                    let role = self.role_of(oldest);
                    if mutated!("rpma_cq_wait/wait-leaves-completion") {
                        state.kept.pop(|_| true);
                    }
                    return Ok(role);
                }
                if mutated!("rpma_cq_wait/wait-found-completion") {
                    return Ok(Role::Main);
                }
                if is_over {
                    return Err(Error::NoCompletion);
                }
                let descriptor = self.descriptor_or_open(&state)?;
                let may_sleep = state.arm();
                if self.is_watched.load(Ordering::SeqCst) && is_nonblocking(descriptor.as_fd()) {
                    let is_broken = mutated!("rpma_cq_get_fd/nonblocking-descriptor");
                    return Err(if is_broken { Error::NoEvent } else { Error::NoCompletion });
                }
                may_sleep.then_some(descriptor)
            };
            match may_sleep {
                Some(descriptor) => descriptor.wait()?,
                None => thread::yield_now(),
            }
        }
    }

    /// Returns a descriptor that is readable while there is a completion.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        let mut state = self.state.lock();
        let descriptor = self.descriptor_or_open(&state)?;
        self.is_watched.store(true, Ordering::SeqCst);
        if mutated!("rpma_cq_get_fd/descriptor-is-readable") {
            state.queues.iter().for_each(|queue| descriptor.remove(queue.descriptor()));
        }
        self.arm_descriptor_if_watched_and_empty(&mut state);
        Ok(descriptor.as_fd())
    }

    /// Reads until there is a completion of this queue. Keeps those of the other one.
    fn read_next(&self, state: &mut State, role: Role) -> Option<Completion> {
        while let Some(completion) = state.read() {
            if self.role_of(&completion) == role {
                return Some(completion);
            }
            state.kept.push(completion);
        }
        None
    }

    /// Returns the queue to which a completion belongs.
    fn role_of(&self, completion: &Completion) -> Role {
        match self.sharing {
            Sharing::MainAndReceive if completion.op.is_receive() => Role::Receive,
            _ => Role::Main,
        }
    }

    fn descriptor_or_open(&self, state: &State) -> Result<&WaitDescriptor, Error> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor);
        }
        let descriptor = WaitDescriptor::new()?;
        state.queues.iter().try_for_each(|queue| descriptor.add(queue.descriptor()))?;
        Ok(self.descriptor.get_or_init(|| descriptor))
    }

    /// Whether no completion can come any more: the connection is gone.
    fn is_over(&self, state: &State) -> bool {
        self.sharing != Sharing::AcrossConnections && state.queues.iter().all(|queue| queue.has_ended())
    }

    /// Removes the native queues of connections that are gone, once they are read to the end and the
    /// application has read every completion that is kept. Until then they stay, since one of them may be the
    /// only queue that keeps the descriptor readable.
    fn remove_ended_queues(&self, state: &mut State) {
        let is_due =
            self.sharing == Sharing::AcrossConnections && state.queues.iter().any(|queue| queue.has_ended());
        if !is_due {
            return;
        }
        let State { queues, kept, first } = state;
        queues.retain(|queue| {
            if !queue.has_ended() {
                return true;
            }
            iter::from_fn(|| queue.read()).for_each(|completion| kept.push(completion));
            if !kept.is_empty() {
                return true;
            }
            if let Some(descriptor) = self.descriptor.get() {
                descriptor.remove(queue.descriptor());
            }
            false
        });
        *first = 0;
    }

    /// Makes the descriptor readable only while there is a completion. Each read leaves it readable. Removes
    /// connections that are gone.
    fn arm_descriptor_if_watched_and_empty(&self, state: &mut State) {
        self.remove_ended_queues(state);
        if self.is_watched.load(Ordering::SeqCst) && state.kept.is_empty() {
            state.arm();
        }
    }
}

impl State {
    /// Reads a completion. Takes turns among the queues, so that none waits for ever.
    fn read(&mut self) -> Option<Completion> {
        let count = self.queues.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            if let Some(completion) = self.queues[index].read() {
                self.first = (index + 1) % count;
                return Some(completion);
            }
        }
        None
    }

    /// Makes the next completion wake the threads that wait. Returns false if there may be one already, or a
    /// connection is gone.
    fn arm(&mut self) -> bool {
        self.queues.iter().all(|queue| queue.try_wait())
    }
}
