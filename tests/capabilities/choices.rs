//! Checks what an application may choose for a domain and its objects: `fi_domain(3)`, `fi_av(3)`,
//! `fi_cq(3)`, `fi_mr(3)`.

use std::thread;
use std::time::Duration;

use homespun::endpoint::SendMsg;
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::info::{AvType, EndpointType, Info, MrMode, Progress, ResourceManagement, Threading};
use homespun::{Address, AvAttr, CqAttr, CqFormat, Errno, Fabric, FabricAddress, ReadError, Tag, WaitObject};

use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr, read_content};
use crate::getinfo_with_changed_hints;
use homespun_suite::payload::{marked_buffer, payload, received_bytes};
use homespun_suite::{Deadline, sleeping};

/// Exercises, for each threading model, concurrency that the model allows.
pub(crate) fn check_threading_models(info: &Info) {
    for asked in (0..u32::from(u8::MAX)).filter_map(|raw| Threading::from_raw(raw).ok().flatten()) {
        let granted = getinfo_with_changed_hints(info, |hints| hints.domain.threading = Some(asked));
        let Some(granted) = granted else { continue };
        assert_eq!(granted.domain.threading, Some(asked));
        match asked {
            Threading::Safe => use_shared_objects_in_two_threads(&granted),
            // Two threads use a domain, each with endpoints and queues of its own.
            Threading::Fid | Threading::Completion | Threading::Endpoint => {
                use_separate_objects_in_two_threads(&granted);
            }
            // Two threads, one after the other.
            Threading::Domain => {
                let pair = EndpointPair::open(&granted);
                pair.exchange_messages();
                thread::scope(|scope| scope.spawn(|| pair.exchange_messages()).join().expect("it goes well"));
            }
        }
    }
}

const PER_THREAD: u64 = 50;

fn use_shared_objects_in_two_threads(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    for context in 0..2 * PER_THREAD {
        bob.endpoint.recv(marked_buffer(100), ANY, context).unwrap();
    }
    let send = |first: u64| {
        for identity in first..first + PER_THREAD {
            alice.endpoint.inject(&payload(identity, 100), alice.peer, None, None).unwrap();
        }
    };
    let receive = || {
        let deadline = Deadline::new();
        let mut messages = Vec::new();
        while messages.len() < PER_THREAD as usize {
            alice.cq.progress();
            match bob.poll_completion() {
                Some(ended) => messages.push(received_bytes(&ended.expect("success").0.buffer)),
                None => deadline.yield_or_panic("a message for each thread"),
            }
        }
        messages
    };
    let mut messages = thread::scope(|scope| {
        let threads = [0, 1].map(|number| {
            scope.spawn(move || {
                send(number * PER_THREAD);
                receive()
            })
        });
        threads.map(|thread| thread.join().expect("it goes well")).concat()
    });
    messages.sort_unstable();
    let mut expected: Vec<_> = (0..2 * PER_THREAD).map(|identity| payload(identity, 100).to_vec()).collect();
    expected.sort_unstable();
    assert!(messages == expected);
}

fn use_separate_objects_in_two_threads(info: &Info) {
    let domain = Fabric::new().domain(info).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            let domain = domain.clone();
            scope.spawn(|| {
                EndpointPair::open_in_domain(domain, info, info, &OpenAttr::default()).exchange_messages();
            });
        }
    });
}

/// Checks the progress models of control operations and of data.
pub(crate) fn check_progress_models(info: &Info) {
    let models = || (0..u32::from(u8::MAX)).filter_map(|raw| Progress::from_raw(raw).ok().flatten());
    for asked in models() {
        if let Some(granted) =
            getinfo_with_changed_hints(info, |hints| hints.domain.control_progress = Some(asked))
        {
            assert_eq!(granted.domain.control_progress, Some(asked));
            // Opening, binding and enabling complete within their calls.
            EndpointPair::open(&granted).exchange_messages();
        }
        let Some(granted) =
            getinfo_with_changed_hints(info, |hints| hints.domain.data_progress = Some(asked))
        else {
            continue;
        };
        assert_eq!(granted.domain.data_progress, Some(asked));
        match asked {
            Progress::Manual => EndpointPair::open(&granted).exchange_messages(),
            Progress::Auto => check_message_arrives_without_receiver_calls(&granted),
            Progress::ControlUnified => panic!("{asked:?} is granted for data, and nothing exercises it"),
        }
    }
}

