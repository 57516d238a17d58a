//! Random programs of two connected endpoints. The results are checked against the rules of matching, and
//! against the order in which receives of a connection complete.

mod program;
mod run;

use std::collections::BTreeMap;

use homespun::flags::Order;

use crate::model::acceptor::{Rejection, Rules, accept, require};
use crate::model::history::{Event, History};
use crate::model::program::Disruption;
use crate::model::rules::accept_history;
use crate::model::time_limit::run_with_time_limit;
use crate::{Net, TransportKind, Turns};

pub use self::program::{Program, any_program};

/// Runs a program over a new network of this kind. Panics unless the model explains its history.
pub fn run_and_check(transport: &TransportKind, program: &Program) {
    let net = Net::new(transport, Turns::Alternate);
    let observed = run_with_time_limit(program, || run::run_program(&net, program));
    let history = &observed.history;
    let in_order = ConnectionOrder { history, posted_first: observed.posted_first };
    let explained = accept_history(history, Disruption::None, Order::empty(), false);
    explained.and_then(|()| accept(&in_order, history)).unwrap_or_else(|violation| panic!("{violation}"));
}

/// The order in which the receives of a connection complete. A state has the latest message of each stream of
/// messages whose order is known.
pub(super) struct ConnectionOrder<'a> {
    pub(super) history: &'a History,
    /// The number of receives that were posted before the first send.
    pub(super) posted_first: usize,
}

/// Messages of one stream complete in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Untagged {
        at: usize,
    },
    Buffer {
        receive: usize,
    },
    /// Receives posted first match each message as it arrives, tagged or not.
    PostedFirst {
        at: usize,
    },
}

impl Rules for ConnectionOrder<'_> {
    type State = BTreeMap<Stream, usize>;

    fn start(&self) -> Self::State {
        BTreeMap::new()
    }

    /// Shows fi_endpoint/completion-order.
    fn step(&self, state: &Self::State, _: u64, event: Event) -> Result<Vec<Self::State>, Rejection> {
        let Event::Took { receive, message } = event else { return Ok(vec![state.clone()]) };
        let mut latest = state.clone();
        let op = &self.history.receives[receive];
        let at = op.at.place;
        let streams = [
            op.tagged.is_none().then_some(Stream::Untagged { at }),
            op.buffer.is_some().then_some(Stream::Buffer { receive }),
            (receive < self.posted_first).then_some(Stream::PostedFirst { at }),
        ];
        for stream in streams.into_iter().flatten() {
            let before = latest.insert(stream, message);
            require(before < Some(message), "fi_endpoint/completion-order", || {
                format!("of {stream:?}, message {before:?} completed before message {message}")
            })?;
        }
        Ok(vec![latest])
    }
}
