//! Checks that the matching of messages and receives agrees with a simple model.

#![no_main]

#[path = "../../engine/src/matching/model.rs"]
mod model;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;

use arbitrary::Arbitrary;
use homespun_engine::matching::{Criteria, Matching, Place};
use homespun_engine::peer_id::PeerId;
use homespun_engine::{Config, Engine};
use libfuzzer_sys::fuzz_target;

use crate::model::{Model, Operation};

/// An operation, or many with ascending tags, so that a few bytes of input make long queues. There are only
/// few sources, tags and masks, so random programs have matches.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Step {
    Arrive { source: u8, tag: u8 },
    Post { source: Option<u8>, tag: u8, mask: Mask },
    PostMany { tag: u8, count: u8 },
    ArriveMany { tag: u8, count: u8 },
    Peek { source: Option<u8>, tag: u8, mask: Mask },
    RemovePosted { place: u16 },
    RemoveUnexpected { place: u16 },
    RemoveAbsent,
    DrainPosted,
    DrainUnexpected,
    KeepAside { source: u8, tag: u8 },
    PostBehind { source: Option<u8>, tag: u8, mask: Mask },
    PeekPosted { source: u8, tag: u8 },
    PostedFor { source: u8 },
    RemoveManyPosted { divisor: NonZeroU8 },
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Mask {
    Exact,
    All,
    Some(u8),
}

impl Mask {
    fn ignored_bits(self) -> u64 {
        match self {
            Mask::Exact => 0,
            Mask::All => u64::MAX,
            Mask::Some(bits) => u64::from(bits),
        }
    }
}

impl Step {
    fn apply_and_check(self, model: &mut Model) {
        let only = |source: Option<u8>| source.map(usize::from);
        let operation = match self {
            Step::PostMany { tag, count } => {
                for tag in (u64::from(tag)..).take(count.into()) {
                    model.apply_and_check(Operation::Post { source: None, tag, ignore: 0 });
                }
                return;
            }
            Step::ArriveMany { tag, count } => {
                for tag in (u64::from(tag)..).take(count.into()) {
                    model.apply_and_check(Operation::Arrive { source: 0, tag });
                }
                return;
            }
            Step::Arrive { source, tag } => Operation::Arrive { source: source.into(), tag: tag.into() },
            Step::Post { source, tag, mask } => {
                Operation::Post { source: only(source), tag: tag.into(), ignore: mask.ignored_bits() }
            }
            Step::Peek { source, tag, mask } => {
                Operation::Peek { source: only(source), tag: tag.into(), ignore: mask.ignored_bits() }
            }
            Step::PostBehind { source, tag, mask } => {
                Operation::PostBehind { source: only(source), tag: tag.into(), ignore: mask.ignored_bits() }
            }
            Step::RemovePosted { place } => Operation::RemovePosted { place: place.into() },
            Step::RemoveUnexpected { place } => Operation::RemoveUnexpected { place: place.into() },
            Step::RemoveAbsent => Operation::RemoveAbsent,
            Step::DrainPosted => Operation::DrainPosted,
            Step::DrainUnexpected => Operation::DrainUnexpected,
            Step::KeepAside { source, tag } => {
                Operation::KeepAside { source: source.into(), tag: tag.into() }
            }
            Step::PeekPosted { source, tag } => {
                Operation::PeekPosted { source: source.into(), tag: tag.into() }
            }
            Step::PostedFor { source } => Operation::PostedFor { source: source.into() },
            Step::RemoveManyPosted { divisor } => {
                Operation::RemoveManyPosted { divisor: divisor.get().into() }
            }
        };
        model.apply_and_check(operation);
    }
}

fuzz_target!(|program: Vec<Step>| {
    let mut engine = Engine::new(Config::default());
    let peers = (1..=4).map(|port| engine.intern_peer(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()));
    let mut model = Model::new(peers.collect());
    for step in program {
        step.apply_and_check(&mut model);
        model.check_order();
    }
});
