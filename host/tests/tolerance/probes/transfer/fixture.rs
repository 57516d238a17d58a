//! The setup of probes of data transfers: two endpoints, and memory at each.

use std::ptr;

use libc::c_void;

use super::call::{is_one_sided, is_tagged};
use crate::setup::{
    Context, Pair, Region, assert_success, call, leak_op_context as op_context, leak_zeroed_memory,
};

/// The byte that fills a probe's message or access, and the byte that fills the message after it.
pub(super) const PROBE: u8 = 0x5a;
pub(super) const AFTER: u8 = 0xa5;

pub(super) const LEN_BYTES: usize = 64;
pub(super) const TAG: u64 = 7;

/// The endpoints and the memory of a probe.
pub(super) struct TransferFixture {
    pub(super) pair: Pair,
    /// Memory of the left endpoint, which makes sends and accesses.
    pub(super) near: *mut u8,
    pub(super) near_region: Option<Region>,
    /// Memory of the right endpoint, which receives messages and is the target of accesses.
    pub(super) far: *mut u8,
    pub(super) far_region: Option<Region>,
    pub(super) is_tagged: bool,
}

/// The length of the memory that is allocated for each endpoint. The left endpoint registers all of it. At
/// the right it exceeds the region, so that an access beyond the region stays within the memory.
pub(super) const ROOM_BYTES: usize = 1 << 17;
/// The length of the region that the right endpoint registers.
const REGION_BYTES: usize = 4096;

impl TransferFixture {
    pub(super) fn new(context: &Context, call: &str) -> TransferFixture {
        let pair = context.open_pair_after_exchange();
        let (near, far) = (leak_zeroed_memory(ROOM_BYTES), leak_zeroed_memory(ROOM_BYTES));
        let (mut near_region, mut far_region) = (None, None);
        if is_one_sided(call) {
            near_region = Some(context.register_region(&pair.left, near, ROOM_BYTES, 11));
            far_region = Some(context.register_region(&pair.right, far, REGION_BYTES, 12));
        }
        TransferFixture { pair, near, near_region, far, far_region, is_tagged: is_tagged(call) }
    }

    /// Posts an ordinary receive.
    pub(super) fn post_ordinary_receive(&mut self, buf: *mut u8) -> *mut c_void {
        let context = op_context();
        let (ep, none) = (self.pair.right.ep, ptr::null_mut());
        let result = if self.is_tagged {
            call!(ep, tagged.recv, buf.cast(), LEN_BYTES, none, u64::MAX, TAG, 0, context)
        } else {
            call!(ep, msg.recv, buf.cast(), LEN_BYTES, none, u64::MAX, context)
        };
        assert_success("a receive", result);
        context
    }

    /// Sends an ordinary message. Returns its context, or `None` if the endpoint refuses the send.
    pub(super) fn send_ordinary_message(&mut self, fill: u8) -> Option<*mut c_void> {
        let context = op_context();
        let buf = leak_zeroed_memory(LEN_BYTES);
        unsafe { ptr::write_bytes(buf, fill, LEN_BYTES) };
        let (ep, addr, none) = (self.pair.left.ep, self.pair.to_right, ptr::null_mut());
        let (is_tagged, buf) = (self.is_tagged, buf.cast_const().cast());
        let result = self.pair.retry_while_eagain(|| {
            if is_tagged {
                call!(ep, tagged.send, buf, LEN_BYTES, none, addr, TAG, context)
            } else {
                call!(ep, msg.send, buf, LEN_BYTES, none, addr, context)
            }
        });
        (result == 0).then_some(context)
    }
}
