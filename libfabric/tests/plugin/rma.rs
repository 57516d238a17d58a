//! Memory regions, and access to those of a peer.

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::{fs, ptr, slice};

use homespun_fi::abi::domain::{FiMrAttr, FidDomain, FidMr};
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};
use homespun_fi::abi::fabric::{FiMrMapRaw, FiMrRawAttr};
use homespun_fi::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_fi::abi::{
    FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_GET_RAW_MR, FI_MAP_RAW_MR, FI_REFRESH, FI_UNMAP_KEY,
};
use libc::{c_int, c_void, iovec};
use tempfile::NamedTempFile;

use crate::host::{API_VERSION, Node, Object, Pair, numbered_context};

const RMA: u64 = 1 << 2;
const READ: u64 = 1 << 8;
const WRITE: u64 = 1 << 9;
const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;
const REMOTE_CQ_DATA: u64 = 1 << 17;
const COMMIT_COMPLETE: u64 = 1 << 30;
const RMA_PMEM: u64 = 1 << 49;

const EAVAIL: isize = -259;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const ETOOSMALL: c_int = -257;
const EBADFLAGS: c_int = -260;
const ENOKEY: c_int = -266;
const EKEYREJECTED: c_int = 129;
const EOPNOTSUPP: c_int = 95;

const KEY: u64 = 77;

fn open_pair() -> Pair {
    Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED)
}

/// `fi_mr_reg`, with a buffer that outlives the region.
pub(crate) fn reg(
    domain: &Object<FidDomain>,
    buf: &mut [u8],
    key: u64,
    flags: u64,
) -> Result<Object<FidMr>, c_int> {
    let domain = domain.as_ptr();
    // SAFETY: the domain is open, and the buffer stays in place until the region is closed.
    Object::open(|mr| unsafe {
        let reg = (*(*domain).mr).reg;
        let access = REMOTE_READ | REMOTE_WRITE;
        reg(domain.cast(), buf.as_ptr().cast(), buf.len(), access, 0, key, flags, mr, ptr::null_mut())
    })
}

/// Makes a file of this length, and maps it.
pub(crate) fn make_mapped_file(len_bytes: usize) -> (NamedTempFile, &'static mut [u8]) {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(len_bytes as u64).expect("room for it");
    // SAFETY: the system chooses an unused place. The mapping is never undone, and only a region uses
    // it.
    let mapped = unsafe {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let address = libc::mmap(ptr::null_mut(), len_bytes, both, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(address, libc::MAP_FAILED);
        slice::from_raw_parts_mut(address.cast(), len_bytes)
    };
    (file, mapped)
}

/// `fi_mr_reg` of any range of addresses.
fn reg_at(
    domain: &Object<FidDomain>,
    address: *mut c_void,
    len_bytes: usize,
    key: u64,
) -> Result<Object<FidMr>, c_int> {
    let domain = domain.as_ptr();
    // SAFETY: the domain is open. The test lets peers access only memory that exists.
    Object::open(|mr| unsafe {
        let reg = (*(*domain).mr).reg;
        let access = REMOTE_READ | REMOTE_WRITE;
        reg(domain.cast(), address, len_bytes, access, 0, key, 0, mr, ptr::null_mut())
    })
}

/// Runtimes with global memory register the whole address space. homespun permits this, because it does
/// not require `FI_MR_ALLOCATED`.
#[test]
fn region_may_span_the_whole_address_space() {
    let pair = open_pair();
    let left = pair.left.ep.as_ptr();
    let region = reg_at(&pair.right.domain, ptr::null_mut(), usize::MAX, KEY).expect("a region");
    let mut memory = *b"here and now";
    let (mut read, none) = ([0u8; 4], ptr::null_mut());
    let place = memory.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the endpoint is open, and all buffers live until the completions are read.
    unsafe {
        let rma = &*(*left).rma;
        assert_eq!(
            (rma.write)(
                left,
                b"then".as_ptr().cast(),
                4,
                none,
                pair.to_right,
                place,
                KEY,
                numbered_context(1)
            ),
            0
        );
        assert_eq!(pair.read_completions(1, 0)[0].len(), 1);
        let into = read.as_mut_ptr().cast();
        assert_eq!((rma.read)(left, into, 4, none, pair.to_right, place + 5, KEY, numbered_context(2)), 0);
    }
    assert_eq!(pair.read_completions(1, 0)[0].len(), 1);
    assert!(region.close().is_ok());
    assert_eq!((&memory, &read), (b"then and now", b"and "));
}

fn iov(part: &mut [u8]) -> iovec {
    iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() }
}

