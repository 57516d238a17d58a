//! Tests of the messages that ended links leave behind: which of them the receiver drops, and when.

use std::collections::HashSet;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::address::Address;
use crate::limits::{HOST_FETCH_PERCENT, HOST_SHARE_PERCENT, STEP_MAX_DROPS};
use crate::transport::AddressProof;

/// How many empty messages a link sends by its initial credit.
const MESSAGES: u64 = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;

/// More links than leave a share full of messages.
const VISITS_MAX: u64 = 1000;

/// A budget out of which links get windows.
const LARGE_BUDGET_BYTES: usize = 16 << 20;

const SHARE_BYTES: u64 = BUDGET_BYTES as u64 * HOST_SHARE_PERCENT / 100;

/// An endpoint of a host.
fn address(host: u8, port: u16) -> Address {
    SocketAddr::from(([192, 0, 2, host], port)).into()
}

/// Opens a link to an endpoint of a host. Returns whether it may come up.
fn try_open(receiver: &mut Receiver, link: LinkId, host: u8, proof: AddressProof) -> bool {
    let address = address(host, 1000 + link.0 as u16);
    let is_admitted = receiver.try_admit_link(address, proof);
    if is_admitted {
        receiver.link_added(link, PeerId(link.0), MemberId::ONLY);
        receiver.link_up(link, address, proof);
    }
    is_admitted
}

fn open(receiver: &mut Receiver, link: LinkId, host: u8, proof: AddressProof) {
    assert!(try_open(receiver, link, host, proof), "{link:?} is refused");
}

fn tagged_message(tag: u64) -> Message {
    Message { tag: Some(tag), ..Message::of_len(0) }
}

/// Sends messages that no receive takes, as many as the initial credit allows.
fn send_all(receiver: &mut Receiver, link: LinkId, tag: u64, asked: &mut EffectsRecorder) {
    for _ in 0..MESSAGES {
        receiver.message_arrived(link, &tagged_message(tag), &[], asked).unwrap();
    }
}

fn close(receiver: &mut Receiver, link: LinkId, asked: &mut EffectsRecorder) {
    receiver.link_ended(link, &RESET, asked);
}

/// Offers messages that no receive takes, as many as the initial credit allows.
fn offer_all(receiver: &mut Receiver, link: LinkId, asked: &mut EffectsRecorder) {
    let message =
        Message { tag: Some(5), awaits: AwaitedReply::Match, ..Message::of_len(REMOTE.len() as u64) };
    for op in 0..MESSAGES {
        receiver.message_offered(link, &message, op, REMOTE, asked).unwrap();
    }
}

/// Opens a link, sends messages with this tag on it, and closes it. Returns whether the link came
/// up.
fn try_visit(
    receiver: &mut Receiver,
    host: u8,
    proof: AddressProof,
    tag: u64,
    asked: &mut EffectsRecorder,
) -> bool {
    let link = LinkId(50);
    let is_admitted = try_open(receiver, link, host, proof);
    if is_admitted {
        send_all(receiver, link, tag, asked);
        close(receiver, link, asked);
    }
    is_admitted
}

/// Visits that together exceed the budget.
fn visit_many(receiver: &mut Receiver, host: u8, proof: AddressProof, asked: &mut EffectsRecorder) -> u64 {
    let visits = 2 * BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES;
    (0..visits).take_while(|tag| try_visit(receiver, host, proof, *tag, asked)).count() as u64
}

/// Receives all messages with a tag. Returns how many there were.
fn receive_all(receiver: &mut Receiver, tag: u64, asked: &mut EffectsRecorder) -> u64 {
    let criteria = Criteria { source: None, tag, ignore: 0 };
    for count in 0.. {
        receiver.post(ReceiveRequest { tagged: true, criteria, ..receive_request(0, tag) }, asked).unwrap();
        if asked.take_ended().is_empty() {
            assert!(receiver.cancel(CancelKey::Context(tag), asked));
            asked.take_ended();
            return count;
        }
    }
    unreachable!("an endless number of messages")
}

#[test]
fn unproven_leftovers_make_room_for_new_links_oldest_first() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    let visits = visit_many(&mut receiver, 1, AddressProof::Claimed, &mut asked);
    assert_eq!(visits, 2 * BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES, "a peer was refused");
    assert!(receiver.dropped_messages > 0);
    let counts: Vec<u64> = (0..visits).map(|tag| receive_all(&mut receiver, tag, &mut asked)).collect();
    assert!(counts.is_sorted(), "a later one was dropped first: {counts:?}");
    assert_eq!(counts.last(), Some(&MESSAGES));
    // No more was dropped than the share demands.
    let kept_bytes = counts.iter().sum::<u64>() * MESSAGE_COST_BYTES;
    assert!(kept_bytes > SHARE_BYTES - MESSAGE_COST_BYTES, "{kept_bytes}");
    assert!(receiver.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
}

