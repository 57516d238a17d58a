//! Triggered operations, and aliases of endpoints.

mod deferred_work;

use std::{mem, ptr};

use homespun_fi::abi::endpoint::{FiMsg, FidEp};
use homespun_fi::abi::eq::{FiCqErrEntry, FidCntr};
use homespun_fi::abi::fid::{FiAlias, Fid};
use homespun_fi::abi::trigger::{FiTriggerDetails, FiTriggerThreshold, FiTriggeredContext};
use homespun_fi::abi::{
    FI_ALIAS, FI_CQ_FORMAT_TAGGED, FI_GETOPSFLAG, FI_RECV, FI_TRANSMIT, FI_TRIGGER_THRESHOLD, FI_WAIT_NONE,
};
use libc::{c_int, c_void, iovec};

use crate::host::{API_VERSION, Node, Object, Pair, counter_attr};

const TRIGGER: u64 = 1 << 20;
const COMPLETION: u64 = 1 << 24;

const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const EBADFLAGS: c_int = -260;

/// Opens two nodes with each other's address and the trigger capability.
fn open_pair() -> Pair {
    const EVERYTHING: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | TRIGGER;
    Pair::from_nodes(Node::open_with_caps(EVERYTHING), Node::open_with_caps(EVERYTHING))
}

fn open_counter(node: &Node) -> Object<FidCntr> {
    node.domain.open_counter(&mut counter_attr(FI_WAIT_NONE)).expect("a counter")
}

/// `fi_cntr_read`, `fi_cntr_readerr`.
fn read_values(counter: &Object<FidCntr>) -> (u64, u64) {
    let counter = counter.as_ptr();
    // SAFETY: the counter is open.
    unsafe { (((*(*counter).ops).read)(counter), ((*(*counter).ops).readerr)(counter)) }
}

/// `fi_cntr_add`.
fn add_to_counter(counter: &Object<FidCntr>, value: u64) {
    let counter = counter.as_ptr();
    // SAFETY: the counter is open.
    assert_eq!(unsafe { ((*(*counter).ops).add)(counter, value) }, 0);
}

fn make_iov<T>(memory: &mut [T]) -> iovec {
    iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: size_of_val(memory) }
}

fn make_msg(iov: &iovec, addr: u64) -> FiMsg {
    FiMsg { msg_iov: iov, desc: ptr::null_mut(), iov_count: 1, addr, context: ptr::null_mut(), data: 0 }
}

/// `fi_ep_alias`.
fn open_alias(node: &Node, flags: u64) -> Result<Object<FidEp>, c_int> {
    Object::open(|ep: *mut *mut FidEp| {
        let mut fid: *mut Fid = ptr::null_mut();
        let result = node.ep.control(FI_ALIAS, &mut FiAlias { fid: &raw mut fid, flags });
        // SAFETY: there is room for a pointer.
        unsafe { ep.write(fid.cast()) };
        result
    })
}

#[test]
fn fi_trigger_of_an_alias_or_a_call_defers_operations() {
    let pair = open_pair();
    let (left, right, to) = (&pair.left, &pair.right, pair.to_right);
    let trigger = open_counter(left);
    let alias = open_alias(left, FI_TRANSMIT | TRIGGER).expect("an alias");
    let context = |threshold| FiTriggeredContext {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: FiTriggerDetails {
            threshold: FiTriggerThreshold { cntr: trigger.as_ptr(), threshold },
            internal: ptr::null_mut(),
        },
    };
    let (mut first, mut second, mut third) = (context(1), context(2), context(9));
    let mut xpu = FiTriggeredContext { event_type: 1, ..context(1) };
    let mut bytes = [0_u8; 2];
    // SAFETY: the endpoints are open, and all arguments live until the end.
    unsafe {
        let (none, ep) = (ptr::null_mut(), right.ep.as_ptr());
        for byte in &mut bytes {
            assert_eq!(((*(*ep).msg).recv)(ep, (&raw mut *byte).cast(), 1, none, pair.to_left, none), 0);
        }
        let (send, ep) = ((*(*alias.as_ptr()).msg).send, alias.as_ptr());
        assert_eq!(send(ep, b"b".as_ptr().cast(), 1, none, to, (&raw mut second).cast()), 0);
        assert_eq!(send(ep, b"c".as_ptr().cast(), 1, none, to, none), EINVAL as isize, "no context");
        assert_eq!(send(ep, b"c".as_ptr().cast(), 1, none, to, (&raw mut xpu).cast()), ENOSYS as isize);
        // Triggered by the flags of the call.
        let (ep, mut byte) = (left.ep.as_ptr(), *b"a");
        let iov = make_iov(&mut byte);
        let mut msg = make_msg(&iov, to);
        msg.context = (&raw mut first).cast();
        assert_eq!(((*(*ep).msg).sendmsg)(ep, &raw const msg, TRIGGER), 0);
        let mut rest = *b"d";
        let iov = make_iov(&mut rest);
        let mut msg = make_msg(&iov, to);
        msg.context = (&raw mut third).cast();
        assert_eq!(((*(*ep).msg).recvmsg)(ep, &raw const msg, TRIGGER), 0);
        add_to_counter(&trigger, 2);
        let [of_left, _] = pair.read_completions(2, 2);
        let contexts: Vec<_> = of_left.iter().map(|(entry, _)| entry.op_context).collect();
        assert_eq!(contexts, [(&raw mut first).cast::<c_void>(), (&raw mut second).cast()]);
        // A waiting operation is cancelled by its context.
        let cancel = (*(*ep).ops).cancel;
        assert_eq!(cancel(ep.cast(), (&raw mut third).cast()), 0);
        // SAFETY: an entry of an error may be all 0.
        let mut entry: FiCqErrEntry = mem::zeroed();
        assert_eq!(left.read_error(&mut entry), 1);
        assert_eq!((entry.err, entry.op_context), (125, (&raw mut third).cast()));
    }
    assert_eq!(&bytes, b"ab", "the first has the lower threshold");
    let mut flags = FI_TRANSMIT;
    assert_eq!((alias.control(FI_GETOPSFLAG, &raw mut flags), flags & TRIGGER), (0, TRIGGER));
    flags = FI_TRANSMIT;
    assert_eq!((left.ep.control(FI_GETOPSFLAG, &raw mut flags), flags & TRIGGER), (0, 0));
    assert!(trigger.close().is_ok());
    // An endpoint can be closed only after its aliases.
    let Node { ep, cq, av, eq, domain, fabric } = pair.left;
    let Err((ep, EBUSY)) = ep.close() else { panic!("it has an alias") };
    assert!(alias.close().is_ok() && ep.close().is_ok());
    drop((cq, av, eq, domain, fabric));
}

#[test]
fn alias_needs_one_direction_and_supported_flags() {
    let node = Node::open_with(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let refused = |flags| open_alias(&node, flags).err();
    assert_eq!(refused(0), Some(EINVAL));
    assert_eq!(refused(FI_TRANSMIT | FI_RECV), Some(EINVAL));
    assert_eq!(
        refused(FI_TRANSMIT | TRIGGER),
        Some(EBADFLAGS),
        "the endpoint may have no triggered operations"
    );
    assert_eq!(node.ep.control::<c_void>(FI_ALIAS, ptr::null_mut()), EINVAL);
    assert_eq!(node.ep.control(FI_ALIAS, &mut FiAlias { fid: ptr::null_mut(), flags: FI_RECV }), EINVAL);
    assert!(open_alias(&node, FI_RECV | COMPLETION).is_ok());
}
