//! Persistent memory: `FI_RMA_PMEM` and `FI_COMMIT_COMPLETE`, `fi_cq(3)`, `fi_mr(3)`.
//!
//! Writes to a shared mapping survive the end of the process. So killing a process does not show whether
//! bytes are on the device. But the system reports which pages are dirty and not yet written back.

use std::fs;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use super::prelude::*;
use crate::raw::leak_and_register;

const LEN_BYTES: usize = 400_000;

/// Commits the current content of the regions. After this, only later writes make pages dirty.
#[track_caller]
fn commit_initial_content(alice: &Party, regions: &[&Region]) {
    for region in regions {
        alice.endpoint.rma(committing_write_call(alice, region, 0, 0, 0)).unwrap();
        assert_eq!(alice.next_completion().context, 0);
        // Commit the bytes that the owner has written.
        alice.endpoint.rma(committing_write_call(alice, region, 0, 0, LEN_BYTES)).unwrap();
        assert_eq!(alice.next_completion().context, 0);
    }
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

fn committing_write_call(
    party: &Party,
    region: &Region,
    context: u64,
    place: usize,
    len_bytes: usize,
) -> RmaCall {
    make_write_call(party, region, context, place, len_bytes, OpFlags::COMMIT_COMPLETE)
}

/// Checks that no page of the file is dirty. Skips the check if the system does not count dirty pages.
#[track_caller]
fn assert_durable(party: &Party, file: &NamedFile) {
    file.assert_written_back_or_skip(party.process_id());
}

/// Checks that a page is dirty; otherwise the test would prove nothing.
#[track_caller]
fn assert_not_durable(party: &Party, file: &NamedFile) {
    file.assert_not_written_back_or_skip(party.process_id());
}

/// Shows fi_cq/commit-means-durable, fi_cq/persistent-memory, fi_rma/rma-commit,
/// fi_mr/persistent-region-flag.
#[over(all)]
fn committed_write_is_durable_at_completion(net: &Net) {
    for is_raw in [false, true] {
        let (alice, bob) = net.open_pair();
        let (region, file) = register_file_region(&bob, LEN_BYTES, is_raw, 1);
        commit_initial_content(&alice, &[&region]);
        for (context, (place, len_bytes)) in
            (1..).zip([(5, 1), (4090, 8), (100, 4096), (20_001, 20_000), (0, LEN_BYTES), (7, 0)])
        {
            for flags in [OpFlags::empty(), OpFlags::INJECT, OpFlags::FENCE] {
                if flags == OpFlags::INJECT && len_bytes > 4096 {
                    continue;
                }
                let write = committing_write_call(&alice, &region, context, place, len_bytes);
                alice.endpoint.rma(RmaCall { flags: write.flags | flags, ..write }).unwrap();
                let completion = alice.next_completion();
                let expected = CompletionFlags::RMA | CompletionFlags::WRITE;
                assert_eq!((completion.context, completion.flags), (context, expected));
                assert_durable(&bob, &file);
                let content = file.read_content();
                assert!(
                    content[place..place + len_bytes] == payload(context, len_bytes),
                    "{len_bytes} bytes"
                );
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
    commit_initial_content(&alice, &[&first, &second]);
    for round in 1..4 {
        let delivery = OpFlags::DELIVERY_COMPLETE;
        alice.endpoint.rma(make_write_call(&alice, &first, round, 0, 8, delivery)).unwrap();
        let long = make_write_call(&alice, &first, round, 50_000, LEN_BYTES - 50_000, delivery);
        alice.endpoint.rma(long).unwrap();
        alice.expect_in_order([round; 2]);
        let inject = RmaCall::new(RmaBy::InjectWrite, payload(round, 8), alice.peer(), &second, 0);
        alice.endpoint.rma(inject).unwrap();
        assert_not_durable(&bob, &first_file);
        // Without a fence a write commits only its own bytes.
        alice.endpoint.rma(committing_write_call(&alice, &second, round, 200_000, 100)).unwrap();
        assert_eq!(alice.next_completion().context, round);
        assert_not_durable(&bob, &first_file);
        // An empty write commits too.
        let flags = OpFlags::COMMIT_COMPLETE | OpFlags::FENCE;
        alice.endpoint.rma(make_write_call(&alice, &second, 9, 0, 0, flags)).unwrap();
        assert_eq!(alice.next_completion().context, 9);
        assert_durable(&bob, &first_file);
        assert_durable(&bob, &second_file);
        assert!(first_file.read_content()[50_000..] == payload(round, LEN_BYTES - 50_000));
        assert!(second_file.read_content()[..8] == payload(round, 8));
    }
}

/// Shows fi_cq/commit-means-durable, fi_cq/persistent-memory.
#[over(all)]
fn remote_data_of_a_committed_write_reports_durable_bytes(net: &Net) {
    let (alice, bob) = net.open_pair();
    let (region, file) = register_file_region(&bob, LEN_BYTES, true, 1);
    commit_initial_content(&alice, &[&region]);
    for (data, len_bytes) in (1..).zip([8, 100_000]) {
        let write =
            RmaCall { data: Some(data), ..committing_write_call(&alice, &region, data, 0, len_bytes) };
        alice.endpoint.rma(write).unwrap();
        let completion = bob.next_completion();
        assert_eq!((completion.data, completion.len_bytes), (data, len_bytes));
        assert_durable(&bob, &file);
        assert_eq!(alice.next_completion().context, data);
    }
}

/// Shows fi_endpoint/default-flags.
#[over(all)]
fn default_flag_commits_writes(net: &Net) {
    let tx_op_flags = OpFlags::COMMIT_COMPLETE;
    let (alice, bob) = net.open_pair_with(Setup { tx_op_flags, ..Setup::default() }, Setup::default());
    let (region, file) = register_file_region(&bob, LEN_BYTES, false, 1);
    commit_initial_content(&alice, &[&region]);
    let write = RmaCall::new(RmaBy::Write, payload(1, 1000), alice.peer(), &region, 1);
    alice.endpoint.rma(write).unwrap();
    assert_eq!(alice.next_completion().context, 1);
    assert_durable(&bob, &file);
    // A level of the call replaces the default.
    alice.endpoint.rma(make_write_call(&alice, &region, 2, 0, 1000, OpFlags::DELIVERY_COMPLETE)).unwrap();
    assert_eq!(alice.next_completion().context, 2);
    assert_not_durable(&bob, &file);
    // Other operations cannot keep the flag, and complete at the next lower level.
    let read = RmaCall::new(RmaBy::Read, payload(0, 1000), alice.peer(), &region, 3);
    alice.endpoint.rma(read).unwrap();
    assert!(received_bytes(&alice.next_completion().buffer) == payload(2, 1000));
    let what = (AtomicOp::Sum, Datatype::Uint64);
    let add = AtomicCall::new(AtomicKind::Base, what, payload(3, 8), alice.peer(), &region, 3);
    alice.endpoint.atomic(add).unwrap();
    assert_eq!(alice.next_completion().context, 3);
    alice.send(4, payload(4, 8));
    bob.receive_message(5, 8, &payload(4, 8));
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    assert_eq!(alice.endpoint.set_tx_op_flags(tx_op_flags), Ok(()));
    assert_eq!(alice.endpoint.tx_op_flags(), tx_op_flags);
}

/// Shows fi_cq/commit-means-durable, fi_mr/persistent-region-flag.
#[over(all, own)]
fn commit_to_volatile_memory_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    for kind in net.memory_kinds().filter(|kind| !matches!(kind, MemoryKind::File(_))) {
        let region = bob.open_region(100_000, kind, 1);
        for round in 0..2 {
            for len_bytes in [0, 8, 100_000] {
                alice.endpoint.rma(committing_write_call(&alice, &region, 1, 0, len_bytes)).unwrap();
                let failed = alice.next_failure();
                if alice.is_native() {
                    assert_eq!(failed.error, OperationError::Refused(Refusal::Volatile), "{kind:?}, {round}");
                }
                assert_eq!((failed.errno(), failed.completion.context), (Errno::EOPNOTSUPP, 1));
            }
            assert!(region.content() == marked_buffer(100_000));
            // A commit also fails once the region is mapped.
            alice.endpoint.rma(make_write_call(&alice, &region, 2, 0, 8, OpFlags::empty())).unwrap();
            assert_eq!(alice.next_completion().context, 2);
            region.write_at(0, &marked_buffer(8));
        }
    }
    alice.exchange_long_messages(&bob);
}

#[over(all, own)]
fn commit_without_the_capability_is_refused(net: &Net) {
    let caps = Caps::MSG;
    let (alice, bob) = net.open_pair_with(Setup { caps, ..Setup::default() }, Setup::default());
    let commit = OpFlags::COMMIT_COMPLETE;
    let refused = alice.endpoint.set_tx_op_flags(commit).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
    if alice.is_native() {
        assert_eq!(refused, Misuse::NoCapability(Caps::RMA_PMEM).into());
    }
    let (region, _file) = register_file_region(&bob, LEN_BYTES, false, 1);
    expect_error(alice.endpoint.rma(committing_write_call(&alice, &region, 1, 0, 8)), Errno::EOPNOTSUPP);
}

#[over(one_process)]
fn registered_file_shares_its_content_with_the_region(net: &Net) {
    let domain = net.open_other_domain();
    let named = NamedFile::with_unused_name();
    let mut file = File::options().read(true).write(true).create_new(true).open(named.path()).unwrap();
    file.set_len(3 * 4096 + 5).unwrap();
    let attr = |key| MrAttr { access: EVERYTHING, requested_key: Some(key), ..MrAttr::default() };
    let whole = domain.register_file(&file, 0, 3 * 4096 + 5, &attr(1)).unwrap();
    let part = domain.register_file(&file, 8192, 4096 + 5, &attr(2)).unwrap();
    assert_eq!((part.len_bytes(), part.address(), part.is_persistent()), (4096 + 5, 0, true));
    part.write_at(4096, b"tail!").unwrap();
    assert!(named.read_content().ends_with(b"tail!"));
    file.seek(SeekFrom::Start(8192)).unwrap();
    file.write_all(b"of the file").unwrap();
    let mut bytes = [0; 11];
    whole.read_at(8192, &mut bytes).unwrap();
    assert_eq!(&bytes, b"of the file");
    part.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"of the file");
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

/// Shows fi_mr/persistent-region-flag.
#[over(one_process)]
fn persistent_registration_of_volatile_memory_is_refused(net: &Net) {
    let domain = net.open_other_domain();
    let attr = MrAttr { access: EVERYTHING, flags: MrFlags::RMA_PMEM, ..MrAttr::default() };
    let errno = |refused: Result<_, homespun::Error>| refused.map(|_| ()).unwrap_err().errno();
    assert_eq!(errno(domain.register(8, &attr)), Errno::EINVAL);
    let unknown = MrAttr { flags: MrFlags::from_bits_retain(1), ..attr };
    assert!(domain.register(8, &unknown).is_ok(), "flags without a meaning are ignored");
    let memory = Box::leak(vec![0_u8; 10_000].into_boxed_slice());
    assert_eq!(errno(leak_and_register(&domain, memory, &attr)), Errno::EINVAL);
    let named = NamedFile::with_unused_name();
    let file = File::options().read(true).write(true).create_new(true).open(named.path()).unwrap();
    file.set_len(10_000).unwrap();
    let of_file = |offset_bytes, len_bytes, attr: MrAttr| {
        errno(domain.register_file(&file, offset_bytes, len_bytes, &attr))
    };
    assert_eq!(of_file(0, 10_001, attr), Errno::EINVAL);
    assert_eq!(of_file(8192, 1809, attr), Errno::EINVAL);
    assert_eq!(of_file(1, 1, attr), Errno::EINVAL);
    assert_eq!(of_file(0, 0, attr), Errno::EINVAL);
    assert_eq!(of_file(u64::MAX - 4095, 8192, attr), Errno::EINVAL);
    assert_eq!(of_file(0, 8, MrAttr { shareable: true, ..attr }), Errno::EINVAL);
    let readable = File::open(named.path()).unwrap();
    assert_eq!(errno(domain.register_file(&readable, 0, 8, &attr)), Errno::EACCES);
    domain.register_file(&file, 8192, 1808, &attr).unwrap();
}
