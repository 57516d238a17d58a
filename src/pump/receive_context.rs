//! The part of a pump in a shared receive context.

use homespun_engine::transport::Transport;

use super::State;
use crate::lock::LockGuard;

/// Makes other endpoints of the context carry out the effects that this endpoint has left to them. Unlocks
/// this endpoint meanwhile: two endpoints that did this to each other while locked would deadlock.
#[cold]
pub(super) fn deliver_mail_to_others<T: Transport>(guard: &mut LockGuard<'_, Option<State<T>>>) {
    let Some(state) = guard.as_ref() else { return };
    if state.engine.has_mail_for_others()
        && let Some(context) = state.receive_context.clone()
    {
        LockGuard::unlocked(guard, || context.deliver_mail());
    }
}
