//! Random headers, for the tests of this module.

use proptest::prelude::*;

use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::{MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES};
use crate::wire::{
    Atomic, AtomicForm, Awaits, Durable, Handshake, HandshakeStep, Header, Message, Outcome, Rma, RmaKind,
    Shown,
};

/// Any header that a correct peer may send.
pub(super) fn any_header() -> impl Strategy<Value = Header> {
    prop_oneof![
        3 => any_message(0..=MESSAGE_MAX_BYTES).prop_map(Header::Message),
        1 => any::<u64>().prop_map(|received| Header::Ack { received }),
        1 => (any_message(0..=MESSAGE_MAX_BYTES), any::<u64>(), 0..=REMOTE_MAX_BYTES as u8)
            .prop_map(|(message, op, remote_bytes)| Header::Request { message, op, remote_bytes }),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(op, cannot_pull)| Header::Clear { op, cannot_pull }),
        1 => (any::<u64>(), 0..=MESSAGE_MAX_BYTES).prop_map(|(op, len_bytes)| Header::Data { op, len_bytes }),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(op, fault)| Header::Done { op, fault }),
        1 => any::<u64>().prop_map(|number| Header::Matched { number }),
        1 => any::<u64>().prop_map(|granted_bytes| Header::Credit { granted_bytes }),
        1 => any::<bool>().prop_map(|matched| Header::Fence { matched }),
        1 => Just(Header::Fenced),
        2 => any_rma(0..=MESSAGE_MAX_BYTES).prop_map(Header::Rma),
        2 => any_atomic(usize::MAX).prop_map(Header::Atomic),
        1 => (any::<u64>(), 0..=MESSAGE_MAX_BYTES).prop_map(|(op, len_bytes)| Header::ReadData { op, len_bytes }),
        1 => (any::<[u64; 3]>(), 0..=MESSAGE_MAX_BYTES, 0..=REMOTE_MAX_BYTES as u8).prop_map(
            |([key, address, access], len_bytes, remote_bytes)| {
                Header::Shown(Shown { key, address, len_bytes, access, remote_bytes })
            },
        ),
        1 => (any::<u64>(), 0..Outcome::ALL.len() as u8).prop_map(|(op, number)| {
            Header::Answer { op, outcome: Outcome::from_number(number).unwrap() }
        }),
        1 => any_handshake().prop_map(Header::Connection),
    ]
}

/// Any step of a connection.
pub(super) fn any_handshake() -> impl Strategy<Value = Handshake> {
    (prop::sample::select(HandshakeStep::ALL.to_vec()), any::<u64>(), any::<u16>()).prop_map(
        |(step, number, choice)| {
            let data_bytes = choice % (step.data_max_bytes() as u16 + 1);
            Handshake { step, number, data_bytes }
        },
    )
}

/// Any access of this length.
pub(super) fn any_rma(len_bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = Rma> {
    let kind = prop_oneof![
        Just(RmaKind::Read),
        any::<Option<u64>>().prop_map(|data| RmaKind::Write { data }),
        (any::<Option<u64>>(), 0..=REMOTE_MAX_BYTES as u8)
            .prop_map(|(data, remote_bytes)| RmaKind::Offer { data, remote_bytes }),
    ];
    let durable = prop_oneof![Just(Durable::Nothing), Just(Durable::Written), Just(Durable::Everything)];
    (any::<[u64; 3]>(), len_bytes, kind, durable).prop_map(
        |([op, key, address], len_bytes, kind, durable)| {
            let durable = if kind == RmaKind::Read { Durable::Nothing } else { durable };
            Rma { op, key, address, len_bytes, kind, durable }
        },
    )
}

/// Any atomic operation on no more elements than this.
pub(super) fn any_atomic(count_max: usize) -> impl Strategy<Value = Atomic> {
    let what = || {
        let kinds = prop::sample::select(AtomicKind::ALL.to_vec());
        let ops = prop::sample::select(AtomicOp::ALL.to_vec());
        (kinds, ops, prop::sample::select(Datatype::ALL.to_vec()))
    };
    let may_be = |(kind, op, datatype): &(AtomicKind, AtomicOp, Datatype)| kind.may(*op, *datatype);
    (
        any::<[u64; 3]>(),
        what().prop_filter("there is no such operation", may_be),
        any::<prop::sample::Index>(),
    )
        .prop_map(move |([op, key, address], (kind, what, datatype), count)| {
            let count = count.index(datatype.count_max().min(count_max) + 1);
            let form = AtomicForm::new(kind, what, datatype, count).unwrap();
            Atomic { op, key, address, form }
        })
}

/// Any message with a payload of this length.
pub(super) fn any_message(len_bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = Message> {
    let awaits = prop_oneof![Just(Awaits::Nothing), Just(Awaits::Arrival), Just(Awaits::Match)];
    (len_bytes, any::<Option<u64>>(), any::<Option<u64>>(), awaits)
        .prop_map(|(len_bytes, tag, data, awaits)| Message { len_bytes, tag, data, awaits })
}
