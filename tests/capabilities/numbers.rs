//! Checks the limits of an info. Operations within a limit succeed; operations beyond it are refused.

use homespun::endpoint::SendMsg;
use homespun::flags::{MrAccess, OpFlags};
use homespun::info::{
    DomainAttr, EndpointType, EpAttr, Info, PROTOCOL, PROTOCOL_VERSION, RxAttr, SHARED_CONTEXT, TxAttr,
};
use homespun::{Again, Caps, CounterAttr, CqAttr, Errno, Error, Fabric, Misuse, MrAttr, RemoteMemory, Tag};

use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr, next_event, request_connection};
use homespun_suite::Deadline;
use homespun_suite::payload::{marked_buffer, marked_buffers, payload, received_bytes, split_unevenly};

/// The largest number of objects that a test opens. The process may not open more descriptors than its
/// limit.
const OBJECTS_MAX: usize = 50;

/// Tests every number of an info. The patterns below name all fields, so a new field stops the compilation.
pub(crate) fn exercise_limits(info: &Info) {
    let Info {
        caps: _,
        mode: _,
        addr_format: _,
        src_addr: _,
        dest_addr: _,
        tx:
            TxAttr {
                caps: _,
                mode: _,
                op_flags: _,
                msg_order: _,
                comp_order: _,
                inject_size_bytes,
                size_ops: tx_size_ops,
                iov_limit: tx_iov_limit,
                rma_iov_limit,
                tclass: 0,
            },
        rx:
            RxAttr {
                caps: _,
                mode: _,
                op_flags: _,
                msg_order: _,
                comp_order: _,
                // Messages beyond this number wait at the sender: `tests/flood.rs`.
                total_buffered_recv_bytes: _,
                size_ops: rx_size_ops,
                iov_limit: rx_iov_limit,
            },
        ep:
            EpAttr {
                ep_type: _,
                protocol: PROTOCOL,
                protocol_version: PROTOCOL_VERSION,
                // No Rust buffer is longer than this limit. The plugin's tests pass a longer length:
                // `message_beyond_max_msg_size_is_refused`.
                max_msg_size_bytes,
                msg_prefix_size_bytes: 0,
                // `orders.rs` tests these sizes.
                max_order_raw_size_bytes: _,
                max_order_war_size_bytes: _,
                max_order_waw_size_bytes: _,
                mem_tag_format,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: 1,
                auth_key,
            },
        domain:
            DomainAttr {
                name: _,
                threading: _,
                control_progress: _,
                data_progress: _,
                resource_mgmt: _,
                av_type: _,
                mr_mode: _,
                mr_key_size_bytes,
                cq_data_size_bytes,
                cq_cnt,
                ep_cnt,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: 1,
                max_ep_tx_ctx: 1,
                max_ep_rx_ctx: 1,
                max_ep_stx_ctx,
                // `suite/src/semantics/shared_contexts.rs` shares a receive context among a few endpoints.
                max_ep_srx_ctx: _,
                cntr_cnt,
                // The plugin's tests check this limit. Only raw memory can have several segments.
                mr_iov_limit: _,
                caps: _,
                mode: _,
                auth_key: domain_key,
                // `caps.rs` also checks this number, with the longest address.
                max_err_data_bytes,
                mr_cnt: 0,
                tclass: 0,
            },
        fabric: _,
    } = info
    else {
        panic!("a number that nothing exercises: {info:?}");
    };
    assert!(auth_key.is_empty() && domain_key.is_empty());

    check_inject_size(info, *inject_size_bytes);
    check_outstanding_operations(info, *tx_size_ops, *rx_size_ops);
    check_segment_limits(info, *tx_iov_limit, *rx_iov_limit);
    // A call of the crate names one remote segment. Only a call of the plugin may name several.
    assert_eq!(*rma_iov_limit, usize::from(info.caps.contains(Caps::RMA)));
    check_long_message(info, *max_msg_size_bytes);
    check_tag_bits(info, *mem_tag_format);
    check_key_bytes(info, *mr_key_size_bytes);
    check_remote_data_bytes(info, *cq_data_size_bytes);
    check_many_objects(info, *cq_cnt, *cntr_cnt, *ep_cnt);
    check_many_transmit_sharers(info, *max_ep_stx_ctx);
    if info.ep.ep_type == Some(EndpointType::Msg) {
        check_rejection_data(info, *max_err_data_bytes);
    }
}

