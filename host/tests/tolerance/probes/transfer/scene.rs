//! Two endpoints and memory at each, between which the calls transfer.

use std::ptr;

use libc::c_void;

use super::call::Call;
use crate::outcome::errno;
use crate::setup::{Context, Pair, Region, context as op_context, memory};

/// What every message and access of a probe is filled with, and what comes after it.
pub(super) const PROBE: u8 = 0x5a;
pub(super) const AFTER: u8 = 0xa5;

pub(super) const LEN_BYTES: usize = 64;
pub(super) const TAG: u64 = 7;

/// What a probe works with.
pub(super) struct Scene {
    pub(super) pair: Pair,
    /// Of the left, which reads and sends from it.
    pub(super) near: *mut u8,
    pub(super) near_region: Option<Region>,
    /// Of the right, in which data arrives.
    pub(super) far: *mut u8,
    pub(super) far_region: Option<Region>,
    pub(super) is_tagged: bool,
}

/// What is allocated of each, so that a length that is a little too large stays inside.
pub(super) const ROOM_BYTES: usize = 1 << 17;
/// What is registered of it.
const REGION_BYTES: usize = 4096;

impl Scene {
    pub(super) fn new(context: &Context, call: Call) -> Scene {
        let pair = context.pair();
        let (near, far) = (memory(ROOM_BYTES), memory(ROOM_BYTES));
        let (mut near_region, mut far_region) = (None, None);
        if call.is_one_sided() {
            near_region = Some(context.region(&pair.left, near, ROOM_BYTES, 11));
            far_region = Some(context.region(&pair.right, far, REGION_BYTES, 12));
        }
        Scene { pair, near, near_region, far, far_region, is_tagged: call.is_tagged() }
    }

    /// Posts a receive of the ordinary kind.
    pub(super) fn receive(&mut self, buf: *mut u8) -> *mut c_void {
        let context = op_context();
        let (ep, none) = (self.pair.right.ep, ptr::null_mut());
        let result = unsafe {
            if self.is_tagged {
                ((*(*ep).tagged).recv)(ep, buf.cast(), LEN_BYTES, none, u64::MAX, TAG, 0, context)
            } else {
                ((*(*ep).msg).recv)(ep, buf.cast(), LEN_BYTES, none, u64::MAX, context)
            }
        };
        assert!(result == 0, "a receive: {}", errno(result as i64));
        context
    }

    /// Sends a message of the ordinary kind. Returns its context, or nothing if that is impossible now.
    pub(super) fn send(&mut self, fill: u8) -> Option<*mut c_void> {
        let context = op_context();
        let buf = memory(LEN_BYTES);
        unsafe { ptr::write_bytes(buf, fill, LEN_BYTES) };
        let (ep, addr, none) = (self.pair.left.ep, self.pair.to_right, ptr::null_mut());
        let is_tagged = self.is_tagged;
        let result = self.pair.retry(|| unsafe {
            let buf = buf.cast::<c_void>();
            if is_tagged {
                ((*(*ep).tagged).send)(ep, buf, LEN_BYTES, none, addr, TAG, context)
            } else {
                ((*(*ep).msg).send)(ep, buf, LEN_BYTES, none, addr, context)
            }
        });
        (result == 0).then_some(context)
    }
}
