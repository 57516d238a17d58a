//! The connection of an endpoint: how it is made, and how it ends.
//!
//! ```text
//!  Fresh --connect--> Asked --(accept arrives)---+
//!    |                                            +--> Up --(the peer ends it, or is lost)--> Lost --> Over
//!    +--accept--> Accepting --(accept is sent)----+    |                                       ^
//!                                                      +--shutdown--> Leaving --(the peer)-----+
//!  An attempt that fails is Over.
//! ```
//!
//! The requester asks on a link to the passive endpoint, and is answered by the accepting endpoint on another one, which
//! then is the connection. So whoever accepts needs no more of the requester than its address, its instance, and the number
//! that only the two of them and the passive endpoint know. The requester waits as long as the first of the two links may
//! bring an answer, and a while longer for the other: the passive endpoint keeps the first until the requester has
//! confirmed that it has one, or the accepting endpoint has given up.
//!
//! Whoever accepts is connected when it has sent that it is, which it does when it has made sure that the requester is
//! there. So it knows before the requester can have done anything in consequence, such as to ask for another connection.
//!
//! To shut down is to say so and to let go of everything; the peer hears it behind all that was sent before, and ends the
//! link. That tells the one who has shut down that the peer knows. A frame that the link has taken in part is sent to its end
//! from a copy. Only the rest of a long payload, and what the peer may still fetch, is not copied: then the link ends there, and
//! what this side had to say of the peer's operations with it.

use std::mem;

use tracing::debug;

use super::Engine;
use super::handshakes::{Standing, check_data};
use super::links::Condemned;
use super::timers::Timeout;
use crate::address::Address;
use crate::completion::Sink;
use crate::connection::{ConnectionError, ConnectionEvent, Requester};
use crate::errno::Errno;
use crate::error::{Error, Misuse, OperationError};
use crate::limits::{EAGER_MAX_BYTES, UNANSWERED_MAX_MS};
use crate::link::{Frame, Writing};
use crate::moment::Moment;
use crate::peer_id::PeerId;
use crate::transport::{Close, LinkError, LinkId, Transport};
use crate::wire::{Handshake, HandshakeStep, Header};

/// What an endpoint keeps of its connection.
#[derive(Debug, Default)]
pub(super) struct Connected {
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// Nobody was asked, or answered.
    #[default]
    Fresh,
    /// The passive endpoint at the end of this link was asked.
    Asked {
        /// Until it ends.
        link: Option<LinkId>,
        number: u64,
        /// Why it does not answer any more, if the link has ended. Somebody else who is there may still, for a while.
        lost: Option<ConnectionError>,
        /// How long that other endpoint may take.
        patience: Timeout,
    },
    /// A request is to be accepted over this link.
    Accepting { link: LinkId, requester: Requester, data: Box<[u8]> },
    /// Connected.
    Up {
        link: LinkId,
        peer: PeerId,
        number: u64,
        /// Whether the requester is known to know.
        is_confirmed: bool,
    },
    /// The connection has ended, and the application is still to be told.
    Lost,
    /// This side has shut down, and the peer is to end the link.
    Leaving { link: LinkId },
    /// There will be no connection, or no more.
    Over,
}

impl Connected {
    /// Whether somebody may be about to accept, over a link of theirs.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asked { .. })
    }

    /// Whether only other endpoints can answer, which have some time for it.
    fn is_awaiting_others(&self) -> bool {
        matches!(self.stage, Stage::Asked { lost: Some(_), .. })
    }

    /// Whether this link is left to the peer to be ended.
    pub(super) fn is_leaving(&self, id: LinkId) -> bool {
        matches!(self.stage, Stage::Leaving { link } if link == id)
    }

    /// Whether the connection has just ended with this link.
    pub(super) fn ends_with(&mut self, id: LinkId) -> bool {
        let is_it = matches!(self.stage, Stage::Up { link, .. } if link == id);
        if is_it {
            self.stage = Stage::Lost;
        }
        is_it
    }
}

