//! A pump's part in a shared receive context.

use homespun_engine::transport::Transport;

use super::State;
use crate::lock::LockGuard;

/// Has other endpoints do what this one has left to them. This one is unlocked meanwhile: two that
/// notify each other would deadlock.
#[cold]
pub(super) fn deliver_mail_to_others<T: Transport>(guard: &mut LockGuard<'_, Option<State<T>>>) {
    let Some(state) = guard.as_ref() else { return };
    if state.engine.has_mail_for_others()
        && let Some(context) = state.receive_context.clone()
    {
        LockGuard::unlocked(guard, || context.deliver_mail());
    }
}
