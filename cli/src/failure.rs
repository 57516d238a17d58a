//! The failures of the command, with their messages for the user.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use homespun::error::Unmet;
use homespun::params::OfferedName;
use homespun::transport::{Denial, LinkError};
use homespun::{Address, Errno, Error, Misuse, OperationError, Rejected};
use homespun_rpma::{ConnectionEvent, Status};

/// The reason why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFailure {
    /// Nothing meets the request (ENODATA).
    #[error("nothing meets the request: it needs {0} (ENODATA)")]
    Unmet(Unmet),
    /// No address of the peer is known (ENODATA).
    #[error("nothing meets the request: it needs an address of the peer (ENODATA)")]
    NoPeerAddress,
    /// There is no endpoint or no test that `homespun check` could try.
    #[cfg(feature = "check")]
    #[error("there is nothing to check: {0}")]
    NothingToCheck(String),
    /// Tests of `homespun check` have failed.
    #[cfg(feature = "check")]
    #[error("{failed} of {tests} tests failed")]
    Check {
        /// How many have failed.
        failed: usize,
        /// How many there are.
        tests: usize,
    },
    /// There is no program to replay in the file.
    #[cfg(feature = "check")]
    #[error("{} has no program to replay: {error}", .file.display())]
    NoProgram {
        /// The file.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// The report of `homespun check` cannot be written.
    #[cfg(feature = "check")]
    #[error("cannot write the report to {}: {error}", .file.display())]
    NoReport {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no command to run.
    #[error("there is no command to run")]
    EmptyCommand,
    /// The requested domain does not exist (ENODATA).
    #[error("there is no domain {requested}, only {} (ENODATA)", .available.join(", "))]
    NoDomain {
        /// The requested name.
        requested: String,
        /// The existing domains.
        available: Vec<String>,
    },
    /// `homespun bench` does not measure the domain (ENODATA).
    #[error("bench measures only the domains shm and tcp, not {domain} (ENODATA)")]
    NotBenched {
        /// The domain's name.
        domain: String,
    },
    /// A call of the fabric failed.
    #[error("{0}")]
    Fabric(Error),
    /// A call of librpma's terms failed.
    #[error("{0}")]
    Rpma(homespun_rpma::Error),
    /// There is no connection in librpma's terms, or it has ended.
    #[error("no connection between the two processes: {0}")]
    NotConnected(ConnectionEvent),
    /// A write or the flush behind it failed.
    #[error("a write or its flush failed: {0}")]
    FlushFailed(Status),
    /// An endpoint could not be bound to its address.
    #[error("cannot listen at {at}: {error}")]
    Bind {
        /// The address of the endpoint.
        at: String,
        /// The error.
        error: Errno,
    },
    /// The peer could not be reached.
    #[error("no answer from {address}: {error}")]
    NoAnswer {
        /// The peer's address.
        address: Address,
        /// The failure of the operation.
        error: OperationError,
    },
    /// One of the two processes is not allowed to connect to the other.
    #[error("not allowed to connect to {address}: {reason}")]
    Denied {
        /// The peer.
        address: Address,
        /// The reason.
        reason: Denial,
    },
    /// The process that listens at the address is not homespun.
    #[error("the process that listens at {address} is not homespun: {reason}")]
    NotHomespun {
        /// The address.
        address: Address,
        /// How that process broke the protocol.
        reason: &'static str,
    },
    /// The peer refuses the request.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// The peer.
        address: Address,
        /// The peer's reason.
        reason: String,
    },
    /// The connection to the peer was lost.
    #[error("lost the peer at {address}: {error}")]
    Lost {
        /// The peer.
        address: Address,
        /// The failure of the operation.
        error: OperationError,
    },
    /// The peer has been silent for too long.
    #[error("nothing came from {address} for {} s", .timeout.as_secs_f64())]
    Stalled {
        /// The peer.
        address: Address,
        /// The time-out.
        timeout: Duration,
    },
    /// A message has a wrong length.
    #[error("message {sequence} from {address} has {actual_bytes} bytes instead of {expected_bytes}")]
    Length {
        /// The peer.
        address: Address,
        /// The message's number.
        sequence: u64,
        /// The length of the message.
        actual_bytes: usize,
        /// The expected length of the message.
        expected_bytes: usize,
    },
    /// A message is longer than its receive buffer.
    #[error(
        "message {sequence} from {address} exceeds the expected {expected_bytes} bytes by {overflow_bytes}"
    )]
    TooLong {
        /// The peer.
        address: Address,
        /// The message's number.
        sequence: u64,
        /// The expected length of the message.
        expected_bytes: usize,
        /// The number of excess bytes.
        overflow_bytes: u64,
    },
    /// A message has a wrong tag.
    #[error("message {sequence} from {address} has the wrong tag {tag}")]
    Tag {
        /// The peer.
        address: Address,
        /// The message's number, which is its expected tag.
        sequence: u64,
        /// The tag of the message.
        tag: u64,
    },
    /// A message has wrong content.
    #[error(
        "wrong data: byte {offset} of message {sequence} ({size_bytes} bytes) from {address} \
         is {actual:#04x} and should be {expected:#04x}"
    )]
    Corrupt {
        /// The peer.
        address: Address,
        /// The message's number.
        sequence: u64,
        /// The length of the message.
        size_bytes: usize,
        /// The offset of the first wrong byte.
        offset: usize,
        /// The wrong byte.
        actual: u8,
        /// The expected byte.
        expected: u8,
    },
    /// The peer process could not be started.
    #[error("cannot start a peer process: {0}")]
    Start(io::Error),
    /// The peer process did not answer in time.
    #[error("the peer process said nothing for {} s", .timeout.as_secs_f64())]
    PeerSilent {
        /// The time-out.
        timeout: Duration,
    },
    /// The peer process gave an unexpected answer.
    #[error("the peer process gave an unexpected answer; is it of another version?")]
    PeerProtocol,
    /// The other process of the measurement has ended.
    #[error("the peer process has ended")]
    PeerGone,
    /// The peer process ended early.
    #[error("the peer process ended too early ({status}): {cause}")]
    PeerEnded {
        /// The exit status of the peer process.
        status: ExitStatus,
        /// The failure that this process noticed.
        cause: Box<CommandFailure>,
    },
    /// This process is the peer process, and it failed.
    #[error("in the peer process: {0}")]
    InPeer(Box<CommandFailure>),
    /// This process could not be pinned to a core.
    #[error("cannot pin to core {core}: {error}; try --no-pin")]
    Pin {
        /// The core.
        core: usize,
        /// The error of the system.
        error: io::Error,
    },
    /// The path of a file cannot be passed to another process.
    #[error("the path {} is not in UTF-8", .path.display())]
    PathNotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// A system call of a bare loop failed.
    #[error("the bare loop failed while {doing}: {error}")]
    Bare {
        /// What the loop was doing, in words.
        doing: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// The library of libfabric cannot be used.
    #[error(
        "cannot load libfabric: {reason} (to install it: libfabric1 in Debian and Ubuntu, \
         libfabric in Fedora)"
    )]
    Load {
        /// The loader's message.
        reason: String,
    },
    /// The plugin for libfabric was not found.
    #[error(
        "there is no {plugin} in {}: build it with `cargo build --release -p homespun-libfabric` (without \
         --release if this program was built without it), or name its directory with --provider-dir",
        .looked_in.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoPlugin {
        /// The name of the plugin's file.
        plugin: &'static str,
        /// The directories that were searched.
        looked_in: Vec<PathBuf>,
    },
    /// homespun's library of librpma was not found.
    #[error(
        "there is no librpma.so of homespun in {}: build it with `cargo build --release -p homespun-librpma` \
         (without --release if this program was built without it)",
        .looked_in.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoLibrpma {
        /// The directories that were searched.
        looked_in: Vec<PathBuf>,
    },
    /// The path of a library has a character that separates paths in LD_PRELOAD.
    #[error("the dynamic linker cannot preload {}, whose path has a space or a colon", .library.display())]
    PreloadPath {
        /// The path of the library.
        library: PathBuf,
    },
    /// The command, a launcher of MPI programs, was not found.
    #[error("there is no command {}: install {mpi}", .command.display())]
    NoMpi {
        /// The name of the command.
        command: OsString,
        /// The MPI implementation that contains the launcher, and its packages.
        mpi: &'static str,
    },
    /// The command is a launcher of Open MPI. homespun is offered under another provider's name, and
    /// Open MPI uses no provider of that name.
    #[error(
        "{} belongs to Open MPI, which leaves out every provider named {name}, so it would not use homespun; \
         run it without --as and FI_HOMESPUN_AS",
        .command.display()
    )]
    OpenMpiExcludes {
        /// The name of the command.
        command: OsString,
        /// The name for homespun.
        name: OfferedName,
    },
    /// The command was not found.
    #[error("there is no command {}", .command.display())]
    NoCommand {
        /// The name of the command.
        command: OsString,
    },
    /// The command could not be executed.
    #[error("cannot run {}: {error}", .command.display())]
    NotExecuted {
        /// The name of the command.
        command: OsString,
        /// The error of the system.
        error: io::Error,
    },
    /// The libfabric to compare with, or one of its programs, is not installed.
    #[error(
        "there is no {missing} (searched: {looked_in}): install libfabric's programs (libfabric-bin in \
         Debian and Ubuntu, libfabric in Fedora), or name the prefix of an installation with --libfabric"
    )]
    NoLibfabric {
        /// The missing file.
        missing: &'static str,
        /// The places that were searched.
        looked_in: String,
    },
    /// The libfabric to compare with lacks a provider.
    #[error(
        "libfabric {version} has no provider {requested} for reliable unconnected endpoints; it has {}",
        .available.join(", ")
    )]
    NoProvider {
        /// The name of the missing provider.
        requested: String,
        /// The version of the libfabric.
        version: String,
        /// The names of the providers that it has.
        available: Vec<String>,
    },
    /// A comparison needs two cores.
    #[error("the two processes need a core each, but there is only {available}; try --no-pin")]
    OneCore {
        /// The number of cores that this process may run on, in words.
        available: String,
    },
    /// A program of libfabric gave no result.
    #[error("{program} over {contender} gave no result: {reason}")]
    NotMeasured {
        /// The name of the program.
        program: String,
        /// The provider.
        contender: String,
        /// The reason.
        reason: String,
    },
    /// Some measurements failed; a warning was printed for each.
    #[error("{missing} of {all} sizes could not be measured for every contender")]
    Incomplete {
        /// The number of rows that lack a measurement.
        missing: usize,
        /// The number of rows.
        all: usize,
    },
    /// Some contenders failed at something that they offer. The results contain the reasons.
    #[error("{failed} of {all} contenders failed; the results say why")]
    ContendersFailed {
        /// The number of contenders that failed.
        failed: usize,
        /// The number of contenders.
        all: usize,
    },
    /// A file of results could not be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Results could not be drawn.
    #[error("cannot draw {name}: {reason}")]
    Draw {
        /// The name of the drawing.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Results could not be written.
    #[error("cannot write the results: {0}")]
    Output(io::Error),
}

