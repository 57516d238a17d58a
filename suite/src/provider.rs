//! Other providers of libfabric, whose parties are reached through the C interface.

use std::panic::{self, UnwindSafe};

use serde::{Deserialize, Serialize};

use homespun::flags::{Caps, Order};
use homespun::info::Info;

/// A provider of an installed libfabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// The library: a path, or a name that the dynamic loader searches for.
    pub libfabric: String,
    /// The provider's name, such as `tcp;ofi_rxm`.
    pub name: String,
    /// The name of the domain, if the provider has several.
    pub domain: Option<String>,
}

impl Provider {
    /// Whether this is homespun's plugin.
    pub(super) fn is_homespun(&self) -> bool {
        self.name == "homespun"
    }
}

/// What a party asked for and its provider does not have. A test that meets it unwinds with this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOffered(pub String);

/// A party's process has ended by a signal. A test that meets it unwinds with this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crashed(pub String);

/// What a provider has granted to an endpoint.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Granted {
    pub(super) caps: Caps,
    pub(super) tx_order: Order,
    pub(super) rx_order: Order,
    pub(super) completion_order: Order,
    pub(super) cq_data_bytes: usize,
    pub(super) tx_size_ops: usize,
    pub(super) rx_size_ops: usize,
    pub(super) inject_bytes: usize,
    pub(super) iov_limit: usize,
}

impl Granted {
    /// Puts what was granted into an info of homespun.
    pub(super) fn limit(self, mut info: Info) -> Info {
        info.caps = self.caps;
        info.tx.caps = info.caps;
        info.rx.caps = info.caps;
        info.tx.msg_order = self.tx_order;
        info.rx.msg_order = self.rx_order;
        info.tx.comp_order = self.completion_order;
        info.domain.cq_data_size_bytes = self.cq_data_bytes;
        info.tx.size_ops = self.tx_size_ops;
        info.rx.size_ops = self.rx_size_ops;
        info.tx.inject_size_bytes = self.inject_bytes;
        info.tx.iov_limit = self.iov_limit;
        info
    }
}

/// How a test over a network has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// The provider does not have this, which the test needs.
    NotOffered(String),
    /// With this panic.
    Failed(String),
    /// A party's process has ended by a signal.
    Crashed(String),
}

impl Outcome {
    /// Runs something that uses parties, and says how it has ended.
    pub fn of(run: impl FnOnce() + UnwindSafe) -> Outcome {
        let Err(panic) = panic::catch_unwind(run) else { return Outcome::Passed };
        if let Some(NotOffered(what)) = panic.downcast_ref::<NotOffered>() {
            return Outcome::NotOffered(what.clone());
        }
        if let Some(Crashed(how)) = panic.downcast_ref::<Crashed>() {
            return Outcome::Crashed(how.clone());
        }
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome::Failed(text.unwrap_or_default())
    }
}
