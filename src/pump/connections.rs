//! Connections of a pump: requests, accepts, shutdown.

use std::sync::Arc;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::connection::{RequestId, Requester};
use homespun_engine::engine::{Config, Engine};
use homespun_engine::error::{Error, Misuse, ObjectState};
use homespun_engine::region::Regions;
use homespun_engine::transport::Transport;

use super::queues::NullSink;
use super::{Pump, State, not_enabled_error, receive_context};
use crate::endpoint_pump::Connect;

impl<T: Transport> Connect for Pump<T> {
    fn connect(&self, to: Address, number: u64, data: &[u8], timeout: Option<Duration>) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let deadline = timeout
            .zip(endpoint.guard.as_ref())
            .map(|(timeout, state)| state.timekeeper.clock().now() + timeout);
        let (engine, transport, bound) = endpoint.enabled_parts()?;
        engine.connect(to, number, data, deadline, transport, &mut bound.queues_without_reader())?;
        transport.flush();
        Ok(())
    }

    fn accept(&self, requester: Requester, data: &[u8]) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, transport, _) = endpoint.enabled_parts()?;
        engine.accept(requester, data, transport)?;
        // Not before: the transport keeps its address for the link. See docs/decisions/accepting-link.md.
        transport.stop_accepting();
        transport.flush();
        Ok(())
    }

    fn accept_withdrawn(&self) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, transport, bound) = endpoint.enabled_parts()?;
        engine.accept_withdrawn(&mut bound.queues_without_reader())?;
        transport.stop_accepting();
        Ok(())
    }

    fn shut_down(&self) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, transport, bound) = endpoint.enabled_parts()?;
        engine.shutdown(transport, &mut bound.queues_without_reader())?;
        transport.flush();
        receive_context::deliver_mail_to_others(&mut endpoint.guard);
        Ok(())
    }

    fn listen(&self, backlog_requests: usize) -> Result<(), Error> {
        self.lock_for_call().enabled_parts()?.0.listen(Some(backlog_requests))
    }

    fn stop_listening(&self) {
        let mut endpoint = self.lock_for_call();
        let Some(State { engine, transport, bound, .. }) = &mut *endpoint.guard else { return };
        let _is_passive = engine.listen(None);
        transport.stop_accepting();
        // Break a cycle of references: open requests keep this pump, the pump's reporter keeps the event
        // queue, and entries of the queue may keep the requests.
        let reporter = bound.as_mut().and_then(|bound| bound.bindings.reporter.take());
        drop(endpoint);
        // This may be the last reference to the event queue. Dropping the queue drops its entries, and that
        // takes the lock of this pump.
        drop(reporter);
    }

    fn reject(&self, request: RequestId, data: &[u8]) -> Result<(), Error> {
        match &mut *self.lock_for_call().guard {
            Some(State { engine, transport, .. }) => {
                // No operation of a passive endpoint ends when it rejects a request, so no sink is needed.
                engine.reject(request, data, transport, &mut NullSink)?;
                transport.flush();
                Ok(())
            }
            None => Err(not_enabled_error()),
        }
    }

    fn mark_request_being_accepted(&self, request: RequestId) -> bool {
        match &mut *self.lock_for_call().guard {
            Some(State { engine, .. }) => engine.mark_request_being_accepted(request),
            None => false,
        }
    }

    fn end_accepted_request(&self, request: RequestId) {
        if let Some(State { engine, transport, .. }) = &mut *self.lock_for_call().guard {
            engine.end_accepted_request(request, transport, &mut NullSink);
            transport.flush();
        }
    }

    fn become_active(&self, config: Config, regions: Arc<Regions>) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let Some(State { engine, transport, bound: None, .. }) = &mut *guard else {
            return Err(Misuse::State(ObjectState::EndpointInUse).into());
        };
        engine.close_links(transport);
        *engine = Engine::with_regions(config, regions);
        Ok(())
    }
}
