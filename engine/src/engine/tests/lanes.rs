//! Tests of the lanes: what takes them ends as by the general way, and what they cannot do takes the general
//! way, unchanged. `sending.rs` and `ordering.rs` test the send lane.

use proptest::prelude::*;

use super::*;

impl Node {
    /// Posts a receive by the lane. Returns whether that was possible.
    fn try_post_waiting(&mut self, request: &mut ReceiveRequest) -> bool {
        let ReceiveRequest { destination, tagged, criteria, context, signalled } = request;
        self.engine.try_post_waiting_receive(*tagged, *criteria, *context, *signalled, destination)
    }

    /// Offers a message to the lane. Returns whether it was taken.
    fn offer(&mut self, message: &Message, payload: &[u8]) -> bool {
        let mut reads = 0;
        let is_taken = self.arrivals().take_message(LINK, message, |into| {
            into.copy_from_slice(payload);
            reads += 1;
        });
        assert_eq!(reads, u32::from(is_taken), "the payload is read once, if the message is taken");
        is_taken
    }
}

fn tagged_receive(tag: u64, len_bytes: usize, context: u64) -> ReceiveRequest {
    let criteria = Criteria { tag, ignore: 0, source: None };
    ReceiveRequest { tagged: true, criteria, ..receive_request(len_bytes, context) }
}

fn tagged_message(tag: u64, len_bytes: u64) -> Message {
    Message { tag: Some(tag), ..Message::of_len(len_bytes) }
}

#[test]
fn receive_that_must_wait_is_posted_by_the_lane_and_no_other() {
    let (mut node, peer) = engine_with_config(Config { rx_depth_ops: 2, ..untimed_config() });
    assert!(node.try_post_waiting(&mut tagged_receive(1, 4, 1)));
    assert!(node.offer(&tagged_message(1, 4), b"1234"));
    assert_eq!((received_bytes(&node.sink.ended[0]), node.outstanding_receives()), (&b"1234"[..], 0));

    // A message that waits, whether the receive accepts it or not, or is of another kind.
    node.frame(LINK, &Header::Message(tagged_message(7, 2)), b"ab");
    let mut request = tagged_receive(1, 4, 2);
    assert!(!node.try_post_waiting(&mut request));
    assert_eq!(request.destination.len_bytes(), 4, "the memory of a refused receive stays with its caller");
    assert!(node.try_post_waiting(&mut receive_request(4, 3)), "untagged receives are apart");
    node.post_receive(tagged_receive(7, 4, 4));

    assert!(node.try_post_waiting(&mut tagged_receive(1, 4, 5)));
    assert!(!node.try_post_waiting(&mut tagged_receive(1, 4, 6)), "no more may be outstanding");
    node.cancel(5).unwrap();

    // A receive from a peer that is lost makes the engine connect again.
    node.link_down(LINK, RESET);
    let from_peer = Criteria { source: Some(peer), ..Criteria::any() };
    assert!(!node.try_post_waiting(&mut ReceiveRequest { criteria: from_peer, ..receive_request(4, 7) }));
}

#[test]
fn shared_receiver_has_no_receive_lane() {
    let (mut node, _) = engine_with_peer();
    assert!(node.engine.is_quiet());
    let shared = Arc::new(SharedReceiver::new(2, 1 << 20));
    node.engine.join_shared_receiver(&shared, false);
    assert!(!node.try_post_waiting(&mut receive_request(4, 1)) && !node.engine.is_quiet());
    assert!(!node.offer(&Message::of_len(1), b"1"));
}

