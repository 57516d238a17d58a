//! The mode `FI_RX_CQ_DATA`: writes with remote data take receives.

use std::ptr;

use homespun_fi::abi::eq::FiCqTaggedEntry;
use libc::c_void;

use crate::connections::ConnectionFixture;
use crate::host::{Node, Pair, numbered_context};
use crate::rma::reg;

const FI_RX_CQ_DATA: u64 = 1 << 56;

const RMA: u64 = 1 << 2;
const WRITE: u64 = 1 << 9;
const REMOTE_WRITE: u64 = 1 << 13;
const REMOTE_CQ_DATA: u64 = 1 << 17;

const KEY: u64 = 77;

/// Returns the number of the context, the flags, the length and the remote data of each entry.
fn fields(entries: &[(FiCqTaggedEntry, u64)]) -> Vec<(usize, u64, usize, u64)> {
    let fields = entries.iter().map(|(entry, _)| {
        assert!(entry.buf.is_null() && entry.tag == 0);
        (entry.op_context.addr(), entry.flags, entry.len, entry.data)
    });
    fields.collect()
}

#[test]
fn write_with_remote_data_completes_a_receive() {
    for open in [Node::open_with_offered_mode, Node::open_with_receive_mode] {
        let pair = Pair::from_nodes(Node::open(), open(FI_RX_CQ_DATA));
        let (left, right) = (pair.left.ep.as_ptr(), pair.right.ep.as_ptr());
        let mut memory = [0u8; 20];
        let region = reg(&pair.right.domain, &mut memory, KEY, 0).expect("a region");
        let mut rooms = [*b"room"; 2];
        let none: *mut c_void = ptr::null_mut();
        let bytes = |text: &'static [u8]| text.as_ptr().cast();
        let post_recv = |room: &mut [u8; 4], number: usize| {
            // SAFETY: the endpoint is open, and the buffer lives until the completion is read.
            let posted = unsafe {
                let recv = (*(*right).msg).recv;
                recv(right, room.as_mut_ptr().cast(), 4, none, pair.to_left, numbered_context(number))
            };
            assert_eq!(posted, 0);
        };
        let [first, second] = &mut rooms;
        post_recv(first, 2);
        let to = pair.to_right;
        // SAFETY: the endpoint is open, and the bytes are static.
        unsafe {
            let rma = &*(*left).rma;
            assert_eq!(
                (rma.writedata)(left, bytes(b"longer"), 6, none, 70, to, 0, KEY, numbered_context(1)),
                0
            );
            assert_eq!((rma.injectdata)(left, bytes(b"later"), 5, 71, to, 10, KEY), 0);
        }
        let flags = RMA | REMOTE_WRITE | REMOTE_CQ_DATA;
        let [written, told] = pair.read_completions(1, 1);
        assert_eq!(
            (fields(&written), fields(&told)),
            (vec![(1, RMA | WRITE, 6, 0)], vec![(2, flags, 6, 70)])
        );
        assert_eq!(told[0].1, pair.to_left, "the source");
        // The second notice waits for a receive.
        post_recv(second, 3);
        let [_, told] = pair.read_completions(0, 1);
        assert_eq!(fields(&told), [(3, flags, 5, 71)]);
        assert!(region.close().is_ok());
        assert_eq!(&memory, b"longer\0\0\0\0later\0\0\0\0\0");
        assert_eq!(rooms, [*b"room"; 2], "the receives' buffers are not written to");
    }
}

#[test]
fn request_has_the_mode_of_its_passive_endpoint() {
    for mode in [0, FI_RX_CQ_DATA] {
        let fixture = ConnectionFixture::open_with_mode(mode);
        let listener = fixture.open_listener();
        let _requester = fixture.open_requester(&listener, b"");
        let request = fixture.await_event().info.expect("a request");
        // SAFETY: the info has all its attributes.
        assert_eq!((request.first().mode, unsafe { (*request.first().rx_attr).mode }), (mode, mode));
    }
}