/// Returns an entry's fields, without the buffer, which must be null.
fn entry_fields(entry: &FiCqTaggedEntry) -> (usize, u64, usize, u64) {
    assert!(entry.buf.is_null() && entry.tag == 0);
    (entry.op_context.addr(), entry.flags, entry.len, entry.data)
}

#[test]
fn committed_write_is_in_the_file() {
    let pair = open_pair();
    let left = pair.left.ep.as_ptr();
    let (file, mapped) = make_mapped_file(8192);
    let _region = reg(&pair.right.domain, mapped, KEY, RMA_PMEM).expect("a region");
    let mut other = [0u8; 8];
    assert_eq!(reg(&pair.right.domain, &mut other, 1, RMA_PMEM).err(), Some(EINVAL), "no file's memory");
    let _other = reg(&pair.right.domain, &mut other, 1, 0).expect("a region");
    let mut bytes = *b"for good";
    let parts = [iov(&mut bytes)];
    let post = |addr, key, number| {
        let target = FiRmaIov { addr, len: 8, key };
        let msg = FiMsgRma {
            msg_iov: parts.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: pair.to_right,
            rma_iov: &raw const target,
            rma_iov_count: 1,
            context: numbered_context(number),
            data: 0,
        };
        // SAFETY: the endpoint is open, and the buffer lives until the completion is read.
        assert_eq!(unsafe { ((*(*left).rma).writemsg)(left, &raw const msg, COMMIT_COMPLETE) }, 0);
    };
    post(4092, KEY, 1);
    let [written, _] = pair.read_completions(1, 0);
    assert_eq!(entry_fields(&written[0].0), (1, RMA | WRITE, 8, 0));
    assert_eq!(fs::read(file.path()).expect("the file")[4092..4100], *b"for good");
    post(0, 1, 2);
    pair.wait_until(|pair| {
        assert!(pair.right.try_read::<FiCqTaggedEntry>().is_err());
        pair.left.try_read::<FiCqTaggedEntry>().err() == Some(EAVAIL)
    });
    // SAFETY: all fields are integers and pointers.
    let mut failed: FiCqErrEntry = unsafe { std::mem::zeroed() };
    assert_eq!(pair.left.read_error(&mut failed), 1);
    assert_eq!((failed.op_context.addr(), failed.err, failed.flags), (2, EOPNOTSUPP, RMA | WRITE));
}

#[test]
fn remote_segment_must_be_single_and_match_the_local_length() {
    let node = Node::open();
    let own = node.insert(&node.name());
    let ep = node.ep.as_ptr();
    let mut room = [0; 4];
    let parts = [iov(&mut room)];
    let post = |targets: &[FiRmaIov]| {
        let msg = FiMsgRma {
            msg_iov: parts.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: own,
            rma_iov: targets.as_ptr(),
            rma_iov_count: targets.len(),
            context: ptr::null_mut(),
            data: 0,
        };
        // SAFETY: the endpoint is open. The plugin refuses all calls, so it uses no memory after the
        // call.
        unsafe {
            let rma = &*(*ep).rma;
            [(rma.readmsg)(ep, &raw const msg, 0), (rma.writemsg)(ep, &raw const msg, 0)]
        }
    };
    let target = |len| FiRmaIov { addr: 0, len, key: KEY };
    for targets in [vec![], vec![target(3)], vec![target(5)], vec![target(2), target(2)]] {
        assert_eq!(post(&targets), [EINVAL as isize; 2]);
    }
}

#[test]
fn access_of_no_bytes_needs_no_remote_segment() {
    let pair = open_pair();
    let left = pair.left.ep.as_ptr();
    let target = FiRmaIov { addr: 0, len: 0, key: KEY };
    let none = FiMsgRma {
        msg_iov: ptr::null(),
        desc: ptr::null_mut(),
        iov_count: 0,
        addr: pair.to_right,
        rma_iov: ptr::null(),
        rma_iov_count: 0,
        context: numbered_context(1),
        data: 5,
    };
    let one = FiMsgRma { rma_iov: &raw const target, rma_iov_count: 1, ..none };
    let counted = FiMsgRma { rma_iov_count: 0, ..one };
    let null = FiMsgRma { rma_iov: ptr::null(), ..one };
    for msg in [none, one, counted, null] {
        // SAFETY: the endpoint is open, and there is no memory.
        unsafe {
            let rma = &*(*left).rma;
            assert_eq!((rma.readmsg)(left, &raw const msg, 0), 0);
            let [read, _] = pair.read_completions(1, 0);
            assert_eq!(entry_fields(&read[0].0), (1, RMA | READ, 0, 0));
            assert_eq!((rma.writemsg)(left, &raw const msg, REMOTE_CQ_DATA), 0);
        }
        let [written, told] = pair.read_completions(1, 1);
        assert_eq!(entry_fields(&written[0].0), (1, RMA | WRITE, 0, 0));
        assert_eq!(entry_fields(&told[0].0), (0, RMA | REMOTE_WRITE | REMOTE_CQ_DATA, 0, 5));
    }
}

