//! The contract of a transport over TCP.

use std::process::ExitCode;

use homespun_conformance::transport::Features;
use homespun_conformance::{Contract, run_tests};
use homespun_tcp::TcpProvider;

fn main() -> ExitCode {
    let features = Features::SPLITS | Features::WAKES;
    // The socket buffers are small. So links are often full, and frames are often cut.
    let tight = || TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024);
    let mut tests = Contract::new("tcp", TcpProvider::new, features).tests();
    tests.extend(Contract::new("tight", tight, features).tests());
    run_tests(tests)
}
