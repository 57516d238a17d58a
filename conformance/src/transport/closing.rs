//! The ends of links, and what their peers see of them.

use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, LinkId, Provider, Transport};

use crate::transport::room::{fill_link, send_until_partly_taken};
use crate::transport::{
    BUDGET_FRAMES, Backend, Event, SIZES, TestEndpoint, drive_until, message_header, pseudo_random_payload,
};

const RESET: LinkError = LinkError::System(Errno::ECONNRESET);

/// Frames that the link took before [`Close::Drain`] reach the peer. Then the peer sees
/// [`LinkError::Closed`]. The draining side drops frames from the peer, and reports nothing more about the
/// link. In the end its [`draining_count`](Transport::draining_count) is 0.
pub fn drain_delivers_all_frames_before_closed<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    for size in SIZES {
        endpoints[0].post(link, pseudo_random_payload(size, 1));
        endpoints[1].post(peer, pseudo_random_payload(size, 2));
    }
    drive_until(&mut endpoints, "everything to be taken", |[a, _]| a.has_sent_all());
    endpoints[0].close(link, Close::Drain);
    let events_before = endpoints[0].recorder.log().len();
    drive_until(&mut endpoints, "the link to drain and the peer to know", |[a, b]| {
        a.transport.draining_count() == 0 && b.recorder.down_error(peer).is_some()
    });
    let [a, b] = endpoints;
    assert!(b.recorder.payloads_of(peer) == SIZES.map(|size| pseudo_random_payload(size, 1)));
    assert_eq!(b.recorder.down_error(peer), Some(&LinkError::Closed));
    assert_eq!(a.recorder.log().len(), events_before, "reported of a closed link");
}

/// After [`Close::Drain`], [`draining_count`](Transport::draining_count) falls to 0, although the peer makes
/// no call. Then the transport may be dropped: the peer still gets all frames that the link has taken, and
/// sees [`LinkError::Closed`].
pub fn drain_completes_without_calls_of_the_peer<P: Provider>(backend: Backend<'_, P>) {
    for is_accepted in [false, true] {
        let ([mut a, mut b], mut link, mut peer) = backend.open_linked_pair();
        if is_accepted {
            ((a, b), (link, peer)) = ((b, a), (peer, link));
        }
        let taken = send_empty_frames(&mut a, link);
        a.close(link, Close::Drain);
        a.drive_until_drained();
        drop(a);
        b.drive_until_down(peer);
        assert_eq!(b.recorder.down_error(peer), Some(&LinkError::Closed));
        assert_eq!(b.recorder.frame_count(peer), taken);
    }
}

/// [`draining_count`](Transport::draining_count) falls to 0 without calls of the peer, even if the peer has
/// not accepted the link. Frames on a link that the peer has not accepted may be lost.
pub fn drain_while_connecting_completes_without_calls_of_the_peer<P: Provider>(backend: Backend<'_, P>) {
    for passes in 0..4 {
        let [mut a, b] = [backend.open_endpoint(11), backend.open_endpoint(22)];
        let link = a.connect(b.address());
        a.post(link, pseudo_random_payload(50, 1));
        for _ in 0..passes {
            a.make_progress();
        }
        a.close(link, Close::Drain);
        a.drive_until_drained();
    }
}

/// The drain of a full link ends when the peer has ended.
pub fn drain_of_a_full_link_completes_when_the_peer_is_dropped<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, b], link, _) = backend.open_linked_pair();
    fill_link(&mut a, link, 256 * 1024);
    a.close(link, Close::Drain);
    a.transmit();
    drop(b);
    a.drive_until_drained();
}

/// Once a full link has [drained](Transport::draining_count), its transport may be dropped. The peer still
/// gets all frames that the link has taken.
pub fn transport_dropped_after_a_drain_loses_no_frames<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let taken = fill_link(&mut endpoints[0], link, 100) - 1;
    let end = if endpoints[0].has_half_sent_frame(link) { RESET } else { LinkError::Closed };
    endpoints[0].close(link, Close::Drain);
    drive_until(&mut endpoints, "the link to drain", |[a, _]| a.transport.draining_count() == 0);
    let [a, mut b] = endpoints;
    drop(a);
    b.drive_until_down(peer);
    assert_eq!(b.recorder.frame_count(peer), taken);
    assert_eq!(b.recorder.down_error(peer), Some(&end));
}

