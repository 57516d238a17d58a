//! Every slot of every vtable is filled. An unsupported function returns `-FI_ENOSYS`. Every function
//! refuses null.

use homespun_fi::abi::CONSTANTS;
use homespun_fi::abi::fid::FiOps;

use crate::host::{Node, counter_attr};

const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;

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

impl Answer for i32 {
    fn into_number(self) -> i64 {
        self.into()
    }
}

impl Answer for u64 {
    fn into_number(self) -> i64 {
        self.cast_signed()
    }
}

impl Answer for isize {
    fn into_number(self) -> i64 {
        self as i64
    }
}

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

/// Asserts the result of slots of one vtable when all arguments are zero.
macro_rules! assert_answers {
    ($ops:expr, $expected:expr, $($slot:ident)*) => {
        $(
            // SAFETY: the object is open; the test checks that its functions refuse null.
            let answer = unsafe { (*$ops).$slot.call_with_zeroes() };
            assert_eq!(answer, $expected, "{}", stringify!($slot));
        )*
    };
}

/// Asserts that a vtable has the size that it states, and that no slot is empty.
///
/// # Safety
///
/// `ops` points to a vtable.
unsafe fn assert_no_empty_slot<T>(ops: *const T) {
    assert!(!ops.is_null());
    // SAFETY: a vtable begins with its size; the rest, up to that size, are pointers.
    unsafe {
        let size_bytes = ops.cast::<usize>().read();
        assert_eq!(size_bytes, size_of::<T>(), "{}", std::any::type_name::<T>());
        let words = std::slice::from_raw_parts(ops.cast::<usize>(), size_bytes / size_of::<usize>());
        assert!(words.iter().all(|&word| word != 0), "{}", std::any::type_name::<T>());
    }
}

#[test]
fn vtables_have_no_empty_slot() {
    let node = Node::open();
    let counter = node.domain.open_counter(&mut counter_attr(0)).expect("a counter");
    // SAFETY: the objects are open, and all these are their vtables.
    unsafe {
        for fid in
            [node.fabric.fid(), node.domain.fid(), node.eq.fid(), node.cq.fid(), node.av.fid(), node.ep.fid()]
        {
            assert_no_empty_slot::<FiOps>((*fid).ops);
        }
        assert_no_empty_slot::<FiOps>((*counter.fid()).ops);
        assert_no_empty_slot((*counter.as_ptr()).ops);
        assert_no_empty_slot((*node.fabric.as_ptr()).ops);
        assert_no_empty_slot((*node.domain.as_ptr()).ops);
        assert_no_empty_slot((*node.domain.as_ptr()).mr);
        assert_no_empty_slot((*node.eq.as_ptr()).ops);
        assert_no_empty_slot((*node.cq.as_ptr()).ops);
        assert_no_empty_slot((*node.av.as_ptr()).ops);
        let ep = node.ep.as_ptr();
        assert_no_empty_slot((*ep).ops);
        assert_no_empty_slot((*ep).cm);
        assert_no_empty_slot((*ep).msg);
        assert_no_empty_slot((*ep).rma);
        assert_no_empty_slot((*ep).tagged);
        assert_no_empty_slot((*ep).atomic);
        assert_no_empty_slot((*ep).collective);
    }
}

#[test]
fn unsupported_calls_answer_enosys() {
    let node = Node::open();
    let (fabric, domain) = (node.fabric.as_ptr(), node.domain.as_ptr());
    assert_answers!((*fabric).ops, ENOSYS, domain2);
    assert_answers!(
        (*domain).ops, ENOSYS,
        scalable_ep query_collective endpoint2 xpu_ctx
    );
    assert_answers!((*node.cq.as_ptr()).ops, ENOSYS, export_xpu);
    let counter = node.domain.open_counter(&mut counter_attr(0)).expect("a counter");
    assert_answers!((*counter.as_ptr()).ops, ENOSYS, export_xpu);
    assert_answers!((*counter.fid()).ops, ENOSYS, bind ops_open tostr ops_set);
    assert_answers!(
        (*node.av.as_ptr()).ops, ENOSYS,
        av_set insert_auth_key lookup_auth_key set_user_id lookup2
    );
    let ep = node.ep.as_ptr();
    assert_answers!((*ep).ops, ENOSYS, tx_ctx rx_ctx rx_size_left tx_size_left export_xpu);
    assert_answers!((*ep).cm, ENOSYS, listen reject join);
    assert_answers!(
        (*ep).collective, ENOSYS,
        barrier broadcast alltoall allreduce allgather reduce_scatter reduce scatter gather msg barrier2
    );
    for fid in
        [node.fabric.fid(), node.domain.fid(), node.eq.fid(), node.cq.fid(), node.av.fid(), node.ep.fid()]
    {
        assert_answers!((*fid).ops, ENOSYS, tostr ops_set);
    }
    for fid in [node.fabric.fid(), node.eq.fid(), node.cq.fid(), node.av.fid(), node.ep.fid()] {
        assert_answers!((*fid).ops, ENOSYS, ops_open);
    }
    for fid in [node.fabric.fid(), node.domain.fid(), node.eq.fid(), node.cq.fid(), node.av.fid()] {
        assert_answers!((*fid).ops, ENOSYS, bind);
    }
    for fid in [node.fabric.fid(), node.av.fid()] {
        assert_answers!((*fid).ops, ENOSYS, control);
    }
}

