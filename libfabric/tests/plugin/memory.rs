//! Memory that homespun allocates for C: `include/homespun.h`.

use std::ffi::CStr;
use std::{ptr, slice};

use homespun_fi::abi::FI_CQ_FORMAT_TAGGED;
use homespun_fi::abi::domain::{FidDomain, FidMr};
use homespun_fi::abi::memory::HomespunMemoryOps;
use libc::{c_int, c_void};

use crate::host::{API_VERSION, Node, Object, Pair, numbered_context};

const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const EBADFLAGS: c_int = -260;

fn open_memory_ops(
    domain: &Object<FidDomain>,
    name: &CStr,
    flags: u64,
) -> Result<*const HomespunMemoryOps, c_int> {
    let mut ops: *mut c_void = ptr::null_mut();
    // SAFETY: the domain is open, the name is a C string, and there is room for the answer.
    let result = unsafe {
        ((*(*domain.fid()).ops).ops_open)(domain.fid(), name.as_ptr(), flags, &raw mut ops, ptr::null_mut())
    };
    if result == 0 { Ok(ops.cast_const().cast()) } else { Err(result) }
}

/// Registers memory. Returns the region, and the start of its memory.
fn reg(domain: &Object<FidDomain>, len_bytes: usize) -> Result<(Object<FidMr>, *mut u8), c_int> {
    let ops = open_memory_ops(domain, c"homespun_memory", 0)?;
    let mut memory: *mut c_void = ptr::null_mut();
    let access = REMOTE_READ | REMOTE_WRITE;
    // SAFETY: the domain is open, and there is room for the answers.
    let region = Object::open(|mr| unsafe {
        ((*ops).reg)(domain.as_ptr(), len_bytes, access, 7, 0, &raw mut memory, mr, numbered_context(9))
    })?;
    Ok((region, memory.cast()))
}

#[test]
fn memory_operations_are_opened_by_name() {
    let node = Node::open();
    let ops = open_memory_ops(&node.domain, c"homespun_memory", 0).expect("they are there");
    // SAFETY: the operations live as long as the library.
    assert_eq!(unsafe { (*ops).size }, size_of::<HomespunMemoryOps>());
    assert_eq!(open_memory_ops(&node.domain, c"homespun_memory2", 0).err(), Some(ENOSYS));
    assert_eq!(open_memory_ops(&node.domain, c"homespun_memory", 1).err(), Some(EBADFLAGS));
    // SAFETY: the domain is open, and null is checked.
    unsafe {
        let reg = (*ops).reg;
        let none = ptr::null_mut();
        assert_eq!(reg(node.domain.as_ptr(), 8, 0, 0, 0, ptr::null_mut(), ptr::null_mut(), none), EINVAL);
        assert_eq!(reg(ptr::null_mut(), 8, 0, 0, 0, ptr::null_mut(), ptr::null_mut(), none), EINVAL);
    }
    assert_eq!(reg(&node.domain, 0).err(), Some(EINVAL));
}

#[test]
fn allocated_memory_is_accessed_in_place() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let left = pair.left.ep.as_ptr();
    let (region, memory) = reg(&pair.right.domain, 100).expect("a region");
    // SAFETY: the region is open, and its memory is not accessed meanwhile.
    unsafe {
        assert_eq!(((*region.as_ptr()).key, (*region.fid()).context), (7, numbered_context(9)));
        assert_eq!(slice::from_raw_parts(memory, 100), [0; 100]);
        memory.add(50).copy_from(b"mine".as_ptr(), 4);
    }
    let (mut read, none) = ([0u8; 4], ptr::null_mut());
    // The first accesses go over the link. If the peer can map the region, later accesses are plain
    // copies.
    for round in 0..10 {
        // SAFETY: the endpoint is open, and all buffers live until the completions are read. No other
        // thread accesses the memory.
        unsafe {
            let rma = &*(*left).rma;
            let bytes = [round, 1, 2, 3];
            assert_eq!(
                (rma.write)(left, bytes.as_ptr().cast(), 4, none, pair.to_right, 10, 7, numbered_context(1)),
                0
            );
            assert_eq!(pair.read_completions(1, 0)[0].len(), 1);
            assert_eq!(slice::from_raw_parts(memory.add(10), 4), bytes);
            let into = read.as_mut_ptr().cast();
            assert_eq!((rma.read)(left, into, 4, none, pair.to_right, 50, 7, numbered_context(2)), 0);
        }
        assert_eq!(pair.read_completions(1, 0)[0].len(), 1);
        assert_eq!(&read, b"mine");
    }
    assert!(region.close().is_ok());
}