/// Sends empty frames on an idle link. Returns how many frames the link has taken.
fn send_empty_frames<T: Transport>(endpoint: &mut TestEndpoint<T>, link: LinkId) -> usize {
    const FRAMES: usize = 8;
    for _ in 0..FRAMES {
        endpoint.post(link, Vec::new());
        endpoint.receive(BUDGET_FRAMES);
        endpoint.transmit();
    }
    let taken = FRAMES - endpoint.queued_frame_count(link);
    assert!(taken > 0, "an idle link takes no frame");
    taken
}

/// Both sides may drain the same link.
pub fn drain_from_both_sides_completes<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    for (endpoint, link) in endpoints.iter_mut().zip([link, peer]) {
        endpoint.post(link, pseudo_random_payload(400, 1));
        endpoint.transmit();
        endpoint.close(link, Close::Drain);
    }
    drive_until(&mut endpoints, "both sides to drain", |endpoints| {
        endpoints.iter().all(|endpoint| endpoint.transport.draining_count() == 0)
    });
    assert!(endpoints.iter().all(|endpoint| endpoint.recorder.log().len() == 1), "reported of a closed link");
}

/// If a link has taken only a part of a frame and is then closed, the peer sees ECONNRESET, even after
/// [`Close::Drain`]. After a drain, the peer first gets all frames that the link has taken whole. After an
/// abort, some of these frames may be lost.
pub fn close_after_a_partly_taken_frame_resets_the_peer<P: Provider>(backend: Backend<'_, P>) {
    for how in [Close::Drain, Close::Abort] {
        let (mut endpoints, link, peer) = backend.open_linked_pair();
        endpoints[0].post(link, pseudo_random_payload(300, 1));
        drive_until(&mut endpoints, "a frame", |[_, b]| b.recorder.frame_count(peer) == 1);
        let frames = send_until_partly_taken(backend, &mut endpoints[0], link);
        endpoints[0].close(link, how);
        drive_until(&mut endpoints, "the link to drain and the peer to know", |[a, b]| {
            a.transport.draining_count() == 0 && b.recorder.down_error(peer).is_some()
        });
        assert_eq!(endpoints[1].recorder.down_error(peer), Some(&RESET), "{how:?}");
        let count = endpoints[1].recorder.frame_count(peer);
        match how {
            Close::Drain => assert_eq!(count, frames, "the first frame, and all but the last"),
            Close::Abort => assert!(count <= frames, "all but the last at most"),
        }
    }
}

/// A side may drain a link on which only a part of a frame has arrived. That side drops the rest of the
/// frame. The peer sees [`LinkError::Closed`], although it has not sent the whole frame.
pub fn drain_amid_an_incoming_frame_reports_closed_to_the_peer<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    send_until_partly_taken(backend, &mut endpoints[0], link);
    // Let the draining side read a part of the frame.
    endpoints[1].receive(1);
    endpoints[1].post(peer, pseudo_random_payload(77, 2));
    endpoints[1].drive_until("the frame to be taken", TestEndpoint::has_sent_all);
    endpoints[1].close(peer, Close::Drain);
    drive_until(&mut endpoints, "the link to drain and the peer to know", |[a, b]| {
        b.transport.draining_count() == 0 && a.recorder.down_error(link).is_some()
    });
    assert_eq!(endpoints[0].recorder.payloads_of(link), [pseudo_random_payload(77, 2)]);
    assert_eq!(endpoints[0].recorder.down_error(link), Some(&LinkError::Closed));
}

