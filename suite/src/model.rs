//! Random programs of posts, reads, peeks, cancels, accesses and atomic operations, over any
//! network. Their results are checked against a model of matching, memory and elements.
//!
//! A [program](Program) runs step by step. Its calls and their results are recorded as a history, which is
//! then checked. Shared receive contexts ([`shared_context`]) have their own programs.

mod acceptor;
mod accesses;
mod atomics;
mod connected;
mod elements;
mod ends;
mod history;
mod matching;
mod memory;
mod offer;
mod peeks;
mod prelude;
mod program;
mod receives;
mod rest;
mod rules;
mod run;
mod search;
pub mod shared_context;
#[cfg(test)]
mod tests;
mod time_limit;

use crate::model::rules::accept_history;
use crate::model::time_limit::run_with_time_limit;
use crate::{Net, TransportKind, Turns};

pub use self::acceptor::violated_clause;
pub use self::offer::Offer;
pub use self::program::{Disruption, Program, any_connected_program, any_program};
pub use self::search::Search;

/// Runs a program over a new network of this kind, whose provider offers this. The faults of a loopback
/// network follow from the program. Panics unless the model explains its history, with what the program's
/// disruptions leave of the promises.
pub fn run_and_check(turns: Turns, transport: &TransportKind, offer: &Offer, program: &Program) {
    let net = Net::new(&transport.with_seed(program.seed), turns);
    let history = run_with_time_limit(program, || run::run_program(&net, offer, program));
    accept_history(&history, program.disruption, program.order, program.completes_in_order)
        .unwrap_or_else(|violation| panic!("{violation}"));
}
