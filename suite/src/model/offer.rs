//! What a provider offers to random programs.

use crate::model::prelude::*;

/// How many elements every provider takes at once.
const FEW: usize = 8;

/// What the provider of a network offers to programs.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// Whether this is homespun's own library. Behind the C interface, cancels promise nothing, and no
    /// segment has a part of an element.
    pub(crate) is_native: bool,
    /// Whether this is homespun, perhaps behind the C interface, which promises more than the man pages.
    pub(crate) is_homespun: bool,
    pub(crate) caps: Caps,
    pub(crate) order: Order,
    pub(crate) has_data: bool,
    pub(crate) has_fences: bool,
    pub(crate) has_delivery: bool,
    pub(crate) has_matches: bool,
    pub(crate) completes_in_order: bool,
    /// Whether peeks leave, claim or discard what they find, and report its remote data.
    peeks: [bool; 3],
    /// Whether the test reads the completion of each receive twice: a fault for tests of the model.
    plants_duplicates: bool,
}

impl Offer {
    /// What homespun's own library offers.
    pub const NATIVE: Offer = Offer {
        is_native: true,
        is_homespun: true,
        caps: Caps::all(),
        order: Order::STRICT,
        has_data: true,
        has_fences: true,
        has_delivery: true,
        has_matches: true,
        completes_in_order: true,
        peeks: [true; 3],
        plants_duplicates: false,
    };

    /// Returns the same with a fault: each received message is reported twice.
    #[must_use]
    #[doc(hidden)]
    pub const fn with_planted_duplicates(mut self) -> Offer {
        self.plants_duplicates = true;
        self
    }

    /// Whether each received message is reported twice.
    pub(crate) fn plants_duplicates(&self) -> bool {
        self.plants_duplicates
    }

    /// Asks the provider behind the C interface, or returns [`NATIVE`](Self::NATIVE).
    pub fn of(transport: &TransportKind) -> Offer {
        let TransportKind::Provider(_) = transport else { return Offer::NATIVE };
        let offers = |setup| Net::new(transport, Turns::Processes).offers(setup);
        let has_level = |tx_op_flags| offers(Setup { tx_op_flags, ..Setup::default() });
        let net = Net::new(transport, Turns::Processes);
        let info = net.info();
        Offer {
            is_native: false,
            is_homespun: transport.is_homespun(),
            caps: info.caps,
            order: info.tx.msg_order & info.rx.msg_order,
            has_data: info.domain.cq_data_size_bytes >= size_of::<u64>(),
            has_fences: info.caps.contains(Caps::FENCE),
            has_delivery: has_level(OpFlags::DELIVERY_COMPLETE),
            has_matches: has_level(OpFlags::MATCH_COMPLETE),
            completes_in_order: info.tx.comp_order.contains(Order::STRICT),
            peeks: [PeekAction::Leave, PeekAction::Claim, PeekAction::Discard]
                .map(|then| offers_peek(transport, then)),
            plants_duplicates: false,
        }
    }

    /// The flags of a message that completes after all earlier operations to its peer have taken effect.
    pub(crate) fn last_message_flags(&self) -> OpFlags {
        let mut flags = OpFlags::empty();
        flags.set(OpFlags::DELIVERY_COMPLETE, self.has_delivery);
        flags.set(OpFlags::FENCE, self.has_fences);
        flags
    }

    /// Checks the flags that say what a completion is of. The semantic tests say which ones another provider
    /// sets.
    pub(crate) fn check_flags(&self, completion: &Completion, expected: CompletionFlags) {
        let flags = completion.flags - CompletionFlags::MULTI_RECV;
        let receives = expected.contains(CompletionFlags::RECV);
        let has_expected = !receives || flags.contains(expected - CompletionFlags::REMOTE_CQ_DATA);
        assert!(flags == expected || !self.is_homespun && has_expected, "{completion:?}");
    }

    /// Splits the entry of an initiator's operation.
    pub(crate) fn split_transmit_end(&self, ended: Ended) -> (Completion, Result<(), OperationError>) {
        match ended {
            Ok((completion, source)) => {
                assert!(source == FabricAddress::UNSPECIFIED || !self.is_homespun);
                (completion, Ok(()))
            }
            Err(failed) => (failed.completion, Err(failed.error)),
        }
    }

