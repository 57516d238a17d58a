//! A party in a process of its own: the part in the test's process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homespun::Error;

use super::call::{RemoteAnswer, RemoteCall};
use super::process::Process;

/// The name of the ignored test that a party's process runs. The macro
/// [`party_process_entry`](crate::party_process_entry) defines the test.
const ENTRY: &str = "party_process_entry";

/// The process of a party. The process ends when this is dropped.
#[derive(Debug)]
pub struct RemoteParty(Mutex<Process>);

impl RemoteParty {
    pub(super) fn spawn() -> RemoteParty {
        RemoteParty(Mutex::new(Process::spawn_at_crate_path(ENTRY)))
    }

    #[track_caller]
    pub(super) fn call(&self, call: &RemoteCall) -> RemoteAnswer {
        let mut process = self.lock_process();
        process.send_message(call);
        process.receive_message()
    }

    /// Makes a call that the process answers by [`RemoteAnswer::Done`] or [`RemoteAnswer::Refused`].
    #[track_caller]
    pub(super) fn call_for_result(&self, call: &RemoteCall) -> Result<(), Error> {
        match self.call(call) {
            RemoteAnswer::Done => Ok(()),
            RemoteAnswer::Refused(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn progress(&self) {
        self.call_for_result(&RemoteCall::Progress).expect("driving is not refused");
    }

    /// Makes a call to a party that may have been killed.
    pub(super) fn call_if_alive(&self, call: &RemoteCall) {
        let mut process = self.lock_process();
        if !process.was_reaped() {
            process.send_message(call);
            let _answer: RemoteAnswer = process.receive_message();
        }
    }

    pub(super) fn process_id(&self) -> u32 {
        self.lock_process().id()
    }

    /// Kills the party's process, and waits for its end.
    pub(super) fn kill(&self) {
        self.lock_process().kill();
    }

    /// Stops the party's process.
    pub(super) fn stop(&self) {
        self.lock_process().stop();
    }

    /// Resumes the party's process.
    pub(super) fn resume(&self) {
        self.lock_process().resume();
    }

    fn lock_process(&self) -> MutexGuard<'_, Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
