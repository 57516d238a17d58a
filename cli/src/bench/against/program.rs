//! The programs of libfabric that measure contenders, and their command lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::super::figure::{Drawing, Quantity};
use super::program_pair::ProgramPair;
use crate::exchange::measure::Metric;

/// The address at which the client reaches the server. For the programs of fabtests it is also their own
/// address.
const LOOPBACK: &str = "127.0.0.1";

/// The limits of transfers and of bytes in flight. At least `WINDOW_MIN` transfers are in flight,
/// whatever their size.
pub(super) const WINDOW_MAX: usize = 64;
pub(super) const WINDOW_MAX_BYTES: usize = 64 << 20;
const WINDOW_MIN: usize = 4;

/// A program with the options that select one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// `fi_pingpong`, which comes with libfabric: messages back and forth.
    Pingpong,
    /// Tagged messages back and forth.
    TaggedPingpong,
    /// Tagged messages one way.
    TaggedBandwidth,
    /// Writes to memory of the peer, in both directions at once.
    RmaWrite,
    /// Reads of memory of the peer, in both directions at once.
    RmaRead,
}

/// A provider, with the names for the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ComparedProvider {
    pub(super) name: String,
    /// The domain of homespun; `None` for any other provider.
    pub(super) domain: Option<&'static str>,
}

impl Program {
    /// The programs of fabtests.
    pub(super) const FABTESTS: [Program; 4] =
        [Program::TaggedPingpong, Program::TaggedBandwidth, Program::RmaWrite, Program::RmaRead];

    /// The name of the program's file.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Program::Pingpong => "fi_pingpong",
            Program::TaggedPingpong => "fi_rdm_tagged_pingpong",
            Program::TaggedBandwidth => "fi_rdm_tagged_bw",
            Program::RmaWrite | Program::RmaRead => "fi_rma_bw",
        }
    }

    /// The name of the measurement, unique among the programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Program::RmaWrite => "fi_rma_bw-write",
            Program::RmaRead => "fi_rma_bw-read",
            other => other.file_name(),
        }
    }

    /// The program's measurement, in words.
    pub(super) fn description(self) -> &'static str {
        match self {
            Program::Pingpong => "messages back and forth",
            Program::TaggedPingpong => "tagged messages back and forth",
            Program::TaggedBandwidth => "tagged messages one way",
            Program::RmaWrite => "writes to memory of the peer",
            Program::RmaRead => "reads of memory of the peer",
        }
    }

    pub(super) fn metric(self) -> Metric {
        match self {
            Program::Pingpong | Program::TaggedPingpong => Metric::Latency,
            Program::TaggedBandwidth | Program::RmaWrite | Program::RmaRead => Metric::Bandwidth,
        }
    }

    pub(super) fn quantity(self) -> Quantity {
        match self.metric() {
            Metric::Latency => Quantity::HalfRoundTrip,
            Metric::Bandwidth => Quantity::Transfer,
        }
    }

    /// Whether the summary tables include this program.
    pub(super) fn is_in_summary(self) -> bool {
        matches!(self, Program::Pingpong | Program::TaggedBandwidth)
    }

    pub(super) fn drawings(self) -> &'static [Drawing] {
        match self {
            Program::Pingpong => &[Drawing::Latency, Drawing::Bandwidth],
            Program::TaggedPingpong => &[Drawing::Latency],
            _ => &[Drawing::Bandwidth],
        }
    }

    /// A server and a client of the program at `path`. The server listens at the free TCP port `port`.
    pub(super) fn build_pair(
        self,
        path: PathBuf,
        provider: &ComparedProvider,
        size_bytes: usize,
        iterations: usize,
        port: u16,
    ) -> ProgramPair {
        let mut both: Vec<OsString> = vec!["-p".into(), provider.name.clone().into()];
        both.extend(provider.domain.iter().flat_map(|domain| ["-d".into(), (*domain).into()]));
        let mut option = |name: &str, value: String| both.extend([name.into(), value.into()]);
        option("-S", size_bytes.to_string());
        option("-I", iterations.to_string());
        let (mut server, mut client) = (Vec::new(), Vec::new());
        if self == Program::Pingpong {
            option("-e", "rdm".into());
            server.extend(["-B".into(), port.to_string().into()]);
            client.extend(["-P".into(), port.to_string().into()]);
        } else {
            option("-W", window_for_size(size_bytes).to_string());
            option("-s", LOOPBACK.into());
            match self {
                Program::RmaWrite => option("-o", "write".into()),
                Program::RmaRead => option("-o", "read".into()),
                _ => {}
            }
            // With `-E` the programs exchange addresses over TCP. The server is ready once it listens at
            // the port.
            both.push(format!("-E={port}").into());
        }
        client.push(LOOPBACK.into());
        let joined = |own: Vec<OsString>| both.iter().cloned().chain(own).collect();
        let (server, client) = (joined(server), joined(client));
        ProgramPair { program: path, server, client, port }
    }

    /// The program's path, if it is installed. `pingpong` is the path of `fi_pingpong`, `fabtests` the
    /// directory of fabtests.
    pub(super) fn installed_path(self, pingpong: &Path, fabtests: Option<&Path>) -> Option<PathBuf> {
        match self {
            Program::Pingpong => Some(pingpong.to_owned()),
            _ => fabtests.map(|directory| directory.join(self.file_name())).filter(|path| path.is_file()),
        }
    }
}

fn window_for_size(size_bytes: usize) -> usize {
    (WINDOW_MAX_BYTES / size_bytes.max(1)).clamp(WINDOW_MIN, WINDOW_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_command_lines(program: Program, provider: &ComparedProvider) -> (String, String) {
        let pair = program.build_pair("/bin/true".into(), provider, 64, 100, 9000);
        let joined = |words: &[OsString]| {
            words.iter().map(|word| word.to_str().expect("UTF-8")).collect::<Vec<_>>().join(" ")
        };
        (joined(&pair.server), joined(&pair.client))
    }

    #[test]
    fn command_lines_differ_in_port_and_peer_only() {
        let homespun = ComparedProvider { name: "homespun".into(), domain: Some("shm") };
        let (server, client) = format_command_lines(Program::Pingpong, &homespun);
        assert_eq!(server, "-p homespun -d shm -S 64 -I 100 -e rdm -B 9000");
        assert_eq!(client, "-p homespun -d shm -S 64 -I 100 -e rdm -P 9000 127.0.0.1");
        let layered = ComparedProvider { name: "tcp;ofi_rxm".into(), domain: None };
        let (server, client) = format_command_lines(Program::RmaRead, &layered);
        assert_eq!(server, "-p tcp;ofi_rxm -S 64 -I 100 -W 64 -s 127.0.0.1 -o read -E=9000");
        assert_eq!(client, format!("{server} 127.0.0.1"));
    }

    #[test]
    fn window_of_large_transfers_is_small() {
        assert_eq!([0, 8, 1 << 20, 4 << 20, 64 << 20].map(window_for_size), [64, 64, 64, 16, 4]);
    }

    #[test]
    fn missing_program_has_no_path() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let pingpong = Path::new("/bin/fi_pingpong");
        assert_eq!(Program::Pingpong.installed_path(pingpong, None).as_deref(), Some(pingpong));
        assert_eq!(Program::RmaRead.installed_path(pingpong, None), None);
        assert_eq!(Program::RmaRead.installed_path(pingpong, Some(directory.path())), None);
        std::fs::write(directory.path().join("fi_rma_bw"), "").expect("a temporary file");
        assert!(Program::RmaRead.installed_path(pingpong, Some(directory.path())).is_some());
    }
}
