//! The probes: calls of the C interface, each with one unusual argument or state.
//!
//! Probes break the rules of the interface on purpose, each in its own process. So no comment can justify
//! their unsafe blocks.

#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]

mod bind;
mod endpoint;
mod getinfo;
mod memory;
mod open;
mod queues;
mod transfer;

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
    pub(crate) fn add_object_probe(
        &mut self,
        name: impl Into<String>,
        run: impl Fn(&Context) -> String + 'static,
    ) {
        self.0.push(Probe { name: name.into(), family: Family::Object, run: Box::new(run) });
    }

    pub(crate) fn add_endpoint_probe(
        &mut self,
        name: impl Into<String>,
        run: impl Fn(&Context) -> String + 'static,
    ) {
        self.0.push(Probe { name: name.into(), family: Family::Endpoint, run: Box::new(run) });
    }
}

/// All probes in their order.
pub(crate) fn all_probes() -> Vec<Probe> {
    let mut probes = Probes::default();
    getinfo::add_probes(&mut probes);
    open::add_probes(&mut probes);
    bind::add_probes(&mut probes);
    endpoint::add_probes(&mut probes);
    queues::add_probes(&mut probes);
    memory::add_probes(&mut probes);
    transfer::add_probes(&mut probes);
    probes.0
}
