//! Atomic operations of peers: `fi_atomic(3)`.
//!
//! ```text
//!  Atomic --> all there --> carried out --> owes Answer, or ReadData if it fetches something
//!                |
//!                +--> refused --> owes Answer
//! ```
//!
//! An operation is carried out in one go when its last operand has arrived, in the order in which
//! operations and other frames of the link arrive.

use super::{TOO_MANY, Target, TargetEffects, answer};
use crate::breach::Breach;
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::ATOMIC_LINK_MAX_BYTES;
use crate::region::{Elements, Window};
use crate::transport::LinkId;
use crate::wire::{Atomic, AtomicForm, Durable, Outcome, Refusal};

impl Target {
    /// A whole atomic operation has arrived.
    ///
    /// # Errors
    ///
    /// A [`Breach`] if the peer has more under way than it may.
    pub(crate) fn atomic(
        &mut self,
        id: LinkId,
        atomic: &Atomic,
        payload: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), Breach> {
        let Some(link) = self.links.of(id) else { return Ok(()) };
        let fetches = atomic.form.kind().fetches();
        let fetched_bytes = if fetches { atomic.form.len_bytes() } else { 0 };
        if link.unanswered_bytes + fetched_bytes > ATOMIC_LINK_MAX_BYTES {
            return Err(TOO_MANY);
        }
        self.admit(id)?;
        let mut before = Vec::with_capacity(fetched_bytes);
        match self.carry_out(atomic, payload, fetches.then_some(&mut before)) {
            Ok(window) => {
                // An endpoint counts a fetch as a read (`fi_endpoint(3)`), a region also as the write that it
                // is (`fi_mr(3)`).
                let of_endpoint =
                    if fetches { CounterEvents::REMOTE_READ } else { CounterEvents::REMOTE_WRITE };
                let mut of_region = of_endpoint & CounterEvents::REMOTE_READ;
                if atomic.form.op().writes() {
                    of_region |= CounterEvents::REMOTE_WRITE;
                    self.persisted(id, &window, Durable::Nothing, atomic.form.len_bytes() as u64);
                }
                self.accessed(&window, of_endpoint, of_region, effects);
                if fetched_bytes > 0 {
                    self.results_fetched(id, atomic.op, before, effects);
                } else {
                    answer(id, atomic.op, Outcome::Done, effects);
                }
            }
            Err(refusal) => answer(id, atomic.op, Outcome::Refused(refusal), effects),
        }
        Ok(())
    }

    /// Updates the elements, if the peer may.
    fn carry_out(
        &self,
        atomic: &Atomic,
        payload: &[u8],
        before: Option<&mut Vec<u8>>,
    ) -> Result<Window, Refusal> {
        let Atomic { key, address, form, .. } = *atomic;
        let access = access_of(form);
        if !self.atomics.contains(access) {
            return Err(Refusal::Access);
        }
        // What a peer of another architecture calculates with may be nothing here.
        let combine = form.op().combine(form.datatype()).ok_or(Refusal::Access)?;
        let window = self.regions.window_or_empty(key, address, form.len_bytes() as u64, access)?;
        let (operands, compares) =
            payload.split_at_checked(form.operands_len_bytes()).ok_or(Refusal::Range)?;
        let elements = Elements {
            combine,
            size_bytes: form.datatype().size_bytes(),
            count: form.count(),
            operands,
            compares,
        };
        if window.update(&elements, before) { Ok(window) } else { Err(Refusal::Key) }
    }
}

/// What has to be allowed for an operation.
fn access_of(form: AtomicForm) -> MrAccess {
    let mut access = MrAccess::empty();
    access.set(MrAccess::REMOTE_READ, form.kind().fetches());
    access.set(MrAccess::REMOTE_WRITE, form.op().writes());
    access
}