/// A link may be closed, in either way, before it is up. This side then reports nothing about the link, and
/// [`draining_count`](Transport::draining_count) falls to 0. The peer reports nothing, or that the link came
/// up and went down.
pub fn close_while_connecting_reports_nothing<P: Provider>(backend: Backend<'_, P>) {
    for how in [Close::Drain, Close::Abort] {
        for passes in 0..4 {
            let mut endpoints = [backend.open_endpoint(11), backend.open_endpoint(22)];
            let link = endpoints[0].connect(endpoints[1].address());
            endpoints[0].post(link, pseudo_random_payload(50, 1));
            for _ in 0..passes {
                endpoints[0].make_progress();
            }
            endpoints[0].close(link, how);
            // A second link follows. When its frame has arrived, the peer has reported everything about the
            // first.
            let next = endpoints[0].connect(endpoints[1].address());
            endpoints[0].post(next, pseudo_random_payload(60, 1));
            let frame = Event::Frame(message_header(60), pseudo_random_payload(60, 1));
            drive_until(&mut endpoints, "the next link, and nothing to drain", |[a, b]| {
                a.transport.draining_count() == 0
                    && a.recorder.live_link_count() == 1
                    && b.recorder.live_link_count() == 1
                    && b.recorder.log().iter().any(|(_, event)| *event == frame)
            });
            let [a, b] = endpoints;
            assert_eq!(a.recorder.log().len(), 1, "reported of a closed link");
            let ups = b.recorder.up_events();
            let downs = b.recorder.log().iter().filter(|(_, event)| matches!(event, Event::Down(_))).count();
            assert!(ups.iter().all(|&(_, peer, instance)| (peer, instance) == (a.address(), 11)));
            assert!(ups.len() <= 2 && downs == ups.len() - 1, "up and down, or never reported");
        }
    }
}

/// A link may have ended because the connect was refused or the peer is gone. The caller may close it, in
/// either way, before the transport reports the end. Then the transport reports nothing about the link, and
/// [`draining_count`](Transport::draining_count) falls to 0.
pub fn close_of_an_ended_link_reports_nothing<P: Provider>(backend: Backend<'_, P>) {
    for how in [Close::Drain, Close::Abort] {
        let ([mut a, b], link, _) = backend.open_linked_pair();
        let address = b.address();
        a.post(link, pseudo_random_payload(300, 1));
        a.transmit();
        drop(b);
        let refused = a.connect(address);
        a.transmit();
        a.close(link, how);
        a.close(refused, how);
        a.drive_until_drained();
        for _ in 0..50 {
            assert_eq!(a.receive(BUDGET_FRAMES), 0);
        }
        assert_eq!(a.recorder.log().len(), 1, "reported of a closed link");
    }
}

/// [`Close::Abort`] takes effect at once and leaves nothing to drain. The last frames may be lost. The peer
/// may see [`LinkError::Closed`] only if it has received all frames that the link has taken.
pub fn abort_reports_closed_to_the_peer_only_after_all_frames<P: Provider>(backend: Backend<'_, P>) {
    for passes in 0..4 {
        for accepted in [false, true] {
            let (mut endpoints, mut link, mut peer) = backend.open_linked_pair();
            if accepted {
                endpoints.reverse();
                (link, peer) = (peer, link);
            }
            for size in SIZES {
                endpoints[0].post(link, pseudo_random_payload(size, 1));
            }
            for _ in 0..passes {
                endpoints[0].transmit();
            }
            let taken = SIZES.len() - endpoints[0].queued_frame_count(link);
            let was_mid_frame = endpoints[0].has_half_sent_frame(link);
            endpoints[0].close(link, Close::Abort);
            assert_eq!(endpoints[0].transport.draining_count(), 0);
            drive_until(&mut endpoints, "the peer to know", |[_, b]| b.recorder.down_error(peer).is_some());
            let [a, b] = endpoints;
            let (arrived, sent) =
                (b.recorder.payloads_of(peer), SIZES.map(|size| pseudo_random_payload(size, 1)));
            assert!(arrived == sent[..arrived.len()], "other frames than were sent");
            match b.recorder.down_error(peer) {
                Some(LinkError::Closed) => {
                    assert!(arrived.len() == taken && !was_mid_frame, "closed in order, but incomplete");
                }
                why => assert_eq!(why, Some(&RESET)),
            }
            assert_eq!(a.recorder.log().len(), 1, "reported of a closed link");
        }
    }
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    fill_link(&mut endpoints[0], link, 100);
    endpoints[0].close(link, Close::Abort);
    assert_eq!(endpoints[0].transport.draining_count(), 0, "a full link is aborted at once too");
    drive_until(&mut endpoints, "the peer to know", |[_, b]| b.recorder.down_error(peer).is_some());
}

