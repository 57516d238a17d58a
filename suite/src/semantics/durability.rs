//! Persistent memory: `FI_RMA_PMEM` and `FI_COMMIT_COMPLETE`, `fi_cq(3)`, `fi_mr(3)`.
//!
//! Writes to a shared mapping survive the end of the process. So killing a process does not show whether
//! bytes are on the device. But the system reports which pages are dirty and not yet written back.

use std::fs;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use super::atomics::make_add_call;
use super::prelude::*;
use crate::raw::leak_and_register;

const LEN_BYTES: usize = 400_000;
const COMMIT: OpFlags = OpFlags::COMMIT_COMPLETE;

/// Commits the current content of the region, also what its owner has written. After this, only later writes
/// make pages dirty.
#[track_caller]
fn commit_initial_content(alice: &Party, region: &Region) {
    alice.access(make_write_call(alice, region, 0, 0, 0, COMMIT));
    alice.access(make_write_call(alice, region, 0, 0, LEN_BYTES, COMMIT));
}

fn make_write_call(
    party: &Party,
    region: &Region,
    context: u64,
    place: usize,
    len_bytes: usize,
    flags: OpFlags,
) -> RmaCall {
    RmaCall { flags, ..make_access(RmaBy::Writemsg, party, region, context, place, len_bytes) }
}

/// A write with remote data is durable before its target is told of it.
/// Shows fi_cq/commit-means-durable, fi_cq/persistent-memory, fi_rma/rma-commit,
/// fi_mr/persistent-region-flag.
#[over(all)]
fn committed_write_is_durable_at_completion(net: &Net) {
    let none = OpFlags::empty();
    for is_raw in [false, true] {
        let (alice, bob) = net.open_pair();
        let (region, file) = register_file_region(&bob, LEN_BYTES, is_raw, 1);
        commit_initial_content(&alice, &region);
        for (context, (place, len_bytes)) in
            (1..).zip([(5, 1), (4090, 8), (100, 4096), (20_001, 20_000), (0, LEN_BYTES), (7, 0)])
        {
            for (flags, data) in
                [(none, None), (OpFlags::INJECT, None), (OpFlags::FENCE, None), (none, Some(9))]
            {
                if flags == OpFlags::INJECT && len_bytes > 4096 {
                    continue;
                }
                let write = make_write_call(&alice, &region, context, place, len_bytes, COMMIT | flags);
                alice.endpoint.rma(RmaCall { data, ..write }).unwrap();
                if data.is_some() {
                    let notice = bob.next_completion();
                    assert_eq!((notice.data, notice.len_bytes), (9, len_bytes));
                    file.assert_written_back_or_skip(bob.process_id());
                }
                let completion = alice.next_completion();
                let expected = (context, CompletionFlags::RMA | CompletionFlags::WRITE);
                assert_eq!((completion.context, completion.flags), expected);
                file.assert_written_back_or_skip(bob.process_id());
                let written = &file.read_content()[place..place + len_bytes];
                assert!(written == payload(context, len_bytes), "{len_bytes} bytes");
            }
        }
    }
}

/// Shows fi_cq/fence-completion-covers-earlier, fi_cq/persistent-memory.
#[over(all)]
fn uncommitted_write_is_durable_after_a_fenced_commit(net: &Net) {
    let (alice, bob) = net.open_pair();
    let [(first, first_file), (second, second_file)] =
        [(false, 1), (true, 2)].map(|(is_raw, key)| register_file_region(&bob, LEN_BYTES, is_raw, key));
    commit_initial_content(&alice, &first);
    commit_initial_content(&alice, &second);
    for round in 1..4 {
        let delivery = OpFlags::DELIVERY_COMPLETE;
        for (place, len_bytes) in [(0, 8), (50_000, LEN_BYTES - 50_000)] {
            alice.access(make_write_call(&alice, &first, round, place, len_bytes, delivery));
        }
        let inject = RmaCall::new(RmaBy::InjectWrite, payload(round, 8), alice.peer(), &second, 0);
        alice.endpoint.rma(inject).unwrap();
        first_file.assert_not_written_back_or_skip(bob.process_id());
        // Without a fence a write commits only its own bytes.
        alice.access(make_write_call(&alice, &second, round, 200_000, 100, COMMIT));
        first_file.assert_not_written_back_or_skip(bob.process_id());
        // An empty write commits too.
        alice.access(make_write_call(&alice, &second, 9, 0, 0, COMMIT | OpFlags::FENCE));
        first_file.assert_written_back_or_skip(bob.process_id());
        second_file.assert_written_back_or_skip(bob.process_id());
        assert!(first_file.read_content()[50_000..] == payload(round, LEN_BYTES - 50_000));
        assert!(second_file.read_content()[..8] == payload(round, 8));
    }
}

