//! A layer over the plugin in the installed libfabric: `ofi_rxm` builds unconnected endpoints from homespun's
//! connected endpoints. Debian's `libfabric-bin` has the library. `LD_LIBRARY_PATH` selects another
//! libfabric.

use std::env;
use std::ffi::CStr;
use std::os::unix::fs::symlink;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use homespun::Errno;
use homespun::flags::{Caps, InfoFlags, Mode, MrAccess};
use homespun_host::abi::domain::{FidAv, FidDomain};
use homespun_host::abi::endpoint::FidEp;
use homespun_host::abi::eq::{FiCqTaggedEntry, FidCq};
use homespun_host::abi::{FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_RECV, FI_TRANSMIT};
use homespun_host::{InfoList, Libfabric, Object, av_attr, cq_attr};
use libc::c_void;

const FI_EP_RDM: u32 = 3;
const EAGAIN: isize = -11;
const LAYERED: &CStr = c"homespun;ofi_rxm";

/// The time limit of an operation, longer than any successful operation takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lengths that the layer treats differently. Short messages are injected, longer ones are sent eagerly,
/// still longer ones are cut into pieces of which the last is shorter, and the longest are read by the
/// receiver from the sender's memory.
const MESSAGE_LENS_BYTES: [usize; 6] = [8, 10_000, 60_000, 100_000, 200_000, 1_000_000];

/// Loads the installed libfabric, whose `FI_PROVIDER_PATH` contains only the plugin.
fn load_libfabric() -> Libfabric {
    static LIBFABRIC: OnceLock<Libfabric> = OnceLock::new();
    *LIBFABRIC.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        // Cargo builds the plugin before its tests, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
        symlink(plugin, directory.join("libhomespun_fi.so")).expect("a temporary directory");
        // SAFETY: the other tests wait for this initialisation, and the test harness does not access the
        // environment meanwhile.
        unsafe { env::set_var("FI_PROVIDER_PATH", &directory) };
        let libfabric = Libfabric::load("libfabric.so.1").expect("libfabric (Debian: libfabric-bin)");
        // libfabric searches for its providers only once. Make it search now, because the directory is
        // removed next.
        libfabric.getinfo(None, None, 0, None).expect("a provider");
        std::fs::remove_dir_all(directory).expect("a temporary directory");
        libfabric
    })
}

/// The names of the matching providers, in order.
fn provider_names(name: Option<&CStr>) -> Vec<String> {
    let mut hints = load_libfabric().empty_hints();
    if let Some(name) = name {
        hints.set_provider_name(name);
    }
    match load_libfabric().getinfo(None, None, 0, Some(&hints)) {
        Ok(infos) => infos
            .iter()
            .map(|info| {
                // SAFETY: every info of an answer has fabric attributes with a provider's name.
                let name = unsafe { CStr::from_ptr((*info.fabric_attr).prov_name) };
                name.to_str().expect("a name").to_owned()
            })
            .collect(),
        Err(errno) => {
            assert_eq!(errno, Errno::ENODATA);
            Vec::new()
        }
    }
}

#[test]
fn getinfo_of_homespun_excludes_layers() {
    let names = provider_names(Some(c"homespun"));
    assert!(!names.is_empty() && names.iter().all(|name| name == "homespun"), "{names:?}");
}

#[test]
fn getinfo_without_homespun_excludes_layers_over_it() {
    for name in [None, Some(c"ofi_rxm")] {
        let names = provider_names(name);
        assert!(!names.is_empty(), "the installed libfabric has other providers");
        assert!(!names.iter().any(|name| name.starts_with("homespun;")), "{names:?}");
    }
}

#[test]
fn getinfo_of_a_layer_over_homespun_returns_only_it() {
    for name in [LAYERED, c"ofi_rxm;homespun"] {
        let names = provider_names(Some(name));
        assert!(!names.is_empty() && names.iter().all(|name| name == "homespun;ofi_rxm"), "{names:?}");
    }
}