impl Engine {
    /// Asks the passive endpoint at `to` for a connection. Only once in the life of an endpoint. `number` is drawn at random.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it has asked or accepted before, or is no endpoint for connections; [`Misuse::Invalid`] for
    /// more data than [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    pub fn connect(
        &mut self,
        to: Address,
        number: u64,
        data: &[u8],
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        check_data(data)?;
        let stage = self.fresh()?;
        let link = transport.connect(to);
        *stage = Stage::Asked { link: Some(link), number, lost: None, patience: Timeout::default() };
        self.handshakes.add(link);
        self.handshakes.say(link, HandshakeStep::Request, number, data);
        self.transmit_handshakes(transport, sink);
        Ok(())
    }

    /// Accepts a request for a connection that a passive endpoint has heard.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn accept(
        &mut self,
        requester: Requester,
        data: &[u8],
        transport: &mut impl Transport,
    ) -> Result<(), Error> {
        check_data(data)?;
        let stage = self.fresh()?;
        let link = transport.connect(requester.address);
        *stage = Stage::Accepting { link, requester, data: data.into() };
        self.handshakes.add(link);
        Ok(())
    }

    /// Ends the connection. What was given to the link still reaches the peer, as does what has come of its own operations;
    /// everything else that has not ended is cancelled, and reported so before this returns.
    /// [`ConnectionEvent::Shutdown`] follows when the peer knows, or has ended it too. Whoever calls it after that has nothing
    /// to end.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there was no connection yet.
    pub fn shutdown(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) -> Result<(), Error> {
        let Standing::Connected(connected) = &mut self.standing else {
            return Err(Misuse::NotConnected.into());
        };
        let Stage::Up { link: id, peer, number, .. } = connected.stage else {
            return match connected.stage {
                Stage::Lost | Stage::Leaving { .. } | Stage::Over => Ok(()),
                _ => Err(Misuse::NotConnected.into()),
            };
        };
        let instance = self.peers.of(peer).instance.map_or(0, |(instance, _)| instance);
        // What the peer may still read must not end before the link.
        let is_exposed = self.links.of(id).is_some_and(|link| link.tx.has_exposed());
        let rest = if is_exposed { None } else { self.rest_of_frame(id) };
        let is_mid_frame = self.links.of(id).is_some_and(|link| !link.tx.is_idle());
        // Nothing can be said behind half a frame.
        let is_cut_off = is_exposed || is_mid_frame && rest.is_none();
        // Operations of the peer have succeeded that this side has reported; they must not fail there.
        let answers = self.last_answers(id, transport);
        let unended = self.end(id, &OperationError::Cancelled, sink);
        if is_cut_off {
            transport.close(id, Close::Drain);
            self.fail_sends(unended, &OperationError::Cancelled, sink);
            self.tell_lost(sink);
        } else {
            self.fail_sends(unended, &OperationError::Cancelled, sink);
            // It stays one that is up, so that whoever closes waits until it has taken what follows.
            self.handshakes.meet(id, self.peers.address(peer), instance);
            if let Some(rest) = rest {
                self.handshakes.finish(id, rest);
            }
            self.handshakes.answer(id, answers);
            self.handshakes.say(id, HandshakeStep::Shutdown, number, &[]);
            self.set_stage(Stage::Leaving { link: id });
            self.transmit_handshakes(transport, sink);
        }
        Ok(())
    }

    /// A copy of what is left of the frame that a link has taken in part, since what it is of ends before the link. `None` also
    /// for more than travels eagerly, but for a piece that the peer reads: nobody else sends so much at once but who is asked to.
    fn rest_of_frame(&mut self, id: LinkId) -> Option<Box<[u8]>> {
        let Writing { frame, send, taken_bytes } = self.links.get(id)?.tx.writing()?;
        let slices = match frame {
            Frame::Message | Frame::Data => self.sends.get(send)?.source.slices(taken_bytes),
            Frame::ReadData => self.target.reading(id)?.piece(taken_bytes),
        };
        let rest_bytes = slices.iter().map(|slice| slice.len()).sum();
        if frame == Frame::Data && rest_bytes > EAGER_MAX_BYTES {
            return None;
        }
        let mut rest = Vec::with_capacity(rest_bytes);
        slices.iter().for_each(|slice| rest.extend_from_slice(slice));
        Some(rest.into())
    }

    /// The one that everything is sent to, for an endpoint that is for connections; `None` for others.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotConnected`] if there is no connection yet, or no longer.
    pub fn connected_peer(&self) -> Option<Result<PeerId, Error>> {
        match &self.standing {
            Standing::Unconnected => None,
            Standing::Connected(connected) if let Stage::Up { peer, .. } = connected.stage => Some(Ok(peer)),
            _ => Some(Err(Misuse::NotConnected.into())),
        }
    }

    /// Whether an attempt to connect fails unless another endpoint answers in time.
    pub(super) fn is_awaiting_others(&self) -> bool {
        matches!(&self.standing, Standing::Connected(connected) if connected.is_awaiting_others())
    }

    /// Until when another endpoint may answer an attempt to connect.
    pub(super) fn others_deadline(&self) -> Option<Moment> {
        match &self.standing {
            Standing::Connected(connected)
                if let Stage::Asked { lost: Some(_), patience, .. } = &connected.stage =>
            {
                patience.deadline()
            }
            _ => None,
        }
    }

    fn fresh(&mut self) -> Result<&mut Stage, Error> {
        match &mut self.standing {
            Standing::Connected(connected) if matches!(connected.stage, Stage::Fresh) => {
                Ok(&mut connected.stage)
            }
            _ => Err(Misuse::State("an endpoint asks for a connection, or accepts one, once").into()),
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Standing::Connected(connected) = &mut self.standing {
            connected.stage = stage;
        }
    }

    /// A link is up. If it leads to the requester, that must be the one who has asked, and not who has its address now.
    pub(super) fn meet_requester(&mut self, id: LinkId, instance: u64, sink: &mut impl Sink) {
        let Standing::Connected(connected) = &mut self.standing else { return };
        let Stage::Accepting { link, requester, data } = &mut connected.stage else { return };
        if *link != id {
            return;
        }
        if requester.instance != instance {
            return self.break_off(id, "not the endpoint that has asked", sink);
        }
        let (number, data) = (requester.number, mem::take(data));
        self.handshakes.say(id, HandshakeStep::Accept, number, &data);
    }

    /// The requester will hear on this link that its request is accepted.
    pub(super) fn accepted(&mut self, id: LinkId, sink: &mut impl Sink) {
        if let Standing::Connected(connected) = &self.standing
            && let Stage::Accepting { link, requester, .. } = connected.stage
            && link == id
        {
            self.establish(id, requester.number, false);
            sink.connection(ConnectionEvent::Connected { data: Box::default() });
        }
    }

    /// A step of a connection has arrived on a link that carries no messages.
    pub(super) fn heard_as_connected(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        data: &[u8],
        sink: &mut impl Sink,
    ) {
        let Standing::Connected(connected) = &self.standing else { return };
        let Handshake { step, number, .. } = handshake;
        match (&connected.stage, step) {
            (Stage::Asked { link, number: asked, .. }, HandshakeStep::Reject)
                if *link == Some(id) && *asked == number =>
            {
                self.handshakes.part(id);
                self.fail_attempt(ConnectionError::Rejected { data: data.into() }, sink);
            }
            (Stage::Asked { link, number: asked, .. }, HandshakeStep::Accept)
                if *link != Some(id) && *asked == number =>
            {
                self.establish(id, number, true);
                for other in self.handshakes.ids() {
                    self.handshakes.part(other);
                }
                let confirm = Handshake { step: HandshakeStep::Confirm, number, data_bytes: 0 };
                self.links.owe(id, Header::Connection(confirm));
                sink.connection(ConnectionEvent::Connected { data: data.into() });
            }
            (Stage::Leaving { link }, _) if *link == id => {
                if step == HandshakeStep::Shutdown {
                    self.handshakes.part(id);
                    self.set_stage(Stage::Lost);
                    self.tell_lost(sink);
                }
            }
            _ => self.break_off(id, "takes a step of a connection that is not its turn", sink),
        }
    }

    /// The requester says that it knows of the connection, which it does once.
    pub(super) fn confirmed(&mut self, id: LinkId, number: u64, sink: &mut impl Sink) {
        if let Standing::Connected(connected) = &mut self.standing
            && let Stage::Up { link, number: of, is_confirmed, .. } = &mut connected.stage
            && (*link, *of, *is_confirmed) == (id, number, false)
        {
            *is_confirmed = true;
            return sink.connection(ConnectionEvent::Confirmed);
        }
        self.condemn(id, "confirms what it was not asked", sink);
    }

    /// A link is the connection from now on, and carries messages.
    fn establish(&mut self, id: LinkId, number: u64, is_confirmed: bool) {
        let Some((address, instance)) = self.handshakes.peer(id) else { return };
        self.handshakes.remove(id);
        let peer = self.peers.intern(address);
        self.add_link(id, peer);
        let Some(link) = self.links.of(id) else { return };
        link.set_up();
        let now = link.begun_at();
        let state = self.peers.of_mut(peer);
        state.links.push(id);
        state.transmit = Some(id);
        state.instance = Some((instance, now));
        self.set_stage(Stage::Up { link: id, peer, number, is_confirmed });
    }

    /// A link that was not the connection has ended.
    pub(super) fn attempt_lost(&mut self, id: LinkId, was_up: bool, error: &LinkError, sink: &mut impl Sink) {
        let may_be_answered = self.handshakes.have_met_anybody();
        let Standing::Connected(connected) = &mut self.standing else { return };
        match &mut connected.stage {
            Stage::Asked { link, lost, .. } => {
                if link.take_if(|link| *link == id).is_some() {
                    *lost = Some(why_unanswered(was_up, error));
                }
                if let Some(error) = lost.take_if(|_| !may_be_answered) {
                    self.fail_attempt(error, sink);
                } else if lost.is_some() {
                    self.has_timeouts = true;
                }
            }
            Stage::Accepting { link, .. } if *link == id => {
                debug!(%error, "the requester is not reached");
                self.fail_attempt(why_unreached(error), sink);
            }
            Stage::Leaving { link } if *link == id => {
                connected.stage = Stage::Lost;
                self.tell_lost(sink);
            }
            _ => {}
        }
    }

    /// It is `now`. An endpoint that may answer instead of the one that was asked must not keep silent for ever.
    pub(super) fn await_others(&mut self, now: Moment, sink: &mut impl Sink) {
        let Standing::Connected(connected) = &mut self.standing else { return };
        let Stage::Asked { lost, patience, .. } = &mut connected.stage else { return };
        if let Some(error) = lost.take_if(|_| patience.elapse(now, UNANSWERED_MAX_MS)) {
            self.fail_attempt(error, sink);
        }
    }

    /// There will be no connection.
    fn fail_attempt(&mut self, error: ConnectionError, sink: &mut impl Sink) {
        self.set_stage(Stage::Over);
        for link in self.handshakes.ids() {
            self.handshakes.part(link);
        }
        let reason = OperationError::Link(LinkError::System(error.errno()));
        let (receiver, mut effects) = self.receiving(sink);
        receiver.end_all(None, &reason, &mut effects);
        sink.connection(ConnectionEvent::Failed(error));
    }

    /// The peer has shut the connection down: everything that it has sent has arrived.
    pub(super) fn ended_by_peer(&mut self, id: LinkId, sink: &mut impl Sink) {
        let error = OperationError::Link(LinkError::Closed);
        let exposed = self.end(id, &error, sink);
        // The peer has said that it reads nothing more.
        self.fail_sends(exposed, &error, sink);
        self.condemned.push(Condemned::idle(id, Close::Drain));
        self.tell_lost(sink);
    }

    /// Tells the application that the connection has ended, if it has and nothing of it is left.
    pub(super) fn tell_lost(&mut self, sink: &mut impl Sink) {
        if let Standing::Connected(connected) = &mut self.standing
            && matches!(connected.stage, Stage::Lost)
        {
            connected.stage = Stage::Over;
            sink.connection(ConnectionEvent::Shutdown);
        }
    }
}

/// Why a passive endpoint does not answer whose link has ended.
fn why_unanswered(was_up: bool, error: &LinkError) -> ConnectionError {
    match error {
        // One that was closed says nothing to those who wait.
        LinkError::Closed => ConnectionError::NobodyListens,
        LinkError::System(Errno::ECONNRESET) if !was_up => ConnectionError::NobodyListens,
        error => ConnectionError::Link(error.clone()),
    }
}

/// Why the requester is not reached of a request that is to be accepted.
fn why_unreached(error: &LinkError) -> ConnectionError {
    match error {
        // Nobody is there, or somebody else.
        LinkError::Closed
        | LinkError::Protocol(_)
        | LinkError::System(Errno::ECONNREFUSED | Errno::ECONNRESET) => ConnectionError::RequesterGone,
        error => ConnectionError::Link(error.clone()),
    }
}
