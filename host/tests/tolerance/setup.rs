//! The setup of probes: objects of one provider, and two connected endpoints.
//!
//! Each probe runs in its own process, whose end closes everything, so the setup closes no object. A step of
//! the setup that fails panics, and then the outcome of the probe is "not tried".

#![allow(clippy::undocumented_unsafe_blocks, reason = "see `probes`")]

use std::ffi::CStr;
use std::ptr;
use std::time::Duration;

use homespun_host::abi::domain::{FidAv, FidDomain, FidMr};
use homespun_host::abi::endpoint::{FidEp, FidPep};
use homespun_host::abi::eq::{FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiEqCmEntry, FidCntr, FidCq, FidEq};
use homespun_host::abi::fabric::FidFabric;
use homespun_host::abi::fid::Fid;
use homespun_host::abi::info::FiInfo;
use homespun_host::abi::{FI_CONNECTED, FI_CONNREQ, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_TRANSMIT};
use homespun_host::{InfoList, Libfabric, av_attr, counter_attr, cq_attr, eq_attr};
use libc::{c_int, c_void};

use crate::outcome::describe_result;
use crate::patience::{self, Deadline};
use crate::provider_case::{EndpointKind, ProviderCase};

pub(crate) const EAGAIN: isize = -11;

/// A pointer to nothing.
pub(crate) const NULL: *mut c_void = ptr::null_mut();

const EAVAIL: isize = -259;

/// The library, and the provider with its info.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) libfabric: Libfabric,
    pub(crate) case: ProviderCase,
    pub(crate) info: InfoList,
}

/// The arguments of `fi_getinfo` that select the loopback interface, if the provider has IP addresses.
pub(crate) fn source_arguments(case: &ProviderCase) -> (Option<&'static CStr>, u64) {
    if case.provider == "shm" { (None, 0) } else { (Some(c"127.0.0.1"), 1 << 57) }
}

/// Hints that request this provider and its type of endpoint, and no capabilities.
pub(crate) fn provider_hints(libfabric: Libfabric, case: &ProviderCase) -> InfoList {
    let mut hints = libfabric.empty_hints();
    let name = std::ffi::CString::new(case.provider).expect("a name");
    hints.set_provider_name(&name);
    if let Some(domain) = case.domain {
        hints.set_domain_name(&std::ffi::CString::new(domain).expect("a name"));
    }
    hints.ep_attr_mut().r#type = case.endpoint as u32;
    // With FI_MR_LOCAL every send would need a descriptor, so do not offer that mode. `register_region`
    // complies with the offered modes.
    hints.domain_attr_mut().mr_mode = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 9;
    hints.first_mut().mode = 1 << 59;
    hints
}

/// The info with which probes of this provider open their objects.
pub(crate) fn find_info(libfabric: Libfabric, case: &ProviderCase) -> Result<InfoList, c_int> {
    let (node, flags) = source_arguments(case);
    let list = libfabric.getinfo(node, None, flags, Some(&provider_hints(libfabric, case)));
    let list = list.map_err(homespun::Errno::raw)?;
    // A provider's name in hints also selects the layers over that provider.
    let is_it = |info: &&FiInfo| unsafe {
        CStr::from_ptr((*info.fabric_attr).prov_name).to_bytes() == case.provider.as_bytes()
    };
    list.find_copy(is_it).ok_or(libc::ENODATA)
}

/// Calls a function of a vtable of an object, as the inline functions of the C headers do.
macro_rules! call {
    ($object:expr, $ops:ident.$slot:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        unsafe { ((*(*object).$ops).$slot)(object.cast() $(, $argument)*) }
    }};
}
pub(crate) use call;

pub(crate) fn assert_success(what: &str, result: impl TryInto<i64>) {
    let result = describe_result(result);
    assert!(result == "0", "{what}: {result}");
}

/// Opens an object by a call that writes the object to its argument, and returns the result.
pub(crate) fn try_open<T>(call: impl FnOnce(*mut *mut T) -> c_int) -> c_int {
    let mut object = ptr::null_mut();
    call(&raw mut object)
}

/// Opens an object by a call that writes the object to its argument. Panics if the call fails.
pub(crate) fn open_object<T>(what: &str, call: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut object = ptr::null_mut();
    assert_success(what, call(&raw mut object));
    object
}

/// An endpoint and its required objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) fabric: *mut FidFabric,
    pub(crate) domain: *mut FidDomain,
    pub(crate) eq: *mut FidEq,
    pub(crate) av: *mut FidAv,
    pub(crate) cq: *mut FidCq,
    pub(crate) ep: *mut FidEp,
}

