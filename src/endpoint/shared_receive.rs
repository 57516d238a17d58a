//! Endpoints that share a receive context with others: `fi_ep_bind` of `fi_endpoint(3)`.

use std::sync::Arc;

use homespun_engine::error::{Argument, Error, InUse, Misuse, ObjectState};
use homespun_engine::shared_receiver::MemberId;

use super::setup::{ServiceFlags, Setup};
use super::{Endpoint, EndpointShared};
use crate::endpoint_pump::EndpointPump;
use crate::info::SHARED_CONTEXT;
use crate::mutated;
use crate::shared_receive_context::{ReceiveContext, SharedReceiveContext};

/// The receive context to which an endpoint is bound.
pub(super) struct BoundReceiveContext {
    context: SharedReceiveContext,
    /// The endpoint's number in the context, once it is enabled.
    member: Option<MemberId>,
}

impl BoundReceiveContext {
    /// From now on, the endpoint reports the success of a receive only if the receive has `FI_COMPLETION`.
    pub(super) fn set_selective_completion(&self) {
        if let Some(member) = self.member {
            self.context.shared().receiver().set_selective(member, true);
        }
    }
}

impl Endpoint {
    /// Binds a receive context that the endpoint shares with others: `fi_ep_bind`. An endpoint whose
    /// [`rx_ctx_cnt`](crate::info::EpAttr::rx_ctx_cnt) is [`SHARED_CONTEXT`] needs such a context before it
    /// is enabled. The application then posts receives to the context. The endpoint itself refuses receives
    /// with [`Misuse::NotSupported`].
    ///
    /// # Errors
    ///
    /// - [`Misuse::Invalid`] if the endpoint was opened without [`SHARED_CONTEXT`].
    /// - [`Misuse::Busy`] if the endpoint has a context already.
    /// - [`Misuse::State`] once the endpoint is enabled.
    /// - [`Misuse::OtherDomain`] for a context of another domain.
    pub fn bind_shared_receive_context(&self, context: &SharedReceiveContext) -> Result<(), Error> {
        let setup = &mut *self.shared.setup.lock();
        let shared = context.shared();
        if shared.domain() != self.shared.domain.id() {
            return Err(Misuse::OtherDomain.into());
        }
        if !self.shared.shares_receive_context() {
            return Err(Misuse::Invalid(Argument::OwnReceiveContext).into());
        }
        if setup.receive_context.is_some() && !mutated!("fi_endpoint/one-shared-context") {
            return Err(Misuse::Busy(InUse::ReceiveContextBound).into());
        }
        if self.shared.service.is_enabled() {
            return Err(Misuse::State(ObjectState::EndpointEnabled).into());
        }
        shared.add_binding();
        setup.receive_context = Some(BoundReceiveContext { context: context.clone(), member: None });
        Ok(())
    }
}

impl EndpointShared {
    /// Whether the endpoint needs a receive context that it shares with others.
    pub(super) fn shares_receive_context(&self) -> bool {
        self.info.ep.rx_ctx_cnt == SHARED_CONTEXT && !mutated!("fi_endpoint/shared-context-count")
    }

    /// Checks that the endpoint has the receive context that it needs.
    pub(super) fn check_receive_context_bound(&self, setup: &Setup) -> Result<(), Misuse> {
        if self.shares_receive_context()
            && setup.receive_context.is_none()
            && !mutated!("fi_endpoint/shared-context-is-bound")
        {
            return Err(Misuse::State(ObjectState::NoReceiveContext));
        }
        Ok(())
    }

    /// Makes the endpoint receive through its context, if it is bound to one.
    pub(super) fn join_receive_context(
        &self,
        setup: &mut Setup,
        pump: &Arc<dyn EndpointPump>,
    ) -> Result<(), Error> {
        let av = setup.av.clone().filter(|_| !self.is_connection_oriented());
        let Some(bound) = &mut setup.receive_context else { return Ok(()) };
        if mutated!("fi_endpoint/shared-receives") {
            return Ok(());
        }
        let is_selective = self.service.flags().contains(ServiceFlags::SELECTIVE_RECEIVE);
        let shared = bound.context.shared();
        let join = || pump.join_shared_receiver(shared, is_selective);
        bound.member = Some(shared.members().join(pump, av.as_ref(), join)?);
        Ok(())
    }

    /// Undoes [`join_receive_context`](Self::join_receive_context), after a later step of enabling the
    /// endpoint has failed.
    pub(super) fn leave_receive_context(&self, setup: &mut Setup, pump: &Arc<dyn EndpointPump>) {
        let Some(bound) = &mut setup.receive_context else { return };
        bound.member = None;
        bound.context.shared().members().leave(pump);
        pump.leave_shared_receiver();
    }
}

impl Setup {
    pub(super) fn receive_context(&self) -> Option<&Arc<ReceiveContext>> {
        self.receive_context.as_ref().map(|bound| bound.context.shared())
    }
}
