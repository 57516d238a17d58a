//! The endpoint that is attacked. It echoes the messages of the honest peer.

use std::fs;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

use homespun::{
    Address, Bytes, BytesMut, Caps, CompletionQueue, Endpoint, Fabric, FabricAddress, Hints, OpenEndpoint,
    OperationKind, Tag,
};
use homespun_suite::process_resources::count_descriptors;
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::process::{commands, raise_descriptor_limit};

/// The tags of a message to the endpoint, and of its echo.
pub(crate) const REQUEST: Tag = Tag(1);
pub(crate) const ECHO: Tag = Tag(2);

/// The content of each message.
pub(crate) const MESSAGE: &[u8] = &[7; 8];

/// The state of the endpoint's process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    /// The processor time of the longest pass.
    pub(crate) longest_pass_ns: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) descriptors: u64,
}

impl Report {
    pub(crate) fn parse(text: &str) -> Result<Report> {
        let numbers = text.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
        match numbers[..] {
            [longest_pass_ns, resident_bytes, descriptors] => {
                Ok(Report { longest_pass_ns, resident_bytes, descriptors })
            }
            _ => Err("a report has three numbers".into()),
        }
    }
}

/// Opens an endpoint over TCP, and prints its address.
pub(crate) fn open_endpoint() -> Result<OpenEndpoint> {
    let hints = Hints::new().caps(Caps::TAGGED).domain("tcp").node("127.0.0.1").source();
    let open = Fabric::new().open_endpoint(&hints)?;
    println!("at {}", open.endpoint.name()?.socket_addr());
    Ok(open)
}

/// The address in a command such as "peer 127.0.0.1:5".
pub(crate) fn read_address(commands: &Receiver<String>) -> Result<Address> {
    let command = commands.recv()?;
    let (_, address) = command.split_once(' ').ok_or("a command without an address")?;
    Ok(address.parse::<SocketAddr>()?.into())
}

pub(crate) fn run() -> Result<()> {
    raise_descriptor_limit()?;
    let commands = commands();
    let OpenEndpoint { endpoint, cq, av, .. } = open_endpoint()?;
    let peer = av.insert_one(read_address(&commands)?)?;
    endpoint.trecv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, REQUEST, 1)?;
    let mut longest_pass_ns = 0;
    loop {
        let pass_ns = echo(&endpoint, &cq, peer)?;
        longest_pass_ns = pass_ns.max(longest_pass_ns);
        match commands.try_recv().as_deref() {
            Ok("reset") => {
                longest_pass_ns = 0;
                println!("reset");
            }
            Ok(_) => {
                println!("report {longest_pass_ns} {} {}", resident_bytes()?, count_descriptors());
            }
            Err(_) => {}
        }
    }
}

/// Reads the queue, and so makes a pass. If a message has arrived, sends it back. Returns the processor time
/// of the read in nanoseconds.
fn echo(endpoint: &Endpoint, cq: &CompletionQueue, peer: FabricAddress) -> Result<u64> {
    let begin_ns = processor_time_ns();
    let completion = cq.read()?;
    let pass_ns = processor_time_ns() - begin_ns;
    if completion.is_some_and(|completion| completion.kind() == OperationKind::Receive) {
        endpoint.trecv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, REQUEST, 1)?;
        endpoint.tsend(Bytes::from_static(MESSAGE), peer, ECHO, 2)?;
    }
    Ok(pass_ns)
}

/// The processor time of this thread, which other processes do not add to.
fn processor_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn resident_bytes() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("no resident pages")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