#[test]
fn every_call_refuses_null_arguments() {
    let node = Node::open();
    for fid in
        [node.fabric.fid(), node.domain.fid(), node.eq.fid(), node.cq.fid(), node.av.fid(), node.ep.fid()]
    {
        assert_answers!((*fid).ops, EINVAL, close);
    }
    for fid in [node.domain.fid(), node.eq.fid(), node.cq.fid(), node.ep.fid()] {
        assert_answers!((*fid).ops, EINVAL, control);
    }
    assert_answers!((*node.ep.fid()).ops, EINVAL, bind);
    assert_answers!((*node.domain.fid()).ops, EINVAL, ops_open);
    assert_answers!((*node.fabric.as_ptr()).ops, EINVAL, domain passive_ep eq_open trywait);
    assert_answers!((*node.domain.as_ptr()).ops, EINVAL, av_open cq_open cntr_open endpoint query_atomic);
    assert_answers!((*node.domain.as_ptr()).mr, EINVAL, reg regv regattr);
    assert_answers!((*node.eq.as_ptr()).ops, EINVAL, read readerr write sread);
    assert_answers!((*node.eq.as_ptr()).ops, 0, strerror);
    assert_answers!((*node.cq.as_ptr()).ops, EINVAL, read readfrom readerr sread sreadfrom signal);
    assert_answers!((*node.cq.as_ptr()).ops, 0, strerror);
    let counter = node.domain.open_counter(&mut counter_attr(0)).expect("a counter");
    assert_answers!((*counter.fid()).ops, EINVAL, close control);
    assert_answers!((*counter.as_ptr()).ops, EINVAL, add adderr set seterr wait);
    // These have no error result, and return 0.
    assert_answers!((*counter.as_ptr()).ops, 0, read readerr);
    assert_answers!((*node.av.as_ptr()).ops, EINVAL, insert insertsvc remove lookup);
    assert_answers!((*node.av.as_ptr()).ops, 0, straddr);
    let ep = node.ep.as_ptr();
    assert_answers!((*ep).ops, EINVAL, cancel getopt setopt);
    assert_answers!((*ep).cm, EINVAL, setname getname getpeer connect accept shutdown);
    assert_answers!(
        (*ep).msg, EINVAL,
        recv recvv recvmsg send sendv sendmsg inject senddata injectdata
    );
    assert_answers!(
        (*ep).rma, EINVAL,
        read readv readmsg write writev writemsg inject writedata injectdata
    );
    assert_answers!(
        (*ep).atomic, EINVAL,
        write writev writemsg inject readwrite readwritev readwritemsg compwrite compwritev compwritemsg
        writevalid readwritevalid compwritevalid
    );
    assert_answers!(
        (*ep).tagged, EINVAL,
        recv recvv recvmsg send sendv sendmsg inject senddata injectdata
    );
}

#[test]
fn unsupported_control_commands_answer_enosys() {
    let node = Node::open();
    let mut arg = 0u64;
    let known =
        |name: &str| CONSTANTS.iter().find(|(known, _)| *known == name).map(|&(_, value)| value as i32);
    let (alias, getwait) = (known("FI_ALIAS").expect("a command"), known("FI_GETWAIT").expect("a command"));
    // FI_GETFIDFLAG, FI_SETFIDFLAG, FI_DUP, and FI_GET_VAL to FI_GET_MR_XPU_DESC.
    for command in [0, 1, alias, getwait, 15, 17, 18, 19, 20, 21, 1000, -1] {
        for result in [
            node.fabric.control(command, &raw mut arg),
            node.domain.control(command, &raw mut arg),
            // Queues support this command, but these have no wait object to return.
            if command == getwait { -38 } else { node.eq.control(command, &raw mut arg) },
            if command == getwait { -38 } else { node.cq.control(command, &raw mut arg) },
            node.av.control(command, &raw mut arg),
            // Endpoints support this command.
            if command == alias { -38 } else { node.ep.control(command, &raw mut arg) },
        ] {
            assert_eq!(i64::from(result), ENOSYS, "command {command}");
        }
    }
}
