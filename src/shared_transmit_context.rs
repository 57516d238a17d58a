//! Transmit contexts that endpoints share: `fi_stx_context` of `fi_endpoint(3)`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_engine::error::{InUse, Misuse};
use homespun_engine::rejected::Rejected;

use crate::domain_id::DomainId;
use crate::info::TxAttr;

/// A transmit context that endpoints of a domain share: `fi_stx_context` of `fi_endpoint(3)`.
///
/// The application [binds](crate::Endpoint::bind_shared_transmit_context) an endpoint to a context before it
/// enables the endpoint. The endpoint's [`tx_ctx_cnt`](crate::info::EpAttr::tx_ctx_cnt) must be
/// [`SHARED_CONTEXT`](crate::info::SHARED_CONTEXT). The application posts to the endpoints as usual, and
/// their own queues and counters report the operations.
///
/// The endpoints share no resources: each keeps its own queue of operations, with the depth and the default
/// flags of its own info. The context only limits their capabilities.
///
/// A handle may be cloned and used from any thread. Bound endpoints keep the context alive. A context takes
/// some 200 bytes.
///
/// ```
/// use homespun::info::SHARED_CONTEXT;
/// use homespun::{Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let info = fabric.info(&Hints::new().with(|info| info.ep.tx_ctx_cnt = SHARED_CONTEXT))?;
/// let domain = fabric.domain(&info)?;
/// let context = domain.shared_transmit_context(&info.tx)?;
/// let endpoints = [domain.endpoint(&info)?, domain.endpoint(&info)?];
/// for endpoint in &endpoints {
///     endpoint.bind_shared_transmit_context(&context)?;
/// }
/// assert!(context.clone().close().is_err(), "endpoints are bound to it");
/// drop(endpoints);
/// assert!(context.close().is_ok());
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedTransmitContext {
    shared: Arc<ContextShared>,
}

struct ContextShared {
    domain: DomainId,
    attr: TxAttr,
    /// The number of bound endpoints.
    bound: AtomicUsize,
}

impl SharedTransmitContext {
    pub(crate) fn new(domain: DomainId, attr: TxAttr) -> SharedTransmitContext {
        SharedTransmitContext { shared: Arc::new(ContextShared { domain, attr, bound: AtomicUsize::new(0) }) }
    }

    /// Returns the attributes granted to the context.
    pub fn attr(&self) -> &TxAttr {
        &self.shared.attr
    }

    /// Closes the context: `fi_close`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the handle, while an endpoint is bound to it.
    pub fn close(self) -> Result<(), Rejected<SharedTransmitContext>> {
        if self.shared.bound.load(Ordering::Acquire) > 0 {
            return Err(Rejected { error: Misuse::Busy(InUse::TransmitContext).into(), returned: self });
        }
        Ok(())
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.shared.domain
    }

    /// Counts an endpoint that is bound.
    pub(crate) fn add_binding(&self) {
        self.shared.bound.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
    pub(crate) fn remove_binding(&self) {
        self.shared.bound.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for SharedTransmitContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransmitContext").field("attr", self.attr()).finish_non_exhaustive()
    }
}