/// An endpoint of the layer. Fields are closed in order of declaration.
struct Node {
    ep: Object<FidEp>,
    cq: Object<FidCq>,
    av: Object<FidAv>,
    domain: Object<FidDomain>,
}

/// One operation of an endpoint.
struct Operation {
    /// The memory that `FI_CONTEXT2` requires. Its address identifies the operation of a completion.
    context: Box<[u64; 8]>,
    is_posted: bool,
    is_complete: bool,
}

fn getinfo_of_layer_over_domain(domain: &CStr) -> InfoList {
    let mut hints = load_libfabric().empty_hints();
    hints.set_provider_name(LAYERED);
    hints.set_domain_name(domain);
    hints.first_mut().caps = (Caps::MSG | Caps::TAGGED | Caps::RMA).bits();
    hints.first_mut().mode = (Mode::CONTEXT | Mode::CONTEXT2).bits();
    hints.ep_attr_mut().r#type = FI_EP_RDM;
    let source = InfoFlags::SOURCE.bits();
    load_libfabric().getinfo(Some(c"127.0.0.1"), None, source, Some(&hints)).expect("the layer")
}

impl Node {
    fn open(infos: &InfoList) -> Node {
        let domain =
            load_libfabric().open_fabric(infos).expect("a fabric").open_domain(infos).expect("a domain");
        // SAFETY: the pointers among these attributes are null.
        let (av, cq) = unsafe { (domain.open_av(av_attr()), domain.open_cq(cq_attr(FI_CQ_FORMAT_TAGGED))) };
        let (av, cq) = (av.expect("an address vector"), cq.expect("a completion queue"));
        let ep = domain.open_endpoint(infos).expect("an endpoint");
        ep.bind(&av, 0).expect("a vector is bound");
        ep.bind(&cq, FI_TRANSMIT | FI_RECV).expect("a queue is bound");
        ep.enable().expect("all required objects are bound");
        Node { ep, cq, av, domain }
    }

    /// Reads a completion, which drives the endpoint, and marks its operation as complete.
    fn try_read_completion(&self, operations: &mut [&mut Operation]) {
        let mut entry = std::mem::MaybeUninit::<FiCqTaggedEntry>::zeroed();
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open, and there is room for an entry of its format.
        match unsafe { ((*(*cq).ops).read)(cq, entry.as_mut_ptr().cast(), 1) } {
            EAGAIN => std::thread::yield_now(),
            count => {
                assert_eq!(count, 1, "an error is in the queue");
                // SAFETY: the entry was written, and all its bytes were zero before.
                let context = unsafe { entry.assume_init() }.op_context;
                let found = operations.iter_mut().find(|operation| operation.context_ptr() == context);
                found.expect("a completion of a known operation").is_complete = true;
            }
        }
    }
}

impl Operation {
    fn new() -> Operation {
        Operation { context: Box::new([0; 8]), is_posted: false, is_complete: false }
    }

    fn context_ptr(&self) -> *mut c_void {
        ptr::from_ref(&*self.context).cast_mut().cast()
    }

    /// Posts the operation, unless it is already posted.
    fn post_unless_posted(&mut self, call: impl FnOnce(*mut c_void) -> isize) {
        if !self.is_posted {
            match call(self.context_ptr()) {
                EAGAIN => {}
                answer => {
                    assert_eq!(answer, 0);
                    self.is_posted = true;
                }
            }
        }
    }
}