/// Injects a message of the maximal length, and one that is longer.
fn check_inject_size(info: &Info, max_bytes: usize) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    bob.endpoint.recv(marked_buffer(max_bytes), ANY, 1).unwrap();
    alice.endpoint.inject(&payload(1, max_bytes), alice.peer, None, None).unwrap();
    assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(1, max_bytes));
    let refused = alice.endpoint.inject(&payload(1, max_bytes + 1), alice.peer, None, None).unwrap_err();
    assert!(matches!(refused, Error::Misuse(Misuse::TooLong { .. })), "{refused}");
    pair.assert_no_completion(bob);
}

/// Posts the maximum of outstanding operations, and one more.
fn check_outstanding_operations(info: &Info, tx_size_ops: usize, rx_size_ops: usize) {
    const FULL: Error = Error::Again(Again::QueueFull);
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    let send = |context| {
        let (buffers, flags) = (vec![payload(context, 8)], OpFlags::MATCH_COMPLETE);
        alice.endpoint.sendmsg(SendMsg { buffers, to: alice.peer, context, flags, ..SendMsg::default() })
    };
    for context in 0..tx_size_ops as u64 {
        send(context).unwrap_or_else(|refused| panic!("send {context} of {tx_size_ops}: {}", refused.error));
    }
    assert_eq!(send(0).unwrap_err().error, FULL);
    // Reads many entries at a time.
    let (mut posted, mut ended) = (0, [0; 2]);
    let mut deadline = Deadline::new();
    while ended != [tx_size_ops; 2] {
        while posted < tx_size_ops && posted - ended[1] < rx_size_ops.min(1000) {
            bob.endpoint.recv(marked_buffer(8), ANY, posted as u64).unwrap();
            posted += 1;
        }
        let received = bob.cq.read_each(1000, |completion, _| {
            assert!(received_bytes(&completion.buffer) == payload(completion.context, 8));
        });
        let sent = alice.cq.read_each(1000, |_, _| {});
        let now = [sent, received].map(|read| read.ok().flatten().unwrap_or(0));
        if now == [0; 2] {
            deadline.yield_or_panic("the rest of what is outstanding");
        } else {
            deadline = Deadline::new();
        }
        ended = [ended[0] + now[0], ended[1] + now[1]];
    }
    for context in 0..rx_size_ops as u64 {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap_or_else(|refused| {
            panic!("receive {context} of {rx_size_ops}: {}", refused.error);
        });
    }
    assert_eq!(bob.endpoint.recv(marked_buffer(8), ANY, 0).unwrap_err().error, FULL);
}

/// Sends messages with the maximum of segments, and with one more.
fn check_segment_limits(info: &Info, tx_iov_limit: usize, rx_iov_limit: usize) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    let message = payload(1, 50_000);
    bob.endpoint.recvv(marked_buffers(50_000, rx_iov_limit), ANY, 1).unwrap();
    alice.endpoint.sendv(split_unevenly(&message, tx_iov_limit), alice.peer, 2).unwrap();
    assert!(received_bytes(&pair.next_completion(bob).buffer) == message);
    assert_eq!(pair.next_completion(alice).context, 2);
    let refused =
        alice.endpoint.sendv(split_unevenly(&message, tx_iov_limit + 1), alice.peer, 3).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::TooManySegments { .. })), "{}", refused.error);
    let refused = bob.endpoint.recvv(marked_buffers(50_000, rx_iov_limit + 1), ANY, 3).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::TooManySegments { .. })), "{}", refused.error);
    if info.caps.contains(Caps::RMA) {
        let region = pair.register_region(50_000, 7);
        let at = (region.address(), region.key());
        alice
            .endpoint
            .writev(
                split_unevenly(&message, tx_iov_limit),
                alice.peer,
                RemoteMemory { address: at.0, key: at.1 },
                4,
            )
            .unwrap();
        assert_eq!(pair.next_completion(alice).context, 4);
        alice
            .endpoint
            .readv(
                marked_buffers(50_000, tx_iov_limit),
                alice.peer,
                RemoteMemory { address: at.0, key: at.1 },
                5,
            )
            .unwrap();
        assert!(received_bytes(&pair.next_completion(alice).buffer) == message);
        let refused = alice.endpoint.writev(
            split_unevenly(&message, tx_iov_limit + 1),
            alice.peer,
            RemoteMemory { address: at.0, key: at.1 },
            6,
        );
        assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
    }
}

fn check_long_message(info: &Info, max_bytes: usize) {
    let pair = EndpointPair::open(info);
    pair.send_and_receive(&pair.alice, &pair.bob, 1, max_bytes.min(20 << 20));
}

