//! Sweeps of the peer table. The engine forgets a peer if the application has never named it and no
//! part of the engine refers to it. See `docs/decisions/peer-table.md`.

use super::Engine;
use super::links::ClosingLink;
use crate::completion::Sink;

impl Engine {
    /// Forgets unused peers, if links have introduced many peers since the last sweep. The id of a
    /// forgotten peer becomes invalid, so the caller must hold no id that the engine does not hold.
    pub(super) fn forget_unused_peers_if_due(&mut self, sink: &mut impl Sink) {
        if self.peers.is_sweep_due() {
            self.forget_unused_peers(sink);
        }
    }

    #[cold]
    fn forget_unused_peers(&mut self, sink: &mut impl Sink) {
        // Every field is named, so that a new field is not overlooked.
        let Engine {
            config: _,
            peers,
            links,
            initiator,
            receive_side,
            target,
            has_unseen_stores: _,
            has_offered_regions: _,
            passes_to_sweep: _,
            condemned,
            replaced: _,
            awaited_sources,
            has_timeouts: _,
            connection,
            ends_on_failure: _,
            late_posts_to,
        } = self;
        let mut marks = peers.new_marks();
        marks.mark(links.peers());
        initiator.mark_peers(&mut marks);
        receive_side.mark_peers(&mut marks);
        target.mark_peers(&mut marks);
        marks.mark(condemned.iter().filter_map(ClosingLink::peer_of_exposed_sends));
        marks.mark(awaited_sources.iter().copied());
        marks.mark(connection.peer().and_then(Result::ok));
        marks.mark(*late_posts_to);
        if peers.sweep(&marks) {
            sink.clear_peer_cache();
        }
    }
}
