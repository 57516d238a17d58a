//! Full links, and the budget of `receive`.

use homespun_engine::transport::{LinkId, Provider, Transport};
use homespun_engine::wire::Header;

use crate::transport::{BUDGET_FRAMES, Backend, TestEndpoint, drive_until, pseudo_random_payload};

/// The number of unread bytes after which a link counts as unbounded.
const UNREAD_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The number of refusals in a row after which a link counts as full.
const REFUSALS_MIN: usize = 50;

/// The size of a frame that no transport can hold whole.
const LARGE_BYTES: usize = 24 * 1024 * 1024;

/// A link becomes full if the peer does not read. Once the peer reads, the sender resumes the partly taken
/// frame, and everything arrives.
pub fn full_link_delivers_everything_once_the_peer_reads<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let frames = fill_link(&mut endpoints[0], link, 256 * 1024);
    drive_until(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == frames);
    let payloads = endpoints[1].recorder.payloads_of(peer);
    let is_intact = |(n, bytes): (usize, &[u8])| bytes == pseudo_random_payload(256 * 1024, n as u64);
    assert!(payloads.into_iter().enumerate().all(is_intact));
    endpoints[0].post(link, pseudo_random_payload(100, 1));
    drive_until(&mut endpoints, "one more frame", |[_, b]| b.recorder.frame_count(peer) == frames + 1);
}

/// [`resume`](Transport::resume) continues a frame that was taken in part. While there is no room, it
/// returns [`Sent::Full`](homespun_engine::transport::Sent::Full). Other links carry frames meanwhile.
pub fn partly_sent_frame_does_not_block_other_links<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let frames = send_until_partly_taken(backend, &mut a, link);
    let c = backend.open_endpoint(33);
    let other = a.connect(c.address());
    a.post(other, pseudo_random_payload(100, 1));
    let mut endpoints = [a, c];
    drive_until(&mut endpoints, "a frame on another link", |[a, c]| {
        a.recorder.live_link_count() == 2 && c.recorder.log().len() == 2
    });
    let [mut a, _c] = endpoints;
    assert!(a.has_half_sent_frame(link), "the whole frame was taken although the peer does not read");
    // The peer reads a little at a time, which makes room.
    for _ in 0..REFUSALS_MIN {
        b.receive(1);
        a.transmit();
    }
    drive_until(&mut [a, b], "the rest of the frame", |[_, b]| b.recorder.frame_count(peer) == frames);
}

/// A send on a broken link returns [`Sent::Full`](homespun_engine::transport::Sent::Full) until the end of
/// the link is reported.
pub fn broken_link_answers_full_until_link_down<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, b], link, _) = backend.open_linked_pair();
    drop(b);
    let deadline = backend.deadline_from_now();
    let mut refusals = 0;
    while refusals < REFUSALS_MIN {
        let taken = a.transport.send_inline(link, &Header::Ack { received: 7 }, &[]);
        refusals = if taken.is_err() { refusals + 1 } else { 0 };
        a.transport.flush();
        deadline.yield_or_panic("a broken link to be full");
    }
    a.drive_until_down(link);
}

/// [`receive`](Transport::receive) returns 0 whenever there is nothing to report.
pub fn receive_on_an_idle_transport_returns_0<P: Provider>(backend: Backend<'_, P>) {
    let mut unlinked = backend.open_endpoint(33);
    assert_eq!(unlinked.receive(BUDGET_FRAMES), 0);
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    for _ in 0..10 {
        endpoints[0].post(link, pseudo_random_payload(5000, 1));
    }
    drive_until(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == 10);
    for _ in 0..200 {
        for endpoint in &mut endpoints {
            endpoint.transmit();
            assert_eq!(endpoint.receive(BUDGET_FRAMES), 0, "there was nothing to report");
        }
    }
}

/// [`receive`](Transport::receive) reports about as many frames as its budget allows. With a budget of one
/// frame, it leaves most frames to later calls: of many links with one frame each, and of one link with many
/// large frames.
pub fn receive_budget_limits_reported_frames<P: Provider>(backend: Backend<'_, P>) {
    const LINKS: usize = 32;
    const LEN_BYTES: usize = 16 * 1024;
    const TAKEN_MIN_FRAMES: usize = 32;
    let ([mut a, mut b], first, _) = backend.open_linked_pair();
    let mut links = vec![first];
    links.resize_with(LINKS, || a.connect(b.address()));
    let mut endpoints = [a, b];
    drive_until(&mut endpoints, "all links", |endpoints| {
        endpoints.iter().all(|endpoint| endpoint.recorder.live_link_count() == LINKS)
    });
    [a, b] = endpoints;
    for &link in &links {
        a.post(link, pseudo_random_payload(10, 1));
    }
    a.drive_until("the frames to be taken", TestEndpoint::has_sent_all);
    let frame_count = |b: &TestEndpoint<P::Transport>| b.recorder.log().len() - LINKS;
    b.receive(1);
    let count = frame_count(&b);
    assert!(count < LINKS / 2, "{count} of {LINKS} at once");
    drive_until(&mut [a, b], "a frame on each link", |[_, b]| frame_count(b) == LINKS);

    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let frames = fill_link(&mut endpoints[0], link, LEN_BYTES);
    endpoints[1].receive(1);
    let count = endpoints[1].recorder.frame_count(peer);
    // A link that holds fewer than `TAKEN_MIN_FRAMES` frames is too short for this part of the test.
    assert!(frames < TAKEN_MIN_FRAMES || count < frames / 2, "{count} of {frames} at once");
    drive_until(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == frames);
}

