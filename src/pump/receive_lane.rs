//! The receive lane, between a queue and the engine: see `engine/src/engine/receive_lane.rs`.

use homespun_engine::buffer::Destination;
use homespun_engine::completion::{EndedOperation, FailedOperation, Received, Sink};
use homespun_engine::engine::Engine;
use homespun_engine::flags::CounterEvents;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::Signalled;
use homespun_engine::peers::Peers;
use homespun_engine::transport::{Glance, LinkId, Transport};

use super::address_cache::AddressCache;
use super::duties::Purpose;
use super::queues::Queues;
use super::{BoundObjects, Pump, State};
use crate::av::FabricAddress;
use crate::cq::Reader;
use crate::endpoint_pump::Bindings;
use crate::lock::LockGuard;
use crate::tag::TagMatch;

impl<T: Transport> Pump<T> {
    /// Makes a pass for a poll of a completion queue, if not all is quiet.
    // Not inlined, since most polls of a program that waits find nothing.
    #[inline(never)]
    pub(super) fn progress_after_glance(
        &self,
        mut guard: LockGuard<'_, Option<State<T>>>,
        glance: Glance,
        reader: &mut Reader<'_>,
    ) {
        let Some(state) = guard.as_mut() else { return };
        reader.allow_hand_over_if_ring_empty();
        if let Glance::Frame(link) = glance
            && let State { engine, transport, bound: Some(bound), is_quiet, .. } = state
            && bound.receive_at_once(link, reader, engine, transport, is_quiet)
        {
            // Nor does a pass follow if a further frame was not taken: peeks must not find that message
            // before the next poll.
            return;
        }
        state.pass_for_reader(reader);
        if !state.duties.is_empty() {
            self.run_duties(&mut guard, Purpose::Poll);
        }
    }
}

impl BoundObjects {
    /// Posts a receive, if it has to wait for its message and nothing else is to be done. Returns whether it
    /// was posted. If so, the memory was taken. If not, nothing has changed.
    #[inline(always)]
    pub(super) fn try_post_waiting_receive(
        &self,
        from: FabricAddress,
        tagged: Option<&TagMatch>,
        context: u64,
        signalled: Signalled,
        destination: &mut Destination,
        engine: &mut Engine,
    ) -> bool {
        let source = match from {
            FabricAddress::UNSPECIFIED => None,
            from => match self.peer_cache.cached_peer(from, &self.bindings.av) {
                None => return false,
                cached => cached,
            },
        };
        let TagMatch { tag, ignore } = tagged.copied().unwrap_or(TagMatch::ANY);
        let criteria = Criteria { source, tag, ignore };
        engine.try_post_waiting_receive(tagged.is_some(), criteria, context, signalled, destination)
    }

    /// Takes messages for posted receives, for a reader: of a link and, if the read asks for more, of the
    /// links that further glances find. The engine must be quiet; it stays so unless a report waits for room.
    /// Returns false if no message was taken, so that the caller must make a pass.
    #[inline(always)]
    pub(super) fn receive_at_once(
        &mut self,
        link: LinkId,
        reader: &mut Reader<'_>,
        engine: &mut Engine,
        transport: &mut impl Transport,
        is_quiet: &mut bool,
    ) -> bool {
        let budget_frames = reader.budget_frames();
        let mut taken = 0;
        let BoundObjects { bindings, address_cache, .. } = self;
        let mut queues = LaneQueues { bindings, address_cache, reader };
        let mut arrivals = engine.arrivals(&mut queues);
        let mut glance = Glance::Frame(link);
        while let Glance::Frame(link) = glance {
            let more = transport.receive_at_once(link, budget_frames - taken, &mut arrivals);
            taken += more;
            if more == 0 || taken == budget_frames || arrivals.has_held_report() {
                break;
            }
            glance = transport.glance();
        }
        *is_quiet = !arrivals.has_held_report();
        taken > 0
    }
}

/// The completion queues and counters of an endpoint as the sink of taken messages. Hands the first
/// completion over to the reader. All others go the way of [`Queues`].
struct LaneQueues<'a, 'r> {
    bindings: &'a Bindings,
    address_cache: &'a mut AddressCache,
    reader: &'a mut Reader<'r>,
}

impl<'r> LaneQueues<'_, 'r> {
    fn queues(&mut self) -> Queues<'_, 'r> {
        Queues::new(self.bindings, self.address_cache, Some(self.reader))
    }
}

impl Sink for LaneQueues<'_, '_> {
    #[inline(always)]
    fn complete_receive(&mut self, received: Received, peers: &Peers) -> bool {
        let Bindings { receive_cq: Some(cq), reports_unknown_sources: false, wants_source, av, .. } =
            self.bindings
        else {
            return false;
        };
        if !self.reader.can_hand_over_from(cq.unread_entries()) {
            return false;
        }
        let source = wants_source.then(|| self.address_cache.address_of_peer(received.source, av, peers));
        self.reader.hand_over_receive(received, cq.format(), source);
        true
    }

    #[inline(never)]
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation> {
        self.queues().complete(completion, peers)
    }

    #[cold]
    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation> {
        self.queues().fail(failure, peers)
    }

    #[inline(always)]
    fn has_counters(&self) -> bool {
        !self.bindings.counters.is_empty()
    }

    fn count(&mut self, events: CounterEvents) {
        self.bindings.counters.count_success(events);
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use homespun_engine::error::OperationError;
    use homespun_engine::flags::{Caps, OpFlags};

    use crate::cq::Entry;
    use crate::{Fabric, FabricAddress, Hints, RecvMsg, Tag};

    /// As of a pass: see "Peeks" in docs/design/messages.md.
    #[test]
    fn poll_that_takes_a_message_hides_the_next_from_peeks() {
        let hints = Hints::new().caps(Caps::TAGGED).domain("shm");
        let [receiver, sender] = [(); 2].map(|()| Fabric::new().open_endpoint(&hints).expect("an endpoint"));
        let to = sender.av.insert_one(receiver.endpoint.name().expect("a name")).expect("room");
        let post = |tag| {
            let posted = receiver.endpoint.trecv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, tag, 1);
            posted.expect("room");
        };
        let read_until_some = || {
            while receiver.cq.read_each(8, |_, _| ()).expect("no error").is_none() {
                sender.cq.read_each(8, |_, _| ()).expect("no error");
            }
        };
        for round in 0..100 {
            post(Tag(1));
            for tag in [Tag(1), Tag(2)] {
                sender.endpoint.tsend(Bytes::from_static(b"morning!"), to, tag, 1).expect("room");
            }
            read_until_some();
            let flags = OpFlags::PEEK;
            let peek = RecvMsg { tagged: Some(Tag(2).into()), flags, ..RecvMsg::default() };
            receiver.endpoint.recvmsg(peek).expect("room");
            match receiver.cq.read_entry() {
                Ok(Some(Entry::Failed(missed))) => assert_eq!(missed.error, OperationError::NoMessage),
                found => panic!("in round {round} the peek finds {found:?}"),
            }
            post(Tag(2));
            read_until_some();
        }
    }
}
