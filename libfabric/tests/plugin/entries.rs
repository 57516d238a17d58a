//! Entries of completion queues, and their errors: what C alone has. Which entries there are, and what their
//! fields say, is the subject of `host/tests/semantics.rs`.

use crate::prelude::*;

/// Shows fi_cq/count-limits-entries, fi_cq/format-selects-structure, fi_cq/format-unspec,
/// fi_cq/format-context, fi_cq/format-msg, fi_cq/format-data, fi_cq/cond-threshold,
/// fi_cq/read-has-opened-format, fi_cq/read-several, fi_cq/read-zero-drives-progress,
/// fi_cq/readfrom-tells-sources, fi_cq/source-count, fi_cq/read-return, fi_cq-1.4/read-counts.
#[test]
fn entries_take_the_size_of_their_format() {
    /// The bytes of memory that nothing was written to.
    const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;
    // With `FI_CQ_FORMAT_UNSPEC` an application cannot learn the format. It has room for the smallest entry.
    for (format, words) in [
        (FI_CQ_FORMAT_UNSPEC, 1),
        (FI_CQ_FORMAT_CONTEXT, 1),
        (FI_CQ_FORMAT_MSG, 3),
        (FI_CQ_FORMAT_DATA, 5),
        (FI_CQ_FORMAT_TAGGED, 6),
    ] {
        let (wait_obj, wait_cond) = (FI_WAIT_UNSPEC, FI_CQ_COND_THRESHOLD);
        let attr = FiCqAttr { wait_obj, wait_cond, ..cq_attr(format) };
        let (node, own) = Node::open_with_own_address(|setup| setup.cq = attr);
        (1..=4).for_each(|number| node.ep.recv(&mut [], number));
        (1..=4).for_each(|_| node.ep.inject(b"", own));
        for numbers in [[1, 2], [3, 4]] {
            let (mut room, mut sources) = ([PATTERN; 24], [99; 4]);
            // The second call asks for no sources.
            let from = if numbers[0] == 1 { sources.as_mut_ptr() } else { ptr::null_mut() };
            let (buf, two) = (room.as_mut_ptr().cast(), numbered_context(2));
            assert_eq!(call!(node.cq, ops.sreadfrom, buf, 2, from, two, PATIENCE_MS), 2, "format {format}");
            assert_eq!([room[0], room[words]], numbers, "format {format}");
            assert!(room[2 * words..].iter().all(|word| *word == PATTERN), "format {format}: {room:x?}");
            assert!(from.is_null() || sources == [own, own, 99, 99], "as many sources as entries");
        }
        assert_eq!(node.cq.drive(), EAGAIN);
        assert_eq!(call!(node.cq, ops.read, NULL, 1), EINVAL as isize);
    }
}

/// Returns an error entry filled with a known pattern.
fn patterned_error_entry() -> FiCqErrEntry {
    // SAFETY: all zeroes are an entry.
    let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
    (entry.len, entry.data, entry.tag, entry.olen) = (99, 99, 99, 99);
    (entry.err, entry.prov_errno, entry.src_addr) = (99, 99, 99);
    (entry.buf, entry.err_data) = (ptr::dangling_mut(), ptr::dangling_mut());
    entry
}

