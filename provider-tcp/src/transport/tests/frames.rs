//! Sending and receiving frames.

use crate::TcpProvider;
use crate::limits::{
    INLINE_MAX_BYTES, LARGE_FRAME_BYTES, READ_AHEAD_BYTES, READ_BUFFER_BYTES, STAGING_MAX_BYTES,
};
use crate::testing::{Pair, Placement, Sending, make_message, make_payload};

/// A provider with small socket buffers, so that large frames are cut many times.
fn small_buffer_provider() -> TcpProvider {
    TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024)
}

fn boundary_sizes() -> Vec<usize> {
    let around = |bytes: usize| [bytes - 1, bytes, bytes + 1];
    let large = usize::try_from(LARGE_FRAME_BYTES).unwrap();
    let mut sizes = vec![0, 1, 2, 100, 3 * 1024 * 1024 + 17];
    sizes.extend(around(READ_AHEAD_BYTES));
    sizes.extend(around(INLINE_MAX_BYTES));
    sizes.extend(around(READ_BUFFER_BYTES));
    sizes.extend(around(STAGING_MAX_BYTES));
    sizes.extend(around(large + READ_AHEAD_BYTES));
    sizes
}

/// Sends one frame of each size, and checks that it arrives. Returns how often the transport took only a
/// part of a frame.
fn send_all_sizes_and_count_cuts(pair: &mut Pair, sizes: &[usize]) -> usize {
    let (out, into) = (pair.out, pair.into);
    let mut cuts = 0;
    for (seed, &len_bytes) in sizes.iter().enumerate() {
        let seed = seed as u64;
        let mut sending = Sending::new(make_message(len_bytes, seed), make_payload(len_bytes, seed));
        let mut taken = false;
        pair.drive_until("the frame to arrive", |client, server| {
            taken = taken || sending.advance(&mut client.transport, out);
            taken && !server.received_frames(into).is_empty()
        });
        cuts += sending.partial_count;
        let frames = std::mem::take(&mut pair.server.recorder.inboxes.get_mut(&into).unwrap().frames);
        let [(header, received)] = &frames[..] else { panic!("{} frames", frames.len()) };
        assert_eq!(*header, make_message(len_bytes, seed));
        assert!(*received == make_payload(len_bytes, seed), "another payload of {len_bytes} bytes");
    }
    cuts
}

#[test]
fn frames_of_every_size_arrive_through_small_and_large_buffers() {
    for placement in [Placement::Direct, Placement::Nowhere, Placement::UpTo(5_000)] {
        let mut pair = Pair::open_connected(&small_buffer_provider(), "127.0.0.1:0");
        pair.server.recorder.placement = placement;
        let cuts = send_all_sizes_and_count_cuts(&mut pair, &boundary_sizes());
        assert!(cuts > 20, "frames were cut {cuts} times only");
    }
    let mut pair = Pair::open_connected(&TcpProvider::new(), "[::1]:0");
    let sizes = boundary_sizes();
    send_all_sizes_and_count_cuts(&mut pair, &[&sizes[..], &[1, 0]].concat());
}

#[test]
fn payload_is_read_into_the_receivers_space() {
    const LEN_BYTES: usize = 4 * 1024 * 1024;
    for (placement, placeable_bytes) in
        [(Placement::Direct, LEN_BYTES), (Placement::UpTo(1_000_000), 1_000_000), (Placement::Nowhere, 0)]
    {
        let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
        pair.server.recorder.placement = placement;
        send_all_sizes_and_count_cuts(&mut pair, &[LEN_BYTES]);
        let inbox = pair.server.inbox(pair.into).unwrap();
        assert_eq!(inbox.placed_bytes + inbox.chunked_bytes, LEN_BYTES);
        // The transport copies only payload that came in one read with the header.
        assert!(inbox.placed_bytes + READ_BUFFER_BYTES >= placeable_bytes, "{placement:?}: {inbox:?}");
        assert!(inbox.placed_bytes <= placeable_bytes);
    }
}

#[test]
fn idle_links_hold_no_buffers() {
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    send_all_sizes_and_count_cuts(&mut pair, &[0, 100, INLINE_MAX_BYTES, 1_000_000]);
    for (side, link) in [(&mut pair.client, pair.out), (&mut pair.server, pair.into)] {
        let link = side.transport.links.link_mut(link).unwrap();
        assert!(link.outbound.can_end_stream() && !link.outbound.has_staged());
        assert!(size_of_val(link) <= 512, "{} bytes", size_of_val(link));
    }
    assert!(pair.client.transport.ready.is_empty() && pair.client.transport.dirty.is_empty());
}
