//! Receives of a shared context that wait for a counter: `fi_trigger(3)`.

use std::sync::Arc;

use homespun_engine::buffer::SegmentMut;
use homespun_engine::completion::{EndedOperation, FailedOperation};
use homespun_engine::error::{Error, Missing, Misuse, Unsupported};
use homespun_engine::flags::{Caps, OpFlags};

use super::{ReceiveContext, SharedReceiveContext};
use crate::post::{Post, ReceivePost};
use crate::poster::{Poster, RefusedPost};
use crate::works::domain::WorkDomain;

impl SharedReceiveContext {
    /// Checks that a receive may wait for a counter, and sets its options. Returns the object that will post
    /// it.
    pub(crate) fn prepare_waiting_receive(
        &self,
        post: &mut ReceivePost,
        flags: OpFlags,
    ) -> Result<Arc<dyn Poster>, Error> {
        self.shared.check_caps(Caps::TRIGGER)?;
        self.shared.prepare_receive(post, flags - OpFlags::TRIGGER)?;
        Ok(self.shared.clone())
    }

    pub(crate) fn work_domain(&self) -> &dyn WorkDomain {
        &*self.open.domain
    }
}

impl Poster for ReceiveContext {
    fn post(&self, _: &mut Post) -> Result<(), Error> {
        Err(Misuse::NotSupported(Unsupported::SharedContextTransmit).into())
    }

    fn post_receive(&self, post: &mut ReceivePost) -> Result<(), Error> {
        let posted = self.post_without_mail_delivery(post);
        self.deliver_mail_and_fire();
        posted
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        self.deliver_mail_and_check_cancelled(self.receiver.cancel(context))
    }

    fn cancel_work(&self, number: u64) -> Result<(), Error> {
        self.deliver_mail_and_check_cancelled(self.receiver.cancel_work(number))
    }

    fn cancel_receives_into(&self, memory: &SegmentMut) {
        self.receiver.cancel_into(memory);
        self.deliver_mail_and_fire();
    }

    fn report_refused_post(&self, refused: RefusedPost) {
        let RefusedPost { context, flags, events, error, buffer, is_work } = refused;
        let completion =
            EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer };
        let failure = FailedOperation { completion, error, target: None };
        self.receiver.report_refused_receive(failure, is_work, !events.is_empty());
        self.deliver_mail_and_fire();
    }

    fn wake_sleepers(&self) {
        self.members.wake_sleepers();
    }
}

impl ReceiveContext {
    fn deliver_mail_and_check_cancelled(&self, is_cancelled: bool) -> Result<(), Error> {
        self.deliver_mail_and_fire();
        if is_cancelled { Ok(()) } else { Err(Misuse::NotFound(Missing::Operation).into()) }
    }
}
