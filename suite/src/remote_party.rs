//! A party that answers calls: in a process of its own, or behind the C interface in this one.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use homespun::error::SystemRequest;
use homespun::{Address, Errno, Error};

use super::answering::PartyServer;
use super::call::{AddressForm, ConnectionCall, RemoteAnswer, RemoteCall};
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

/// Starts the test's program again, at the entry for parties.
pub(super) fn spawn_process(transport: &TransportKind) -> Process {
    let variable = match transport {
        // Other providers would look for their hardware first.
        TransportKind::Provider(provider) if env::var_os("FI_PROVIDER").is_none() => {
            Some(("FI_PROVIDER", provider.name.replace(';', ",")))
        }
        _ => None,
    };
    Process::spawn_at_crate_path(ENTRY, variable)
}

/// Makes a call to a process. Unwinds with [`Crashed`] if the process has ended by a signal.
#[track_caller]
pub(super) fn call_process(process: &mut Process, call: &RemoteCall) -> RemoteAnswer {
    let answer = if process.send_if_alive(call) { process.receive_if_alive() } else { None };
    answer.unwrap_or_else(|| {
        let status = process.reap();
        match status.signal() {
            Some(_) => resume_unwind(Box::new(Crashed(format!("{}: {status}", name_of(call))))),
            None => panic!("the party's process has ended: {status}"),
        }
    })
}

#[cfg(feature = "providers")]
pub(super) use super::provider_party::open as open_party_of_provider;

/// Opens a party behind the C interface. Returns the answer to [`RemoteCall::Open`], too, or what the
/// provider does not have.
#[cfg(not(feature = "providers"))]
pub(super) fn open_party_of_provider(
    provider: &super::provider::Provider,
    _setup: &super::setup::Setup,
) -> Result<(Box<dyn PartyServer>, RemoteAnswer), String> {
    panic!("{provider:?}: this program is built without the feature `providers`");
}

/// A party that answers calls.
#[derive(Debug)]
pub struct RemoteParty(Place);

#[derive(Debug)]
enum Place {
    /// In a process of its own, which ends when this is dropped.
    Process(Mutex<Process>),
    /// Behind the C interface, in this process.
    Here(Mutex<Box<dyn PartyServer>>),
    /// At the object of a side of connections with this number.
    Of(Arc<RemoteParty>, usize),
}

impl Drop for RemoteParty {
    fn drop(&mut self) {
        if let Place::Of(..) = self.0
            && !thread::panicking()
        {
            self.call_if_alive(&RemoteCall::CloseEndpoint);
        }
    }
}

impl RemoteParty {
    /// Opens a party, in a process of its own or, behind the C interface, in this one. Returns the answer to
    /// [`RemoteCall::Open`], too.
    #[track_caller]
    pub(super) fn open(
        transport: &TransportKind,
        setup: Setup,
        is_here: bool,
    ) -> (Arc<RemoteParty>, RemoteAnswer) {
        if let (true, TransportKind::Provider(provider)) = (is_here, transport) {
            let (answer, server) = match open_party_of_provider(provider, &setup) {
                Ok((server, opened)) => (opened, server),
                Err(what) => resume_unwind(Box::new(NotOffered(what))),
            };
            return (Arc::new(RemoteParty(Place::Here(Mutex::new(server)))), answer);
        }
        let remote = RemoteParty(Place::Process(Mutex::new(spawn_process(transport))));
        let opened = remote.call(&RemoteCall::Open { transport: transport.clone(), setup });
        (Arc::new(remote), opened)
    }

    /// The object of a side of connections with this number, which is closed when the result is dropped.
    pub(super) fn of(side: &Arc<RemoteParty>, number: usize) -> RemoteParty {
        RemoteParty(Place::Of(side.clone(), number))
    }

    /// Whether the party lives in this process.
    pub(super) fn is_here(&self) -> bool {
        match &self.0 {
            Place::Process(_) => false,
            Place::Here(_) => true,
            Place::Of(side, _) => side.is_here(),
        }
    }

    /// The number of an object of a side.
    pub(super) fn number(&self) -> Option<usize> {
        if let Place::Of(_, number) = &self.0 { Some(*number) } else { None }
    }

    /// Makes a call. Unwinds with [`NotOffered`] if the party's provider does not have what it asks for, and
    /// with [`Crashed`] if the process has ended by a signal.
    #[track_caller]
    pub(super) fn call(&self, call: &RemoteCall) -> RemoteAnswer {
        let answer = match &self.0 {
            Place::Process(process) => call_process(&mut lock(process), call),
            Place::Here(server) => lock(server).execute_call(call.clone()),
            Place::Of(side, number) => side.call(&RemoteCall::At(*number, Box::new(call.clone()))),
        };
        match answer {
            RemoteAnswer::NotOffered(what) => resume_unwind(Box::new(NotOffered(what))),
            RemoteAnswer::RefusedWith(errno) => RemoteAnswer::Refused(refused_with(Errno::new(errno))),
            answer => answer,
        }
    }

    /// Opens a party with the default setup. Returns what its provider has granted.
    pub(super) fn open_for_granted(transport: &TransportKind, is_here: bool) -> Granted {
        match RemoteParty::open(transport, Setup::default(), is_here).1 {
            RemoteAnswer::Opened { granted: Some(granted), .. } => granted,
            other => panic!("{other:?}"),
        }
    }

    /// Opens an object of this side of connections.
    #[track_caller]
    pub(super) fn open_object(
        self: &Arc<RemoteParty>,
        call: ConnectionCall,
    ) -> Result<Arc<RemoteParty>, Error> {
        match self.call(&RemoteCall::Connection(call)) {
            RemoteAnswer::Size(number) => Ok(Arc::new(RemoteParty::of(self, number))),
            RemoteAnswer::Refused(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn call_for_address(&self, call: ConnectionCall) -> Result<Address, Error> {
        match self.call(&RemoteCall::Connection(call)) {
            RemoteAnswer::Address(AddressForm(address)) => Ok(address),
            RemoteAnswer::Refused(error) => Err(error),
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
        match &self.0 {
            Place::Process(process) => {
                let mut process = lock(process);
                if !process.was_reaped() {
                    process.send_message(call);
                    let _answer: RemoteAnswer = process.receive_message();
                }
            }
            Place::Here(server) => drop(lock(server).execute_call(call.clone())),
            Place::Of(side, number) => {
                side.call_if_alive(&RemoteCall::At(*number, Box::new(call.clone())));
            }
        }
    }

    /// Drives a party that may have been killed, or that another thread may be closing.
    pub(super) fn progress_if_idle(&self) {
        match &self.0 {
            Place::Process(_) => self.call_if_alive(&RemoteCall::Progress),
            Place::Of(side, _) => side.progress_if_idle(),
            Place::Here(server) => {
                if let Ok(server) = server.try_lock() {
                    server.progress();
                }
            }
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

    #[track_caller]
    fn lock_process(&self) -> MutexGuard<'_, Process> {
        match &self.0 {
            Place::Process(process) => lock(process),
            Place::Here(_) | Place::Of(..) => panic!("the party has no process of its own"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
