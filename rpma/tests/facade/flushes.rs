//! Flushes, for visibility and to persistence.

use std::fs::File;
use std::os::fd::AsFd;
use std::process;

use homespun_suite::files::NamedFile;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::prelude::*;

const LEN_BYTES: usize = 100_000;

/// A file, and the region of a mapping of it. The mapping is never undone.
struct MappedFile {
    file: NamedFile,
    region: MemoryRegion,
}

impl MappedFile {
    fn register(peer: &Peer, size_bytes: usize, usage: Usage) -> MappedFile {
        let named = NamedFile::with_unused_name();
        let file =
            File::options().read(true).write(true).create_new(true).open(named.path()).expect("a file");
        file.set_len(size_bytes as u64).expect("room for the file");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no other memory is affected.
        let address =
            unsafe { mmap(std::ptr::null_mut(), size_bytes, protection, MapFlags::SHARED, file.as_fd(), 0) };
        let address = address.expect("a mapping");
        // SAFETY: the mapping stays, and this process does not access it.
        let region = unsafe { MemoryRegion::register(peer, address.cast(), size_bytes, usage) };
        MappedFile { file: named, region: region.expect("the memory is a file's") }
    }

    fn remote(&self) -> RemoteMemoryRegion {
        self.region.as_remote()
    }
}

/// Shows rpma_cq_get_completion/always-completes-on-success, rpma_cq_get_completion/context-of-flush,
/// rpma_cq_get_completion/byte-len-of-access, rpma_cq_get_completion/op-flush,
/// rpma_cq_get_completion/on-error-hides-success.
pub(crate) fn flush_makes_earlier_writes_visible(net: &Net) {
    let Pair { client, server: _server, client_peer, server_peer } = Pair::connect(net);
    let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY;
    for (context, len_bytes) in (1..).zip([8, LEN_BYTES, 1 << 20]) {
        let here = Memory::with(&client_peer, &payload(context, len_bytes), Usage::WRITE_SRC);
        let there = Memory::zeroed(&server_peer, len_bytes, usage);
        let remote = there.remote();
        client.write(remote.at(0), here.all(), Report::OnError, context).unwrap();
        let flush_type = FlushType::Visibility;
        client.flush(&remote, 4, len_bytes as u64 - 4, flush_type, Report::Always, 50 + context).unwrap();
        let flushed = expect_success(client.completion_queue(), Operation::Flush, 50 + context);
        assert_eq!(flushed.byte_len as usize, len_bytes - 4);
        assert!(there.read(0, len_bytes) == payload(context, len_bytes));
    }
}

/// Shows rpma_cq_get_completion/op-flush.
pub(crate) fn only_a_persistent_flush_makes_its_range_durable(net: &Net) {
    let Pair { client, server: _server, client_peer, server_peer } = Pair::connect(net);
    let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_PERSISTENT | Usage::FLUSH_TYPE_VISIBILITY;
    let log = MappedFile::register(&server_peer, LEN_BYTES, usage);
    let here = Memory::with(&client_peer, &payload(3, LEN_BYTES), Usage::WRITE_SRC);
    client.apply_remote_peer_config(PeerConfig { direct_write_to_pmem: true });
    client.write(log.remote().at(0), here.all(), Report::OnError, 1).unwrap();
    let len_bytes = LEN_BYTES as u64;
    client.flush(&log.remote(), 0, len_bytes, FlushType::Visibility, Report::Always, 2).unwrap();
    expect_success(client.completion_queue(), Operation::Flush, 2);
    log.file.assert_not_written_back_or_skip(process::id());
    client.flush(&log.remote(), 0, len_bytes, FlushType::Persistent, Report::Always, 3).unwrap();
    let flushed = expect_success(client.completion_queue(), Operation::Flush, 3);
    log.file.assert_written_back_or_skip(process::id());
    assert_eq!(u64::from(flushed.byte_len), len_bytes);
    assert!(log.file.read_content() == payload(3, LEN_BYTES));
}

pub(crate) fn persistent_flush_needs_direct_writes(net: &Net) {
    let Pair { client, server: _server, server_peer, .. } = Pair::connect(net);
    let log = MappedFile::register(&server_peer, 4096, Usage::WRITE_DST | Usage::FLUSH_TYPE_PERSISTENT);
    let flush = || client.flush(&log.remote(), 0, 8, FlushType::Persistent, Report::Always, 1);
    let refused = Err(Error::NotSupported(Unsupported::DirectWrite));
    assert_eq!(flush(), refused);
    client.apply_remote_peer_config(PeerConfig { direct_write_to_pmem: true });
    assert_eq!(flush(), Ok(()));
    expect_success(client.completion_queue(), Operation::Flush, 1);
    client.apply_remote_peer_config(PeerConfig::default());
    assert_eq!(flush(), refused);
}

pub(crate) fn flush_needs_the_usage_of_the_region(net: &Net) {
    let Pair { client, server: _server, server_peer, .. } = Pair::connect(net);
    client.apply_remote_peer_config(PeerConfig { direct_write_to_pmem: true });
    let flush =
        |region: &RemoteMemoryRegion, flush_type| client.flush(region, 0, 8, flush_type, Report::Always, 1);
    let refused = Err(Error::NotSupported(Unsupported::FlushType));
    let none = Memory::zeroed(&server_peer, 8, Usage::WRITE_DST).remote();
    assert_eq!(flush(&none, FlushType::Visibility), refused);
    assert_eq!(flush(&none, FlushType::Persistent), refused);
    let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY;
    let visible = Memory::zeroed(&server_peer, 8, usage);
    assert_eq!(flush(&visible.remote(), FlushType::Persistent), refused);
    assert_eq!(flush(&visible.remote(), FlushType::Visibility), Ok(()));
    expect_success(client.completion_queue(), Operation::Flush, 1);
    let log = MappedFile::register(&server_peer, 4096, Usage::WRITE_DST | Usage::FLUSH_TYPE_PERSISTENT);
    assert_eq!(flush(&log.remote(), FlushType::Visibility), refused);
    // A descriptor may claim more than the region has. Then the peer refuses.
    let mut descriptor = visible.region().descriptor();
    descriptor[20] |= Usage::FLUSH_TYPE_PERSISTENT.bits();
    let claimed = RemoteMemoryRegion::from_descriptor(&descriptor).unwrap();
    assert_eq!(flush(&claimed, FlushType::Persistent), Ok(()));
    expect_failure(client.completion_queue(), Status::RemoteInvalidRequest, 1);
}