/// A completion, or an error entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) context: *mut c_void,
    /// 0, or the positive error number.
    pub(crate) error: c_int,
    pub(crate) flags: u64,
    pub(crate) len: usize,
}

/// Two endpoints that reach each other, with the completions that were read from their queues so far.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) left: Node,
    pub(crate) right: Node,
    pub(crate) to_right: u64,
    pub(crate) to_left: u64,
    pub(crate) at_left: Vec<Completion>,
    pub(crate) at_right: Vec<Completion>,
}

/// Memory of the probe's process, zeroed and never freed.
pub(crate) fn leak_zeroed_memory(len_bytes: usize) -> *mut u8 {
    Box::leak(vec![0_u8; len_bytes].into_boxed_slice()).as_mut_ptr()
}

/// The context of an operation, with the memory that `FI_CONTEXT2` requires. It is never freed.
pub(crate) fn leak_op_context() -> *mut c_void {
    leak_zeroed_memory(64).cast()
}

pub(crate) fn bind<A, B>(object: *mut A, other: *mut B, flags: u64) -> c_int {
    call!(object.cast::<Fid>(), ops.bind, other.cast(), flags)
}

pub(crate) fn control<A, B>(object: *mut A, command: c_int, arg: *mut B) -> c_int {
    call!(object.cast::<Fid>(), ops.control, command, arg.cast())
}

pub(crate) fn enable<A>(object: *mut A) -> c_int {
    control(object, FI_ENABLE, NULL)
}

/// Posts a receive of up to 64 bytes.
pub(crate) fn recv(ep: *mut FidEp, context: *mut c_void) -> isize {
    call!(ep, msg.recv, leak_zeroed_memory(64).cast(), 64, NULL, u64::MAX, context)
}

/// Sends 64 bytes.
pub(crate) fn send(ep: *mut FidEp, to: u64, context: *mut c_void) -> isize {
    call!(ep, msg.send, leak_zeroed_memory(64).cast_const().cast(), 64, NULL, to, context)
}

impl Context {
    pub(crate) fn is_connection_oriented(&self) -> bool {
        self.case.endpoint == EndpointKind::Msg
    }

    pub(crate) fn open_fabric(&self) -> *mut FidFabric {
        let attr = self.info.first().fabric_attr;
        open_object("fi_fabric", |fabric| unsafe { self.libfabric.call_fi_fabric(attr, fabric, NULL) })
    }

    pub(crate) fn open_domain(&self) -> (*mut FidFabric, *mut FidDomain) {
        let fabric = self.open_fabric();
        (fabric, self.open_domain_in(fabric))
    }

    pub(crate) fn open_domain_in(&self, fabric: *mut FidFabric) -> *mut FidDomain {
        open_object("fi_domain", |domain| call!(fabric, ops.domain, self.info.as_ptr(), domain, NULL))
    }

    pub(crate) fn open_cq(&self, domain: *mut FidDomain, mut attr: FiCqAttr) -> *mut FidCq {
        open_object("fi_cq_open", |cq| call!(domain, ops.cq_open, &raw mut attr, cq, NULL))
    }

    pub(crate) fn open_counter(&self, domain: *mut FidDomain) -> *mut FidCntr {
        let mut attr = counter_attr();
        open_object("fi_cntr_open", |counter| call!(domain, ops.cntr_open, &raw mut attr, counter, NULL))
    }

    pub(crate) fn open_eq(&self, fabric: *mut FidFabric) -> *mut FidEq {
        let mut attr = eq_attr();
        open_object("fi_eq_open", |eq| call!(fabric, ops.eq_open, &raw mut attr, eq, NULL))
    }

    pub(crate) fn open_av(&self, domain: *mut FidDomain) -> *mut FidAv {
        let mut attr = av_attr();
        open_object("fi_av_open", |av| call!(domain, ops.av_open, &raw mut attr, av, NULL))
    }

    /// What an endpoint must be bound to besides queues and counters.
    pub(crate) fn av_or_eq(&self, node: &Node) -> *mut c_void {
        if self.is_connection_oriented() { node.eq.cast() } else { node.av.cast() }
    }

    /// An endpoint and its other objects, none of which is bound.
    pub(crate) fn open_unbound_node(&self) -> Node {
        let (fabric, domain) = self.open_domain();
        self.open_unbound_node_in(fabric, domain, self.info.as_ptr())
    }