/// Shows fi_cq/error-hides-later-entries, fi_cq/source-err-errno, fi_cq/readerr-does-not-block,
/// fi_cq/readerr-entry, fi_cq/err-is-general-reason, fi_cq/eaddrnotavail-data-arrived,
/// fi_cq/eaddrnotavail-address, fi_cq/eaddrnotavail-insertable, fi_cq/olen-field, fi_cq/prov-errno-field,
/// fi_cq/err-data-field, fi_cq/err-data-meaning, fi_cq/err-data-size-field, fi_cq/err-data-of-provider,
/// fi_cq/err-data-lifetime, fi_cq/read-eagain, fi_cq/read-eavail, fi_cq/readerr-return,
/// fi_cq-1.4/err-entry-ends-with-err-data, fi_cq-1.4/err-data-may-be-reused, fi_cq-1.4/err-data-amount.
#[test]
fn error_entry_is_written_to_the_size_of_the_api_version() {
    let newest = fi_version(1, 20);
    // The version, and the room for error data that the application passes: 0 for none.
    for (api_version, room_bytes) in
        [(newest, 0), (newest, 28), (fi_version(1, 17), 16), (fi_version(1, 17), 4), (fi_version(1, 4), 99)]
    {
        let has_size = api_version >= fi_version(1, 5);
        let has_room = has_size && room_bytes > 0;
        let stranger = Node::open();
        let receiver = Node::open_with(|setup| {
            setup.api_version = api_version;
            setup.infos.info_mut().caps |= SOURCE_ERR;
        });
        let to = stranger.insert(&receiver.ep.name());
        let read = |data: &mut [u8; 32]| {
            wait_until("an error", || {
                stranger.cq.drive();
                receiver.cq.read().err() == Some(EAVAIL)
            });
            let mut entry = patterned_error_entry();
            entry.err_data_size = room_bytes;
            if has_room {
                entry.err_data = data.as_mut_ptr().cast();
            }
            // The flags are ignored.
            assert_eq!(call!(receiver.cq, ops.readerr, &raw mut entry, u64::MAX), 1);
            assert!(has_room || entry.err_data != data.as_mut_ptr().cast());
            entry
        };
        // The source is unknown: its address is the data.
        let (mut buf, mut data) = ([0; 16], [0xff; 32]);
        receiver.ep.recv(&mut buf, 7);
        let text = b"stranger".as_ptr().cast();
        assert_eq!(call!(stranger.ep, msg.injectdata, text, 8, 0xfeed, to), 0);
        let entry = read(&mut data);
        assert_eq!((entry.err, entry.olen, &buf), (libc::EADDRNOTAVAIL, 0, b"stranger\0\0\0\0\0\0\0\0"));
        assert_eq!((entry.op_context, entry.flags), (numbered_context(7), RECV | MSG | REMOTE_CQ_DATA));
        assert_eq!((entry.len, entry.buf, entry.data, entry.tag), (8, NULL, 0xfeed, 0));
        let given_bytes = if has_room { room_bytes.min(16) } else { 16 };
        assert_eq!(entry.err_data_size, if has_size { given_bytes } else { room_bytes });
        assert_eq!(entry.src_addr, if api_version < newest { 99 } else { FI_ADDR_NOTAVAIL });
        // A read without an error leaves the data alone.
        assert_eq!((receiver.cq.read().err(), receiver.cq.read_error().err()), (Some(EAGAIN), Some(EAGAIN)));
        // SAFETY: the entry says how long the data is; the plugin's own stays until the next error is read.
        let given = unsafe { slice::from_raw_parts(entry.err_data.cast::<u8>(), given_bytes) };
        assert_eq!(given, &stranger.ep.name()[..given_bytes]);
        assert!(data[if has_room { given_bytes } else { 0 }..].iter().all(|byte| *byte == 0xff));
        // Whole, the data can be inserted as it is.
        let mut known = 99;
        if given_bytes == 16 {
            assert_eq!(call!(receiver.av, ops.insert, entry.err_data, 1, &raw mut known, 0, NULL), 1);
        }
        assert_eq!(known, if given_bytes == 16 { 0 } else { 99 });

        // A truncated message has no data.
        receiver.ep.recv(&mut buf[..3], 8);
        stranger.ep.inject(b"too long", to);
        let entry = read(&mut data);
        assert_eq!((entry.err, entry.olen, entry.err_data.is_null()), (265, 5, !has_room));
        assert_eq!((entry.len, entry.buf, entry.op_context), (3, NULL, numbered_context(8)));
        assert_eq!((entry.flags, entry.tag), (RECV | MSG, 0));
        assert_eq!(entry.err_data_size, if has_size { 0 } else { room_bytes });
        assert!(api_version < newest || entry.src_addr == known);
        assert!(
            strerror(&receiver.cq, entry.prov_errno).to_str().unwrap().contains("longer than the buffer")
        );
    }
}

/// `fi_cq_strerror`, without a buffer.
fn strerror(cq: &Object<FidCq>, errno: c_int) -> &'static CStr {
    let text = call!(cq, ops.strerror, errno, ptr::null(), ptr::null_mut(), 0);
    // SAFETY: texts are static.
    unsafe { CStr::from_ptr(text) }
}

/// Shows fi_cq/strerror-buffer-is-optional, fi_cq/strerror-text, fi_cq/strerror-return.
#[test]
fn strerror_needs_neither_a_buffer_nor_error_data() {
    let Node { cq, eq, .. } = &Node::open_disabled();
    let canceled = strerror(cq, 125);
    assert_eq!(canceled, c"Operation canceled");
    let mut buf = [0x7f as c_char; 6];
    // The calls ignore the data, so any pointer is valid.
    let (room, data) = (buf.as_mut_ptr(), ptr::without_provenance(1));
    let texts = [call!(cq, ops.strerror, 125, data, room, 5), call!(eq, ops.strerror, 125, data, room, 5)];
    // SAFETY: texts are static.
    assert!(texts.iter().all(|text| unsafe { CStr::from_ptr(*text) } == canceled));
    assert_eq!(buf.map(|byte| byte as u8), *b"Oper\0\x7f");
}

