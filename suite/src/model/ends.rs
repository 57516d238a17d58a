//! The rules of ends: each operation ends as promised, and completions keep their order.

use crate::model::prelude::*;

const CANCEL: &str = "fi_endpoint/cancel-ends-one";
pub(crate) const EVERY_END: &str = "fi_cq/reports-ends-of-transfers";
const RELIABLE: &str = "fi_msg/every-send-meets-every-receive";

pub(crate) struct Ends<'a> {
    pub(crate) history: &'a History,
    pub(crate) disruption: Disruption,
    /// Whether sends and accesses complete in posting order.
    pub(crate) are_in_order: bool,
}

impl Rules for Ends<'_> {
    /// For each initiator and target, when the operation was posted that has ended last.
    type State = BTreeMap<(Incarnation, usize), u64>;

    fn start(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, _: u64, event: Event) -> Result<Vec<Self::State>, Rejection> {
        let mut state = state.clone();
        match event {
            Event::Ended(operation) if self.are_in_order => self.check_order(&mut state, operation)?,
            Event::Finished => {
                self.check_sends()?;
                self.check_receives()?;
                self.check_peeks()?;
                self.check_accesses()?;
            }
            _ => {}
        }
        Ok(vec![state])
    }
}

impl Ends<'_> {
    /// Shows fi_cq/order-tells-of-earlier.
    fn check_order(
        &self,
        last: &mut BTreeMap<(Incarnation, usize), u64>,
        operation: Operation,
    ) -> Result<(), Rejection> {
        let Some(post) = self.history.post_of(operation).filter(|post| !post.injected) else { return Ok(()) };
        let posted_at = post.posted_at;
        let before = last.insert((post.by, post.to), posted_at);
        require(before < Some(posted_at), "fi_cq/order-tells-of-earlier", || {
            format!("the operation was posted at {posted_at}, and a later one, of {before:?}, ended first")
        })
    }

    /// Whether an operation between these endpoints may fail with its peer.
    fn may_fail(&self, peer: Option<usize>) -> bool {
        match self.disruption {
            Disruption::None => false,
            Disruption::Closing => peer.is_some_and(|peer| !self.is_original(peer)),
            Disruption::Killing => {
                self.history.breaks_links || peer.is_none_or(|peer| !self.is_original(peer))
            }
        }
    }

    fn is_original(&self, place: usize) -> bool {
        self.history.places[place].has_original_endpoint()
    }

    /// Checks how an operation of an initiator has ended.
    fn check_post(&self, post: &Post, what: impl Fn() -> String) -> Result<(), Rejection> {
        if !self.history.is_alive(post.by) {
            return Ok(());
        }
        let may_wait = self.history.may_wait_forever_for(post.to);
        let is_cancelled = post.ended == Some(Err(Errno::ECANCELED));
        require(post.cancelled == is_cancelled || may_wait && !post.cancelled, CANCEL, &what)?;
        require(post.injected || may_wait || post.ended.is_some(), EVERY_END, &what)?;
        let has_failed = post.has_failed() && !post.cancelled;
        require(!has_failed || self.may_fail(Some(post.to)), RELIABLE, &what)
    }

    fn check_sends(&self) -> Result<(), Rejection> {
        for (number, send) in self.history.sends.iter().enumerate() {
            let what = || format!("send {number}: {send:?}");
            let has_arrived = send.taker.is_some() || send.seen_at.is_some();
            require(!send.post.cancelled || !has_arrived, "fi_endpoint/cancel-reports-ecanceled", what)?;
            self.check_post(&send.post, what)?;
        }
        Ok(())
    }

    fn check_receives(&self) -> Result<(), Rejection> {
        for (number, receive) in self.history.receives.iter().enumerate() {
            let what = || format!("receive {number}: {receive:?}");
            if self.history.is_alive(receive.at) {
                let is_cancelled = receive.ended == Some(ReceiveEnd::Cancelled);
                require(receive.cancelled == is_cancelled, CANCEL, what)?;
            }
            let has_lost = receive.buffer.as_ref().is_some_and(|buffer| buffer.has_lost);
            require(!has_lost || self.disruption == Disruption::Killing, RELIABLE, what)?;
            // An endpoint that is closed in order leaves no message half sent.
            let is_broken = matches!(receive.ended, Some(ReceiveEnd::Broken(_)));
            require(!is_broken || self.may_fail(receive.from), RELIABLE, what)?;
        }
        Ok(())
    }

    fn check_peeks(&self) -> Result<(), Rejection> {
        for (number, peek) in self.history.peeks.iter().enumerate() {
            let what = || format!("peek {number}: {peek:?}");
            require(peek.ended.is_some() || !self.history.is_alive(peek.at), EVERY_END, what)?;
            if let (Some(PeekEnd::Found(message)), Some(claim)) = (peek.ended, &peek.claim) {
                let send = &self.history.sends[message];
                let was_there =
                    send.is_known_to_arrive() && !self.history.may_wait_forever_for(send.post.by.place);
                let may_break = self.disruption == Disruption::Killing && !was_there;
                let is_broken = matches!(claim.ended, Some(Err(_)));
                require(!is_broken || may_break, "fi_tagged/claim-reserves-message", what)?;
            }
        }
        Ok(())
    }

    fn check_accesses(&self) -> Result<(), Rejection> {
        for (number, access) in self.history.accesses.iter().enumerate() {
            let what = || format!("access {number}: {access:?}");
            self.check_post(&access.post, what)?;
            let is_told = !self.history.is_untold(access) || !self.history.is_alive(access.post.by);
            require(is_told, "fi_cq/flag-remote-data", what)?;
        }
        Ok(())
    }
}