    fn open_unbound_node_in(
        &self,
        fabric: *mut FidFabric,
        domain: *mut FidDomain,
        info: *mut FiInfo,
    ) -> Node {
        let cq = self.open_cq(domain, FiCqAttr { size: 64, ..cq_attr(FI_CQ_FORMAT_TAGGED) });
        let av = if self.is_connection_oriented() { ptr::null_mut() } else { self.open_av(domain) };
        let eq = if self.is_connection_oriented() { self.open_eq(fabric) } else { ptr::null_mut() };
        let ep = open_object("fi_endpoint", |ep| call!(domain, ops.endpoint, info, ep, NULL));
        Node { fabric, domain, eq, av, cq, ep }
    }

    /// Binds the required objects of an endpoint.
    pub(crate) fn bind_required_objects(&self, node: Node) -> Node {
        assert_success("fi_ep_bind av or eq", bind(node.ep, self.av_or_eq(&node), 0));
        assert_success("fi_ep_bind cq", bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV));
        node
    }

    /// An enabled endpoint. If it is an `FI_EP_MSG` endpoint, it has no connection.
    pub(crate) fn open_enabled_node(&self) -> Node {
        self.enable_node(self.bind_required_objects(self.open_unbound_node()))
    }

    pub(crate) fn enable_node(&self, node: Node) -> Node {
        assert_success("fi_enable", enable(node.ep));
        node
    }

    /// Two endpoints that reach each other, and have exchanged a message each way.
    pub(crate) fn open_pair_after_exchange(&self) -> Pair {
        let (fabric, domain) = self.open_domain();
        let mut pair = if self.is_connection_oriented() {
            self.open_connected_pair(fabric, domain)
        } else {
            let [left, right] = [(); 2].map(|()| {
                let node = self.open_unbound_node_in(fabric, domain, self.info.as_ptr());
                self.enable_node(self.bind_required_objects(node))
            });
            Pair::new([left, right], [insert_address_of(&left, &right), insert_address_of(&right, &left)])
        };
        pair.exchange_messages_each_way();
        pair
    }

    fn open_connected_pair(&self, fabric: *mut FidFabric, domain: *mut FidDomain) -> Pair {
        let listener = self.open_eq(fabric);
        let pep: *mut FidPep =
            open_object("fi_passive_ep", |pep| call!(fabric, ops.passive_ep, self.info.as_ptr(), pep, NULL));
        assert_success("fi_pep_bind", bind(pep, listener, 0));
        assert_success("fi_listen", call!(pep, cm.listen));
        let (mut name, mut len_bytes) = ([0_u8; 64], 64);
        let result = call!(pep, cm.getname, name.as_mut_ptr().cast(), &raw mut len_bytes);
        assert_success("fi_getname", result);
        // All endpoints share one event queue, so that reading it drives each of them: some providers
        // connect only while the application reads the endpoint's event queue.
        let sharing = |info| {
            let mut node = self.open_unbound_node_in(fabric, domain, info);
            node.eq = listener;
            self.enable_node(self.bind_required_objects(node))
        };
        let left = sharing(self.info.as_ptr());
        assert_success("fi_connect", call!(left.ep, cm.connect, name.as_ptr().cast(), ptr::null(), 0));
        let request = await_event(listener, FI_CONNREQ, &[left]);
        let right = sharing(request.info);
        assert_success("fi_accept", call!(right.ep, cm.accept, ptr::null(), 0));
        for _ in 0..2 {
            await_event(listener, FI_CONNECTED, &[left, right]);
        }
        Pair::new([left, right], [u64::MAX; 2])
    }

    /// Registers memory for all accesses. The result has the key of the region and the address by which peers
    /// access it.
    pub(crate) fn register_region(&self, node: &Node, buf: *mut u8, len_bytes: usize, key: u64) -> Region {
        let (access, domain, buf_fid) = (0x3f00, node.domain, buf.cast_const().cast());
        let mr: *mut FidMr = open_object("fi_mr_reg", |mr| {
            call!(domain, mr.reg, buf_fid, len_bytes, access, 0, key, 0, mr, NULL)
        });
        let mr_mode = unsafe { (*self.info.first().domain_attr).mr_mode };
        if mr_mode & 1 << 9 != 0 {
            assert_success("fi_mr_bind", bind(mr, node.ep, 0));
            assert_success("fi_mr_enable", enable(mr));
        }
        let address = if mr_mode & (1 << 4 | 1) != 0 { buf as u64 } else { 0 };
        unsafe { Region { desc: (*mr).mem_desc, key: (*mr).key, address } }
    }
}

/// Registered memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) desc: *mut c_void,
    pub(crate) key: u64,
    pub(crate) address: u64,
}

