//! Passive endpoints: who asks for connections, and what they are told.

use std::collections::BTreeMap;

use super::Engine;
use super::handshakes::{Standing, check_data};
use crate::completion::Sink;
use crate::connection::{ConnectionEvent, Request, RequestId, Requester};
use crate::error::{Error, Misuse};
use crate::transport::{LinkId, Transport};
use crate::wire::{Handshake, HandshakeStep};

/// What a passive endpoint keeps.
#[derive(Debug, Default)]
pub(super) struct Passive {
    /// How many requests may wait for an answer, once it listens.
    backlog_requests: Option<usize>,
    requests: BTreeMap<RequestId, Asked>,
    /// How many requests there have been.
    count: u64,
}

/// A request that was not settled yet.
#[derive(Debug)]
struct Asked {
    /// The link that it came by, on which the requester waits.
    link: LinkId,
    number: u64,
    /// Whether somebody is about to accept it.
    is_being_accepted: bool,
}

impl Passive {
    /// Whoever has asked on this link is gone. Returns the request, if nobody is about to accept it.
    pub(super) fn lost(&mut self, link: LinkId) -> Option<RequestId> {
        let (&request, _) = self.requests.iter().find(|(_, asked)| asked.link == link)?;
        let asked = self.requests.remove(&request)?;
        (!asked.is_being_accepted).then_some(request)
    }

    fn has_room(&self) -> bool {
        let waiting = self.requests.values().filter(|asked| !asked.is_being_accepted).count();
        self.backlog_requests.is_some_and(|backlog_requests| waiting < backlog_requests)
    }
}

impl Engine {
    /// Hears requests for connections from now on, so many at a time, and rejects those beyond; with `None` all of them,
    /// as before the first call. Of no concern to those that were heard.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it is no passive endpoint.
    pub fn listen(&mut self, backlog_requests: Option<usize>) -> Result<(), Error> {
        self.passive()?.backlog_requests = backlog_requests;
        Ok(())
    }

    /// Rejects a request. If the requester is gone there is nobody to hear of it.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if it is no passive endpoint, [`Misuse::Invalid`] for more data than
    /// [`CONNECTION_DATA_MAX_BYTES`](crate::limits::CONNECTION_DATA_MAX_BYTES).
    pub fn reject(
        &mut self,
        request: RequestId,
        data: &[u8],
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        check_data(data)?;
        if let Some(Asked { link, number, .. }) = self.passive()?.requests.remove(&request) {
            self.handshakes.say(link, HandshakeStep::Reject, number, data);
            self.handshakes.part(link);
            self.transmit_handshakes(transport, sink);
        }
        Ok(())
    }

    /// Says that another endpoint is about to accept a request: it waits no longer. The requester goes on waiting on the
    /// link to this endpoint until [`settle`](Self::settle), or until it has heard of the other one.
    pub fn begin_accepting(&mut self, request: RequestId) {
        let Ok(passive) = self.passive() else { return };
        if let Some(asked) = passive.requests.get_mut(&request) {
            asked.is_being_accepted = true;
        }
    }

    /// Says that a request was accepted, or that nothing has come of it.
    pub fn settle(&mut self, request: RequestId, transport: &mut impl Transport, sink: &mut impl Sink) {
        let Ok(passive) = self.passive() else { return };
        if let Some(Asked { link, .. }) = passive.requests.remove(&request) {
            self.handshakes.part(link);
            self.transmit_handshakes(transport, sink);
        }
    }

    fn passive(&mut self) -> Result<&mut Passive, Error> {
        match &mut self.standing {
            Standing::Passive(passive) => Ok(passive),
            _ => Err(Misuse::State("it is no passive endpoint").into()),
        }
    }

    /// Something has arrived at a passive endpoint, which can only be a request, and one on each link.
    pub(super) fn heard_as_passive(
        &mut self,
        id: LinkId,
        handshake: Handshake,
        data: &[u8],
        sink: &mut impl Sink,
    ) {
        let Handshake { step, number, .. } = handshake;
        let Some((address, instance)) = self.handshakes.peer(id) else { return };
        let Standing::Passive(passive) = &mut self.standing else { return };
        let has_asked = passive.requests.values().any(|asked| asked.link == id);
        if step != HandshakeStep::Request || has_asked || !self.handshakes.have_said_all(id) {
            return self.break_off(id, "asks a passive endpoint for other than a connection", sink);
        }
        if !passive.has_room() {
            self.handshakes.say(id, HandshakeStep::Reject, number, &[]);
            return self.handshakes.part(id);
        }
        let request = RequestId(passive.count);
        passive.count += 1;
        passive.requests.insert(request, Asked { link: id, number, is_being_accepted: false });
        let from = Requester { address, instance, number };
        sink.connection(ConnectionEvent::Requested(Request { id: request, from, data: data.into() }));
    }
}