#[test]
fn proven_leftovers_are_kept_and_fill_only_the_share_of_their_host() {
    for proof in [AddressProof::Confirmed, AddressProof::Claimed] {
        let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
        let mut visits = 0;
        while visits < VISITS_MAX && try_open(&mut receiver, LINK, 1, proof) {
            if proof == AddressProof::Claimed {
                receiver.peer_proven(LINK);
            }
            send_all(&mut receiver, LINK, visits, &mut asked);
            close(&mut receiver, LINK, &mut asked);
            visits += 1;
        }
        assert_eq!(receiver.dropped_messages, 0);
        let left_bytes = receiver.unexpected_len() as u64 * MESSAGE_COST_BYTES;
        assert!((SHARE_BYTES..=SHARE_BYTES + CREDIT_INITIAL_BYTES).contains(&left_bytes), "{left_bytes}");
        // Links of other hosts still come up. Links to the same host come up too, if this side
        // connects them.
        open(&mut receiver, OTHER, 2, AddressProof::Claimed);
        open(&mut receiver, LINK, 1, AddressProof::Reached);
        close(&mut receiver, LINK, &mut asked);
        for tag in 0..visits {
            assert_eq!(receive_all(&mut receiver, tag, &mut asked), MESSAGES);
        }
        open(&mut receiver, LINK, 1, proof);
    }
}

#[test]
fn leftovers_of_one_host_are_not_dropped_for_the_share_of_another() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    assert!(try_visit(&mut receiver, 1, AddressProof::Claimed, 1000, &mut asked));
    let visits = SHARE_BYTES / CREDIT_INITIAL_BYTES + 3;
    for tag in 0..visits {
        assert!(try_visit(&mut receiver, 2, AddressProof::Claimed, tag, &mut asked));
    }
    assert!(receiver.dropped_messages > 0);
    assert_eq!(receive_all(&mut receiver, 1000, &mut asked), MESSAGES);
}

#[test]
fn full_budget_of_proven_leftovers_refuses_new_links() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    // No share limits peers that are proven by credentials, so they can fill the whole budget.
    let visits = visit_many(&mut receiver, 1, AddressProof::Credentials, &mut asked);
    assert!(visits < 2 * BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES);
    assert!(!try_open(&mut receiver, OTHER, 2, AddressProof::Reached));
    assert_eq!(receive_all(&mut receiver, 0, &mut asked), MESSAGES);
    assert_eq!(receive_all(&mut receiver, 1, &mut asked), MESSAGES);
    open(&mut receiver, OTHER, 2, AddressProof::Claimed);
}

#[test]
fn links_of_one_host_that_end_together_keep_no_other_host_out() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    let links = (100..100 + 4 * (BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES) as u32).map(LinkId);
    for link in links.clone() {
        open(&mut receiver, link, 1, AddressProof::Confirmed);
        send_all(&mut receiver, link, 0, &mut asked);
    }
    links.for_each(|link| close(&mut receiver, link, &mut asked));
    assert_eq!(receiver.dropped_messages, 0, "the peers were proven");
    assert!(!try_open(&mut receiver, LINK, 1, AddressProof::Confirmed));
    for (host, proof) in [
        (2, AddressProof::Claimed),
        (2, AddressProof::Confirmed),
        (1, AddressProof::Reached),
        (3, AddressProof::Credentials),
    ] {
        open(&mut receiver, LINK, host, proof);
        close(&mut receiver, LINK, &mut asked);
    }
}

/// Links of one host leave more offers behind than their share. One step does not drop them all.
#[test]
fn offers_of_ended_links_refuse_no_new_link() {
    for proof in [AddressProof::Confirmed, AddressProof::Claimed, AddressProof::Credentials] {
        let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
        let links = 4 * STEP_MAX_DROPS as u32 / MESSAGES as u32;
        (0..links).for_each(|link| open(&mut receiver, LinkId(link), 1, proof));
        (0..links).for_each(|link| offer_all(&mut receiver, LinkId(link), &mut asked));
        (0..links).for_each(|link| close(&mut receiver, LinkId(link), &mut asked));
        assert!(receiver.has_offers_to_drop(), "{proof:?}");
        assert!(try_open(&mut receiver, LinkId(links), 1, proof), "{proof:?}");
        assert!(try_open(&mut receiver, LinkId(links + 1), 2, proof), "{proof:?}, another host");
    }
}

