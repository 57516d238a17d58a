//! Checks how much of the heap an endpoint holds for an idle peer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use homespun::info::Progress;
use homespun::{Address, Bytes, BytesMut, Caps, Fabric, FabricAddress, Hints, OpenEndpoint, Tag};

/// The most bytes of heap for each idle peer.
const PEER_MAX_BYTES: i64 = 4 * 1024;

/// So many peers that what an endpoint holds for all of them together counts little.
const PEERS: usize = 64;

/// How long the endpoint makes passes after the last message. Meanwhile it checks the addresses of peers that
/// have connected, and forgets the checks.
const SETTLING_TIME: Duration = Duration::from_millis(500);

const TAG: Tag = Tag(7);

/// The system's allocator, with a count for each thread: the bytes that it has allocated less those that it
/// has freed. The objects of an endpoint with manual progress belong to the thread that makes the calls.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(allocated_bytes: usize, freed_bytes: usize) {
    // A thread that is ending may have dropped its counter.
    let _ = HELD_BYTES.try_with(|held_bytes| {
        held_bytes.set(held_bytes.get() + allocated_bytes as i64 - freed_bytes as i64);
    });
}

// SAFETY: the system's allocator serves every call, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of the same call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len_bytes: usize) -> *mut u8 {
        count(new_len_bytes, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_len_bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn open_endpoint(domain: &str) -> OpenEndpoint {
    let hints = Hints::new().caps(Caps::TAGGED).domain(domain).node("127.0.0.1").source();
    Fabric::new().open_endpoint(&hints.progress(Progress::Manual)).expect("an endpoint of the domain")
}

fn post_receive(open: &OpenEndpoint) {
    open.endpoint.trecv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, TAG, 1).expect("room for a receive");
}

/// Opens peers in a thread of their own. Every second one connects to the hub. Returns their addresses, and
/// runs until `is_done`.
fn start_peers(
    domain: &'static str,
    hub: Address,
    is_done: Arc<AtomicBool>,
) -> (Vec<Address>, thread::JoinHandle<()>) {
    let (sender, addresses) = mpsc::channel();
    let running = thread::spawn(move || {
        let peers: Vec<OpenEndpoint> = (0..PEERS).map(|_| open_endpoint(domain)).collect();
        peers.iter().for_each(post_receive);
        sender.send(peers.iter().map(|peer| peer.endpoint.name().expect("an address")).collect()).unwrap();
        for peer in peers.iter().step_by(2) {
            let hub = peer.av.insert_one(hub).expect("an address");
            peer.endpoint.tsend(Bytes::from_static(&[7; 8]), hub, TAG, 2).expect("room for a send");
        }
        while !is_done.load(Ordering::Relaxed) {
            for peer in &peers {
                peer.cq.read().expect("no operation fails");
            }
            thread::yield_now();
        }
    });
    (addresses.recv().expect("the addresses of the peers"), running)
}

/// Returns how many bytes of the heap an endpoint holds for each idle peer.
fn measure_bytes_of_idle_peer(domain: &'static str) -> i64 {
    let hub = open_endpoint(domain);
    let is_done = Arc::new(AtomicBool::new(false));
    let (peers, running) = start_peers(domain, hub.endpoint.name().unwrap(), is_done.clone());
    let before_bytes = HELD_BYTES.get();
    for peer in peers.iter().skip(1).step_by(2) {
        let peer = hub.av.insert_one(*peer).unwrap();
        hub.endpoint.tsend(Bytes::from_static(&[7; 8]), peer, TAG, 3).unwrap();
    }
    (0..PEERS / 2).for_each(|_| post_receive(&hub));
    let mut ended = 0;
    while ended < PEERS {
        ended += usize::from(hub.cq.read().expect("no operation fails").is_some());
    }
    let settled = Instant::now() + SETTLING_TIME;
    while Instant::now() < settled {
        assert!(hub.cq.read().expect("no operation fails").is_none());
    }
    let peer_bytes = (HELD_BYTES.get() - before_bytes) / PEERS as i64;
    is_done.store(true, Ordering::Relaxed);
    running.join().unwrap();
    peer_bytes
}

#[test]
fn idle_peer_holds_at_most_4_kib_of_heap() {
    for domain in ["tcp", "shm"] {
        let peer_bytes = measure_bytes_of_idle_peer(domain);
        assert!((1..=PEER_MAX_BYTES).contains(&peer_bytes), "{domain}: {peer_bytes} bytes for each peer");
    }
}
