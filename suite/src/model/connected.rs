//! Programs of two connected endpoints: how they are opened, and the order in which their receives complete.

use crate::connecting::{self, Side};
use crate::model::prelude::*;

/// Opens two parties with a connection, each with these attributes.
pub(crate) fn open_connected_parties(net: &Net, setup: &Setup) -> ([Side; 2], Vec<Party>) {
    let sides = [(); 2].map(|()| {
        let mut side = Side::new(net);
        side.info = setup.info_from_offered(&side.info);
        side
    });
    let [client, server] = &sides;
    let listener = server.open_listener(connecting::LISTENER);
    let (connecting, request) = connecting::ask(client, server, &listener, b"");
    let mut info = request.info();
    (info.tx, info.rx) = (server.info.tx.clone(), server.info.rx.clone());
    let accepting = server.domain.endpoint_for_request(&info, &request).expect("the request is open");
    let accepting = server.bind_endpoint(accepting, connecting::SERVER);
    accepting.accept(b"").expect("an open request can be accepted");
    connecting::expect_connected(client, server, b"");
    let parties = [net.party_of_connection(client, connecting), net.party_of_connection(server, accepting)];
    (sides, parties.into())
}

/// The order in which the receives of a connection complete. A state has the latest message of each stream of
/// messages whose order is known.
pub(crate) struct ConnectionOrder<'a> {
    pub(crate) history: &'a History,
}

/// Messages of one stream complete in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// Untagged messages to one side.
    Untagged { at: usize },
    /// The messages in one buffer.
    Buffer { receive: usize },
    /// Receives posted first match each message as it arrives, tagged or not.
    PostedFirst { at: usize },
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
            (receive < self.history.posted_first).then_some(Stream::PostedFirst { at }),
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