#[test]
fn starved_link_gets_credit_that_its_host_returns_while_others_use_more() {
    let (mut receiver, mut asked) = (Receiver::new(64, LARGE_BUDGET_BYTES), EffectsRecorder::default());
    // The host of the link has used up its share: some links have left it behind.
    let share_bytes = LARGE_BUDGET_BYTES as u64 * HOST_SHARE_PERCENT / 100;
    for link in (100..100 + (share_bytes / CREDIT_INITIAL_BYTES) as u32).map(LinkId) {
        open(&mut receiver, link, 1, AddressProof::Confirmed);
        send_all(&mut receiver, link, 0, &mut asked);
        close(&mut receiver, link, &mut asked);
    }
    open(&mut receiver, LINK, 1, AddressProof::Confirmed);
    send_all(&mut receiver, LINK, 1, &mut asked);
    receiver.grant_credit_to_starved_links(&mut asked);
    assert!(receiver.has_starved_links() && !receiver.can_share_freed_budget());
    // Another host uses more than the receives free next.
    assert!(receiver.try_reserve_budget(2 << 20));
    receive_all(&mut receiver, 0, &mut asked);
    assert!(receiver.can_share_freed_budget());
    asked.credits.clear();
    receiver.grant_credit_to_starved_links(&mut asked);
    assert!(asked.credits.contains(&LINK));
}

#[test]
fn nothing_is_dropped_if_drops_would_not_suffice() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    assert!(try_visit(&mut receiver, 1, AddressProof::Claimed, 1000, &mut asked));
    let visits = BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES + 2;
    // All links are up before the first ends, so that none is refused.
    for (link, tag) in (100..).zip(0..visits) {
        open(&mut receiver, LinkId(link), 2, AddressProof::Credentials);
        send_all(&mut receiver, LinkId(link), tag, &mut asked);
    }
    (100..).zip(0..visits).for_each(|(link, _)| close(&mut receiver, LinkId(link), &mut asked));
    assert!(!try_open(&mut receiver, LINK, 3, AddressProof::Claimed));
    assert_eq!(receiver.dropped_messages, 0);
    assert_eq!(receive_all(&mut receiver, 1000, &mut asked), MESSAGES);
}

#[test]
fn starved_link_gets_the_credit_that_unproven_leftovers_hold() {
    let (mut receiver, mut asked) = (Receiver::new(64, LARGE_BUDGET_BYTES), EffectsRecorder::default());
    open(&mut receiver, OTHER, 2, AddressProof::Confirmed);
    // All links are up before the first ends, so that they exceed the budget. Two hosts stay within their
    // shares.
    let strangers = 100..100 + (LARGE_BUDGET_BYTES as u64 / CREDIT_INITIAL_BYTES) as u32 + 20;
    for link in strangers.clone() {
        open(&mut receiver, LinkId(link), if link % 2 == 0 { 1 } else { 3 }, AddressProof::Claimed);
        send_all(&mut receiver, LinkId(link), 0, &mut asked);
    }
    strangers.for_each(|link| close(&mut receiver, LinkId(link), &mut asked));
    let dropped_at_first = receiver.dropped_messages;
    asked.credits.clear();
    for number in 0..1000 {
        let message = tagged_message(1);
        assert_eq!(receiver.message_arrived(OTHER, &message, &[], &mut asked), Ok(()), "message {number}");
        receiver.finish_drop_step(&mut asked);
        receiver.grant_credit_to_starved_links(&mut asked);
        receiver.credit_sent(OTHER);
    }
    let dropped = receiver.dropped_messages - dropped_at_first;
    assert!(asked.credits.contains(&OTHER) && dropped > 0);
    assert!(dropped * MESSAGE_COST_BYTES <= receiver.granted_bytes(OTHER) + CREDIT_INITIAL_BYTES);
    assert_eq!(receive_all(&mut receiver, 1, &mut asked), 1000);
}

