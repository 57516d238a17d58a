//! Passive endpoints: requests for connections, and the answers to them.

use std::collections::BTreeMap;

use super::{Connection, ConnectionEffects, RoleState, check_data_len};
use crate::connection::{ConnectionReport, Request, RequestId, Requester};
use crate::error::{Error, Misuse, ObjectState};
use crate::mutated;
use crate::transport::LinkId;
use crate::wire::{HandshakeHeader, HandshakeStep};

/// The state of a passive endpoint.
#[derive(Debug, Default)]
pub(super) struct Passive {
    /// How many requests may wait for an answer; `None` if the endpoint does not listen.
    backlog_requests: Option<usize>,
    requests: BTreeMap<RequestId, PendingRequest>,
    /// How many requests the endpoint has received so far.
    count: u64,
}

/// A request that is neither rejected nor settled yet.
#[derive(Debug)]
struct PendingRequest {
    /// The link on which the request came, and on which the requester waits.
    link: LinkId,
    number: u64,
    /// Whether another endpoint is about to accept the request.
    is_being_accepted: bool,
}

impl Passive {
    /// Removes the request that came on this link, because the requester was lost. Returns the request's id,
    /// or `None` if there is no such request, or if another endpoint is accepting it.
    pub(super) fn take_lost_request(&mut self, link: LinkId) -> Option<RequestId> {
        let (&request, _) = self.requests.iter().find(|(_, asked)| asked.link == link)?;
        let asked = self.requests.remove(&request)?;
        (!asked.is_being_accepted).then_some(request)
    }

    fn has_backlog_room(&self) -> bool {
        let waiting = self.requests.values().filter(|asked| !asked.is_being_accepted).count();
        self.backlog_requests
            .is_some_and(|backlog_requests| waiting < backlog_requests || mutated!("fi_cm/backlog"))
    }
}

impl Connection {
    /// Sets how many requests may wait. The endpoint rejects further requests. If the number is `None`, the
    /// endpoint rejects all requests.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint is not passive.
    pub(crate) fn listen(&mut self, backlog_requests: Option<usize>) -> Result<(), Error> {
        self.passive_mut()?.backlog_requests = backlog_requests;
        Ok(())
    }

    /// Rejects a request.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the endpoint is not passive, [`Misuse::Invalid`] for too much data.
    pub(crate) fn reject(&mut self, request: RequestId, data: &[u8]) -> Result<(), Error> {
        check_data_len(data)?;
        if let Some(PendingRequest { link, number, .. }) = self.passive_mut()?.requests.remove(&request) {
            self.handshake_links.queue_step(link, HandshakeStep::Reject, number, data);
            self.handshake_links.close_when_sent(link);
        }
        Ok(())
    }

    /// Records that another endpoint is accepting a request. The request no longer counts as waiting. Returns
    /// false if the requester is gone, so that there is no such request any more.
    pub(crate) fn mark_request_being_accepted(&mut self, request: RequestId) -> bool {
        let Ok(passive) = self.passive_mut() else { return false };
        let Some(asked) = passive.requests.get_mut(&request) else { return false };
        asked.is_being_accepted = true;
        true
    }

    /// Closes the link of a request that another endpoint has accepted or has failed to accept.
    pub(crate) fn end_accepted_request(&mut self, request: RequestId) {
        let Ok(passive) = self.passive_mut() else { return };
        if let Some(PendingRequest { link, .. }) = passive.requests.remove(&request) {
            self.handshake_links.close_when_sent(link);
        }
    }

    fn passive_mut(&mut self) -> Result<&mut Passive, Error> {
        match &mut self.role {
            RoleState::Passive(passive) => Ok(passive),
            _ => Err(Misuse::State(ObjectState::NotPassive).into()),
        }
    }

    /// Handles a handshake step at a passive endpoint. The first step on a link must be a request, and no
    /// other step is allowed.
    pub(super) fn handle_step_at_passive(
        &mut self,
        id: LinkId,
        handshake: HandshakeHeader,
        data: &[u8],
        effects: &mut impl ConnectionEffects,
    ) {
        let HandshakeHeader { step, number, .. } = handshake;
        let Some((address, instance)) = self.handshake_links.peer(id) else { return };
        let RoleState::Passive(passive) = &mut self.role else { return };
        let has_asked = passive.requests.values().any(|asked| asked.link == id);
        if step != HandshakeStep::Request || has_asked || !self.handshake_links.is_flushed(id) {
            return self.abort_breached_handshake_link(
                id,
                "asks a passive endpoint for other than a connection",
                effects,
            );
        }
        if !passive.has_backlog_room() {
            self.handshake_links.queue_step(id, HandshakeStep::Reject, number, &[]);
            return self.handshake_links.close_when_sent(id);
        }
        let request = RequestId(passive.count);
        passive.count += 1;
        passive.requests.insert(request, PendingRequest { link: id, number, is_being_accepted: false });
        let from = Requester { address, instance, number };
        let data = if mutated!("fi_cm/private-data") { &[] } else { data };
        effects.report(ConnectionReport::Requested(Request { id: request, from, data: data.into() }));
    }
}
