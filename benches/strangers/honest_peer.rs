//! The honest peer, which measures its round trips with the endpoint.

use std::thread;
use std::time::Instant;

use homespun::{Bytes, BytesMut, CompletionQueue, Endpoint, FabricAddress, OpenEndpoint, OperationKind};

use crate::Result;
use crate::process::commands;
use crate::victim::{ECHO, MESSAGE, REQUEST, open_endpoint, read_address};

/// The median and the 99th percentile of measured round trips.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrips {
    pub(crate) median_ns: u64,
    pub(crate) p99_ns: u64,
}

impl RoundTrips {
    pub(crate) fn parse(text: &str) -> Result<RoundTrips> {
        let (median, p99) = text.split_once(' ').ok_or("two numbers were expected")?;
        Ok(RoundTrips { median_ns: median.parse()?, p99_ns: p99.parse()? })
    }
}

pub(crate) fn run() -> Result<()> {
    let commands = commands();
    let OpenEndpoint { endpoint, cq, av, .. } = open_endpoint()?;
    let victim = av.insert_one(read_address(&commands)?)?;
    exchange(&endpoint, &cq, victim)?;
    println!("connected");
    let mut is_measuring = false;
    let mut times_ns: Vec<u64> = Vec::new();
    loop {
        let begin = Instant::now();
        exchange(&endpoint, &cq, victim)?;
        if is_measuring {
            times_ns.push(begin.elapsed().as_nanos() as u64);
        }
        match commands.try_recv().as_deref() {
            Ok("measure") => is_measuring = true,
            // The caller kills this process next. Wait here, since an exchange that is cut off would fail at
            // the victim.
            Ok("quit") => {
                println!("quit");
                loop {
                    thread::park();
                }
            }
            Ok(_) => {
                is_measuring = false;
                times_ns.sort_unstable();
                let at = |percent: usize| times_ns.get(times_ns.len() * percent / 100).copied().unwrap_or(0);
                println!("measured {} {}", at(50), at(99));
                times_ns.clear();
            }
            Err(_) => {}
        }
    }
}

/// Sends a message, and waits for its echo.
fn exchange(endpoint: &Endpoint, cq: &CompletionQueue, victim: FabricAddress) -> Result<()> {
    endpoint.trecv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, ECHO, 1)?;
    endpoint.tsend(Bytes::from_static(MESSAGE), victim, REQUEST, 2)?;
    loop {
        if cq.read()?.is_some_and(|completion| completion.kind() == OperationKind::Receive) {
            return Ok(());
        }
    }
}