fn check_message_arrives_without_receiver_calls(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    bob.endpoint.recv(marked_buffer(400_000), ANY, 1).unwrap();
    let (buffers, flags) = (vec![payload(1, 400_000)], OpFlags::MATCH_COMPLETE);
    alice.endpoint.sendmsg(SendMsg { buffers, to: alice.peer, flags, ..SendMsg::default() }).unwrap();
    let deadline = Deadline::new();
    // Bob reads no queue.
    while alice.poll_completion().map(|ended| ended.expect("success")).is_none() {
        deadline.yield_or_panic("a message that is matched by itself");
    }
    assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(1, 400_000));
}

/// Checks whether a queue can be overrun.
pub(crate) fn check_resource_management(info: &Info) {
    const COUNT: u64 = 10;
    let depth = OpenAttr { cq: CqAttr { size_entries: 2, ..CqAttr::default() }, ..OpenAttr::default() };
    for asked in (0..u32::from(u8::MAX)).filter_map(|raw| ResourceManagement::from_raw(raw).ok().flatten()) {
        let granted = getinfo_with_changed_hints(info, |hints| hints.domain.resource_mgmt = Some(asked));
        let Some(granted) = granted else { continue };
        assert_eq!(granted.domain.resource_mgmt, Some(asked));
        let pair = EndpointPair::open_with_attr(&granted, &depth);
        let (alice, bob) = (&pair.alice, &pair.bob);
        for identity in 0..COUNT {
            bob.endpoint.recv(marked_buffer(8), ANY, identity).unwrap();
            alice.endpoint.inject(&payload(identity, 8), alice.peer, None, None).unwrap();
        }
        match asked {
            ResourceManagement::Enabled => {
                for identity in 0..COUNT {
                    assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(identity, 8));
                }
            }
            ResourceManagement::Disabled => {
                let deadline = Deadline::new();
                while bob.cq.read().err() != Some(ReadError::Overrun) {
                    // Make progress without reads, so that the queue stays full.
                    (0..20).for_each(|_| pair.progress());
                    deadline.yield_or_panic("an overrun");
                }
            }
        }
    }
}

/// Checks the kinds of address vectors.
pub(crate) fn check_address_vector_kinds(info: &Info) {
    if info.ep.ep_type == Some(EndpointType::Msg) {
        // A connection needs no addresses.
        return;
    }
    let kinds = (0..u32::from(u8::MAX)).filter_map(|raw| AvType::from_raw(raw).ok().flatten());
    for asked in kinds.map(Some).chain([None]) {
        let Some(granted) = getinfo_with_changed_hints(info, |hints| hints.domain.av_type = asked) else {
            continue;
        };
        assert_eq!(granted.domain.av_type, asked);
        let pair = EndpointPair::open_with_attr(
            &granted,
            &OpenAttr { av: AvAttr { av_type: asked, ..AvAttr::default() }, ..OpenAttr::default() },
        );
        pair.exchange_messages();
        if asked == Some(AvType::Table) {
            let next: Address = pair.alice.endpoint.name().unwrap();
            let inserted = pair.alice.av().insert(&[next, next]);
            let before = pair.alice.peer.0;
            assert_eq!(inserted, [before + 1, before + 2].map(|index| Ok(FabricAddress(index))));
        }
    }
}

/// Checks the fields of completion entries.
pub(crate) fn check_completion_formats(info: &Info) {
    for format in [CqFormat::Context, CqFormat::Msg, CqFormat::Data, CqFormat::Tagged] {
        let has_message = match format {
            CqFormat::Context => false,
            CqFormat::Msg | CqFormat::Data | CqFormat::Tagged => true,
        };
        let cq = CqAttr { format: Some(format), ..CqAttr::default() };
        let pair = EndpointPair::open_with_attr(info, &OpenAttr { cq, ..OpenAttr::default() });
        let (alice, bob) = (&pair.alice, &pair.bob);
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(7), 3).unwrap();
        alice.endpoint.inject(b"message", alice.peer, Some(Tag(7)), Some(9)).unwrap();
        let told = pair.next_completion(bob);
        let flags = CompletionFlags::TAGGED | CompletionFlags::RECV | CompletionFlags::REMOTE_CQ_DATA;
        let expected =
            (if has_message { flags } else { CompletionFlags::empty() }, if has_message { 7 } else { 0 });
        assert_eq!((told.context, (told.flags, told.len_bytes)), (3, expected), "{format:?}");
        let has_data = matches!(format, CqFormat::Data | CqFormat::Tagged);
        assert_eq!(
            (told.data, told.tag),
            (if has_data { 9 } else { 0 }, if format == CqFormat::Tagged { Tag(7) } else { Tag(0) })
        );
    }
}