/// [`receive`](Transport::receive) is fair: links that always have more to read do not delay another link
/// for ever, and each link gets its turn.
pub fn flooded_link_does_not_starve_others<P: Provider>(backend: Backend<'_, P>) {
    const FLOODERS: usize = 3;
    let mut server = backend.open_endpoint(0);
    let address = server.address();
    let mut clients: Vec<_> =
        (1..=FLOODERS + 1).map(|instance| backend.open_endpoint(instance as u64)).collect();
    let links: Vec<LinkId> = clients.iter_mut().map(|client| client.connect(address)).collect();
    let deadline = backend.deadline_from_now();
    while server.recorder.live_link_count() < clients.len()
        || clients.iter().any(|client| client.recorder.live_link_count() == 0)
    {
        clients.iter_mut().chain([&mut server]).for_each(TestEndpoint::make_progress);
        deadline.yield_or_panic("all links");
    }
    let mut ups = server.recorder.up_events();
    ups.sort_by_key(|&(_, _, instance)| instance);
    let accepted: Vec<LinkId> = ups.into_iter().map(|(link, ..)| link).collect();

    let (quiet, flooders) = clients.split_last_mut().expect("there are some");
    for (flooder, &link) in flooders.iter_mut().zip(&links) {
        fill_link(flooder, link, 100);
    }
    quiet.post(links[FLOODERS], pseudo_random_payload(10, 1));
    let deadline = backend.deadline_from_now();
    while accepted.iter().any(|&link| server.recorder.frame_count(link) == 0) {
        quiet.transmit();
        for (flooder, &link) in flooders.iter_mut().zip(&links) {
            while flooder.queued_frame_count(link) < 100 {
                flooder.post(link, pseudo_random_payload(100, 1));
            }
            flooder.make_progress();
        }
        server.receive(4);
        deadline.yield_or_panic("the frame of a link that is not flooded");
    }
}

/// Posts frames of this size until the link takes no more. The number of a frame is its salt. Returns how
/// many frames were posted; the link has not taken the last one whole. The peer must not be receiving.
pub(super) fn fill_link<T: Transport>(
    endpoint: &mut TestEndpoint<T>,
    link: LinkId,
    len_bytes: usize,
) -> usize {
    let mut refusals = 0;
    let mut frames = 0;
    while refusals < REFUSALS_MIN {
        if endpoint.queued_frame_count(link) == 0 {
            assert!(frames * len_bytes < UNREAD_MAX_BYTES, "the link takes unread frames without bound");
            endpoint.post(link, pseudo_random_payload(len_bytes, frames as u64));
            frames += 1;
            refusals = 0;
        }
        let waiting_frames = endpoint.queued_frame_count(link);
        endpoint.make_progress();
        refusals = if endpoint.queued_frame_count(link) == waiting_frames { refusals + 1 } else { 0 };
    }
    frames
}

/// Finds out whether a link without room for a long frame takes it in part.
pub(super) fn probe_splits<P: Provider>(backend: Backend<'_, P>) -> bool {
    let ([mut a, _b], link, _) = backend.open_linked_pair();
    try_send_until_partly_taken(backend, &mut a, link).is_some()
}

/// Sends frames until the link has taken a frame in part. Returns the number of frames, including that one.
/// The peer must not be receiving.
pub(super) fn send_until_partly_taken<P: Provider>(
    backend: Backend<'_, P>,
    endpoint: &mut TestEndpoint<P::Transport>,
    link: LinkId,
) -> usize {
    try_send_until_partly_taken(backend, endpoint, link)
        .expect("a link without room takes a long frame in part")
}

/// Sends frames until the link has taken a frame in part. Returns `None` if the link has taken only whole
/// frames.
fn try_send_until_partly_taken<P: Provider>(
    backend: Backend<'_, P>,
    endpoint: &mut TestEndpoint<P::Transport>,
    link: LinkId,
) -> Option<usize> {
    let len_bytes = backend.clamp_frame_bytes(LARGE_BYTES);
    let mut frames = 0;
    while endpoint.queued_frame_count(link) == 0 {
        assert!(frames * len_bytes < UNREAD_MAX_BYTES, "the link takes unread frames without bound");
        endpoint.post(link, pseudo_random_payload(len_bytes, frames as u64));
        frames += 1;
        for _ in 0..REFUSALS_MIN {
            endpoint.make_progress();
        }
    }
    endpoint.has_half_sent_frame(link).then_some(frames)
}
