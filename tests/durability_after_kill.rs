//! Kills the owner of persistent memory as soon as a peer's write to the memory has completed at the commit
//! level, or a persistent flush of the memory has completed. Then the file must have the bytes, and they must
//! be on the device.

use homespun::OperationError;
use homespun::flags::{MrAccess, OpFlags};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4, Tcp6};
use homespun_suite::files::NamedFile;
use homespun_suite::payload::payload;
use homespun_suite::{
    FlushCall, MemoryKind, Net, Party, Region, RegionFile, RegionSpec, RmaBy, RmaCall, Turns,
};

homespun_suite::party_process_entry!();

const REGION_BYTES: usize = 1 << 20;

const TRANSPORTS: [TransportKind; 6] = [Tcp4, Tcp6, Shm4, Shm6, Auto4, TransportKind::MIXED4];

/// Registers a file of this process, which peers may write.
fn register_file(party: &Party, is_raw: bool) -> (NamedFile, Region) {
    let file = NamedFile::with_unused_name();
    let kind = MemoryKind::File(RegionFile { is_raw, number: Some(file.number) });
    let access = MrAccess::REMOTE_WRITE;
    let spec = RegionSpec { len_bytes: REGION_BYTES, kind, access, key: 1, is_counted: false };
    (file, party.register(spec).expect("a file is persistent"))
}

/// Writes to the memory of a process, kills the process once the write has completed, and checks the file.
fn check_write_survives_kill(transport: &TransportKind, is_raw: bool, len_bytes: usize) {
    let net = Net::new(transport, Turns::Processes);
    let (alice, bob) = net.open_pair();
    let (file, region) = register_file(&bob, is_raw);
    let place = 4000;
    let call = |context, place, bytes| {
        let call = RmaCall::new(RmaBy::Writemsg, bytes, alice.peer(), &region, context);
        RmaCall { address: region.address_at(place), flags: OpFlags::COMMIT_COMPLETE, ..call }
    };
    // Commit the initial bytes first. After this, only the second write makes pages dirty.
    let all = payload(7, REGION_BYTES);
    alice.access(call(1, 0, all.clone()));
    let bytes = payload(8, len_bytes);
    alice.access(call(2, place, bytes.clone()));
    bob.stop();
    file.assert_written_back_or_skip(bob.process_id());
    bob.kill();
    let expected = [&all[..place], &bytes, &all[place + len_bytes..]].concat();
    assert!(file.read_content() == expected, "{len_bytes} bytes over {transport:?}");
    // A write without a response may have taken effect, but must not succeed.
    alice.endpoint.rma(call(3, 0, payload(9, 8))).unwrap();
    let failed = alice.next_failure();
    assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
}

/// Shows fi_cq/commit-means-durable.
#[test]
fn committed_writes_survive_the_death_of_their_target() {
    for transport in &TRANSPORTS {
        for is_raw in [false, true] {
            for len_bytes in [1, 8, 4096, 300_000] {
                check_write_survives_kill(transport, is_raw, len_bytes);
            }
        }
    }
}

#[test]
fn flushed_writes_survive_the_death_of_their_target() {
    for transport in &TRANSPORTS {
        for is_raw in [false, true] {
            let net = Net::new(transport, Turns::Processes);
            let (alice, bob) = net.open_pair();
            let (file, region) = register_file(&bob, is_raw);
            let flush = |context| {
                let flush = FlushCall {
                    is_persistent: true,
                    peer: alice.peer(),
                    address: region.address_at(0),
                    key: 1,
                    len_bytes: REGION_BYTES as u64,
                    context,
                    flags: None,
                };
                alice.endpoint.flush(flush).unwrap();
            };
            let mut expected = payload(7, REGION_BYTES).to_vec();
            let write = |by, context, place, bytes| {
                let call = RmaCall::new(by, bytes, alice.peer(), &region, context);
                alice.endpoint.rma(RmaCall { address: region.address_at(place), ..call }).unwrap();
            };
            write(RmaBy::Write, 1, 0, payload(7, REGION_BYTES));
            assert_eq!(alice.next_completion().context, 1);
            for n in 0..20_usize {
                // An injected write is refused if earlier operations wait for room: here none does yet.
                let is_injected = n < 8 && n % 2 == 1;
                let (by, len_bytes) =
                    if is_injected { (RmaBy::InjectWrite, 8) } else { (RmaBy::Write, 30_000) };
                let bytes = payload(n as u64, len_bytes);
                expected[n * 40_000..n * 40_000 + len_bytes].copy_from_slice(&bytes);
                write(by, 1, n * 40_000, bytes);
            }
            flush(2);
            while alice.next_completion().context != 2 {}
            bob.stop();
            file.assert_written_back_or_skip(bob.process_id());
            bob.kill();
            assert!(file.read_content() == expected, "over {transport:?}");
            // A flush without a response may have taken effect, but must not succeed.
            flush(3);
            let failed = loop {
                match alice.next_ended() {
                    // Writes may be reported after the flush.
                    Ok((completion, _)) => assert_eq!(completion.context, 1),
                    Err(failed) => break failed,
                }
            };
            assert_eq!(failed.completion.context, 3);
            assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
        }
    }
}
