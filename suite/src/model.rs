//! Random programs of posts, reads, peeks, cancels, accesses and atomic operations, over any
//! network. Their results are checked against a model of matching, memory and elements.
//!
//! A [program](Program) runs step by step. Its calls and their results are recorded as a history, which is
//! then checked. Shared receive contexts ([`shared_context`]), connected endpoints ([`connected`]) and
//! deferred work ([`works`]) have their own programs.

mod accesses;
mod atomics;
mod buffers;
mod check;
pub mod connected;
mod elements;
mod history;
mod memory;
mod offer;
mod program;
mod reference;
mod rest;
mod run;
pub mod shared_context;
mod time_limit;
mod updates;
pub mod works;

use crate::{Net, TransportKind, Turns};

use crate::model::time_limit::run_with_time_limit;

pub use self::check::Promise;
pub use self::offer::Offer;
pub use self::program::{Disruption, Program, any_program};

/// Runs a program over a new network of this kind, whose provider offers this. Panics unless the model
/// explains its history, with these promises.
pub fn run_and_check(
    turns: Turns,
    transport: &TransportKind,
    offer: &Offer,
    program: &Program,
    promise: Promise,
) {
    let net = Net::new(transport, turns);
    let history = run_with_time_limit(program, || run::run_program(&net, offer, program));
    check::check_history(&history, promise);
    memory::check_accesses(&history, promise, program.order);
    if program.completes_in_order {
        memory::check_completion_order(&history);
    }
}