/// The lengths are those of every protocol. All fit into the receiver's budget for unexpected messages.
/// Shows fi_cq/inject-frees-source, fi_cq/delivery-fills-posted-buffer, fi_msg/inject-flag-copies.
#[test]
fn send_leaves_its_memory_to_the_application() {
    let (sender, receiver) = (Node::open(), Node::open());
    let to = sender.insert(&receiver.ep.name());
    let post = |message: &mut [u8], flags: u64| {
        let part = to_iovec(message);
        let msg = messages(&part, 1, to, numbered_context(1)).0;
        assert_eq!(call!(sender.ep, msg.sendmsg, &raw const msg, flags), 0);
    };
    let end_send = || {
        let (entry, _) = sender.cq.await_entry("the end of a send", &receiver.cq);
        assert_eq!(entry.op_context, numbered_context(1));
    };
    let end_receive = || receiver.cq.await_entry("a message", &sender.cq).0;
    // The first waits for the link.
    for (len_bytes, flags) in [
        (64, INJECT),
        (9000, INJECT_COMPLETE),
        (70_000, INJECT_COMPLETE),
        (300_000, INJECT_COMPLETE),
        (5 << 20, INJECT_COMPLETE),
    ] {
        let (mut message, mut room) = (vec![7; len_bytes], vec![0; len_bytes]);
        post(&mut message, flags);
        if flags == INJECT_COMPLETE {
            end_send();
        }
        // The source is not read any more, whether or not the message has been received.
        message.fill(0xff);
        receiver.ep.recv(&mut room, 2);
        assert_eq!(end_receive().len, len_bytes);
        assert!(room == vec![7; len_bytes], "{len_bytes} bytes were read after the send");
        if flags == INJECT {
            end_send();
        }

        // The bytes have arrived when the sender's completion has, although the receiver's is not read yet.
        let start = room.as_mut_ptr();
        receiver.ep.recv(&mut room, 3);
        post(&mut message, DELIVERY_COMPLETE);
        end_send();
        // SAFETY: the memory is alive, and delivered bytes are not written again.
        let is_there = |place| unsafe { start.add(place).read_volatile() } == 0xff;
        assert!((0..len_bytes).all(is_there), "{len_bytes} bytes were not delivered");
        assert_eq!(end_receive().op_context, numbered_context(3));
    }
}

/// Arguments that the plugin must not read.
#[test]
fn peek_reads_no_vector() {
    let node = Node::open();
    let own = node.insert(&node.ep.name());
    let mut room = [0; 8];
    let part = to_iovec(&mut room);
    // A count that would be refused.
    let (peek, tagged_peek) = messages(ptr::null(), usize::MAX, FI_ADDR_UNSPEC, numbered_context(1));
    let (message, tagged) = messages(&raw const part, 1, own, numbered_context(1));
    for (flags, expected) in
        [(CLAIM | DISCARD, ENOENT), (CLAIM, EINVAL), (PEEK | CLAIM | DISCARD, EINVAL), (PEEK, 0)]
    {
        let posted = call!(node.ep, msg.recvmsg, &raw const peek, flags) as c_int;
        let posted_tagged = call!(node.ep, tagged.recvmsg, &raw const tagged_peek, flags) as c_int;
        assert_eq!((posted, posted_tagged), (expected, expected), "{flags:#x}");
    }
    for flags in [0, RECV | TAGGED] {
        let failed = node.cq.await_error("the end of a peek", &node.cq);
        assert_eq!((failed.err, failed.flags & flags), (libc::ENOMSG, flags));
    }
    // With a trigger the context is another structure, which must not be read.
    let answers = [
        call!(node.ep, msg.sendmsg, &raw const message, TRIGGER),
        call!(node.ep, msg.recvmsg, &raw const message, PEEK | TRIGGER),
        call!(node.ep, tagged.sendmsg, &raw const tagged, TRIGGER),
        call!(node.ep, tagged.recvmsg, &raw const tagged, TRIGGER),
    ];
    assert_eq!(answers, [EBADFLAGS as isize; 4]);
}
