//! Random programs of two connected endpoints. The results are checked against the rules of matching, and
//! against the order in which receives of a connection complete.

mod check;
mod program;
mod run;

use crate::{Net, TransportKind, Turns};

use crate::model::time_limit::run_with_time_limit;

pub use self::program::{Program, any_program};

/// Runs a program over a new network of this kind. Panics unless the model explains its history.
pub fn run_and_check(transport: &TransportKind, program: &Program) {
    let net = Net::new(transport, Turns::Alternate);
    check::check_observed(&run_with_time_limit(program, || run::run_program(&net, program)));
}
