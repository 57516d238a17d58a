//! Every slot of every vtable is filled. An unsupported function returns `-FI_ENOSYS`. Every function
//! refuses null.

use crate::prelude::*;

/// A function of the C interface, called with all arguments zero.
trait Slot {
    type Answer;

    /// Calls the function with zeroes, and returns its result.
    ///
    /// # Safety
    ///
    /// The function checks its arguments for null before it uses any.
    unsafe fn call_with_zeroes(&self) -> Self::Answer;
}

macro_rules! slots {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<R, $first, $($rest),*> Slot for unsafe extern "C" fn($first, $($rest),*) -> R {
            type Answer = R;

            unsafe fn call_with_zeroes(&self) -> R {
                // SAFETY: all parameters are integers and pointers, so zeroes are valid. The caller
                // promises that the function checks for null.
                unsafe { self(std::mem::zeroed::<$first>(), $(std::mem::zeroed::<$rest>()),*) }
            }
        }
        slots! { $($rest)* }
    };
}

slots! { A B C D E F G H I J K L M N O P }

/// Asserts that vtables have the size that they state, and the result of their slots when all arguments are
/// zero.
macro_rules! assert_answers {
    ($expected:expr; $($object:expr, $ops:ident: $($slot:ident)*;)*) => {
        $($(
            // SAFETY: the object is open.
            let ops = unsafe { (*$object).$ops.as_ref() }.expect("a vtable");
            assert_eq!(ops.size, size_of_val(ops), "{}", stringify!($object.$ops));
            // SAFETY: the test checks that the functions of the object refuse null.
            let answer = unsafe { ops.$slot.call_with_zeroes() };
            assert_eq!(answer as i64, i64::from($expected), "{}", stringify!($object.$ops.$slot));
        )*)*
    };
}

/// Shows fi_endpoint/size-left, fi_endpoint/scalable-endpoints,
/// fi_cm/multicast-groups.
#[test]
fn unsupported_calls_answer_enosys() {
    let node = Node::open();
    let counter = node.domain.counter();
    let Node { ep, cq, av, eq, domain, fabric } = &node;
    assert_answers! {
        ENOSYS;
        fabric.as_ptr(), ops: domain2;
        domain.as_ptr(), ops: scalable_ep query_collective endpoint2 xpu_ctx;
        cq.as_ptr(), ops: export_xpu;
        counter.as_ptr(), ops: export_xpu;
        av.as_ptr(), ops: av_set insert_auth_key lookup_auth_key set_user_id lookup2;
        ep.as_ptr(), ops: tx_ctx rx_ctx rx_size_left tx_size_left export_xpu;
        ep.as_ptr(), cm: listen reject join;
        ep.as_ptr(), collective: barrier broadcast alltoall allreduce allgather reduce_scatter reduce scatter
            gather msg barrier2;
        fabric.fid(), ops: bind control ops_open tostr ops_set;
        domain.fid(), ops: bind tostr ops_set;
        eq.fid(), ops: bind ops_open tostr ops_set;
        cq.fid(), ops: bind ops_open tostr ops_set;
        counter.fid(), ops: bind ops_open tostr ops_set;
        av.fid(), ops: bind control ops_open tostr ops_set;
        ep.fid(), ops: ops_open tostr ops_set;
    }
}

/// A Rust function pointer is never null, so no slot is empty.
/// Shows fi_cq/functions-and-structures.
#[test]
fn every_call_refuses_null_arguments() {
    let node = Node::open();
    let counter = node.domain.counter();
    let Node { ep, cq, av, eq, domain, fabric } = &node;
    assert_answers! {
        EINVAL;
        fabric.fid(), ops: close;
        domain.fid(), ops: close control ops_open;
        eq.fid(), ops: close control;
        cq.fid(), ops: close control;
        counter.fid(), ops: close control;
        av.fid(), ops: close;
        ep.fid(), ops: close control bind;
        fabric.as_ptr(), ops: domain passive_ep eq_open wait_open trywait;
        domain.as_ptr(), ops: av_open cq_open cntr_open poll_open endpoint stx_ctx srx_ctx query_atomic;
        domain.as_ptr(), mr: reg regv regattr;
        eq.as_ptr(), ops: read readerr write sread;
        cq.as_ptr(), ops: read readfrom readerr sread sreadfrom signal;
        counter.as_ptr(), ops: add adderr set seterr wait;
        av.as_ptr(), ops: insert insertsvc remove lookup;
        ep.as_ptr(), ops: cancel getopt setopt;
        ep.as_ptr(), cm: setname getname getpeer connect accept shutdown;
        // The macro `entry_points` makes all functions of these.
        ep.as_ptr(), msg: recv;
        ep.as_ptr(), rma: read;
        ep.as_ptr(), tagged: recv;
        ep.as_ptr(), atomic: write;
    }
    // These have no error result, and return 0 or null.
    assert_answers! {
        0;
        eq.as_ptr(), ops: strerror;
        cq.as_ptr(), ops: strerror;
        counter.as_ptr(), ops: read readerr;
        av.as_ptr(), ops: straddr;
    }
}

/// Shows fi_cq/control-is-serialized.
#[test]
fn unsupported_control_commands_answer_enosys() {
    let node = Node::open();
    let mut arg = 0_u64;
    let Node { ep, cq, av, eq, domain, fabric } = &node;
    // FI_GETFIDFLAG, FI_SETFIDFLAG, FI_DUP, and FI_GET_VAL to FI_GET_MR_XPU_DESC.
    for command in [0, 1, 15, 17, 18, 19, 20, 21, 1000, -1] {
        for fid in [fabric.fid(), domain.fid(), eq.fid(), cq.fid(), av.fid(), ep.fid()] {
            // SAFETY: the object is open.
            let result = unsafe { ((*(*fid).ops).control)(fid, command, (&raw mut arg).cast()) };
            assert_eq!(result, ENOSYS, "command {command}");
        }
    }
}
