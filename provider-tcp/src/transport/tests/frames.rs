//! Sending and receiving frames.

use std::io::IoSlice;

use homespun_engine::transport::{Sent, Transport};

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
fn frames_of_every_size_arrive_through_small_buffers() {
    for placement in [Placement::Direct, Placement::Nowhere, Placement::UpTo(5_000)] {
        let mut pair = Pair::open_connected(&small_buffer_provider(), "127.0.0.1:0");
        pair.server.recorder.placement = placement;
        let cuts = send_all_sizes_and_count_cuts(&mut pair, &boundary_sizes());
        assert!(cuts > 20, "frames were cut {cuts} times only");
    }
}

#[test]
fn frames_of_every_size_arrive_through_large_buffers() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let mut pair = Pair::open_connected(&TcpProvider::new(), bind);
        let mut sizes = boundary_sizes();
        sizes.extend(sizes.clone().iter().rev());
        send_all_sizes_and_count_cuts(&mut pair, &sizes);
    }
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
fn large_frames_after_the_first_are_received_without_copying() {
    const COUNT: usize = 4;
    for len_bytes in [usize::try_from(LARGE_FRAME_BYTES).unwrap(), 1024 * 1024] {
        let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
        send_all_sizes_and_count_cuts(&mut pair, &[len_bytes]);
        let before = pair.server.inbox(pair.into).unwrap().chunked_bytes;
        send_all_sizes_and_count_cuts(&mut pair, &[len_bytes; COUNT]);
        let copied = pair.server.inbox(pair.into).unwrap().chunked_bytes - before;
        assert!(copied <= COUNT * READ_AHEAD_BYTES, "{copied} bytes were copied of {len_bytes} a frame");
    }
}

#[test]
fn small_frames_leave_in_one_flush() {
    const COUNT: u64 = 100;
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    for tag in 0..COUNT {
        pair.client.transport.send_inline(pair.out, &make_message(8, tag), &tag.to_le_bytes()).unwrap();
    }
    assert_eq!(pair.server.progress(), 0, "frames left before the flush");
    pair.client.transport.flush();
    let into = pair.into;
    let mut passes = 0;
    pair.drive_until("the frames", |_, server| {
        passes += usize::from(!server.received_frames(into).is_empty());
        server.received_frames(into).len() as u64 == COUNT
    });
    assert_eq!(passes, 1, "they were read at once");
    for (tag, (header, received)) in (0..COUNT).zip(pair.server.received_frames(into)) {
        assert_eq!((*header, received.as_slice()), (make_message(8, tag), tag.to_le_bytes().as_slice()));
    }
}

#[test]
fn small_and_large_frames_keep_their_order() {
    for provider in [TcpProvider::new(), small_buffer_provider()] {
        let mut pair = Pair::open_connected(&provider, "127.0.0.1:0");
        let (out, into) = (pair.out, pair.into);
        let sizes: Vec<usize> =
            (0..300).map(|at| [0, 8, 200_000, 8_192, 13, 8_193, 70_000][at % 7] + at % 5).collect();
        let mut next = 0;
        let mut sending: Option<Sending> = None;
        pair.drive_until("all frames", |client, server| {
            while next < sizes.len() {
                let seed = next as u64;
                let current = sending.get_or_insert_with(|| {
                    Sending::new(make_message(sizes[next], seed), make_payload(sizes[next], seed))
                });
                if !current.advance(&mut client.transport, out) {
                    break;
                }
                sending = None;
                next += 1;
            }
            server.received_frames(into).len() == sizes.len()
        });
        for (seed, (header, received)) in pair.server.received_frames(into).iter().enumerate() {
            assert_eq!(*header, make_message(sizes[seed], seed as u64));
            assert!(*received == make_payload(sizes[seed], seed as u64), "frame {seed}");
        }
    }
}

#[test]
fn frames_cross_in_both_directions() {
    const LEN_BYTES: usize = 2 * 1024 * 1024;
    let mut pair = Pair::open_connected(&small_buffer_provider(), "[::1]:0");
    let (out, into) = (pair.out, pair.into);
    let mut there = Sending::new(make_message(LEN_BYTES, 1), make_payload(LEN_BYTES, 1));
    let mut back = Sending::new(make_message(LEN_BYTES, 2), make_payload(LEN_BYTES, 2));
    let (mut there_taken, mut back_taken) = (false, false);
    pair.drive_until("both frames", |client, server| {
        there_taken = there_taken || there.advance(&mut client.transport, out);
        back_taken = back_taken || back.advance(&mut server.transport, into);
        client.received_frames(out).len() == 1 && server.received_frames(into).len() == 1
    });
    assert!(pair.server.received_frames(into)[0].1 == make_payload(LEN_BYTES, 1));
    assert!(pair.client.received_frames(out)[0].1 == make_payload(LEN_BYTES, 2));
}

