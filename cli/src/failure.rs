//! Why the command failed, in the words that its user reads.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use homespun::transport::LinkError;
use homespun::{Address, Errno, Error, Misuse, OperationError, Rejected};

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nothing meets the request, for this reason (ENODATA).
    #[error("nothing meets the request: it needs {0} (ENODATA)")]
    NoData(&'static str),
    /// A domain was asked for that does not exist (ENODATA).
    #[error("there is no domain {asked}, only {} (ENODATA)", .there.join(" and "))]
    NoDomain {
        /// Its name.
        asked: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// A call of the fabric failed.
    #[error("{0}")]
    Fabric(Error),
    /// An endpoint could not be opened.
    #[error("cannot listen at {at}: {error}")]
    Bind {
        /// Where.
        at: String,
        /// What was answered.
        error: Errno,
    },
    /// The peer could not be reached to begin with.
    #[error("nobody answers at {address}: {error}")]
    NoAnswer {
        /// Where it should be.
        address: Address,
        /// What happened.
        error: OperationError,
    },
    /// One of the two may not talk to the other.
    #[error("may not talk to {address}: {reason}")]
    Denied {
        /// The peer.
        address: Address,
        /// Why not.
        reason: &'static str,
    },
    /// Something answers that is not homespun.
    #[error("what answers at {address} is not homespun: {reason}")]
    Stranger {
        /// Where.
        address: Address,
        /// What it did.
        reason: &'static str,
    },
    /// The peer is there and does not want to.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// The peer.
        address: Address,
        /// Its reason.
        reason: String,
    },
    /// The peer was there and is no more.
    #[error("lost the peer at {address}: {error}")]
    Lost {
        /// The peer.
        address: Address,
        /// What happened.
        error: OperationError,
    },
    /// The peer does nothing any more.
    #[error("nothing came from {address} for {} s", .timeout.as_secs_f64())]
    Stalled {
        /// The peer.
        address: Address,
        /// How long was waited.
        timeout: Duration,
    },
    /// A message is not as long as agreed.
    #[error("message {sequence} from {address} has {actual_bytes} bytes and should have {expected_bytes}")]
    Length {
        /// The peer.
        address: Address,
        /// Which message.
        sequence: u64,
        /// How long it is.
        actual_bytes: usize,
        /// How long it should be.
        expected_bytes: usize,
    },
    /// A message is longer than agreed.
    #[error(
        "message {sequence} from {address} has {overflow_bytes} bytes more than the {expected_bytes} agreed"
    )]
    TooLong {
        /// The peer.
        address: Address,
        /// Which message.
        sequence: u64,
        /// How long it should be.
        expected_bytes: usize,
        /// How many more bytes it has.
        overflow_bytes: u64,
    },
    /// A message has another tag than it was sent with.
    #[error("message {sequence} from {address} has tag {tag}")]
    Tag {
        /// The peer.
        address: Address,
        /// Which message, and the tag that it should have.
        sequence: u64,
        /// The tag that it has.
        tag: u64,
    },
    /// A message does not hold what was sent.
    #[error(
        "wrong data: byte {offset} of message {sequence} ({size_bytes} bytes) from {address} \
         is {actual:#04x} and should be {expected:#04x}"
    )]
    Corrupt {
        /// The peer.
        address: Address,
        /// Which message.
        sequence: u64,
        /// Its length.
        size_bytes: usize,
        /// Where the first wrong byte is.
        offset: usize,
        /// What it is.
        actual: u8,
        /// What it should be.
        expected: u8,
    },
    /// The peer process could not be started.
    #[error("cannot start a peer process: {0}")]
    Start(io::Error),
    /// The peer process did not say what it was asked.
    #[error("the peer process said nothing for {} s", .timeout.as_secs_f64())]
    PeerSilent {
        /// How long was waited.
        timeout: Duration,
    },
    /// The peer process said something else than it was asked.
    #[error("the peer process is of another version")]
    PeerTalk,
    /// The peer process is there no more.
    #[error("it is gone")]
    PeerGone,
    /// The peer process ended before its time.
    #[error("the peer process ended too early ({status}): {cause}")]
    PeerEnded {
        /// How it ended.
        status: ExitStatus,
        /// How that was noticed.
        cause: Box<Failure>,
    },
    /// This is the peer process, and it failed.
    #[error("in the peer process: {0}")]
    InPeer(Box<Failure>),
    /// This process could not be kept on a core.
    #[error("cannot pin to core {core}: {error}; --no-pin goes without")]
    Pin {
        /// The core.
        core: usize,
        /// What the system said.
        error: io::Error,
    },
    /// Something that a bare loop needs is not to be had.
    #[error("cannot set up the bare loop: {doing}: {error}")]
    Bare {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The library of libfabric cannot be used.
    #[error(
        "cannot load libfabric: {reason} (to install it: libfabric1 in Debian and Ubuntu, libfabric in Fedora)"
    )]
    Load {
        /// What the loader said.
        reason: String,
    },
    /// The plugin for libfabric is not there.
    #[error(
        "there is no {plugin} in {}: build it with `cargo build --release -p homespun-libfabric`, without --release if \
         this program was built so, or say where it is with --provider-dir",
        .looked_in.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoPlugin {
        /// The name of its file.
        plugin: &'static str,
        /// Where it was looked for.
        looked_in: Vec<PathBuf>,
    },
    /// The command to be run is not there, and starts the ranks of MPI programs.
    #[error("there is no command {}: install {mpi}", .command.display())]
    NoMpi {
        /// Its name.
        command: OsString,
        /// The implementation of MPI that contains it, and its packages.
        mpi: &'static str,
    },
    /// The command to be run is not there.
    #[error("there is no command {}", .command.display())]
    NoCommand {
        /// Its name.
        command: OsString,
    },
    /// The command to be run could not be.
    #[error("cannot run {}: {error}", .command.display())]
    NotExecuted {
        /// Its name.
        command: OsString,
        /// What the system said.
        error: io::Error,
    },
    /// A libfabric to compare with is not installed.
    #[error(
        "there is no {missing} ({looked_in}): install libfabric's programs (libfabric-bin in Debian and Ubuntu, \
         libfabric in Fedora), or name the prefix of an installation with --libfabric"
    )]
    NoLibfabric {
        /// What is missing.
        missing: &'static str,
        /// Where it was looked for.
        looked_in: String,
    },
    /// The libfabric to compare with lacks a provider.
    #[error(
        "libfabric {version} has no provider {asked} for reliable unconnected endpoints; it has {}",
        .there.join(", ")
    )]
    NoProvider {
        /// Its name.
        asked: String,
        /// The version of the libfabric.
        version: String,
        /// The names of the providers that it has.
        there: Vec<String>,
    },
    /// A comparison needs two cores.
    #[error("the two processes need a core each, and there is {there}; --no-pin goes without")]
    OneCore {
        /// How many cores this process may run on, in words.
        there: String,
    },
    /// A program of libfabric measured nothing.
    #[error("{program} over {contender} measured nothing: {reason}")]
    NotMeasured {
        /// Its name.
        program: String,
        /// The provider.
        contender: String,
        /// Why.
        reason: String,
    },
    /// Some measurements failed, each of which was complained about.
    #[error("{missing} of {all} sizes could not be measured for every contender")]
    Incomplete {
        /// How many rows lack a measurement.
        missing: usize,
        /// How many rows there are.
        all: usize,
    },
    /// Some contenders could not do all that they offer; the results have the reasons.
    #[error("{failed} of {all} contenders failed; the results say why")]
    Contenders {
        /// How many failed.
        failed: usize,
        /// How many there are.
        all: usize,
    },
    /// A file of results could not be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// Its name.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Results could not be drawn.
    #[error("cannot draw {name}: {reason}")]
    Draw {
        /// The name of the drawing.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Results could not be written.
    #[error("cannot write the results: {0}")]
    Output(io::Error),
}