#[test]
fn registration_refuses_or_ignores_arguments_as_fi_mr_says() {
    let node = Node::open();
    let mut memory = [0u8; 8];
    let region = reg(&node.domain, &mut memory, KEY, 0).expect("a region");
    assert_eq!(reg(&node.domain, &mut memory, KEY, 0).err(), Some(ENOKEY));
    let flagged = reg(&node.domain, &mut memory, 1, 1 << 57);
    assert!(flagged.is_ok_and(|region| region.close().is_ok()), "flags without a meaning are ignored");
    // Regions without bytes, with an address and without one.
    assert!(reg(&node.domain, &mut [], 1, 0).is_ok_and(|region| region.close().is_ok()));
    assert!(reg_at(&node.domain, ptr::null_mut(), 0, 1).is_ok_and(|region| region.close().is_ok()));

    // The fields for an authorization key exist since 1.5. homespun supports no such keys.
    let mut parts = [iov(&mut memory)];
    let mut attr = FiMrAttr {
        mr_iov: parts.as_mut_ptr(),
        iov_count: 1,
        access: REMOTE_READ,
        offset: 0,
        requested_key: 5,
        context: numbered_context(9),
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
        iface: 0,
        device: 0,
    };
    let domain = node.domain.as_ptr();
    let regattr_with = |attr: &FiMrAttr, flags| {
        // SAFETY: the domain is open, and the memory stays in place until the region is closed.
        Object::<FidMr>::open(|mr| unsafe { ((*(*domain).mr).regattr)(domain.cast(), attr, flags, mr) })
    };
    let regattr = |attr: &FiMrAttr| regattr_with(attr, 0);
    let other = regattr(&attr).expect("a region");
    // SAFETY: the region is open.
    unsafe { assert_eq!(((*other.as_ptr()).key, (*other.fid()).context), (5, numbered_context(9))) };
    attr.requested_key = 6;
    // FI_MSG, FI_RMA, FI_TAGGED and FI_ATOMIC, which are capabilities.
    for capability in [1 << 1, RMA, 1 << 3, 1 << 4] {
        let region = regattr(&FiMrAttr { access: REMOTE_READ | capability, ..copy_attr(&attr) });
        assert!(
            region.is_ok_and(|region| region.close().is_ok()),
            "{capability:#x} is no right, and is ignored"
        );
    }
    let with_offset = regattr(&FiMrAttr { offset: 1, ..copy_attr(&attr) });
    assert!(with_offset.is_ok_and(|region| region.close().is_ok()), "it is reserved, and ignored");
    // With FI_MR_DMABUF (`1 << 40`) another structure describes the memory, which the plugin must not
    // read as vectors.
    assert_eq!(regattr_with(&attr, 1 << 40).err(), Some(EBADFLAGS));
    // FI_MR_SINGLE_USE, FI_HMEM_HOST_ALLOC, FI_HMEM_DEVICE_ONLY, and a bit that no header defines.
    for flag in [1 << 41, 1 << 45, 1 << 46, 1 << 33] {
        let region = regattr_with(&attr, flag);
        assert!(region.is_ok_and(|region| region.close().is_ok()), "{flag:#x} is ignored");
    }
    assert_eq!(regattr(&FiMrAttr { auth_key_size: 4, ..copy_attr(&attr) }).err(), Some(ENOSYS));
    assert_eq!(regattr(&FiMrAttr { iov_count: 5, ..copy_attr(&attr) }).err(), Some(EINVAL));

    // Calls that other providers require succeed and do nothing.
    assert_eq!(region.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
    assert_eq!(region.control::<c_void>(FI_REFRESH, ptr::null_mut()), 0);
    assert_eq!((region.bind(&node.ep, 0), region.bind(&node.ep, 1)), (0, EBADFLAGS));
    assert_eq!(region.bind(&node.cq, 0), EINVAL);

    // A domain cannot be closed before its regions.
    let Node { ep, cq, av, eq, domain, fabric } = node;
    drop((ep, cq, av, eq));
    let Err((domain, EBUSY)) = domain.close() else { panic!("the domain has regions") };
    drop((region, other));
    assert!(domain.close().is_ok() && fabric.close().is_ok());
}

/// A structure of the C interface is not `Clone`.
fn copy_attr(attr: &FiMrAttr) -> FiMrAttr {
    FiMrAttr { ..*attr }
}

#[test]
fn raw_key_holds_the_key() {
    let node = Node::open();
    let mut memory = [0u8; 8];
    let region = reg(&node.domain, &mut memory, 0x0102_0304_0506_0708, 0).expect("a region");
    let (mut base_addr, mut raw_key, mut key_size) = (99, [0u8; 8], 7);
    let mut attr = FiMrRawAttr {
        flags: 0,
        base_addr: &raw mut base_addr,
        raw_key: raw_key.as_mut_ptr(),
        key_size: &raw mut key_size,
    };
    assert_eq!(region.control(FI_GET_RAW_MR, &raw mut attr), ETOOSMALL);
    assert_eq!(key_size, 8);
    assert_eq!(region.control(FI_GET_RAW_MR, &raw mut attr), 0);
    assert_eq!(base_addr, 0);
    let mut key = 0;
    let mut map =
        FiMrMapRaw { flags: 0, base_addr: 0, raw_key: raw_key.as_mut_ptr(), key_size: 8, key: &raw mut key };
    assert_eq!(node.domain.control(FI_MAP_RAW_MR, &raw mut map), 0);
    assert_eq!(key, 0x0102_0304_0506_0708);
    assert_eq!(node.domain.control(FI_UNMAP_KEY, &raw mut key), 0);
    for key_size in 0..=9 {
        map.key_size = key_size;
        let expected = if (4..=8).contains(&key_size) { 0 } else { EINVAL };
        assert_eq!(node.domain.control(FI_MAP_RAW_MR, &raw mut map), expected, "{key_size} bytes");
    }
    for command in [FI_MAP_RAW_MR, FI_UNMAP_KEY] {
        assert_eq!(node.domain.control::<c_void>(command, ptr::null_mut()), EINVAL);
    }
    assert_eq!(region.control::<c_void>(FI_GET_RAW_MR, ptr::null_mut()), EINVAL);
}

#[test]
fn keys_fit_the_size_that_the_hints_ask_for() {
    const FI_MR_PROV_KEY: c_int = 1 << 6;
    let node = Node::open_with_key_size(4, 0);
    let mut memory = [0u8; 8];
    let highest = u64::from(u32::MAX);
    assert_eq!(reg(&node.domain, &mut memory, highest + 1, 0).err(), Some(-EKEYREJECTED));
    let region = reg(&node.domain, &mut memory, highest, 0).expect("a region");
    let (mut raw_key, mut key_size) = ([9u8; 8], 3);
    let mut attr = FiMrRawAttr {
        flags: 0,
        base_addr: ptr::null_mut(),
        raw_key: raw_key.as_mut_ptr(),
        key_size: &raw mut key_size,
    };
    assert_eq!(region.control(FI_GET_RAW_MR, &raw mut attr), ETOOSMALL);
    assert_eq!(region.control(FI_GET_RAW_MR, &raw mut attr), 0);
    assert_eq!((key_size, raw_key), (4, [255, 255, 255, 255, 9, 9, 9, 9]));
    let mut key = 0;
    let mut map =
        FiMrMapRaw { flags: 0, base_addr: 0, raw_key: raw_key.as_mut_ptr(), key_size, key: &raw mut key };
    assert_eq!(node.domain.control(FI_MAP_RAW_MR, &raw mut map), 0);
    assert_eq!(key, highest);

    let node = Node::open_with_key_size(4, FI_MR_PROV_KEY);
    let mut earlier = HashSet::new();
    for _ in 0..1000 {
        let region = reg(&node.domain, &mut memory, highest + 1, 0).expect("the domain chooses the key");
        // SAFETY: the region is open.
        let key = unsafe { (*region.as_ptr()).key };
        assert!(key <= highest && earlier.insert(key), "{key:#x}");
    }
}
