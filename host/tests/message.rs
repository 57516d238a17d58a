//! Sends a message between two endpoints of the plugin in the installed libfabric, with the types of this
//! crate.
//!
//! Without a libfabric (Debian: `libfabric-bin`) the test prints that it is skipped, and passes. If `./test`
//! runs it, the test fails instead. `LD_LIBRARY_PATH` selects another libfabric.

use std::env;
use std::os::unix::fs::symlink;
use std::ptr;

use homespun_host::abi::domain::FidAv;
use homespun_host::abi::endpoint::FidEp;
use homespun_host::abi::eq::{FiCqTaggedEntry, FidCq};
use homespun_host::abi::{FI_CQ_FORMAT_TAGGED, FI_RECV, FI_TRANSMIT};
use homespun_host::{InfoList, Libfabric, Object, av_attr, counter_attr, cq_attr};
use homespun_suite::prerequisites::Prerequisite;

const FI_SOURCE: u64 = 1 << 57;
const EAGAIN: isize = -11;

struct Node {
    ep: Object<FidEp>,
    cq: Object<FidCq>,
    av: Object<FidAv>,
}

fn open_node(libfabric: Libfabric, info: &InfoList) -> Node {
    let fabric = libfabric.open_fabric(info).expect("a fabric");
    let domain = fabric.open_domain(info).expect("a domain");
    // SAFETY: the pointers among these attributes are null.
    let (av, cq, counter) = unsafe {
        (
            domain.open_av(av_attr()),
            domain.open_cq(cq_attr(FI_CQ_FORMAT_TAGGED)),
            domain.open_counter(counter_attr()),
        )
    };
    let (av, cq) = (av.expect("an address vector"), cq.expect("a completion queue"));
    let counter = counter.expect("a counter");
    let ep = domain.open_endpoint(info).expect("an endpoint");
    ep.bind(&av, 0).expect("a vector is bound");
    ep.bind(&cq, FI_TRANSMIT | FI_RECV).expect("a queue is bound");
    ep.bind(&counter, 1 << 10).expect("a counter is bound");
    ep.enable().expect("all required objects are bound");
    Node { ep, cq, av }
}

#[test]
fn endpoints_of_the_installed_libfabric_exchange_a_message() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    // SAFETY: this is the only test of this program, and no other thread accesses the environment.
    unsafe { env::set_var("FI_PROVIDER_PATH", directory.path()) };
    let libfabric = match Libfabric::load("libfabric.so.1") {
        Ok(libfabric) => libfabric,
        Err(error) => {
            return Prerequisite::LIBFABRIC.report_skipped(error);
        }
    };
    assert!(libfabric.version() >= (1, 17));

    let mut hints = libfabric.empty_hints();
    hints.set_provider_name(c"homespun");
    let infos = libfabric.getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, Some(&hints)).expect("the plugin");
    assert_eq!(infos.provider_name(), Some("homespun"));
    let (left, right) = (open_node(libfabric, &infos), open_node(libfabric, &infos));
    let to_right = left.av.insert(&right.ep.name().expect("a name")).expect("an address");

    let (sent, mut received) = (*b"homespun", [0_u8; 8]);
    let ep = right.ep.as_ptr();
    // SAFETY: the endpoint is open, and the buffer outlives it.
    let posted = unsafe {
        ((*(*ep).msg).recv)(ep, received.as_mut_ptr().cast(), 8, ptr::null_mut(), u64::MAX, ptr::null_mut())
    };
    assert_eq!(posted, 0);
    let ep = left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the call copies the buffer before it returns.
    let send = || unsafe { ((*(*ep).msg).inject)(ep, sent.as_ptr().cast(), 8, to_right) };
    let read = |cq: &Object<FidCq>| {
        let mut entry = [const { std::mem::MaybeUninit::<FiCqTaggedEntry>::uninit() }; 1];
        // SAFETY: the queue is open, and there is room for an entry of its format.
        unsafe { ((*(*cq.as_ptr()).ops).read)(cq.as_ptr(), entry.as_mut_ptr().cast(), 1) }
    };
    let mut is_sent = false;
    loop {
        if !is_sent {
            match send() {
                0 => is_sent = true,
                other => assert_eq!(other, EAGAIN),
            }
        }
        // Reading the queues drives both endpoints.
        assert_eq!(read(&left.cq), EAGAIN);
        match read(&right.cq) {
            EAGAIN => std::thread::yield_now(),
            other => break assert_eq!(other, 1),
        }
    }
    assert_eq!(received, sent);
}