    /// Checks the fields of an initiator's completion, which `fi_cq(3)` defines for receivers alone.
    pub(crate) fn check_transmit_fields(&self, completion: &Completion, len_bytes: usize) {
        let fields = (completion.len_bytes, completion.data, completion.tag.0);
        assert!(fields == (len_bytes, 0, 0) || !self.is_homespun, "{completion:?}");
    }

    /// Returns the step, or one like it, if it asks for nothing else.
    /// A buffer has room for all messages of the program, which take this much.
    pub(crate) fn restrict_step(&self, step: Step, room_bytes: usize) -> Option<Step> {
        let has = |caps| self.caps.contains(caps);
        let needs = |caps, step| has(caps).then_some(step);
        let from = |from: Option<usize>| from.filter(|_| has(Caps::DIRECTED_RECV));
        match step {
            Step::Send(mut step) => {
                if !self.has_delivery && step.call.level(true) > Level::Inject {
                    step.call = SendCall::Plain;
                }
                Some(Step::Send(step))
            }
            // The man pages do not say which part of a message that is too long is received.
            // Untagged receives take messages from all: over libfabric 2.6 most programs with others fail or
            // crash, and show nothing else (conformance/FINDINGS.md).
            Step::Receive(step) => Some(Step::Receive(ReceiveStep {
                from: from(step.from).filter(|_| step.tagged.is_some()),
                len_bytes: LEN_MAX_BYTES,
                ..step
            })),
            Step::ReceiveMany { at, min_free_bytes, .. } => needs(
                Caps::MULTI_RECV,
                Step::ReceiveMany { at, from: None, len_bytes: room_bytes, min_free_bytes },
            ),
            Step::Peek { at, tagged, from: source, then } => {
                let then = [then, PeekAction::Leave].into_iter().find(|&then| self.peeks[then as usize])?;
                Some(Step::Peek { at, tagged, from: from(source), then })
            }
            Step::Claim { at, which, discards, .. } => {
                Some(Step::Claim { at, which, len_bytes: LEN_MAX_BYTES, discards })
            }
            // When an injected access has taken effect is not told, and the C interface has no flushes.
            Step::Access(AccessStep { call: AccessCall::InjectWrite | AccessCall::Flush, .. }) => None,
            Step::Elements(ElementsStep { call: ElementsCall::Inject, .. }) => None,
            Step::Access(_) | Step::Elements(_) if !self.has_delivery => None,
            Step::Access(_) => needs(Caps::RMA, step),
            // What every provider with atomic operations has: sums of 64 bits.
            Step::Elements(step) => {
                let part = (step.part.0, step.part.1.min(FEW));
                let step = ElementsStep { row: 0, part, op: None, ..step };
                needs(Caps::RMA | Caps::ATOMIC, Step::Elements(step))
            }
            Step::Touch { .. } => needs(Caps::RMA, step),
            Step::Drive { .. } | Step::Read { .. } | Step::Cancel { .. } | Step::Kill { .. } => Some(step),
            Step::Close { .. } | Step::Reopen { .. } | Step::Break { .. } => None,
        }
    }
}

/// Whether the provider carries out such peeks, and tells by its remote data which message they find. No
/// capability says so.
fn offers_peek(transport: &TransportKind, then: PeekAction) -> bool {
    let peek = || {
        let (from, at) = Net::new(transport, Turns::Processes).open_pair();
        let (tag, data) = (Tag(1), Some(7));
        from.endpoint
            .sendmsg(SendMsg { to: from.peer(), tag: Some(tag), data, ..SendMsg::default() })
            .unwrap();
        let receive = RecvMsg { tagged: Some(tag.into()), flags: then.flags(), ..RecvMsg::default() };
        let deadline = Deadline::new();
        loop {
            at.endpoint.recvmsg(receive.clone()).unwrap();
            match at.next_ended() {
                Ok((found, _)) => break assert_eq!(Some(found.data), data),
                Err(failed) => assert_eq!(failed.error, OperationError::NoMessage),
            }
            deadline.yield_or_panic("a message to peek at");
        }
    };
    // A wrong answer is a finding of the tests of peeks, and would spoil every program.
    match Outcome::of(peek) {
        Outcome::Passed => true,
        Outcome::NotOffered(_) | Outcome::Failed(_) | Outcome::Crashed(_) => false,
    }
}