/// When a transport is dropped, its peers report the frames that have arrived, and then the end of their
/// links. Unaccepted connects to the transport fail.
pub fn dropped_transport_ends_its_links_and_fails_unaccepted_connects<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    endpoints[1].post(peer, pseudo_random_payload(500, 1));
    drive_until(&mut endpoints, "a frame", |[a, _]| a.recorder.frame_count(link) == 1);
    let [mut a, b] = endpoints;
    let unanswered = a.connect(b.address());
    for _ in 0..10 {
        a.make_progress();
    }
    drop(b);
    a.drive_until_down(link);
    a.drive_until_down(unanswered);
    assert_eq!(a.recorder.live_link_count(), 0);
    assert_eq!(a.recorder.payloads_of(link), [pseudo_random_payload(500, 1)]);
}

/// If a transport is dropped after it has taken a frame in part, the peer sees ECONNRESET.
pub fn transport_dropped_after_a_partly_taken_frame_resets_the_peer<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let frames = send_until_partly_taken(backend, &mut a, link);
    drop(a);
    b.drive_until_down(peer);
    assert_eq!(b.recorder.down_error(peer), Some(&RESET));
    assert!(b.recorder.frame_count(peer) < frames);
}

/// A later link may get the number of a closed link. The transport then reports no event of the closed link.
pub fn reused_link_id_gets_no_events_of_its_predecessor<P: Provider>(backend: Backend<'_, P>) {
    const ROUNDS: usize = 24;
    let mut endpoints = [11, 22, 33].map(|instance| backend.open_endpoint(instance));
    let mut numbers: Vec<LinkId> = Vec::new();
    for round in 0..ROUNDS {
        let (at, instance) = if round % 2 == 0 { (1, 22) } else { (2, 33) };
        let address = endpoints[at].address();
        let link = endpoints[0].connect(address);
        numbers.push(link);
        let events_before = [0, at].map(|at| endpoints[at].recorder.log().len());
        let mut link_at_peer = None;
        drive_until(&mut endpoints, "the link", |endpoints| {
            let mut later = endpoints[at].recorder.log()[events_before[1]..].iter();
            link_at_peer = later.find_map(|(id, event)| matches!(event, Event::Up(..)).then_some(*id));
            link_at_peer.is_some() && endpoints[0].recorder.log().len() > events_before[0]
        });
        let link_at_peer = link_at_peer.expect("just seen");
        endpoints[at].post(link_at_peer, pseudo_random_payload(100 + round, instance));
        drive_until(&mut endpoints, "a frame", |[a, ..]| a.recorder.log().len() > events_before[0] + 1);
        let expected = [
            (link, Event::Up(address, instance)),
            (link, Event::Frame(message_header(100 + round), pseudo_random_payload(100 + round, instance))),
        ];
        assert_eq!(endpoints[0].recorder.log()[events_before[0]..], expected);

        // When this side closes the link, frames are in flight in both directions. In every third round the
        // peer has already ended the link.
        let [a, b, c] = &mut endpoints;
        let peer = if at == 1 { b } else { c };
        peer.post(link_at_peer, pseudo_random_payload(7, 0));
        peer.transmit();
        a.post(link, pseudo_random_payload(8, 0));
        a.transmit();
        if round % 3 == 0 {
            peer.close(link_at_peer, Close::Abort);
        }
        a.close(link, if round % 4 < 2 { Close::Abort } else { Close::Drain });
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() < ROUNDS, "no number was used again");
    drive_until(&mut endpoints, "the end of all links", |endpoints| {
        endpoints.iter().all(|endpoint| {
            endpoint.transport.draining_count() == 0 && endpoint.recorder.live_link_count() == 0
        })
    });
}
