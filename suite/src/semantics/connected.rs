//! Tests of connections that run natively and behind the C interface: in them, the names of the library's
//! objects mean the suite's handles.

mod connection_order;
mod connections;
mod failed_connections;
mod shared_connections;
mod shutdown;

use super::shared_contexts;

mod prelude {
    pub(super) use crate::handle::Endpoint;
    pub(super) use crate::semantics::prelude::*;
}
