//! The pump: the only code that sees both an endpoint's engine and its transport.
//!
//! It is generic over the transport, and reached through one virtual call per post and one per progress, none per
//! frame. Its lock is taken before a completion queue's lock, never the other way.

mod names;
mod queues;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::buffer::{Destination, Room, Source};
use homespun_engine::engine::{Config, Engine};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{Found, Level, PeekRequest, ReceiveRequest, SendRequest};
use homespun_engine::rejected::Rejected;
use homespun_engine::transport::{Armed, Transport};

use crate::av::{AddressVector, FabricAddress};
use crate::cq::{Reader, Shared};
use crate::doorbell::Doorbell;
use crate::lock::Lock;
use crate::pump::names::{Sources, Targets};
use crate::pump::queues::{Nobody, Queues};

/// How many frames a pass receives before it hands completions to the application.
const RECEIVE_BUDGET_FRAMES: u32 = 256;

/// A pump, whatever its transport: what endpoints and completion queues hold.
pub(crate) trait Drive: Send + Sync {
    fn address(&self) -> Address;
    fn enable(&self, wiring: Wiring) -> Result<(), Error>;
    fn post_send(&self, post: SendPost) -> Result<(), Rejected<Source>>;
    fn post_receive(&self, post: ReceivePost, destination: Destination) -> Result<(), Rejected<Destination>>;
    /// As [`post_receive`](Self::post_receive), for the most frequent kind of destination.
    fn post_receive_into(&self, post: ReceivePost, room: Room) -> Result<(), Error>;
    /// Posts a buffer that takes many messages, until less than this is left of it or a message does not fit.
    fn post_multi_receive(
        &self,
        post: ReceivePost,
        destination: Destination,
        min_free_bytes: usize,
    ) -> Result<(), Rejected<Destination>>;
    /// Looks for a message that this receive would take. It is always reported, signalled or not.
    fn peek(&self, post: ReceivePost, then: Found) -> Result<(), Error>;
    /// Receives the message that a peek with this context has claimed, wherever it is from and whatever its tag.
    fn receive_claimed(
        &self,
        post: ReceivePost,
        destination: Destination,
    ) -> Result<(), Rejected<Destination>>;
    /// Throws away the message that a peek with this context has claimed. It is always reported.
    fn discard_claimed(&self, tagged: bool, context: u64) -> Result<(), Error>;
    /// Sends a small message, if that is possible at once. Whether it was sent; if not, it is to be posted.
    fn inject(
        &self,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
    ) -> Result<bool, Error>;
    fn cancel(&self, context: u64) -> Result<(), Error>;
    /// Moves everything on as far as it goes, on behalf of somebody who reads a queue.
    fn progress(&self, reader: &mut Reader<'_>);
    /// To be called after a pass by somebody who has armed the doorbell of a queue and is about to sleep: whether the
    /// descriptor of [`with_wake_fd`](Self::with_wake_fd) tells of what happens next. Whoever uses the endpoint meanwhile
    /// sees to it that this stays so, or rings.
    fn arm(&self) -> Armed;
    /// Shows the transport's descriptor, if it has one and is not closed.
    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>));
    /// Ends the endpoint. Waits up to `linger` for what it still has to send.
    fn close(&self, linger: Duration);
}

/// What an endpoint is connected to when it is enabled.
pub(crate) struct Wiring {
    pub(crate) av: AddressVector,
    pub(crate) transmit_cq: Option<Arc<Shared>>,
    pub(crate) receive_cq: Option<Arc<Shared>>,
    /// Whether completions name their source.
    pub(crate) wants_source: bool,
    /// Whether a source that has no name makes an error of its completion.
    pub(crate) reports_unknown_sources: bool,
}

impl Wiring {
    /// What wakes those who sleep until a queue of this endpoint has something to tell.
    fn doorbells(&self) -> impl Iterator<Item = &Doorbell> {
        self.transmit_cq.iter().chain(&self.receive_cq).filter_map(|cq| cq.doorbell())
    }
}

/// A send as an endpoint posts it.
pub(crate) struct SendPost {
    pub(crate) to: FabricAddress,
    pub(crate) source: Source,
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) context: u64,
    pub(crate) level: Level,
    pub(crate) signalled: bool,
    pub(crate) inject: bool,
    /// Whether it waits for all before it to the same peer, and all after it wait for it.
    pub(crate) fence: bool,
    /// Another operation follows at once, so transmission may wait for it.
    pub(crate) more: bool,
}

/// A receive as an endpoint posts it.
pub(crate) struct ReceivePost {
    /// `None` for any source.
    pub(crate) from: Option<FabricAddress>,
    /// Tag and ignore mask of a tagged receive.
    pub(crate) tagged: Option<(u64, u64)>,
    pub(crate) context: u64,
    pub(crate) signalled: bool,
}

/// An endpoint's engine, its transport, and what both are wired to.
pub(crate) struct Pump<T> {
    address: Address,
    /// `None` once it was closed.
    state: Lock<Option<State<T>>>,
}

