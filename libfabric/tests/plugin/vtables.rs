//! Every slot of every vtable is filled. An unsupported function returns `-FI_ENOSYS`. Every function
//! refuses null.

use homespun_fi::abi::CONSTANTS;
use homespun_fi::abi::fid::Fid;

use crate::host::{EINVAL, ENOSYS, NULL, Node};

/// A function of the C interface, called with all arguments zero.
trait Slot {
    /// Calls the function with zeroes, and returns its result. A null pointer counts as 0.
    ///
    /// # Safety
    ///
    /// The function checks its arguments for null before it uses any.
    unsafe fn call_with_zeroes(&self) -> i64;
}

/// The return type of such functions.
trait Answer {
    fn into_number(self) -> i64;
}

macro_rules! answers {
    ($($type:ty: $convert:expr),*) => {
        $(impl Answer for $type {
            fn into_number(self) -> i64 {
                $convert(self)
            }
        })*
    };
}

answers! { i32: i64::from, u64: u64::cast_signed, isize: |number| number as i64 }

impl<T> Answer for *const T {
    fn into_number(self) -> i64 {
        self.addr() as i64
    }
}

macro_rules! slots {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<R: Answer, $first, $($rest),*> Slot for unsafe extern "C" fn($first, $($rest),*) -> R {
            unsafe fn call_with_zeroes(&self) -> i64 {
                // SAFETY: all parameters are integers and pointers, so zeroes are valid. The caller
                // promises that the function checks for null.
                unsafe {
                    self(std::mem::zeroed::<$first>(), $(std::mem::zeroed::<$rest>()),*).into_number()
                }
            }
        }
        slots! { $($rest)* }
    };
}

slots! { A B C D E F G H I J K L M N O P }

/// Asserts the result of slots of vtables when all arguments are zero.
macro_rules! assert_answers {
    ($expected:expr; $($object:expr, $ops:ident: $($slot:ident)*;)*) => {
        $($(
            // SAFETY: the object is open; the test checks that its functions refuse null.
            let answer = unsafe { (*(*$object).$ops).$slot.call_with_zeroes() };
            assert_eq!(answer, i64::from($expected), "{}", stringify!($object.$ops.$slot));
        )*)*
    };
}

/// Asserts that vtables are there, and have the size that they state.
macro_rules! assert_sizes {
    ($($object:expr, $($ops:ident)*;)*) => {
        $($(
            // SAFETY: the object is open.
            let ops = unsafe { (*$object).$ops.as_ref() }.expect("a vtable");
            assert_eq!(ops.size, size_of_val(ops), "{}", stringify!($object.$ops));
        )*)*
    };
}

/// A Rust function pointer is never null, so no slot is empty.
/// Shows fi_cq/functions-and-structures.
#[test]
fn vtables_have_no_empty_slot() {
    let node = Node::open();
    let counter = node.domain.counter();
    let Node { ep, cq, av, eq, domain, fabric } = &node;
    for fid in [fabric.fid(), domain.fid(), eq.fid(), cq.fid(), av.fid(), ep.fid(), counter.fid()] {
        assert_sizes! { fid, ops; }
    }
    assert_sizes! {
        fabric.as_ptr(), ops;
        domain.as_ptr(), ops mr;
        eq.as_ptr(), ops;
        cq.as_ptr(), ops;
        counter.as_ptr(), ops;
        av.as_ptr(), ops;
        ep.as_ptr(), ops cm msg rma tagged atomic collective;
    }
}

/// Shows fi_cq/close-ebusy-for-context, fi_endpoint/size-left, fi_endpoint/scalable-endpoints,
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
        ep.as_ptr(), msg: recv recvv recvmsg send sendv sendmsg inject senddata injectdata;
        ep.as_ptr(), rma: read readv readmsg write writev writemsg inject writedata injectdata;
        ep.as_ptr(), tagged: recv recvv recvmsg send sendv sendmsg inject senddata injectdata;
        ep.as_ptr(), atomic: write writev writemsg inject readwrite readwritev readwritemsg compwrite
            compwritev compwritemsg writevalid readwritevalid compwritevalid;
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
    let known = |name: &str| CONSTANTS.iter().find(|(known, _)| *known == name).expect("a command").1 as i32;
    let (alias, getwait) = (known("FI_ALIAS"), known("FI_GETWAIT"));
    let Node { ep, cq, av, eq, domain, fabric } = &node;
    let objects: [(*mut Fid, &[i32]); 6] = [
        (fabric.fid(), &[]),
        (domain.fid(), &[]),
        // Queues support this command, but these have no wait object to return.
        (eq.fid(), &[getwait]),
        (cq.fid(), &[getwait]),
        (av.fid(), &[]),
        (ep.fid(), &[alias]),
    ];
    // FI_GETFIDFLAG, FI_SETFIDFLAG, FI_DUP, and FI_GET_VAL to FI_GET_MR_XPU_DESC.
    for command in [0, 1, alias, getwait, 15, 17, 18, 19, 20, 21, 1000, -1] {
        for (fid, supported) in objects {
            if !supported.contains(&command) {
                // SAFETY: the object is open.
                let result = unsafe { ((*(*fid).ops).control)(fid, command, (&raw mut arg).cast()) };
                assert_eq!(result, ENOSYS, "command {command}");
            }
        }
    }
    assert_eq!(node.ep.control(1000, NULL), ENOSYS);
}
