//! A party in a process of its own: the part in the test's process.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

use homespun::error::SystemRequest;
use homespun::{Errno, Error};

use super::call::{RemoteAnswer, RemoteCall};
use super::process::Process;
use super::provider::{Crashed, Granted, NotOffered};
use super::setup::Setup;
use super::transport::TransportKind;

/// The name of the ignored test that a party's process runs. The macro
/// [`party_process_entry`](crate::party_process_entry) defines the test.
const ENTRY: &str = "party_process_entry";

/// The error of a call that another provider has refused. Every error of homespun says more than its number.
pub(super) fn refused_with(errno: Errno) -> Error {
    Error::System { request: SystemRequest::Socket, errno }
}

/// The name of a call, without what it carries.
fn name_of(call: &RemoteCall) -> String {
    format!("{call:?}").chars().take_while(|char| char.is_alphanumeric()).collect()
}

/// The process of a party. The process ends when this is dropped.
#[derive(Debug)]
pub struct RemoteParty(Mutex<Process>);

impl RemoteParty {
    pub(super) fn spawn(transport: &TransportKind) -> RemoteParty {
        let variable = match transport {
            // Other providers would look for their hardware first.
            TransportKind::Provider(provider) if env::var_os("FI_PROVIDER").is_none() => {
                Some(("FI_PROVIDER", provider.name.replace(';', ",")))
            }
            _ => None,
        };
        RemoteParty(Mutex::new(Process::spawn_at_crate_path(ENTRY, variable)))
    }

    /// Makes a call. Unwinds with [`NotOffered`] if the party's provider does not have what it asks for, and
    /// with [`Crashed`] if the process has ended by a signal.
    #[track_caller]
    pub(super) fn call(&self, call: &RemoteCall) -> RemoteAnswer {
        let mut process = self.lock_process();
        let answer = if process.send_if_alive(call) { process.receive_if_alive() } else { None };
        match answer {
            Some(RemoteAnswer::NotOffered(what)) => resume_unwind(Box::new(NotOffered(what))),
            Some(RemoteAnswer::RefusedWith(errno)) => RemoteAnswer::Refused(refused_with(Errno::new(errno))),
            Some(answer) => answer,
            None => {
                let status = process.reap();
                match status.signal() {
                    Some(_) => resume_unwind(Box::new(Crashed(format!("{}: {status}", name_of(call))))),
                    None => panic!("the party's process has ended: {status}"),
                }
            }
        }
    }

    /// Opens a party with the default setup. Returns what its provider has granted.
    pub(super) fn call_for_granted(&self, transport: &TransportKind) -> Granted {
        let open = RemoteCall::Open { transport: transport.clone(), setup: Setup::default() };
        match self.call(&open) {
            RemoteAnswer::Opened { granted: Some(granted), .. } => granted,
            other => panic!("{other:?}"),
        }
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