struct State<T> {
    /// Dropped before the engine, which has lent memory that peers may read until the links have ended.
    transport: T,
    engine: Engine,
    wired: Option<Wired>,
    /// Whether somebody may be asleep who relies on the transport to wake them.
    is_armed: bool,
}

impl<T: Transport> State<T> {
    /// Does what is left to do without anything having arrived, such as to tell a peer of the match of a receive that was
    /// just posted. Whether the transport will tell of what there is to do next.
    fn come_to_rest(&mut self) -> Armed {
        let State { engine, transport, wired: Some(wired), .. } = self else { return AT_REST };
        let mut queues = wired.queues();
        engine.deliver_held(&mut queues);
        engine.transmit(transport, &mut queues);
        transport.flush();
        drop(queues);
        if engine.wants_pass() { Armed::Ready } else { transport.arm() }
    }

    /// The endpoint was used while somebody may be asleep, so that its transport watches no longer. Has it watch again; or
    /// those who sleep are woken.
    #[cold]
    fn keep_watch(&mut self) {
        let has_sleepers = |wired: &Wired| wired.wiring.doorbells().any(Doorbell::is_armed);
        self.is_armed = self.wired.as_ref().is_some_and(has_sleepers) && self.come_to_rest() == AT_REST;
        if !self.is_armed
            && let Some(wired) = &self.wired
        {
            wired.wiring.doorbells().for_each(Doorbell::ring);
        }
    }
}

/// What a transport answers that can be left alone.
const AT_REST: Armed = Armed::Asleep { look_again_after: None };

struct Wired {
    wiring: Wiring,
    targets: Targets,
    sources: Sources,
}

impl Wired {
    /// Which messages a receive accepts.
    #[inline(always)]
    fn criteria(&mut self, post: &ReceivePost, engine: &mut Engine) -> Result<Criteria, Error> {
        let source = match post.from {
            Some(from) => Some(self.targets.peer(from, &self.wiring.av, engine)?),
            None => None,
        };
        let (tag, ignore) = post.tagged.unwrap_or((0, u64::MAX));
        Ok(Criteria { source, tag, ignore })
    }

    fn queues(&mut self) -> Queues<'_, 'static> {
        Queues::new(&self.wiring, &mut self.sources, None)
    }

    fn queues_for<'a, 'r>(&'a mut self, reader: &'a mut Reader<'r>) -> Queues<'a, 'r> {
        Queues::new(&self.wiring, &mut self.sources, Some(reader))
    }
}

impl<T: Transport> Pump<T> {
    pub(crate) fn new(transport: T, config: Config) -> Self {
        let address = transport.address();
        Pump {
            address,
            state: Lock::new(Some(State {
                engine: Engine::new(config),
                transport,
                wired: None,
                is_armed: false,
            })),
        }
    }

    /// Does something at an endpoint that is enabled.
    #[inline(always)]
    fn with<R>(
        &self,
        act: impl FnOnce(&mut Engine, &mut T, &mut Wired) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let act = |engine: &mut Engine, transport: &mut T, wired: &mut Wired, ()| {
            act(engine, transport, wired).map_err(|error| Rejected { error, buffer: () })
        };
        self.hand_in((), |()| (), act).map_err(|rejected| rejected.error)
    }

    /// Hands something to an endpoint that is enabled, or back the `buffer` that belongs to it.
    #[inline(always)]
    fn hand_in<I, B, R>(
        &self,
        input: I,
        buffer: impl FnOnce(I) -> B,
        act: impl FnOnce(&mut Engine, &mut T, &mut Wired, I) -> Result<R, Rejected<B>>,
    ) -> Result<R, Rejected<B>> {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut() else {
            return Err(Rejected { error: NOT_ENABLED, buffer: buffer(input) });
        };
        let State { engine, transport, wired: Some(wired), .. } = state else {
            return Err(Rejected { error: NOT_ENABLED, buffer: buffer(input) });
        };
        let done = act(engine, transport, wired, input);
        if state.is_armed {
            state.keep_watch();
        }
        done
    }

    #[inline(always)]
    fn receive_to(
        &self,
        post: &ReceivePost,
        destination: impl Into<Destination>,
    ) -> Result<(), Rejected<Destination>> {
        self.hand_in(destination, Into::into, |engine, _, wired, destination| {
            let criteria = match wired.criteria(post, engine) {
                Ok(criteria) => criteria,
                Err(error) => return Err(Rejected { error, buffer: destination.into() }),
            };
            let request = ReceiveRequest {
                criteria,
                destination: destination.into(),
                tagged: post.tagged.is_some(),
                context: post.context,
                signalled: post.signalled,
            };
            engine.post_receive(request, &mut wired.queues())
        })
    }
}

impl<T: Transport> Drive for Pump<T> {
    fn address(&self) -> Address {
        self.address
    }

