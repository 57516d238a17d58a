//! An application over a backend of its own, which `provider.rs` implements.
//!
//! ```text
//! cargo run --example backend
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example says what happened")]

#[allow(unreachable_pub, reason = "the file can be copied into a crate of its own")]
pub(crate) mod provider;

use std::error::Error;
use std::process::ExitCode;

use homespun::flags::{BindFlags, InfoFlags};
use homespun::info::Info;
use homespun::{AvAttr, Buffer, Bytes, BytesMut, CqAttr, Entry, Fabric, FabricAddress};

use self::provider::ChannelProvider;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Sends two messages over the backend. Only the first three lines, with the provider and its domain's name,
/// differ from an application over another backend.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new().with_provider(ChannelProvider::new());
    let mut hints = Info::default();
    hints.domain.name = Some("channel".into());
    let info = &fabric.getinfo(None, None, InfoFlags::empty(), Some(&hints))?[0];
    let domain = fabric.domain(info)?;
    let cq = domain.open_cq(&CqAttr::default())?;
    let av = domain.open_av(&AvAttr::default())?;
    let open_endpoint = || {
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        Ok::<_, homespun::Error>(endpoint)
    };
    let (alice, bob) = (open_endpoint()?, open_endpoint()?);
    println!("alice is at {}, bob at {}", alice.name()?, bob.name()?);
    let to_bob = av.insert_one(bob.name()?)?;

    // The second message exceeds the capacity of a link (1 MiB), so the link takes it in parts.
    let long = vec![7; 4 << 20];
    for message in [Bytes::from_static(b"hello"), Bytes::from(long)] {
        bob.recv(BytesMut::zeroed(message.len()), FabricAddress::UNSPECIFIED, 1)?;
        alice.send(message.clone(), to_bob, 2)?;
        // A read of the queue makes progress at both endpoints, since both report to this queue.
        let received = loop {
            let completed = cq.read_entry()?.map(Entry::into_result).transpose()?;
            if let Some(Buffer::Received(received)) = completed.map(|completion| completion.buffer) {
                break received;
            }
        };
        assert_eq!(received, message);
        println!("bob has received {} bytes from alice", received.len());
    }
    Ok(())
}