/// Transfers a message with this tag, and checks its bytes.
fn exchange_and_verify(from: &Node, to: &Node, address: u64, len_bytes: usize, tag: u64) {
    let sent: Vec<u8> = (0..len_bytes).map(|at| (at * 7 + tag as usize) as u8).collect();
    let mut received = vec![0_u8; len_bytes];
    let (mut send, mut receive) = (Operation::new(), Operation::new());
    let (sender, receiver) = (from.ep.as_ptr(), to.ep.as_ptr());
    let deadline = Instant::now() + PATIENCE;
    while !send.is_complete || !receive.is_complete {
        // SAFETY: the endpoints are open. Buffers and contexts stay in place until both operations have
        // completed.
        unsafe {
            let (buf, none) = (received.as_mut_ptr().cast(), ptr::null_mut());
            let recv = (*(*receiver).tagged).recv;
            receive.post_unless_posted(|context| {
                recv(receiver, buf, len_bytes, none, FI_ADDR_UNSPEC, tag, 0, context)
            });
            let post = (*(*sender).tagged).send;
            send.post_unless_posted(|context| {
                post(sender, sent.as_ptr().cast(), len_bytes, none, address, tag, context)
            });
        }
        from.try_read_completion(&mut [&mut send]);
        to.try_read_completion(&mut [&mut receive]);
        assert!(Instant::now() < deadline, "{len_bytes} bytes do not arrive");
    }
    assert_eq!(received, sent);
}

/// Writes to memory of the peer, and checks the written bytes.
fn write_and_verify(from: &Node, to: &Node, address: u64) {
    const KEY: u64 = 7;
    const LEN_BYTES: usize = 100_000;
    let sent: Vec<u8> = (0..LEN_BYTES).map(|at| (at * 13) as u8).collect();
    let mut memory = vec![0_u8; LEN_BYTES];
    let at = memory.as_mut_ptr();
    // SAFETY: the region is closed before the memory is read.
    let region =
        unsafe { to.domain.register_memory(at.cast(), LEN_BYTES, MrAccess::REMOTE_WRITE.bits(), KEY) };
    let region = region.expect("a memory region");
    let initiator = from.ep.as_ptr();
    let (mut write, deadline) = (Operation::new(), Instant::now() + PATIENCE);
    while !write.is_complete {
        // SAFETY: as in `exchange_and_verify`.
        unsafe {
            let call = (*(*initiator).rma).write;
            let (buf, none) = (sent.as_ptr().cast(), ptr::null_mut());
            write.post_unless_posted(|context| {
                call(initiator, buf, LEN_BYTES, none, address, 0, KEY, context)
            });
        }
        from.try_read_completion(&mut [&mut write]);
        to.try_read_completion(&mut []);
        assert!(Instant::now() < deadline, "the write does not complete");
    }
    drop(region);
    assert_eq!(memory, sent);
}

#[test]
fn messages_and_writes_cross_a_layer_in_every_domain() {
    for domain in [c"auto", c"tcp", c"shm"] {
        let infos = getinfo_of_layer_over_domain(domain);
        assert_eq!(infos.provider_name(), Some("homespun;ofi_rxm"));
        let (left, right) = (Node::open(&infos), Node::open(&infos));
        let to_right = left.av.insert(&right.ep.name().expect("a name")).expect("an address");
        let to_left = right.av.insert(&left.ep.name().expect("a name")).expect("an address");
        for (tag, len_bytes) in (1..).zip(MESSAGE_LENS_BYTES) {
            exchange_and_verify(&left, &right, to_right, len_bytes, tag);
            exchange_and_verify(&right, &left, to_left, len_bytes, tag);
        }
        write_and_verify(&left, &right, to_right);
    }
}

/// Runs `messages_and_writes_cross_a_layer_in_every_domain` with a parameter of the layer. It runs in
/// another process, because the layer reads its parameters only once.
#[test]
fn messages_and_writes_cross_a_layer_that_shares_a_receive_context() {
    let mut test = std::process::Command::new(env::current_exe().expect("this test's path"));
    test.args(["messages_and_writes_cross_a_layer_in_every_domain", "--exact"]);
    let output = test.env("FI_OFI_RXM_USE_SRX", "1").output().expect("this test's program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 1 passed"), "{said}");
}
