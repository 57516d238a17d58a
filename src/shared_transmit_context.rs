//! Transmit contexts that endpoints share: `fi_stx_context` of `fi_endpoint(3)`.

use std::fmt;
use std::sync::Arc;

use crate::domain_id::DomainId;
use crate::info::TxAttr;

/// A transmit context that endpoints of a domain share: `fi_stx_context` of `fi_endpoint(3)`.
///
/// The application [binds](crate::Endpoint::bind_shared_transmit_context) endpoints to the context. It posts
/// to the endpoints as usual, and their own queues and counters report the operations. An endpoint whose
/// [`tx_ctx_cnt`](crate::info::EpAttr::tx_ctx_cnt) is [`SHARED_CONTEXT`](crate::info::SHARED_CONTEXT) needs a
/// context before it is enabled.
///
/// The endpoints share no resources: each keeps its own queue of operations, with the depth and the default
/// flags of its own info.
///
/// A handle may be cloned and used from any thread. Dropping the last one closes the context; bound endpoints
/// keep it alive. A context takes some 200 bytes.
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
/// drop(context);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedTransmitContext {
    shared: Arc<ContextShared>,
}

struct ContextShared {
    domain: DomainId,
    attr: TxAttr,
}

impl SharedTransmitContext {
    pub(crate) fn new(domain: DomainId, attr: TxAttr) -> SharedTransmitContext {
        SharedTransmitContext { shared: Arc::new(ContextShared { domain, attr }) }
    }

    /// Returns the attributes granted to the context.
    pub fn attr(&self) -> &TxAttr {
        &self.shared.attr
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.shared.domain
    }
}

impl fmt::Debug for SharedTransmitContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransmitContext").field("attr", self.attr()).finish_non_exhaustive()
    }
}
