//! A host without memory for what a peer sends: this costs the peer its link, and never the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use homespun::cq::Entry;
use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::{Bytes, BytesMut, Caps, Errno, Fabric, FabricAddress, Hints, OpenEndpoint, Tag, TagMatch};

use homespun_suite::Deadline;

/// An eager message over every transport.
const LONG: Bytes = Bytes::from_static(&[7; 12_000]);

/// Less than a long message, and more than anything else that an endpoint allocates for a message.
const LIMIT_BYTES: usize = 8_000;

/// The system's allocator, which refuses to give a thread more at once than its limit.
struct Limiting;

thread_local! {
    static MAX_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[global_allocator]
static ALLOCATOR: Limiting = Limiting;

fn is_refused(len_bytes: usize) -> bool {
    // A thread that is ending may have dropped its limit.
    MAX_BYTES.try_with(|max_bytes| len_bytes > max_bytes.get()).unwrap_or(false)
}

// SAFETY: the system's allocator serves every call that is not refused, and a null pointer refuses one.
unsafe impl GlobalAlloc for Limiting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller upholds the contract of the same call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len_bytes: usize) -> *mut u8 {
        if is_refused(new_len_bytes) {
            return ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_len_bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn open_endpoint(domain: &str) -> OpenEndpoint {
    let caps = Caps::TAGGED | Caps::DIRECTED_RECV;
    let hints = Hints::new().caps(caps).domain(domain).node("127.0.0.1").source();
    Fabric::new().open_endpoint(&hints).expect("an endpoint of the domain")
}

fn insert(at: &OpenEndpoint, peer: &OpenEndpoint) -> FabricAddress {
    at.av.insert_if_absent(peer.endpoint.name().expect("an address")).expect("an address")
}

fn send(from: &OpenEndpoint, to: FabricAddress, payload: Bytes, tag: u64) {
    let (buffers, flags) = (vec![payload], OpFlags::DELIVERY_COMPLETE);
    let send = SendMsg { buffers, to, tag: Some(Tag(tag)), flags, ..SendMsg::default() };
    from.endpoint.sendmsg(send).expect("room for a send");
}

fn post_receive(at: &OpenEndpoint, source: FabricAddress, tag: u64) {
    let tag = TagMatch { tag, ignore: 0 };
    at.endpoint.trecv(BytesMut::zeroed(LONG.len()), source, tag, 1).expect("room for a receive");
}

/// Waits for the next operation of one endpoint to end, while the other one makes progress.
fn await_end(of: &OpenEndpoint, other: &OpenEndpoint) -> Result<usize, Errno> {
    let deadline = Deadline::new();
    loop {
        match of.cq.read_entry().expect("a queue that is not overrun") {
            Some(Entry::Completed(completion, _)) => return Ok(completion.len_bytes),
            Some(Entry::UnknownSource(completion, _)) => return Ok(completion.len_bytes),
            Some(Entry::Failed(failure)) => return Err(failure.errno()),
            None => {}
        }
        other.cq.progress();
        deadline.yield_or_panic("the end of an operation");
    }
}

fn exchange_message(from: &OpenEndpoint, to: &OpenEndpoint, payload: &Bytes, tag: u64) {
    post_receive(to, FabricAddress::UNSPECIFIED, tag);
    send(from, insert(from, to), payload.clone(), tag);
    assert_eq!(await_end(to, from), Ok(payload.len()));
    assert!(await_end(from, to).is_ok());
}

fn lack_of_memory_ends_the_link_of_the_message(domain: &str) {
    let [hub, sender, other] = [(); 3].map(|()| open_endpoint(domain));
    let short = Bytes::from_static(b"hello");
    exchange_message(&sender, &hub, &short, 1);
    exchange_message(&other, &hub, &short, 1);
    // It waits for another message of the sender, and learns how the link ends.
    post_receive(&hub, insert(&hub, &sender), 2);
    let to = insert(&sender, &hub);

    MAX_BYTES.set(LIMIT_BYTES);
    send(&sender, to, LONG, 3);
    assert!(await_end(&sender, &hub).is_err(), "{domain}");
    assert_eq!(await_end(&hub, &sender), Err(Errno::ENOMEM), "{domain}");
    MAX_BYTES.set(usize::MAX);

    exchange_message(&other, &hub, &short, 1);
    exchange_message(&sender, &hub, &LONG, 3);
}

#[test]
fn unexpected_message_without_memory_ends_its_link_only() {
    ["tcp", "shm"].into_iter().for_each(lack_of_memory_ends_the_link_of_the_message);
}