/// A receive, and a message that the lane does not take for it.
type Refused = (&'static str, ReceiveRequest, Message);

#[test]
fn message_with_more_to_do_is_not_taken() {
    let two_pieces = Destination::owned_vector(vec![BytesMut::zeroed(2), BytesMut::zeroed(2)]).unwrap();
    let cases: Vec<Refused> = vec![
        ("the earliest receive is for another tag", tagged_receive(2, 4, 1), tagged_message(1, 4)),
        ("it is longer than the receive", tagged_receive(1, 3, 1), tagged_message(1, 4)),
        (
            "its sender awaits its arrival",
            tagged_receive(1, 4, 1),
            Message { awaits: AwaitedReply::Arrival, ..tagged_message(1, 4) },
        ),
        (
            "the receive is not reported",
            ReceiveRequest { signalled: Signalled::No, ..tagged_receive(1, 4, 1) },
            tagged_message(1, 4),
        ),
        (
            "the memory is in two pieces",
            ReceiveRequest { destination: two_pieces, ..tagged_receive(1, 4, 1) },
            tagged_message(1, 4),
        ),
    ];
    for (why, request, message) in cases {
        let (mut node, _) = engine_with_peer();
        node.post_receive(request);
        assert!(!node.offer(&message, b"1234"), "{why}");
        assert_eq!((node.sink.ended.len(), node.outstanding_receives()), (0, 1), "{why}");
    }
    let (mut node, _) = engine_with_peer();
    assert!(!node.offer(&Message::of_len(4), b"1234"), "nothing is posted");
    node.post_multi_receive(receive_request(64, 1), 8);
    assert!(!node.offer(&Message::of_len(4), b"1234"), "a buffer for many messages");
    let unknown = node.arrivals().take_message(LinkId(9), &Message::of_len(0), |_| {});
    assert!(!unknown, "the link is unknown");
}

/// The peer gets more credit when half of its first credit is spent. The lane leaves that to a pass.
#[test]
fn message_after_which_credit_is_due_is_not_taken() {
    let (mut node, _) = engine_with_peer();
    let mut taken = 0;
    loop {
        assert!(node.try_post_waiting(&mut receive_request(0, taken)));
        if !node.offer(&Message::of_len(0), b"") {
            break;
        }
        taken += 1;
    }
    assert_eq!(taken, (CREDIT_INITIAL_BYTES / 2).div_ceil(MESSAGE_COST_BYTES) - 1);
    node.pass_with_frame(LINK, &untagged_header(0), b"");
    let grants = node.sent_since(0);
    assert!(matches!(grants[..], [Header::Credit { .. }]), "{grants:?}");
    assert!(node.try_post_waiting(&mut receive_request(0, taken)) && node.offer(&Message::of_len(0), b""));
}

#[test]
fn taken_message_waits_for_room_in_the_sink_in_order() {
    let (mut node, _) = engine_with_peer();
    node.post_receives(1, 1..=3);
    node.sink.room = Some(1);
    assert!(node.offer(&Message::of_len(1), b"1") && node.engine.is_quiet());
    let mut arrivals = node.engine.arrivals(&mut node.sink);
    assert!(arrivals.take_message(LINK, &Message::of_len(1), |into| into.copy_from_slice(b"2")));
    assert!(arrivals.has_held_report() && !node.engine.is_quiet());
    assert!(!node.offer(&Message::of_len(1), b"3"), "its report would overtake one that waits");
    node.sink.room = None;
    node.frame(LINK, &untagged_header(1), b"3");
    node.deliver_held();
    assert_eq!(node.ended_contexts(), [1, 2, 3]);
}

#[derive(Debug, Clone)]
enum Step {
    Receive { tag: u64, ignore: u64, len_bytes: usize, signalled: Signalled },
    Message { tag: Option<u64>, data: Option<u64>, len_bytes: usize },
    MakeRoom(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let signalled = prop_oneof![4 => Just(Signalled::Yes), 1 => Just(Signalled::No)];
    let receive = (0_u64..3, prop::sample::select(vec![0, 1, u64::MAX]), 0_usize..4, signalled);
    let message = (prop::option::weighted(0.8, 0_u64..3), any::<Option<u64>>(), 0_usize..4);
    prop_oneof![
        4 => receive.prop_map(|(tag, ignore, len_bytes, signalled)| {
            Step::Receive { tag, ignore, len_bytes, signalled }
        }),
        4 => message.prop_map(|(tag, data, len_bytes)| Step::Message { tag, data, len_bytes }),
        1 => (0_usize..4).prop_map(Step::MakeRoom),
    ]
}

proptest! {
    /// One engine takes the lanes where it can, the other never.
    #[test]
    fn engine_with_lanes_ends_receives_as_one_without(steps in prop::collection::vec(any_step(), 1..120)) {
        let [(mut with, _), (mut without, _)] = [(); 2].map(|()| engine_with_peer());
        for (step, context) in steps.into_iter().zip(0..) {
            match step {
                Step::Receive { tag, ignore, len_bytes, signalled } => {
                    let criteria = Criteria { tag, ignore, source: None };
                    let plain = || tagged_receive(tag, len_bytes, context);
                    let make = || ReceiveRequest { criteria, signalled, ..plain() };
                    let mut request = make();
                    if !with.try_post_waiting(&mut request) {
                        with.post_receive(request);
                    }
                    without.post_receive(make());
                }
                Step::Message { tag, data, len_bytes } => {
                    let message = Message { tag, data, ..Message::of_len(len_bytes as u64) };
                    let payload = &context.to_le_bytes()[..len_bytes];
                    if !with.offer(&message, payload) {
                        with.frame(LINK, &Header::Message(message), payload);
                    }
                    without.frame(LINK, &Header::Message(message), payload);
                    for node in [&mut with, &mut without] {
                        node.transmit();
                    }
                }
                Step::MakeRoom(room) => {
                    for node in [&mut with, &mut without] {
                        node.sink.room = Some(node.sink.ended.len() + room);
                        node.deliver_held();
                    }
                }
            }
            prop_assert_eq!(&with.sink.ended, &without.sink.ended);
            prop_assert_eq!(&with.sink.counted, &without.sink.counted);
            prop_assert_eq!(with.outstanding_receives(), without.outstanding_receives());
            prop_assert_eq!(with.unexpected_len(), without.unexpected_len());
            prop_assert_eq!(with.sent_since(0), without.sent_since(0));
        }
    }
}
