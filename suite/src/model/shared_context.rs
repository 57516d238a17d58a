//! Random programs of endpoints that share a receive context, checked against a model of matching. If a
//! member leaves or a link ends, the model does not predict which messages are lost. Instead the model
//! limits how many receives may fail, and checks that each receive ends once and that no credit is lost.
//!
//! The members of the context are in this process. The peers are in this process or in processes of their
//! own.

mod check;
mod ending;
mod fixture;
mod history;
mod program;
mod run;

use crate::{Net, TransportKind, Turns};
use homespun_engine::loopback::Faults;

use crate::model::time_limit::run_with_time_limit;

pub use self::program::{Disruption, Program, any_program, any_program_of_kind};

/// Runs a program over a new network of this kind. Panics unless the model explains its history.
pub fn run_and_check(turns: Turns, transport: &TransportKind, program: &Program) {
    run_and_check_with_faults(None, &Net::new(transport, turns), program);
}

/// As [`run_and_check`], over this network. `faults`, if given, are its faults during the steps.
pub fn run_and_check_with_faults(faults: Option<Faults>, net: &Net, program: &Program) {
    let history = run_with_time_limit(program, || run::run_program(net, program, faults));
    check::check_history(&history, program.connected);
}
