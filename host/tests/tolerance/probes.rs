//! The probes: calls of the C interface, each with one unusual argument or state.
//!
//! Probes break the rules of the interface on purpose, each in its own process. So no comment can justify
//! their unsafe blocks.

#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]

mod attributes;
mod bind;
mod endpoint;
mod memory;
mod open;
mod transfer;

use crate::outcome::IntoOutcome;
use crate::setup::Context;

/// Whether a probe depends on the type of endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// The probe has one outcome for each provider.
    Object,
    /// The probe has one outcome for each type of endpoint. The name of the probe begins with the type.
    Endpoint,
}

/// A call with one unusual argument or state.
pub(crate) struct Probe {
    pub(crate) name: String,
    pub(crate) family: Family,
    pub(crate) run: Box<dyn Fn(&Context) -> String>,
}

/// Collects probes.
#[derive(Default)]
pub(crate) struct Probes(Vec<Probe>);

impl Probes {
    fn add<R: IntoOutcome>(
        &mut self,
        family: Family,
        name: impl Into<String>,
        run: impl Fn(&Context) -> R + 'static,
    ) {
        let name = name.into();
        self.0.push(Probe { name, family, run: Box::new(move |context| run(context).into_outcome()) });
    }
}

/// All probes in their order.
pub(crate) fn all_probes() -> Vec<Probe> {
    let mut probes = Probes::default();
    attributes::add_probes(&mut probes);
    open::add_probes(&mut probes);
    bind::add_probes(&mut probes);
    endpoint::add_probes(&mut probes);
    memory::add_probes(&mut probes);
    transfer::add_probes(&mut probes);
    probes.0
}
