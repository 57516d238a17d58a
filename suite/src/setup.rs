//! The attributes of a party.

use homespun::flags::{BindFlags, Caps, Mode, OpFlags, Order};
use homespun::info::{Info, ResourceManagement};
use homespun::{Address, CompletionQueue, CqFormat, WaitObject, WaitSet};
use serde::{Deserialize, Serialize};

use super::form;

/// A queue of sends and receives.
pub(crate) const BOTH: BindFlags = BindFlags::TRANSMIT.union(BindFlags::RECV);

/// The setup of a party's endpoint and queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Setup {
    /// The requested capabilities; empty for all.
    pub caps: Caps,
    /// The depth of the queue; 0 for the default.
    pub cq_depth_entries: usize,
    /// The format of the queues; `None` for the default.
    pub cq_format: Option<CqFormat>,
    /// Whether receives have their own queue.
    pub separate_queues: bool,
    /// A queue of another party in this process. The party uses this queue instead of opening its own.
    #[serde(skip)]
    pub shares_cq: Option<CompletionQueue>,
    /// Whether the queue is bound with selective completion.
    pub selective: bool,
    /// Whether writes with remote data take the party's receives (`FI_RX_CQ_DATA`).
    pub rx_cq_data: bool,
    /// Whether a counter is bound for each kind of event.
    pub counts: bool,
    /// The largest number of outstanding sends; 0 for the default.
    pub tx_depth_ops: usize,
    /// The largest number of outstanding receives; 0 for the default.
    pub rx_depth_ops: usize,
    /// The budget for unexpected messages; 0 for the default.
    pub unexpected_bytes: usize,
    /// The requested message order, in both directions.
    pub order: Order,
    /// Whether the party requests that sends complete in order.
    pub completes_in_order: bool,
    /// The default flags of sends.
    pub tx_op_flags: OpFlags,
    /// The endpoint's address, or `None` for a free port at the transport's usual address.
    #[serde(with = "form::optional_address")]
    pub at: Option<Address>,
    /// The user of the party's process, or `None` for the test's user. Only a party in another process can
    /// have a user.
    pub user: Option<u32>,
    /// The resource management of the party's queues. If it is set, the party gets its own domain.
    pub resource_mgmt: Option<ResourceManagement>,
    /// Whether the party sends long messages from send buffers, which near peers can map.
    pub sends_from_buffers: bool,
    /// Whether only the test's reads of its queue drive the party, until the test calls
    /// [`Net::start_driving`](super::net::Net::start_driving).
    pub asleep: bool,
    /// The wait object of the party's queues and counters. Only a party in this process has one.
    #[serde(skip)]
    pub wait: WaitObject,
    /// The wait set of the party's queues and counters, if their wait object is [`WaitObject::Set`].
    #[serde(skip)]
    pub wait_set: Option<WaitSet>,
}

impl Setup {
    /// Returns the setup of a party that only the test's reads of its queue drive.
    pub fn asleep() -> Setup {
        Setup { asleep: true, ..Setup::default() }
    }

    /// Returns the setup of a party with selective completion.
    pub fn selective() -> Setup {
        Setup { selective: true, ..Setup::default() }
    }

    /// Returns the info to open the endpoint with, made from the offered one.
    pub(super) fn info_from_offered(&self, offered: &Info) -> Info {
        let mut info = offered.clone();
        if !self.caps.is_empty() {
            info.caps = self.caps;
        }
        if self.tx_depth_ops > 0 {
            info.tx.size_ops = self.tx_depth_ops;
        }
        if self.rx_depth_ops > 0 {
            info.rx.size_ops = self.rx_depth_ops;
        }
        if self.unexpected_bytes > 0 {
            info.rx.total_buffered_recv_bytes = self.unexpected_bytes;
        }
        info.tx.op_flags = self.tx_op_flags;
        for order in [&mut info.tx.msg_order, &mut info.rx.msg_order] {
            *order |= self.order;
        }
        if self.rx_cq_data {
            info.mode |= Mode::RX_CQ_DATA;
        }
        if self.completes_in_order {
            info.tx.comp_order = Order::STRICT;
        }
        info.src_addr = self.at.or(info.src_addr);
        info
    }
}