impl CommandFailure {
    /// Whether the reader of the results has closed the pipe.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, CommandFailure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The exit status of homespun. As with `env(1)`, it is 127 if the command does not exist, and 126
    /// if the command cannot be executed. It is 2 for [`OpenMpiExcludes`](Self::OpenMpiExcludes), as for
    /// wrong options.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CommandFailure::NoMpi { .. } | CommandFailure::NoCommand { .. } => ExitCode::from(127),
            CommandFailure::NotExecuted { .. } => ExitCode::from(126),
            CommandFailure::OpenMpiExcludes { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// The failure to report if the first operation with a peer fails.
    pub(crate) fn from_first_contact(address: Address, error: OperationError) -> CommandFailure {
        match error {
            OperationError::Link(LinkError::Protocol(reason)) => {
                CommandFailure::NotHomespun { address, reason }
            }
            OperationError::Link(LinkError::Denied(
                reason @ (Denial::OtherUser | Denial::ForkedChild | Denial::ForeignAddress),
            )) => CommandFailure::Denied { address, reason },
            error => CommandFailure::NoAnswer { address, error },
        }
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        match error {
            Error::Misuse(Misuse::Unmet(unmet)) => CommandFailure::Unmet(unmet),
            error => CommandFailure::Fabric(error),
        }
    }
}

impl From<homespun_rpma::Error> for CommandFailure {
    fn from(error: homespun_rpma::Error) -> Self {
        match error {
            homespun_rpma::Error::Fabric(error) => error.into(),
            error => CommandFailure::Rpma(error),
        }
    }
}

impl<B> From<Rejected<B>> for CommandFailure {
    fn from(rejected: Rejected<B>) -> Self {
        rejected.error.into()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn refused_denied_and_foreign_peers_have_distinct_messages() {
        let address: Address = SocketAddr::from(([127, 0, 0, 1], 7471)).into();
        let message =
            |error| CommandFailure::from_first_contact(address, OperationError::Link(error)).to_string();
        assert_eq!(
            message(LinkError::NoEndpoint { medium: "TCP" }),
            "no answer from 127.0.0.1:7471: Connection refused: no endpoint is there over TCP; the peer has \
             not started, or uses another domain"
        );
        assert_eq!(
            message(LinkError::Denied(Denial::OtherUser)),
            "not allowed to connect to 127.0.0.1:7471: the other process belongs to another user"
        );
        assert_eq!(
            message(LinkError::Protocol("unknown frame kind")),
            "the process that listens at 127.0.0.1:7471 is not homespun: unknown frame kind"
        );
    }
}