/// Shows fi_endpoint/default-flags.
#[over(all)]
fn default_flag_commits_writes(net: &Net) {
    let setup = Setup { tx_op_flags: COMMIT, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(setup, Setup::default());
    let (region, file) = register_file_region(&bob, LEN_BYTES, false, 1);
    commit_initial_content(&alice, &region);
    alice.access(make_access(RmaBy::Write, &alice, &region, 1, 0, 1000));
    file.assert_written_back_or_skip(bob.process_id());
    // A level of the call replaces the default.
    alice.access(make_write_call(&alice, &region, 2, 0, 1000, OpFlags::DELIVERY_COMPLETE));
    file.assert_not_written_back_or_skip(bob.process_id());
    // Other operations cannot keep the flag, and complete at the next lower level.
    let read = alice.access(make_access(RmaBy::Read, &alice, &region, 3, 0, 1000));
    assert!(received_bytes(&read.buffer) == payload(2, 1000));
    alice.endpoint.atomic(make_add_call(AtomicKind::Base, &alice, &region, 3, 3)).unwrap();
    assert_eq!(alice.next_completion().context, 3);
    alice.send(4, payload(4, 8));
    bob.receive_message(5, 8, &payload(4, 8));
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    assert_eq!(alice.endpoint.set_tx_op_flags(COMMIT), Ok(()));
    assert_eq!(alice.endpoint.tx_op_flags(), COMMIT);
}

/// Shows fi_cq/commit-means-durable, fi_mr/persistent-region-flag.
#[over(all, own)]
fn commit_to_volatile_memory_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    for kind in net.memory_kinds().filter(|kind| !matches!(kind, MemoryKind::File(_))) {
        let region = bob.open_region(100_000, kind, 1);
        for round in 0..2 {
            for len_bytes in [0, 8, 100_000] {
                alice.endpoint.rma(make_write_call(&alice, &region, 1, 0, len_bytes, COMMIT)).unwrap();
                let failed = alice.expect_failure(1, Errno::EOPNOTSUPP);
                if alice.is_native() {
                    assert_eq!(failed.error, OperationError::Refused(Refusal::Volatile), "{kind:?}, {round}");
                }
            }
            assert!(region.content() == marked_buffer(100_000));
            // A commit also fails once the region is mapped.
            alice.access(make_write_call(&alice, &region, 2, 0, 8, OpFlags::empty()));
            region.write_at(0, &marked_buffer(8));
        }
    }
    alice.exchange_long_messages(&bob);
}

#[over(all, own)]
fn commit_without_the_capability_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup { caps: Caps::MSG, ..Setup::default() }, Setup::default());
    let refused = alice.endpoint.set_tx_op_flags(COMMIT).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
    if alice.is_native() && net.turns != Turns::Processes {
        assert_eq!(refused, Misuse::NoCapability(Caps::RMA_PMEM).into());
    }
    let (region, _file) = register_file_region(&bob, LEN_BYTES, false, 1);
    let commit = make_write_call(&alice, &region, 1, 0, 8, COMMIT);
    expect_error(alice.endpoint.rma(commit), Errno::EOPNOTSUPP);
}

#[over(one_process)]
fn registered_file_shares_its_content_with_the_region(net: &Net) {
    let domain = net.open_other_domain();
    let (named, mut file) = create_file(3 * 4096 + 5);
    let attr = |key| MrAttr { access: EVERYTHING, requested_key: Some(key), ..MrAttr::default() };
    let whole = domain.register_file(&file, 0, 3 * 4096 + 5, &attr(1)).unwrap();
    let part = domain.register_file(&file, 8192, 4096 + 5, &attr(2)).unwrap();
    assert_eq!((part.len_bytes(), part.address(), part.is_persistent()), (4096 + 5, 0, true));
    part.write_at(4096, b"tail!").unwrap();
    assert!(named.read_content().ends_with(b"tail!"));
    file.seek(SeekFrom::Start(8192)).unwrap();
    file.write_all(b"of the file").unwrap();
    for (region, place) in [(&whole, 8192), (&part, 0)] {
        let mut bytes = [0; 11];
        region.read_at(place, &mut bytes).unwrap();
        assert_eq!(&bytes, b"of the file");
    }
    drop(file);
    whole.write_at(0, b"still").unwrap();
    assert!(named.read_content().starts_with(b"still"));
    // A file without a region is unmapped.
    let is_mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(named.path().file_name().unwrap().to_str().unwrap())
    };
    drop(part);
    assert!(is_mapped());
    drop(whole);
    assert!(!is_mapped());
}

fn create_file(len_bytes: u64) -> (NamedFile, File) {
    let named = NamedFile::with_unused_name();
    let file = File::options().read(true).write(true).create_new(true).open(named.path()).unwrap();
    file.set_len(len_bytes).unwrap();
    (named, file)
}

/// Shows fi_mr/persistent-region-flag.
#[over(one_process)]
fn persistent_registration_of_volatile_memory_is_refused(net: &Net) {
    let domain = net.open_other_domain();
    let attr = MrAttr { access: EVERYTHING, flags: MrFlags::RMA_PMEM, ..MrAttr::default() };
    expect_error(domain.register(8, &attr), Errno::EINVAL);
    let unknown = MrAttr { flags: MrFlags::from_bits_retain(1), ..attr };
    assert!(domain.register(8, &unknown).is_ok(), "flags without a meaning are ignored");
    let memory = Box::leak(vec![0_u8; 10_000].into_boxed_slice());
    expect_error(leak_and_register(&domain, memory, &attr), Errno::EINVAL);
    let (named, file) = create_file(10_000);
    let shareable = MrAttr { shareable: true, ..attr };
    for (place, len_bytes, attr) in [
        (0, 10_001, &attr),
        (8192, 1809, &attr),
        (1, 1, &attr),
        (0, 0, &attr),
        (u64::MAX - 4095, 8192, &attr),
        (0, 8, &shareable),
    ] {
        let refused = domain.register_file(&file, place, len_bytes, attr);
        assert_eq!(expect_errno(refused), Errno::EINVAL, "{len_bytes} bytes at {place}");
    }
    let readable = File::open(named.path()).unwrap();
    expect_error(domain.register_file(&readable, 0, 8, &attr), Errno::EACCES);
    domain.register_file(&file, 8192, 1808, &attr).unwrap();
}
