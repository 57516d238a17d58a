//! Peeks, and the receives of claimed messages.

use crate::model::prelude::*;
use crate::model::receives::expect_lost_sender_errno;
use crate::model::run::{Runner, expect_accepted_or_full, source_address};

impl Runner<'_> {
    pub(crate) fn post_peek(&mut self, at: usize, tagged: (u64, u64), from: Option<usize>, then: PeekAction) {
        let Some(party) = self.parties[at].as_ref().filter(|_| self.program.with_data) else { return };
        let context = Operation::Peek(self.history.peeks.len()).context();
        let receive = RecvMsg {
            from: source_address(from),
            tagged: Some(Tag(tagged.0).ignoring(tagged.1)),
            context,
            flags: then.flags(),
            ..RecvMsg::default()
        };
        if !expect_accepted_or_full(party.endpoint.recvmsg(receive)) {
            return;
        }
        let at = self.history.incarnation_at(at);
        self.history.post_peek(at, tagged, from, then);
    }

    /// Returns the peeks of an endpoint that hold a claimed message which no operation has received or
    /// discarded.
    pub(crate) fn peeks_with_unreceived_claims(&self, place: usize) -> Vec<usize> {
        let who = self.history.incarnation_at(place);
        let peeks = self.history.peeks.iter().enumerate();
        let claiming = peeks.filter(|(_, peek)| peek.at == who && peek.has_unreceived_claim());
        claiming.map(|(number, _)| number).collect()
    }

    /// Posts a receive or a discard of a claimed message. Returns whether the post was accepted.
    pub(crate) fn post_claim(&mut self, peek: usize, len_bytes: usize, discards: bool) -> bool {
        let Some(party) = &self.parties[self.history.peeks[peek].at.place] else { return false };
        let context = Operation::Peek(peek).context();
        let len_bytes = self.raise_to_min_len(len_bytes);
        let (buffers, flags) = if discards {
            (Vec::new(), OpFlags::CLAIM | OpFlags::DISCARD)
        } else {
            (vec![marked_buffer(len_bytes)], OpFlags::CLAIM)
        };
        // homespun finds the message by the context alone.
        let PeekOp { tagged: (tag, ignore), from, .. } = self.history.peeks[peek];
        let (tagged, from) =
            if self.offer.is_homespun { (Tag(0).into(), None) } else { (Tag(tag).ignoring(ignore), from) };
        let from = source_address(from);
        let receive = RecvMsg { buffers, from, tagged: Some(tagged), context, flags };
        if !expect_accepted_or_full(party.endpoint.recvmsg(receive)) {
            return false;
        }
        let posted_at = self.history.record(Event::ClaimPosted(peek));
        self.history.peeks[peek].claim = Some(ClaimOp { len_bytes, discards, posted_at, ended: None });
        true
    }

    /// Checks an entry that only describes a message. The semantic tests say which source another provider
    /// names.
    fn check_found(&self, at: usize, message: usize, completion: &Completion, named: FabricAddress) {
        let send = self.history.sends.get(message).filter(|_| !self.offer.is_homespun);
        let source = send.map_or(named, |send| self.history.source_of(send.post.by.place));
        let len_bytes = self.told().check_completion_fields(at, message, completion, source);
        assert_eq!(completion.len_bytes, len_bytes);
    }

    pub(crate) fn record_peek_end(&mut self, who: Incarnation, peek: usize, ended: &Ended) {
        let now = self.history.record(Event::Ended(Operation::Peek(peek)));
        let posted = &self.history.peeks[peek];
        assert_eq!((posted.at, posted.ended), (who, None), "peek {peek} ended again, with {ended:?}");
        let then = posted.then;
        let end = match ended {
            Ok((completion, source)) => {
                let message = usize::try_from(completion.data).expect("a small number");
                self.check_found(who.place, message, completion, *source);
                self.history.record_seen(message, now);
                if then != PeekAction::Leave {
                    self.history.record_taker(message, Operation::Peek(peek));
                }
                PeekEnd::Found(message)
            }
            Err(failed) => match failed.error {
                OperationError::NoMessage => PeekEnd::Nothing,
                _ => panic!("peek {peek} failed: {failed:?}"),
            },
        };
        self.history.peeks[peek].ended = Some(end);
    }

    pub(crate) fn record_claim_end(&mut self, who: Incarnation, peek: usize, ended: &Ended) {
        let PeekOp { at, ended: found, claim, .. } = &self.history.peeks[peek];
        let (Some(PeekEnd::Found(claimed)), Some(claim)) = (*found, claim) else {
            panic!("{ended:?} is the end of nothing")
        };
        assert_eq!((*at, claim.ended), (who, None), "claim {peek} ended again, with {ended:?}");
        let end = match ended {
            Ok((completion, source)) if claim.discards => {
                self.check_found(who.place, claimed, completion, *source);
                Ok(())
            }
            _ => match self.told().check_received_message(who.place, claim.len_bytes, ended) {
                Ok(message) => {
                    assert_eq!(message, claimed, "another message than was claimed");
                    Ok(())
                }
                Err(error) => Err(expect_lost_sender_errno(&error)),
            },
        };
        self.history.peeks[peek].claim.as_mut().expect("it is there").ended = Some(end);
    }
}