#[test]
fn payload_gets_the_room_that_unproven_leftovers_hold() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    open(&mut receiver, OTHER, 2, AddressProof::Confirmed);
    for (link, host) in (100..124).map(LinkId).zip([1, 3].into_iter().cycle()) {
        open(&mut receiver, link, host, AddressProof::Claimed);
        send_all(&mut receiver, link, 0, &mut asked);
    }
    (100..124).for_each(|link| close(&mut receiver, LinkId(link), &mut asked));
    let limit_bytes = BUDGET_BYTES as u64 * HOST_FETCH_PERCENT / 100;
    for (op, len_bytes) in [(1, limit_bytes + 1), (2, limit_bytes)] {
        let message = Message::of_len(len_bytes);
        receiver.message_offered(OTHER, &message, op, REMOTE, &mut asked).unwrap();
        assert_eq!((receiver.is_pulling(), receiver.dropped_messages > 0), (op == 2, op == 2));
    }
    assert!(!receiver.can_share_freed_budget(), "the other one waits for its receive");
    receiver.link_ended(OTHER, &RESET, &mut asked);
    let kept = receiver.unexpected_len() as u64;
    assert_eq!(kept + receiver.dropped_messages, 24 * MESSAGES);
    assert_eq!(receive_all(&mut receiver, 0, &mut asked), kept);
    assert!(receiver.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
}

#[test]
fn kept_aside_messages_are_dropped_and_the_others_still_match() {
    let (mut receiver, mut asked) = (Receiver::new(64, BUDGET_BYTES), EffectsRecorder::default());
    asked.is_full = true;
    receiver.post_multi_receive(receive_request(1 << 16, 9), 1, None, &mut asked).unwrap();
    open(&mut receiver, OTHER, 2, AddressProof::Confirmed);
    deliver_message(&mut receiver, OTHER, b"first", &mut asked);
    open(&mut receiver, LINK, 1, AddressProof::Claimed);
    deliver_message(&mut receiver, LINK, b"stranger's", &mut asked);
    close(&mut receiver, LINK, &mut asked);
    deliver_message(&mut receiver, OTHER, b"last", &mut asked);
    assert!(receiver.is_kind_kept_aside(false));
    assert!(receiver.try_make_room(receiver.budget.free_bytes() + 1, None), "one message is enough");
    assert_eq!((receiver.dropped_messages, receiver.unexpected_len()), (1, 1));
    asked.is_full = false;
    receiver.deliver_held_reports(&mut asked);
    let lens: Vec<_> = asked.ended.iter().map(|ended| ended.as_ref().unwrap().len_bytes).collect();
    assert_eq!(lens, [5, 4]);
}

/// The context of peeks.
const PEEK: u64 = 1 << 32;

/// A receive that accepts any tagged message.
fn receive_request_for_any(context: u64) -> ReceiveRequest {
    ReceiveRequest { tagged: true, ..receive_request(60_000, context) }
}

