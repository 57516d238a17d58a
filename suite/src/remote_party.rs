//! A party that answers calls: in a process of its own, or behind the C interface in this one.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use homespun::Error;

use super::answering::PartyServer;
use super::call::{ConnectionCall, Opened, Origin, RemoteAnswer, RemoteCall};
use super::process::Process;
use super::provider::{Crashed, NotOffered};
use super::setup::Setup;
use super::transport::TransportKind;

/// The name of the ignored test that a party's process runs. The macro
/// [`party_process_entry`](crate::party_process_entry) defines the test.
const ENTRY: &str = "party_process_entry";

/// The name of a call, without what it carries.
fn name_of(call: &RemoteCall) -> String {
    if let RemoteCall::At(_, call) = call {
        return name_of(call);
    }
    let shown = format!("{call:?}");
    let names = shown.split(|char: char| !char.is_alphanumeric());
    names.take(2).collect::<Vec<_>>().join(" ").trim_end().to_owned()
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

/// Opens a party behind the C interface. Returns what the provider does not have, if it fails.
#[cfg(not(feature = "providers"))]
pub(super) fn open_party_of_provider(
    provider: &super::provider::Provider,
    _setup: &Setup,
    _is_side: bool,
) -> Result<(Box<dyn PartyServer>, Opened), String> {
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
            self.call_if_alive(RemoteCall::CloseEndpoint);
        }
    }
}

impl RemoteParty {
    /// Opens a party or a side, in a process of its own or, behind the C interface, in this one.
    #[track_caller]
    pub(super) fn open(
        transport: &TransportKind,
        setup: Setup,
        is_side: bool,
        is_here: bool,
    ) -> (Arc<RemoteParty>, Opened) {
        if let (true, TransportKind::Provider(provider)) = (is_here, transport) {
            return match open_party_of_provider(provider, &setup, is_side) {
                Ok((server, opened)) => (Arc::new(RemoteParty(Place::Here(Mutex::new(server)))), opened),
                Err(what) => resume_unwind(Box::new(NotOffered(what))),
            };
        }
        let remote = RemoteParty(Place::Process(Mutex::new(spawn_process(transport))));
        match remote.call(RemoteCall::Open { transport: transport.clone(), setup, is_side }) {
            RemoteAnswer::Opened(opened) => (Arc::new(remote), opened),
            other => panic!("{other:?}"),
        }
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

    /// The object of a side, as the origin of an endpoint.
    pub(super) fn as_origin(&self) -> Origin {
        match self.0 {
            Place::Of(_, number) => Origin::Of(number),
            _ => panic!("a request and a passive endpoint are objects of a side"),
        }
    }

    /// Makes a call. Unwinds with [`NotOffered`] if the party's provider does not have what it asks for, and
    /// with [`Crashed`] if the process has ended by a signal.
    #[track_caller]
    pub(super) fn call(&self, call: RemoteCall) -> RemoteAnswer {
        let answer = match &self.0 {
            Place::Process(process) => call_process(&mut lock(process), &call),
            Place::Here(server) => lock(server).execute_call(call),
            Place::Of(side, number) => side.call(RemoteCall::At(*number, Box::new(call))),
        };
        match answer {
            RemoteAnswer::NotOffered(what) => resume_unwind(Box::new(NotOffered(what))),
            answer => answer,
        }
    }

    /// Opens an object of this side of connections.
    #[track_caller]
    pub(super) fn open_object(
        self: &Arc<RemoteParty>,
        call: ConnectionCall,
    ) -> Result<Arc<RemoteParty>, Error> {
        match self.call(RemoteCall::Connection(call)).granted()? {
            RemoteAnswer::Size(number) => Ok(Arc::new(RemoteParty::of(self, number))),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call to a party that may have been killed.
    pub(super) fn call_if_alive(&self, call: RemoteCall) {
        match &self.0 {
            Place::Process(process) => {
                let mut process = lock(process);
                if !process.was_reaped() {
                    call_process(&mut process, &call);
                }
            }
            Place::Here(server) => drop(lock(server).execute_call(call)),
            Place::Of(side, number) => side.call_if_alive(RemoteCall::At(*number, Box::new(call))),
        }
    }

    /// Drives a party that may have been killed, or that another thread may be closing.
    pub(super) fn progress_if_idle(&self) {
        match &self.0 {
            Place::Process(_) => self.call_if_alive(RemoteCall::Progress),
            Place::Of(side, _) => side.progress_if_idle(),
            Place::Here(server) => {
                if let Ok(server) = server.try_lock() {
                    server.progress();
                }
            }
        }
    }

    /// The party's process.
    #[track_caller]
    pub(super) fn lock_process(&self) -> MutexGuard<'_, Process> {
        match &self.0 {
            Place::Process(process) => lock(process),
            Place::Here(_) | Place::Of(..) => panic!("the party has no process of its own"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