    fn enable(&self, wiring: Wiring) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let state = guard.as_mut().ok_or(NOT_ENABLED)?;
        if state.wired.is_some() {
            return Err(Misuse::State("the endpoint is enabled already").into());
        }
        state.wired = Some(Wired { wiring, targets: Targets::default(), sources: Sources::default() });
        Ok(())
    }

    fn post_send(&self, post: SendPost) -> Result<(), Rejected<Source>> {
        self.hand_in(
            post,
            |post| post.source,
            |engine, transport, wired, post| {
                let SendPost { to, source, tag, data, context, level, signalled, inject, fence, more } = post;
                let to = match wired.targets.peer(to, &wired.wiring.av, engine) {
                    Ok(to) => to,
                    Err(error) => return Err(Rejected { error, buffer: source }),
                };
                let request = SendRequest { to, source, tag, data, context, level, signalled, inject, fence };
                engine.post_send(request, transport, &mut wired.queues())?;
                if !more {
                    transport.flush();
                }
                Ok(())
            },
        )
    }

    fn post_receive(&self, post: ReceivePost, destination: Destination) -> Result<(), Rejected<Destination>> {
        self.receive_to(&post, destination)
    }

    fn post_receive_into(&self, post: ReceivePost, room: Room) -> Result<(), Error> {
        Ok(self.receive_to(&post, room)?)
    }

    fn post_multi_receive(
        &self,
        post: ReceivePost,
        destination: Destination,
        min_free_bytes: usize,
    ) -> Result<(), Rejected<Destination>> {
        self.hand_in(
            destination,
            |destination| destination,
            |engine, _, wired, destination| {
                let criteria = match wired.criteria(&post, engine) {
                    Ok(criteria) => criteria,
                    Err(error) => return Err(Rejected { error, buffer: destination }),
                };
                let ReceivePost { tagged, context, signalled, .. } = post;
                let tagged = tagged.is_some();
                let request = ReceiveRequest { destination, tagged, criteria, context, signalled };
                engine.post_multi_receive(request, min_free_bytes, &mut wired.queues())
            },
        )
    }

    fn peek(&self, post: ReceivePost, then: Found) -> Result<(), Error> {
        self.with(|engine, _, wired| {
            let criteria = wired.criteria(&post, engine)?;
            let ReceivePost { tagged, context, .. } = post;
            let request = PeekRequest { tagged: tagged.is_some(), criteria, context, then };
            engine.peek(request, &mut wired.queues())
        })
    }

    fn receive_claimed(
        &self,
        post: ReceivePost,
        destination: Destination,
    ) -> Result<(), Rejected<Destination>> {
        self.hand_in(
            destination,
            |destination| destination,
            |engine, _, wired, destination| {
                let ReceivePost { tagged, context, signalled, .. } = post;
                let (tagged, criteria) = (tagged.is_some(), Criteria::any());
                let request = ReceiveRequest { destination, tagged, criteria, context, signalled };
                engine.receive_claimed(request, &mut wired.queues())
            },
        )
    }

    fn discard_claimed(&self, tagged: bool, context: u64) -> Result<(), Error> {
        self.with(|engine, _, wired| engine.discard_claimed(tagged, context, &mut wired.queues()))
    }

    fn inject(
        &self,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
    ) -> Result<bool, Error> {
        self.with(|engine, transport, wired| {
            let to = wired.targets.peer(to, &wired.wiring.av, engine)?;
            let is_sent = engine.inject(to, tag, data, message, transport);
            if is_sent {
                transport.flush();
            }
            Ok(is_sent)
        })
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        self.with(|engine, _, wired| engine.cancel(context, &mut wired.queues()))
    }

    fn progress(&self, reader: &mut Reader<'_>) {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut() else { return };
        let State { engine, transport, wired: Some(wired), .. } = state else { return };
        reader.begin();
        let mut queues = wired.queues_for(reader);
        engine.deliver_held(&mut queues);
        transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut queues));
        engine.transmit(transport, &mut queues);
        transport.flush();
        drop(queues);
        if state.is_armed {
            state.keep_watch();
        }
    }

    fn arm(&self) -> Armed {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut() else { return AT_REST };
        state.is_armed = true;
        state.come_to_rest()
    }

    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(fd) = self.state.lock().as_ref().and_then(|state| state.transport.wake_fd()) {
            show(fd);
        }
    }

    fn close(&self, linger: Duration) {
        let deadline = Instant::now() + linger;
        let mut guard = self.state.lock();
        // What is not there any more frees its memory, and its descriptors, whoever still knows the pump.
        let Some(State { mut engine, mut transport, .. }) = guard.take() else { return };
        drop(guard);
        transport.stop_accepting();
        let (mut nobody, mut patience) = (Nobody, Patience::default());
        while engine.has_unsent() && Instant::now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut nobody));
            engine.transmit(&mut transport, &mut nobody);
            transport.flush();
            patience.pause();
        }
        engine.close_links(&mut transport);
        transport.flush();
        while transport.draining() > 0 && Instant::now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut nobody));
            transport.flush();
            patience.pause();
        }
    }
}

/// Waits a little between looks at what does not announce itself, such as that a peer's kernel has everything: at
/// first hardly, then longer.
#[derive(Default)]
struct Patience {
    pauses: u32,
}

impl Patience {
    fn pause(&mut self) {
        self.pauses += 1;
        if self.pauses < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

const NOT_ENABLED: Error = Error::Misuse(Misuse::State("the endpoint is not enabled"));