impl EffectsRecorder {
    /// Removes the recorded ended operations. Returns the tags of the messages that receives got.
    fn take_received_tags(&mut self) -> Vec<u64> {
        let ended = self.ended.drain(..).filter_map(Result::ok);
        ended.filter(|ended| ended.context != PEEK).map(|ended| ended.tag).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open { link: u32, host: u8, proof: AddressProof },
    Close(u32),
    Prove(u32),
    Send { link: u32, len_bytes: usize },
    Offer { link: u32, len_bytes: u64 },
    Pass,
    Receive,
    Claim,
    ReceiveClaimed,
}

fn any_step() -> impl Strategy<Value = Step> {
    let proven = [AddressProof::Credentials, AddressProof::Reached, AddressProof::Confirmed];
    let proof = prop_oneof![3 => prop::sample::select(proven.to_vec()), 4 => Just(AddressProof::Claimed)];
    prop_oneof![
        3 => (0..6_u32, 0..3_u8, proof).prop_map(|(link, host, proof)| Step::Open { link, host, proof }),
        2 => (0..6_u32).prop_map(Step::Close),
        1 => (0..6_u32).prop_map(Step::Prove),
        9 => (0..6_u32, 0..9000_usize).prop_map(|(link, len_bytes)| Step::Send { link, len_bytes }),
        2 => (0..6_u32, 0..60_000_u64).prop_map(|(link, len_bytes)| Step::Offer { link, len_bytes }),
        4 => Just(Step::Pass),
        1 => Just(Step::Receive),
        1 => Just(Step::Claim),
        1 => Just(Step::ReceiveClaimed),
    ]
}

/// What a test expects of a link.
#[derive(Debug, Default)]
struct Visitor {
    is_proven: bool,
    /// The tags of the messages that arrived whole over the link.
    sent: Vec<u64>,
}

proptest! {
    /// Links come up, carry messages and end at random. All messages of proven peers and all claimed
    /// messages are received. The receiver drops only messages that an unproven peer has left behind. At
    /// the end the budget is free.
    #[test]
    fn only_leftovers_of_unproven_peers_are_dropped(steps in prop::collection::vec(any_step(), 1..200)) {
        let budget_bytes = 4 * CREDIT_INITIAL_BYTES as usize;
        let (mut receiver, mut asked) = (Receiver::new(1 << 16, budget_bytes), EffectsRecorder::default());
        let mut visitors: HashMap<u32, Visitor> = HashMap::new();
        let (mut kept, mut droppable) = (HashSet::new(), HashSet::new());
        let mut received = HashSet::new();
        let memory = vec![0; 60_000];
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                Step::Open { link, host, proof } if !visitors.contains_key(&link) => {
                    if try_open(&mut receiver, LinkId(link), host, proof) {
                        let is_proven = proof != AddressProof::Claimed;
                        visitors.insert(link, Visitor { is_proven, sent: Vec::new() });
                    }
                }
                Step::Close(link) => if let Some(visitor) = visitors.remove(&link) {
                    receiver.link_ended(LinkId(link), &RESET, &mut asked);
                    let gone = if visitor.is_proven { &mut kept } else { &mut droppable };
                    gone.extend(visitor.sent);
                },
                Step::Prove(link) => if let Some(visitor) = visitors.get_mut(&link) {
                    visitor.is_proven = true;
                    receiver.peer_proven(LinkId(link));
                },
                Step::Send { link, len_bytes } => if let Some(visitor) = visitors.get_mut(&link) {
                    let message = Message { tag: Some(number), ..Message::of_len(len_bytes as u64) };
                    let bytes = vec![7; len_bytes];
                    if receiver.message_arrived(LinkId(link), &message, &bytes, &mut asked).is_ok() {
                        visitor.sent.push(number);
                    }
                },
                Step::Offer { link, len_bytes } => if let Some(visitor) = visitors.get_mut(&link) {
                    let message = Message { tag: Some(number), ..Message::of_len(len_bytes) };
                    let id = LinkId(link);
                    if receiver.message_offered(id, &message, number, REMOTE, &mut asked).is_ok() {
                        receiver.pull_payloads(|_| true, make_pull_from(&memory), &mut asked);
                        let done = Header::Done { op: number, fault: false };
                        if asked.queued.contains(&(id, done)) {
                            visitor.sent.push(number);
                        }
                    }
                },
                Step::Pass => {
                    receiver.share_freed_budget(&mut asked);
                    (0..6).for_each(|link| receiver.credit_sent(LinkId(link)));
                    // Offers that are fetched only now may be lost with their link, so the test counts
                    // none of them as sent.
                    receiver.pull_payloads(|_| true, make_pull_from(&memory), &mut asked);
                }
                Step::Receive => {
                    receiver.post(receive_request_for_any(number), &mut asked).unwrap();
                    receiver.pull_payloads(|_| true, make_pull_from(&memory), &mut asked);
                    receiver.cancel(CancelKey::Context(number), &mut asked);
                }
                Step::Claim if receiver.claimed.is_empty() => {
                    let (tagged, criteria, then) = (true, Criteria::any(), PeekAction::Claim);
                    let peek = PeekRequest { tagged, criteria, context: PEEK, work: None, then };
                    receiver.peek(peek, &mut asked).unwrap();
                }
                Step::ReceiveClaimed if !receiver.claimed.is_empty() => {
                    receiver.receive_claimed(receive_request_for_any(number), PEEK, &mut asked).unwrap();
                    receiver.pull_payloads(|_| true, make_pull_from(&memory), &mut asked);
                }
                Step::Open { .. } | Step::Claim | Step::ReceiveClaimed => {}
            }
            received.extend(asked.take_received_tags());
        }
        if !receiver.claimed.is_empty() {
            receiver.receive_claimed(receive_request_for_any(0), PEEK, &mut asked).unwrap();
        }
        for _ in 0..receiver.unexpected_len() {
            receiver.post(receive_request_for_any(0), &mut asked).unwrap();
            receiver.pull_payloads(|_| true, make_pull_from(&memory), &mut asked);
        }
        received.extend(asked.take_received_tags());
        kept.extend(visitors.values().flat_map(|visitor| visitor.sent.iter().copied()));
        let lost: Vec<_> = kept.difference(&received).collect();
        prop_assert!(lost.is_empty(), "lost {lost:?}");
        let dropped = droppable.difference(&received).count() as u64;
        prop_assert!(dropped <= receiver.dropped_messages);
        (0..6).for_each(|link| receiver.link_ended(LinkId(link), &RESET, &mut asked));
        prop_assert!(receiver.try_reserve_budget(budget_bytes as u64), "a part of the budget is lost");
    }
}
