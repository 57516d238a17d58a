//! Random programs of deferred work and triggered operations, checked against a model.
//!
//! The endpoint is in this process. The endpoint's peer is in this process or in one of its own.

mod check;
mod fixture;
mod operations;
mod program;
mod reference;
mod run;

use crate::{Net, TransportKind, Turns};

use crate::model::time_limit::run_with_time_limit;

pub use self::program::{Program, any_program};

/// Runs a program over a new network of this kind. Panics unless the model explains its history.
pub fn run_and_check(turns: Turns, transport: &TransportKind, program: &Program) {
    let net = Net::new(transport, turns);
    check::check_works(&run_with_time_limit(program, || run::run_program(&net, program)));
}
