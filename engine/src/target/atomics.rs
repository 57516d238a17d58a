//! Atomic operations of peers: `fi_atomic(3)`.
//!
//! ```text
//!  Atomic --> all there --> carried out --> Answer queued, or ReadData if it fetches something
//!                |
//!                +--> refused --> Answer queued
//! ```
//!
//! The target carries out an operation in one step, when the last operand has arrived. All frames
//! of a link are handled in the order of arrival.

use super::{TOO_MANY, Target, TargetEffects, queue_answer};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::ATOMIC_LINK_MAX_BYTES;
use crate::link_fault::LinkFault;
use crate::mutated;
use crate::region::{Elements, Window};
use crate::remote_memory::RemoteMemory;
use crate::transport::LinkId;
use crate::wire::{Atomic, AtomicForm, Durable, Outcome, Refusal};

impl Target {
    /// Carries out an atomic operation whose frame has arrived whole.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`](crate::protocol_violation::ProtocolViolation) if the peer has more accesses
    /// under way than it may; [`LinkFault::NoMemory`].
    pub(crate) fn atomic_arrived(
        &mut self,
        id: LinkId,
        atomic: &Atomic,
        payload: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let fetches = atomic.form.kind().fetches();
        let fetched_bytes = if fetches { atomic.form.len_bytes() } else { 0 };
        if link.unanswered_bytes + fetched_bytes > ATOMIC_LINK_MAX_BYTES {
            return Err(TOO_MANY.into());
        }
        let mut before = Vec::new();
        before.try_reserve_exact(fetched_bytes)?;
        link.reads.try_reserve(1)?;
        self.admit_access(id)?;
        match self.apply_atomic(atomic, payload, fetches.then_some(&mut before)) {
            Ok(mut window) => {
                // An endpoint counts a fetching operation as a read (`fi_endpoint(3)`). A region
                // counts it as a read and, if it can change the region, also as a write
                // (`fi_mr(3)`).
                let of_endpoint =
                    if fetches { CounterEvents::REMOTE_READ } else { CounterEvents::REMOTE_WRITE };
                let mut of_region = of_endpoint & CounterEvents::REMOTE_READ;
                if atomic.form.op().can_write() {
                    of_region |= CounterEvents::REMOTE_WRITE;
                    self.persist_or_note_write(
                        id,
                        &mut window,
                        Durable::Nothing,
                        atomic.form.len_bytes() as u64,
                    );
                }
                if !mutated!("fi_atomic/target-completion-after-update") {
                    self.count_access_if_enabled(window.region(), of_endpoint, of_region, effects);
                }
                if fetched_bytes > 0 {
                    self.queue_atomic_results(id, atomic.op, before, effects);
                } else {
                    queue_answer(id, atomic.op, Outcome::Done, effects);
                }
            }
            Err(refusal) => queue_answer(id, atomic.op, Outcome::Refused(refusal), effects),
        }
        Ok(())
    }

    /// Updates the elements, if the peer has the rights that the operation needs.
    fn apply_atomic(
        &self,
        atomic: &Atomic,
        payload: &[u8],
        before: Option<&mut Vec<u8>>,
    ) -> Result<Window, Refusal> {
        let Atomic { key, address, form, .. } = *atomic;
        let access = match mutated!("fi_atomic/atomic-needs-rights") {
            true => MrAccess::empty(),
            false => needed_access(form),
        };
        if !self.atomics.contains(access) {
            return Err(Refusal::Access);
        }
        // A peer of another architecture may use a datatype that does not exist here.
        let combine = form.op().combine_fn(form.datatype()).ok_or(Refusal::Access)?;
        let memory = RemoteMemory { key, address };
        let window = self.checked_window_or_empty(memory, form.len_bytes() as u64, access)?;
        let (operands, compares) =
            payload.split_at_checked(form.operands_len_bytes()).ok_or(Refusal::Range)?;
        let elements = Elements {
            combine,
            size_bytes: form.datatype().size_bytes(),
            count: form.count(),
            operands,
            compares,
        };
        if window.update_elements_if_open(&elements, before) { Ok(window) } else { Err(Refusal::Key) }
    }
}

/// Returns the access rights that an operation needs.
fn needed_access(form: AtomicForm) -> MrAccess {
    let mut access = MrAccess::empty();
    access.set(MrAccess::REMOTE_READ, form.kind().fetches());
    access.set(MrAccess::REMOTE_WRITE, form.op().can_write());
    access
}