/// Checks the wait objects of an application.
pub(crate) fn check_wait_objects(info: &Info) {
    use WaitObject::{Fd, MutexCond, None, PollFd, Set, Unspec, Yield};

    let fabric = Fabric::new();
    let domain = fabric.domain(info).unwrap();
    for wait in [None, Unspec, Set, Fd, MutexCond, Yield, PollFd] {
        let set = fabric.open_wait_set(Unspec).unwrap();
        let cq = CqAttr { wait, wait_set: Some(set.clone()), ..CqAttr::default() };
        let opened = domain.open_cq(&cq).map(drop);
        let is_there = match wait {
            None | Unspec | Set | Fd | MutexCond | Yield => true,
            PollFd => false,
        };
        if !is_there {
            assert_eq!(opened.map_err(|error| error.errno()), Err(Errno::ENOSYS), "{wait:?}");
            continue;
        }
        opened.unwrap_or_else(|error| panic!("{wait:?}: {error}"));
        let pair = EndpointPair::open_with_attr(info, &OpenAttr { cq, ..OpenAttr::default() });
        let (alice, bob) = (&pair.alice, &pair.bob);
        bob.endpoint.recv(marked_buffer(100), ANY, 1).unwrap();
        if wait == None {
            assert_eq!(bob.cq.sread(Some(Duration::from_millis(1))).unwrap_err(), ReadError::NoWaitObject);
            continue;
        }
        let next = |cq| {
            if wait == Set {
                sleeping::sleep_in_wait_set_until_operation_ends(&set, cq)
            } else {
                sleeping::sleep_until_operation_ends(cq)
            }
        };
        let (completion, _) = thread::scope(|scope| {
            let sleeper = scope.spawn(|| next(&bob.cq));
            sleeping::let_threads_fall_asleep();
            alice.endpoint.send(payload(1, 100), alice.peer, 1).unwrap();
            next(&alice.cq).expect("success");
            sleeper.join().expect("it is woken")
        })
        .expect("success");
        assert!(received_bytes(&completion.buffer) == payload(1, 100));
    }
}

/// Registers memory as the `mr_mode` of this info requires, and accesses it.
pub(crate) fn check_registration(info: &Info) {
    let picks_key = info.domain.mr_mode.intersects(MrMode::PROV_KEY | MrMode::BASIC);
    let pair = EndpointPair::open(info);
    let region = pair.register_region(4096, 7);
    assert_eq!(region.key() != 7, picks_key, "{:?}", info.domain.mr_mode);
    pair.write_and_read(&region, &payload(1, 4096));
}

/// Registers memory in a domain that chooses the keys. A key of a region that has closed reaches none of the
/// regions that are registered later.
pub(crate) fn check_chosen_keys(info: &Info) {
    let mut info = info.clone();
    info.domain.mr_mode |= MrMode::PROV_KEY;
    let highest = u64::MAX >> (u64::BITS - 8 * info.domain.mr_key_size_bytes as u32);
    let pair = EndpointPair::open(&info);
    let region = pair.register_region(64, 7);
    pair.write_and_read(&region, &payload(1, 64));
    let stale = region.remote();
    drop(region);
    let later: Vec<_> = (0..100).map(|_| pair.register_region(64, 7)).collect();
    assert!(later.iter().all(|region| region.key() != stale.key && region.key() <= highest));
    let alice = &pair.alice;
    alice.endpoint.write(payload(2, 64), alice.peer, stale, 1).expect("room");
    let failed = pair.next_operation_end(alice).expect_err("no region has this key");
    assert_eq!(failed.errno(), Errno::EKEYREJECTED);
    assert!(later.iter().all(|region| read_content(region, 64) == [0; 64]));
}