/// Checks that each bit of a tag takes part in matching, and is reported.
fn check_tag_bits(info: &Info, mem_tag_format: u64) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    // Test only the bits up to the highest bit of the format. The format promises nothing about higher bits.
    let bits = u64::BITS - mem_tag_format.leading_zeros();
    for tag in (0..bits).map(|place| 1 << place).chain([0, u64::MAX >> (u64::BITS - bits)]) {
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(tag), 1).unwrap();
        // A tag that differs in one bit does not match.
        let other = tag ^ 1 << (tag.count_zeros() % bits);
        alice.endpoint.inject(b"other", alice.peer, Some(Tag(other)), None).unwrap();
        alice.endpoint.inject(b"this", alice.peer, Some(Tag(tag)), None).unwrap();
        let completion = pair.next_completion(bob);
        assert_eq!((completion.tag.0, received_bytes(&completion.buffer)), (tag, b"this".to_vec()));
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(0).ignoring(u64::MAX), 2).unwrap();
        assert_eq!(pair.next_completion(bob).tag, other);
    }
}

/// Uses keys that need all of their bytes, and one that is longer.
pub(crate) fn check_key_bytes(info: &Info, key_bytes: usize) {
    let highest = u64::MAX >> (u64::BITS - 8 * key_bytes as u32);
    let pair = EndpointPair::open(info);
    for key in [0, 1, highest >> 1, highest - 1] {
        let region = pair.register_region(64, key);
        pair.write_and_read(&region, &payload(key, 64));
    }
    if let Some(key) = highest.checked_add(1) {
        let attr = MrAttr { requested_key: Some(key), ..MrAttr::granting(MrAccess::REMOTE_READ) };
        let refused = pair.domain.register(64, &attr).expect_err("a key that is too long");
        assert_eq!(refused, Misuse::KeyTooLong { key, max_bytes: key_bytes }.into());
        assert_eq!(refused.errno(), Errno::EKEYREJECTED);
    }
}

/// Uses remote data that needs all of its bytes.
fn check_remote_data_bytes(info: &Info, data_bytes: usize) {
    let highest = u64::MAX >> (u64::BITS - 8 * data_bytes as u32);
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    for data in [0, 1, highest, 0x0123_4567_89ab_cdef & highest] {
        bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        alice.endpoint.inject(b"message", alice.peer, None, Some(data)).unwrap();
        assert_eq!(pair.next_completion(bob).data, data);
    }
}

/// Rejects a request with as much data as an error entry can report.
fn check_rejection_data(info: &Info, max_bytes: usize) {
    let domain = Fabric::new().domain(info).unwrap();
    let (_alice, eq, request) = request_connection(&domain, info, info, &OpenAttr::default());
    let refused = request.reject(&payload(1, max_bytes + 1)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EINVAL, "{refused}");
    request.reject(&payload(1, max_bytes)).unwrap();
    let rejected = next_event(&eq).unwrap_err();
    assert_eq!((rejected.errno, &rejected.err_data[..]), (Errno::ECONNREFUSED, &payload(1, max_bytes)[..]));
}

/// Opens many queues, counters and endpoints at once.
fn check_many_objects(info: &Info, cq_cnt: usize, cntr_cnt: usize, ep_cnt: usize) {
    let pair = EndpointPair::open(info);
    let queues = (0..cq_cnt.min(OBJECTS_MAX)).map(|_| pair.domain.open_cq(&CqAttr::default()).unwrap());
    let queues: Vec<_> = queues.collect();
    let counters =
        (0..cntr_cnt.min(OBJECTS_MAX)).map(|_| pair.domain.open_counter(&CounterAttr::default()).unwrap());
    let counters: Vec<_> = counters.collect();
    let endpoints = (0..ep_cnt.min(OBJECTS_MAX)).map(|_| pair.domain.endpoint(info).unwrap());
    let endpoints: Vec<_> = endpoints.collect();
    assert_eq!([queues.len(), counters.len(), endpoints.len()], [OBJECTS_MAX; 3]);
    pair.exchange_messages();
}

/// Opens many endpoints that share a transmit context.
fn check_many_transmit_sharers(info: &Info, max_ep_stx_ctx: usize) {
    let mut info = info.clone();
    info.ep.tx_ctx_cnt = SHARED_CONTEXT;
    let domain = Fabric::new().domain(&info).unwrap();
    let context = domain.shared_transmit_context(&info.tx).unwrap();
    let endpoints = (0..max_ep_stx_ctx.min(OBJECTS_MAX)).map(|_| {
        let endpoint = domain.endpoint(&info).unwrap();
        endpoint.bind_shared_transmit_context(&context).unwrap();
        endpoint
    });
    let endpoints: Vec<_> = endpoints.collect();
    assert_eq!(endpoints.len(), OBJECTS_MAX);
}
