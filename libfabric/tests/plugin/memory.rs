//! Memory regions. What accesses do is the subject of `host/tests/semantics.rs`.

use std::os::fd::AsRawFd;

use tempfile::NamedTempFile;

use crate::prelude::*;

/// Writes four bytes to memory of an endpoint, and reads four others. The endpoint is its own peer.
fn write_and_read((node, peer): &(Node, u64), bytes: [u8; 4], to: u64, from: u64) -> [u8; 4] {
    let (mut read, ep, peer) = ([0; 4], &node.ep, *peer);
    let (buf, context) = (bytes.as_ptr().cast(), numbered_context(1));
    assert_eq!(call!(ep, rma.write, buf, 4, NULL, peer, to, KEY, context), 0);
    assert_eq!(node.await_entry("the end of a write").op_context, context);
    assert_eq!(call!(ep, rma.read, read.as_mut_ptr().cast(), 4, NULL, peer, from, KEY, context), 0);
    assert_eq!(node.await_entry("the end of a read").op_context, context);
    read
}

/// Runtimes with global memory register the whole address space. homespun permits this, because it does
/// not require `FI_MR_ALLOCATED`.
/// Shows fi_mr/region-of-unbacked-addresses.
#[test]
fn region_may_span_the_whole_address_space() {
    let own = Node::open_with_own_address(|_| ());
    let region = own.0.domain.reg_at(NULL, usize::MAX, KEY, 0).expect("a region");
    let mut memory = *b"here and now";
    let place = memory.as_mut_ptr().expose_provenance() as u64;
    assert_eq!(&write_and_read(&own, *b"then", place, place + 5), b"and ");
    assert!(region.close().is_ok());
    assert_eq!(&memory, b"then and now");
}