/// Inserts the address of `node` into the vector of `into`.
fn insert_address_of(into: &Node, node: &Node) -> u64 {
    let (mut name, mut len_bytes, mut address) = ([0_u8; 256], 256, u64::MAX);
    let result = call!(node.ep, cm.getname, name.as_mut_ptr().cast(), &raw mut len_bytes);
    assert_success("fi_getname", result);
    let inserted = call!(into.av, ops.insert, name.as_ptr().cast(), 1, &raw mut address, 0, NULL);
    assert_success("fi_av_insert", inserted - 1);
    address
}

/// Waits for an event, and drives the endpoints meanwhile.
fn await_event(eq: *mut FidEq, wanted: u32, nodes: &[Node]) -> FiEqCmEntry {
    let deadline = Deadline::after(patience::step_timeout());
    loop {
        let mut event = 0;
        let mut entry = [0_u64; 64];
        let (room, len_bytes) = (entry.as_mut_ptr().cast(), size_of_val(&entry));
        let result = call!(eq, ops.read, &raw mut event, room, len_bytes, 0);
        if result > 0 {
            assert!(event == wanted, "event {event}");
            return unsafe { entry.as_ptr().cast::<FiEqCmEntry>().read() };
        }
        assert!(result == EAGAIN, "fi_eq_read: {}", describe_result(result));
        for node in nodes {
            let mut none = Vec::new();
            drain_cq(node.cq, &mut none);
        }
        assert!(!deadline.record_if_expired(), "no event {wanted}");
        patience::pause();
    }
}

/// Reads all completions of a queue, which also makes progress.
pub(crate) fn drain_cq(cq: *mut FidCq, into: &mut Vec<Completion>) {
    loop {
        let mut entry = unsafe { std::mem::zeroed::<FiCqTaggedEntry>() };
        match call!(cq, ops.read, (&raw mut entry).cast(), 1) {
            1 => {
                let FiCqTaggedEntry { op_context: context, flags, len, .. } = entry;
                into.push(Completion { context, error: 0, flags, len });
            }
            EAVAIL => {
                let mut error = unsafe { std::mem::zeroed::<FiCqErrEntry>() };
                if call!(cq, ops.readerr, &raw mut error, 0) != 1 {
                    return;
                }
                let FiCqErrEntry { op_context: context, err: error, flags, len, .. } = error;
                into.push(Completion { context, error, flags, len });
            }
            _ => return,
        }
    }
}

impl Pair {
    fn new([left, right]: [Node; 2], [to_right, to_left]: [u64; 2]) -> Pair {
        Pair { left, right, to_right, to_left, at_left: Vec::new(), at_right: Vec::new() }
    }

    /// Reads both queues.
    pub(crate) fn drain_both_cqs(&mut self) {
        drain_cq(self.left.cq, &mut self.at_left);
        drain_cq(self.right.cq, &mut self.at_right);
    }

    /// Drives both endpoints until the condition holds or the time limit has passed. Returns whether the
    /// condition holds.
    pub(crate) fn drive_until(&mut self, limit: Duration, mut is_done: impl FnMut(&Pair) -> bool) -> bool {
        let deadline = Deadline::after(limit);
        loop {
            self.drain_both_cqs();
            if is_done(self) {
                return true;
            }
            if deadline.record_if_expired() {
                return false;
            }
            patience::pause();
        }
    }

    /// Repeats a call while it returns `-FI_EAGAIN`, at most until a time-out.
    pub(crate) fn retry_while_eagain(&mut self, mut call: impl FnMut() -> isize) -> isize {
        let deadline = Deadline::after(patience::absence_timeout());
        loop {
            let result = call();
            if result != EAGAIN || deadline.record_if_expired() {
                return result;
            }
            self.drain_both_cqs();
            patience::pause();
        }
    }

    /// Transfers a message each way, so that no probed call is the first to use a link.
    fn exchange_messages_each_way(&mut self) {
        for (from, to, addr) in
            [(self.left, self.right, self.to_right), (self.right, self.left, self.to_left)]
        {
            let (sent, received) = (leak_op_context(), leak_op_context());
            assert_success("fi_recv", recv(to.ep, received));
            let deadline = Deadline::after(patience::step_timeout());
            while send(from.ep, addr, sent) == EAGAIN {
                self.drain_both_cqs();
                assert!(!deadline.record_if_expired(), "fi_send: EAGAIN");
            }
            let is_done = self.drive_until(patience::step_timeout(), |pair| {
                let is_there =
                    |context| pair.at_left.iter().chain(&pair.at_right).any(|done| done.context == context);
                is_there(sent) && is_there(received)
            });
            assert!(is_done, "no message arrives");
        }
        self.at_left.clear();
        self.at_right.clear();
    }
}