#[test]
fn unfinished_frame_blocks_others_on_its_link() {
    const LEN_BYTES: usize = 1024 * 1024;
    let mut pair = Pair::open_connected(&small_buffer_provider(), "127.0.0.1:0");
    let (out, into) = (pair.out, pair.into);
    let bytes = make_payload(LEN_BYTES, 1);
    let client = &mut pair.client.transport;
    let sent = client.send(out, &make_message(LEN_BYTES, 1), &[IoSlice::new(&bytes)]);
    let Sent::Partial(mut taken) = sent else { panic!("{sent:?}") };
    assert!(client.send_inline(out, &make_message(0, 2), b"").is_err());
    assert_eq!(client.send(out, &make_message(0, 2), &[]), Sent::Full);
    // The peer makes room, but this side does not poll the kernel, and so does not learn of the room.
    for _ in 0..100 {
        pair.server.progress();
    }
    assert_eq!(pair.client.transport.resume(out, &[IoSlice::new(&bytes[taken..])]), Sent::Full);
    let mut finished = false;
    pair.drive_until("the frames", |client, server| {
        if !finished {
            match client.transport.resume(out, &[IoSlice::new(&bytes[taken..])]) {
                Sent::Full => {}
                Sent::Partial(more) => taken += more,
                Sent::Whole => {
                    finished = true;
                    client.transport.send_inline(out, &make_message(0, 2), b"").unwrap();
                }
            }
        }
        server.received_frames(into).len() == 2
    });
    assert!(pair.server.received_frames(into)[0].1 == bytes);
}

#[test]
fn staging_fills_up_when_the_peer_does_not_read() {
    let mut pair = Pair::open_connected(&small_buffer_provider(), "127.0.0.1:0");
    let (out, into) = (pair.out, pair.into);
    let mut count = 0_u64;
    // Fill the kernel's buffers and staging, until the link takes no more frames.
    while pair
        .client
        .transport
        .send_inline(out, &make_message(1000, count), &make_payload(1000, count))
        .is_ok()
    {
        count += 1;
        assert!(count < 10_000, "frames are taken without end");
    }
    assert!(count as usize * 1000 > STAGING_MAX_BYTES - 2_000);
    pair.drive_until("all that was taken", |_, server| server.received_frames(into).len() as u64 == count);
    for (seed, (header, received)) in (0..count).zip(pair.server.received_frames(into)) {
        assert_eq!((*header, received), (make_message(1000, seed), &make_payload(1000, seed)));
    }
    assert!(pair.client.transport.send_inline(out, &make_message(0, 0), b"").is_ok());
}

#[test]
fn receive_budget_is_shared_by_the_links() {
    const LINKS: usize = 4;
    const LEN_BYTES: usize = READ_BUFFER_BYTES;
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    let address = pair.server.transport.address();
    let mut links = vec![pair.out];
    links.extend((1..LINKS).map(|_| pair.client.transport.connect(address)));
    pair.drive_until("all links", |client, server| {
        links.iter().all(|link| client.is_up(*link)) && server.recorder.inboxes.len() == LINKS
    });
    let bytes = make_payload(LEN_BYTES, 3);
    for link in links {
        for tag in 0..4 {
            let mut sending = Sending::new(make_message(LEN_BYTES, tag), bytes.clone());
            assert!(sending.advance(&mut pair.client.transport, link), "room in the kernel's buffer");
        }
    }
    // Each pass reads one link once. The links take turns: no link is ahead of another by more than one
    // read.
    pair.server.recorder.placement = Placement::Nowhere;
    let received = |inbox: &crate::testing::Inbox| inbox.chunked_bytes + inbox.frames.len() * LEN_BYTES;
    pair.server.transport.receive(1, &mut pair.server.recorder);
    let mut turns = 0;
    while pair.server.recorder.inboxes.values().any(|inbox| inbox.chunked_bytes == 0) {
        assert!(turns <= LINKS, "a link was passed over");
        let before: Vec<usize> = pair.server.recorder.inboxes.values().map(received).collect();
        pair.server.transport.receive(1, &mut pair.server.recorder);
        let after: Vec<usize> = pair.server.recorder.inboxes.values().map(received).collect();
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert!(moved <= 1, "more than one read in a pass with a budget of one");
        turns += 1;
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