#[test]
fn persistent_region_needs_the_memory_of_a_file() {
    let domain = &Node::open_disabled().domain;
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(8192).expect("room for it");
    // SAFETY: the system chooses an unused place. The mapping is never undone, and only the region uses it.
    let mapped = unsafe {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(NULL, 8192, both, libc::MAP_SHARED, file.as_file().as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    assert!(domain.reg_at(mapped, 8192, KEY, RMA_PMEM).is_ok());
    assert_eq!(domain.reg(&mut [0; 8], KEY, RMA_PMEM).err(), Some(EINVAL));
}

/// Shows fi_mr/reserved-arguments-are-zero, fi_mr/refresh,
/// fi_mr/authorization-keys.
#[test]
fn registration_refuses_or_ignores_arguments_as_fi_mr_says() {
    let node = Node::open();
    let mut memory = [0; 8];
    let (mut parts, domain) = ([to_iovec(&mut memory)], &node.domain);
    let region = domain.reg(&mut memory, KEY, 0).expect("a region");
    assert_eq!(domain.reg(&mut memory, KEY, 0).err(), Some(ENOKEY));
    assert!(domain.reg(&mut memory, 1, 1 << 57).is_ok(), "flags without a meaning are ignored");
    // Regions without bytes, with an address and without one.
    assert!(domain.reg_at(memory.as_mut_ptr().cast(), 0, 1, 0).is_ok() && domain.reg(&mut [], 1, 0).is_ok());

    let mut attr = || {
        let (mr_iov, access, context) = (parts.as_mut_ptr(), REMOTE_READ, numbered_context(9));
        // SAFETY: zeroes are attributes.
        let zeroed = unsafe { mem::zeroed() };
        FiMrAttr { mr_iov, iov_count: 1, access, requested_key: 5, context, ..zeroed }
    };
    let regattr = |attr: FiMrAttr, flags| {
        Object::<FidMr>::open(|mr| call!(domain, mr.regattr, &raw const attr, flags, mr))
    };
    let other = regattr(attr(), 0).expect("a region");
    // SAFETY: the region is open.
    assert_eq!((unsafe { (*other.as_ptr()).key }, other.context()), (5, numbered_context(9)));
    drop(other);
    // FI_MSG, FI_RMA, FI_TAGGED and FI_ATOMIC are capabilities, and no rights.
    for capability in [1 << 1, 1 << 2, 1 << 3, 1 << 4] {
        assert!(regattr(FiMrAttr { access: REMOTE_READ | capability, ..attr() }, 0).is_ok());
    }
    assert!(regattr(FiMrAttr { offset: 1, ..attr() }, 0).is_ok(), "it is reserved, and ignored");
    // FI_MR_SINGLE_USE, FI_HMEM_HOST_ALLOC, FI_HMEM_DEVICE_ONLY, and a bit that no header defines.
    for flag in [1 << 41, 1 << 45, 1 << 46, 1 << 33] {
        assert!(regattr(attr(), flag).is_ok(), "{flag:#x} is ignored");
    }
    // With FI_MR_DMABUF (`1 << 40`) another structure describes the memory, which the plugin must not
    // read as vectors.
    assert_eq!(regattr(attr(), 1 << 40).err(), Some(EBADFLAGS));
    // The fields for an authorization key exist since 1.5. homespun supports no such keys.
    assert_eq!(regattr(FiMrAttr { auth_key_size: 4, ..attr() }, 0).err(), Some(ENOSYS));
    assert_eq!(regattr(FiMrAttr { iov_count: 5, ..attr() }, 0).err(), Some(EINVAL));

    // Calls that other providers require succeed and do nothing.
    assert_eq!((region.enable(), region.control(FI_REFRESH, NULL)), (0, 0));
    assert_eq!((region.bind(&node.ep, 0), region.bind(&node.ep, 1)), (0, EBADFLAGS));
    assert_eq!(region.bind(&node.cq, 0), EINVAL);
}

/// Shows fi_mr/event-region-starts-disabled, fi_mr/no-binding-after-enable,
/// fi_mr/registration-is-synchronous.
#[test]
fn region_with_events_takes_counters_until_it_is_enabled() {
    let own = Node::open_with_own_address(|_| ());
    let (mut memory, counter) = ([0; 8], own.0.domain.counter());
    let region = own.0.domain.reg(&mut memory, KEY, RMA_EVENT).expect("a region");
    assert_eq!((region.bind(&own.0.ep, 0), region.bind(&counter, REMOTE_WRITE)), (0, 0));
    assert_eq!(region.control(FI_ENABLE, NULL), 0);
    assert_eq!(region.bind(&counter, REMOTE_READ), EOPBADSTATE);
    assert_eq!(&write_and_read(&own, *b"1234", 0, 2), b"34\0\0");
    drop(region);
    assert_eq!((counter.values(), &memory), ((1, 0), b"1234\0\0\0\0"));
}

/// Shows fi_mr/key-out-of-range, fi_mr/key-of-region, fi_mr/raw-attr-of-any-region, fi_mr/raw-key-is-mapped.
#[test]
fn raw_key_holds_the_key() {
    for (size_bytes, key) in [(8, 0x0102_0304_0506_0708), (4, u64::from(u32::MAX))] {
        let node = Node::open_with(|setup| setup.infos.domain().mr_key_size = size_bytes);
        let mut memory = [0; 8];
        let longer = node.domain.reg(&mut memory, u64::from(u32::MAX) + 1, 0);
        assert_eq!(longer.err(), (size_bytes == 4).then_some(EKEYREJECTED));
        let region = node.domain.reg(&mut memory, key, 0).expect("a region");
        let (mut base_addr, mut raw_key, mut key_size) = (99, [9; 8], size_bytes - 1);
        let mut attr = FiMrRawAttr {
            flags: 0,
            base_addr: &raw mut base_addr,
            raw_key: raw_key.as_mut_ptr(),
            key_size: &raw mut key_size,
        };
        assert_eq!(region.control(FI_GET_RAW_MR, &raw mut attr), ETOOSMALL);
        assert_eq!((key_size, region.control(FI_GET_RAW_MR, &raw mut attr)), (size_bytes, 0));
        assert_eq!((base_addr, &raw_key[size_bytes..]), (0, &[9; 8][size_bytes..]));
        let mut found = 0;
        let (raw_key, key_place) = (raw_key.as_mut_ptr(), &raw mut found);
        let mut map = FiMrMapRaw { flags: 0, base_addr: 0, raw_key, key_size: size_bytes, key: key_place };
        assert_eq!(node.domain.control(FI_MAP_RAW_MR, &raw mut map), 0);
        assert_eq!((found, node.domain.control(FI_UNMAP_KEY, &raw mut found)), (key, 0));
        for key_size in 0..=9 {
            map.key_size = key_size;
            let expected = if (4..=8).contains(&key_size) { 0 } else { EINVAL };
            assert_eq!(node.domain.control(FI_MAP_RAW_MR, &raw mut map), expected, "{key_size} bytes");
        }
        let nulls = [FI_MAP_RAW_MR, FI_UNMAP_KEY].map(|command| node.domain.control(command, NULL));
        assert_eq!((nulls, region.control(FI_GET_RAW_MR, NULL)), ([EINVAL; 2], EINVAL));
    }
}

/// Memory that homespun allocates for C: `include/homespun.h`.
#[test]
fn allocated_memory_is_accessed_in_place() {
    let own = Node::open_with_own_address(|_| ());
    let domain = &own.0.domain;
    let (mut ops, fid) = (NULL, domain.fid());
    let mut open = |name: &CStr, flags| {
        // SAFETY: the domain is open, the name is a C string, and there is room for the answer.
        unsafe { ((*(*fid).ops).ops_open)(fid, name.as_ptr(), flags, &raw mut ops, NULL) }
    };
    let refused = [open(c"homespun_memory2", 0), open(c"homespun_memory", 1)];
    assert_eq!((refused, open(c"homespun_memory", 0)), ([ENOSYS, EBADFLAGS], 0));
    // SAFETY: the operations live as long as the library.
    let ops = unsafe { &*ops.cast::<HomespunMemoryOps>() };
    assert_eq!(ops.size, size_of::<HomespunMemoryOps>());
    let mut memory: *mut c_void = NULL;
    let reg = |domain, len_bytes, memory, mr| {
        let (access, context) = (REMOTE_READ | REMOTE_WRITE, numbered_context(9));
        // SAFETY: the domain is null or open, and the answers have room or are null.
        unsafe { (ops.reg)(domain, len_bytes, access, KEY, 0, memory, mr, context) }
    };
    for domain in [domain.as_ptr(), ptr::null_mut()] {
        assert_eq!(reg(domain, 8, ptr::null_mut(), ptr::null_mut()), EINVAL);
    }
    assert_eq!(Object::open(|mr| reg(domain.as_ptr(), 0, &raw mut memory, mr)).err(), Some(EINVAL));
    let region = Object::open(|mr| reg(domain.as_ptr(), 100, &raw mut memory, mr)).expect("a region");
    let start: *mut u8 = memory.cast();
    // SAFETY: the region is open, and its memory is not accessed meanwhile.
    unsafe {
        assert_eq!(((*region.as_ptr()).key, region.context()), (KEY, numbered_context(9)));
        assert_eq!(slice::from_raw_parts(start, 100), [0; 100]);
        start.add(50).copy_from(b"mine".as_ptr(), 4);
    }
    assert_eq!(&write_and_read(&own, *b"your", 10, 50), b"mine");
    // SAFETY: as above.
    assert_eq!(unsafe { slice::from_raw_parts(start.add(10), 4) }, b"your");
}