impl Failure {
    /// Whether whoever read the results has stopped doing so.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The status that this command ends with: as `env(1)` has it for a command that could not be run, so that nobody
    /// takes it for one of the command's own.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::NoMpi { .. } | Failure::NoCommand { .. } => ExitCode::from(127),
            Failure::NotExecuted { .. } => ExitCode::from(126),
            _ => ExitCode::FAILURE,
        }
    }

    /// A failure to reach a peer that has not answered yet.
    pub(crate) fn unreachable(address: Address, error: OperationError) -> Failure {
        match error {
            OperationError::Link(LinkError::Protocol(reason)) => Failure::Stranger { address, reason },
            OperationError::Link(LinkError::Denied(reason)) => Failure::Denied { address, reason },
            error => Failure::NoAnswer { address, error },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Misuse(Misuse::NoData(reason)) => Failure::NoData(reason),
            error => Failure::Fabric(error),
        }
    }
}

impl<B> From<Rejected<B>> for Failure {
    fn from(rejected: Rejected<B>) -> Self {
        rejected.error.into()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn who_does_not_answer_is_told_from_who_may_not_and_who_is_a_stranger() {
        let address: Address = SocketAddr::from(([127, 0, 0, 1], 7471)).into();
        let said = |error| Failure::unreachable(address, OperationError::Link(error)).to_string();
        assert_eq!(
            said(LinkError::System(Errno::ECONNREFUSED)),
            "nobody answers at 127.0.0.1:7471: Connection refused"
        );
        assert_eq!(said(LinkError::Denied("another user")), "may not talk to 127.0.0.1:7471: another user");
        assert_eq!(
            said(LinkError::Protocol("unknown frame kind")),
            "what answers at 127.0.0.1:7471 is not homespun: unknown frame kind"
        );
    }
}
