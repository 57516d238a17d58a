//! Plays the host: calls the plugin as `libfabric.so` and the inline functions of its headers do. That a host
//! finds the entry point in the library is the subject of `tests/installed.rs`.

use std::sync::LazyLock;
use std::thread::ScopedJoinHandle;

use homespun::Errno;
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::fi_prov_ini;

use crate::prelude::*;

/// The API version of these tests, except those about versions.
pub(crate) const API_VERSION: u32 = fi_version(1, 17);

/// The type of endpoints that connect.
pub(crate) const FI_EP_MSG: u32 = 1;

/// The key of the memory that peers access.
pub(crate) const KEY: u64 = 77;

/// Atomic operations.
pub(crate) const SUM: u32 = 2;
pub(crate) const CSWAP: u32 = 12;

/// Flags of calls, completions and capabilities, each with its bit.
macro_rules! flags {
    ($($name:ident $bit:literal)*) => { $(pub(crate) const $name: u64 = 1 << $bit;)* };
}
flags! {
    MSG 1 TAGGED 3 MULTICAST 5 READ 8 WRITE 9 RECV 10 REMOTE_READ 12 REMOTE_WRITE 13 REMOTE_CQ_DATA 17 PEEK 19
    TRIGGER 20 FENCE 21 COMPLETION 24 INJECT 25 INJECT_COMPLETE 26 TRANSMIT_COMPLETE 27 DELIVERY_COMPLETE 28
    RMA_PMEM 49 SOURCE_ERR 50 RMA_EVENT 56 SOURCE 57 DISCARD 58 CLAIM 59 DIRECTED_RECV 59
}

/// Error numbers as C calls return them.
macro_rules! errnos {
    ($($name:ident)*) => { $(pub(crate) const $name: c_int = -Errno::$name.raw();)* };
}
errnos! {
    ENOENT EAGAIN EBUSY EINVAL ENOSYS ENODATA EMSGSIZE ENOPROTOOPT EOPNOTSUPP ENOTCONN ETIMEDOUT ETOOSMALL
    EOPBADSTATE EAVAIL EBADFLAGS ENOKEY EKEYREJECTED ENOEQ
}

/// The time-out of every wait, so that a faulty test fails instead of hanging.
pub(crate) const PATIENCE_MS: c_int = 60_000;

/// A pointer to nothing.
pub(crate) const NULL: *mut c_void = ptr::null_mut();

/// Calls a function of a vtable of an object, as the inline functions of the C headers do.
macro_rules! call {
    ($object:expr, $ops:ident.$slot:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object.as_ptr();
        // SAFETY: the object is open. The test passes arguments that the call may use, or must refuse.
        unsafe { ((*(*object).$ops).$slot)(object.cast() $(, $argument)*) }
    }};
}
pub(crate) use call;

/// The plugin's provider, as a host gets it.
pub(crate) fn provider() -> &'static FiProvider {
    static ADDRESS: LazyLock<usize> = LazyLock::new(|| fi_prov_ini().expose_provenance());
    // SAFETY: the provider is never freed, and no test changes it.
    unsafe { &*ptr::with_exposed_provenance(*ADDRESS) }
}

/// `fi_getinfo`.
pub(crate) fn getinfo(
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    hints: Option<&InfoList>,
) -> Result<InfoList, c_int> {
    let mut list = ptr::dangling_mut();
    let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let hints = hints.map_or(ptr::null(), |hints| hints.0.cast_const());
    // SAFETY: the strings are valid, hints are null or valid, and there is a place for the result.
    let result =
        unsafe { (provider().getinfo)(API_VERSION, text(node), text(service), flags, hints, &raw mut list) };
    match result {
        0 => Ok(InfoList(list)),
        error => {
            assert!(list.is_null(), "an error must leave no list behind");
            Err(error)
        }
    }
}

/// Returns infos for endpoints on the loopback interface.
pub(crate) fn loopback_infos() -> InfoList {
    loopback_infos_with(InfoList::hints())
}

/// As [`loopback_infos`], with these hints.
pub(crate) fn loopback_infos_with(mut hints: InfoList) -> InfoList {
    hints.domain().name = duplicate(c"tcp");
    getinfo(Some(c"127.0.0.1"), None, SOURCE, Some(&hints)).expect("a loopback interface")
}

/// Hints, or an answer of `fi_getinfo`, which is never freed: `host/tests/semantics.rs` frees them as
/// libfabric does. The methods are for the first info.
pub(crate) struct InfoList(pub(crate) *mut FiInfo);

impl InfoList {
    /// Hints that have all attributes, and specify nothing.
    pub(crate) fn hints() -> InfoList {
        fn zeroed<T>() -> *mut T {
            // SAFETY: the call has no conditions.
            unsafe { libc::calloc(1, size_of::<T>()).cast() }
        }
        let info: *mut FiInfo = zeroed();
        // SAFETY: zeroes are an info without attributes.
        unsafe {
            ((*info).tx_attr, (*info).rx_attr) = (zeroed(), zeroed());
            ((*info).ep_attr, (*info).domain_attr, (*info).fabric_attr) = (zeroed(), zeroed(), zeroed());
        }
        InfoList(info)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FiInfo> {
        // SAFETY: the list is valid as long as `self`.
        std::iter::successors(Some(self.info()), |info| unsafe { info.next.as_ref() })
    }

    pub(crate) fn info(&self) -> &FiInfo {
        // SAFETY: a list is never empty.
        unsafe { &*self.0 }
    }

    pub(crate) fn info_mut(&mut self) -> &mut FiInfo {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.0 }
    }
}

/// Methods that return an attribute of the first info.
macro_rules! attributes {
    ($($method:ident: $field:ident -> $type:ty)*) => {
        impl InfoList {
            $(pub(crate) fn $method(&mut self) -> &mut $type {
                // SAFETY: answers and hints have all their attributes, and `self` is borrowed exclusively.
                unsafe { &mut *self.info().$field }
            })*
        }
    };
}
attributes! {
    tx: tx_attr -> FiTxAttr
    rx: rx_attr -> FiRxAttr
    ep: ep_attr -> FiEpAttr
    domain: domain_attr -> FiDomainAttr
    fabric: fabric_attr -> FiFabricAttr
}

/// A copy of a text, for hints.
pub(crate) fn duplicate(text: &CStr) -> *mut c_char {
    // SAFETY: it is a string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// Owns an object of any class. Closes the object when dropped, and panics if the object does not
/// close.
pub(crate) struct Object<T>(*mut T);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    /// Opens an object by a call that writes it to its argument.
    pub(crate) fn open(call: impl FnOnce(*mut *mut T) -> c_int) -> Result<Object<T>, c_int> {
        let mut object = ptr::null_mut();
        match call(&raw mut object) {
            0 => Ok(Object(object)),
            error => {
                assert!(object.is_null(), "an error must leave no object behind");
                Err(error)
            }
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0
    }

    pub(crate) fn fid(&self) -> *mut Fid {
        self.0.cast()
    }

    /// The application's context of the object.
    pub(crate) fn context(&self) -> *mut c_void {
        // SAFETY: the object is open.
        unsafe { (*self.fid()).context }
    }

    /// `fi_close`, which may be refused.
    pub(crate) fn close(self) -> Result<(), (Self, c_int)> {
        // SAFETY: the object is open.
        match unsafe { ((*(*self.fid()).ops).close)(self.fid()) } {
            0 => {
                mem::forget(self);
                Ok(())
            }
            error => Err((self, error)),
        }
    }

    /// Checks that the object cannot be closed, because others need it.
    #[track_caller]
    pub(crate) fn assert_busy(self) -> Self {
        let Err((object, error)) = self.close() else { panic!("others need the object") };
        assert_eq!(error, EBUSY);
        object
    }

    /// `fi_control`.
    pub(crate) fn control<A>(&self, command: c_int, arg: *mut A) -> c_int {
        // SAFETY: the object is open, and the tests pass the argument that the command needs.
        unsafe { ((*(*self.fid()).ops).control)(self.fid(), command, arg.cast()) }
    }

    /// `FI_GETOPSFLAG`, `FI_SETOPSFLAG`: also returns the flags.
    pub(crate) fn control_flags(&self, command: c_int, mut flags: u64) -> (c_int, u64) {
        (self.control(command, &raw mut flags), flags)
    }

    /// `fi_enable`.
    pub(crate) fn enable(&self) -> c_int {
        self.control(FI_ENABLE, NULL)
    }

    /// `fi_ep_bind` and its like.
    pub(crate) fn bind<O>(&self, other: &Object<O>, flags: u64) -> c_int {
        // SAFETY: both objects are open.
        unsafe { ((*(*self.fid()).ops).bind)(self.fid(), other.fid(), flags) }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and not used afterwards.
        let result = unsafe { ((*(*self.fid()).ops).close)(self.fid()) };
        if !thread::panicking() {
            assert_eq!(result, 0, "an object could not be closed");
        }
    }
}

pub(crate) fn open_fabric(infos: &mut InfoList, api_version: u32) -> Object<FidFabric> {
    infos.fabric().api_version = api_version;
    let attr = infos.info().fabric_attr;
    // SAFETY: the attributes are valid.
    let open = |fabric: *mut *mut FidFabric| unsafe { (provider().fabric)(attr, fabric, NULL) };
    Object::open(open).expect("a fabric")
}

impl Object<FidFabric> {
    pub(crate) fn open_domain(&self, infos: &InfoList) -> Result<Object<FidDomain>, c_int> {
        Object::open(|domain| call!(self, ops.domain, infos.0, domain, numbered_context(77)))
    }

    pub(crate) fn open_eq(&self, mut attr: FiEqAttr) -> Result<Object<FidEq>, c_int> {
        Object::open(|eq| call!(self, ops.eq_open, &raw mut attr, eq, NULL))
    }

    pub(crate) fn trywait(&self, fids: &mut [*mut Fid]) -> c_int {
        call!(self, ops.trywait, fids.as_mut_ptr(), c_int::try_from(fids.len()).expect("few"))
    }
}

impl Object<FidDomain> {
    pub(crate) fn open_cq(&self, mut attr: FiCqAttr) -> Result<Object<FidCq>, c_int> {
        Object::open(|cq| call!(self, ops.cq_open, &raw mut attr, cq, numbered_context(78)))
    }

    pub(crate) fn open_counter(&self, mut attr: FiCntrAttr) -> Result<Object<FidCntr>, c_int> {
        Object::open(|cntr| call!(self, ops.cntr_open, &raw mut attr, cntr, numbered_context(79)))
    }

    /// A counter without a wait object.
    pub(crate) fn counter(&self) -> Object<FidCntr> {
        self.open_counter(counter_attr(FI_WAIT_NONE)).expect("a counter")
    }

    pub(crate) fn open_av(&self, mut attr: FiAvAttr) -> Result<Object<FidAv>, c_int> {
        Object::open(|av| call!(self, ops.av_open, &raw mut attr, av, NULL))
    }

    pub(crate) fn open_endpoint(&self, infos: &InfoList) -> Result<Object<FidEp>, c_int> {
        Object::open(|ep| call!(self, ops.endpoint, infos.0, ep, NULL))
    }

    /// `fi_mr_reg` of memory that outlives the region, for all accesses of peers.
    pub(crate) fn reg(&self, memory: &mut [u8], key: u64, flags: u64) -> Result<Object<FidMr>, c_int> {
        self.reg_at(memory.as_mut_ptr().cast(), memory.len(), key, flags)
    }

    /// As [`reg`](Self::reg), for any addresses.
    pub(crate) fn reg_at(
        &self,
        address: *mut c_void,
        len_bytes: usize,
        key: u64,
        flags: u64,
    ) -> Result<Object<FidMr>, c_int> {
        let access = 1 << 12 | 1 << 13;
        Object::open(|mr| call!(self, mr.reg, address, len_bytes, access, 0, key, flags, mr, NULL))
    }
}

impl Object<FidCntr> {
    /// `fi_cntr_read`, `fi_cntr_readerr`.
    pub(crate) fn values(&self) -> (u64, u64) {
        (call!(self, ops.read), call!(self, ops.readerr))
    }

    /// `fi_cntr_add`.
    pub(crate) fn add(&self, value: u64) {
        assert_eq!(call!(self, ops.add, value), 0);
    }
}

/// `fi_getname` of an endpoint of either kind.
macro_rules! get_name {
    ($object:expr) => {{
        let (mut name, mut len_bytes) = ([0_u8; 16], 16);
        assert_eq!(call!($object, cm.getname, name.as_mut_ptr().cast(), &raw mut len_bytes), 0);
        assert_eq!(len_bytes, 16);
        name
    }};
}
pub(crate) use get_name;

impl Object<FidEp> {
    pub(crate) fn name(&self) -> [u8; 16] {
        get_name!(self)
    }

    /// Posts a receive. The buffer lives until the completion is read.
    pub(crate) fn recv(&self, buf: &mut [u8], number: usize) {
        let buf: iovec = to_iovec(buf);
        let context = numbered_context(number);
        let posted = call!(self, msg.recv, buf.iov_base, buf.iov_len, NULL, FI_ADDR_UNSPEC, context);
        assert_eq!(posted, 0, "fi_recv");
    }

    pub(crate) fn inject(&self, message: &[u8], to: u64) {
        assert_eq!(call!(self, msg.inject, message.as_ptr().cast(), message.len(), to), 0, "fi_inject");
    }
}

impl Object<FidCq> {
    /// Calls `fi_cq_readfrom` for one entry. If the call reads none, returns its result as the error.
    pub(crate) fn read(&self) -> Result<(FiCqTaggedEntry, u64), c_int> {
        // SAFETY: all zeroes are an entry.
        let (mut entry, mut source): (FiCqTaggedEntry, _) = (unsafe { mem::zeroed() }, 0);
        match call!(self, ops.readfrom, (&raw mut entry).cast(), 1, &raw mut source) {
            1 => Ok((entry, source)),
            other => Err(other as c_int),
        }
    }

    /// Reads no entry, which makes progress and returns the state of the queue.
    pub(crate) fn drive(&self) -> c_int {
        call!(self, ops.read, NULL, 0) as c_int
    }

    /// `fi_cq_readerr`, into an entry that was empty.
    pub(crate) fn read_error(&self) -> Result<FiCqErrEntry, c_int> {
        // SAFETY: all zeroes are an entry.
        let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
        match call!(self, ops.readerr, &raw mut entry, 0) {
            1 => Ok(entry),
            other => Err(other as c_int),
        }
    }

    /// Waits for an entry, and drives another queue meanwhile.
    pub(crate) fn await_entry(&self, what: &str, other: &Object<FidCq>) -> (FiCqTaggedEntry, u64) {
        let mut found = Err(EAGAIN);
        wait_until(what, || {
            other.drive();
            found = self.read();
            found.as_ref().err() != Some(&EAGAIN)
        });
        found.unwrap_or_else(|error| panic!("{what}: fi_cq_read answers {error}"))
    }

    /// Waits for an error, and drives another queue meanwhile.
    pub(crate) fn await_error(&self, what: &str, other: &Object<FidCq>) -> FiCqErrEntry {
        let mut found = Err(EAGAIN);
        wait_until(what, || {
            other.drive();
            self.drive();
            found = self.read_error();
            found.as_ref().err() != Some(&EAGAIN)
        });
        found.unwrap_or_else(|error| panic!("{what}: fi_cq_readerr answers {error}"))
    }
}

pub(crate) fn cq_attr(format: u32) -> FiCqAttr {
    let (wait_obj, wait_set) = (FI_WAIT_NONE, ptr::null_mut());
    FiCqAttr { size: 64, flags: 0, format, wait_obj, signaling_vector: 0, wait_cond: 0, wait_set }
}

pub(crate) fn counter_attr(wait_obj: u32) -> FiCntrAttr {
    FiCntrAttr { events: FI_CNTR_EVENTS_COMP, wait_obj, wait_set: ptr::null_mut(), flags: 0 }
}

pub(crate) fn av_attr() -> FiAvAttr {
    let (name, map_addr) = (ptr::null(), NULL);
    FiAvAttr { r#type: 0, rx_ctx_bits: 0, count: 2, ep_per_node: 0, name, map_addr, flags: 0 }
}

pub(crate) fn eq_attr(flags: u64) -> FiEqAttr {
    FiEqAttr { size: 4, flags, wait_obj: FI_WAIT_UNSPEC, signaling_vector: 0, wait_set: ptr::null_mut() }
}

/// What a [`Node`] is opened with.
pub(crate) struct Setup {
    pub(crate) api_version: u32,
    pub(crate) infos: InfoList,
    pub(crate) cq: FiCqAttr,
}

/// An endpoint with its objects. They are closed in the order of the fields.
pub(crate) struct Node {
    pub(crate) ep: Object<FidEp>,
    pub(crate) cq: Object<FidCq>,
    pub(crate) av: Object<FidAv>,
    pub(crate) eq: Object<FidEq>,
    pub(crate) domain: Object<FidDomain>,
    pub(crate) fabric: Object<FidFabric>,
}

impl Node {
    /// Opens an enabled endpoint on the loopback interface.
    pub(crate) fn open() -> Node {
        Node::open_with(|_| ())
    }

    /// As [`open`](Self::open), with a changed setup.
    pub(crate) fn open_with(change: impl FnOnce(&mut Setup)) -> Node {
        Node::open_disabled_with(change).bind_and_enable()
    }

    /// Opens an endpoint without bindings, not enabled.
    pub(crate) fn open_disabled() -> Node {
        Node::open_disabled_with(|_| ())
    }

    /// As [`open_disabled`](Self::open_disabled), with a changed setup.
    pub(crate) fn open_disabled_with(change: impl FnOnce(&mut Setup)) -> Node {
        let (infos, cq) = (loopback_infos(), cq_attr(FI_CQ_FORMAT_TAGGED));
        let mut setup = Setup { api_version: API_VERSION, infos, cq };
        change(&mut setup);
        let Setup { api_version, mut infos, cq } = setup;
        let fabric = open_fabric(&mut infos, api_version);
        let eq = fabric.open_eq(eq_attr(0)).expect("an event queue");
        let domain = fabric.open_domain(&infos).expect("a domain");
        let av = domain.open_av(av_attr()).expect("an address vector");
        let cq = domain.open_cq(cq).expect("a completion queue");
        let ep = domain.open_endpoint(&infos).expect("an endpoint");
        Node { ep, cq, av, eq, domain, fabric }
    }

    /// Binds the objects of an endpoint, and enables it.
    pub(crate) fn bind_and_enable(self) -> Node {
        assert_eq!((self.ep.bind(&self.av, 0), self.ep.bind(&self.eq, 0)), (0, 0));
        assert_eq!((self.ep.bind(&self.cq, FI_TRANSMIT | FI_RECV), self.ep.enable()), (0, 0));
        self
    }

    /// `fi_av_insert` of one address.
    pub(crate) fn insert(&self, name: &[u8; 16]) -> u64 {
        let mut address = 0;
        assert_eq!(call!(self.av, ops.insert, name.as_ptr().cast(), 1, &raw mut address, 0, NULL), 1);
        address
    }

    /// Opens an endpoint, and inserts its own address into its vector.
    pub(crate) fn open_with_own_address(change: impl FnOnce(&mut Setup)) -> (Node, u64) {
        let node = Node::open_with(change);
        // Another address comes first, so that its own is not 0 by accident.
        node.insert(&make_address([127, 0, 0, 1], 9));
        let own = node.insert(&node.ep.name());
        (node, own)
    }

    /// Waits for the next entry.
    pub(crate) fn await_entry(&self, what: &str) -> FiCqTaggedEntry {
        self.cq.await_entry(what, &self.cq).0
    }

    /// Writes the error of a cancelled receive to the queue.
    pub(crate) fn write_error(&self, number: usize) {
        self.ep.recv(&mut [], number);
        assert_eq!(call!(self.ep, ops.cancel, numbered_context(number)), 0, "fi_cancel");
    }
}

/// Repeats `is_done` until it returns true. `what` is awaited.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_millis(PATIENCE_MS.unsigned_abs().into());
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}: still awaited");
        thread::yield_now();
    }
}

/// Waits for the end of a thread, whose waits have time-outs.
pub(crate) fn join<T>(what: &str, thread: ScopedJoinHandle<'_, T>) -> T {
    wait_until(what, || thread.is_finished());
    thread.join().expect("no panic")
}

/// Returns a socket address in its C form.
pub(crate) fn make_address(ip: [u8; 4], port: u16) -> [u8; 16] {
    // SAFETY: all zeroes are an address, and any address is bytes.
    unsafe {
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_be_bytes(ip).to_be();
        mem::transmute::<libc::sockaddr_in, [u8; 16]>(address)
    }
}

/// Returns a context with this number.
pub(crate) fn numbered_context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// The tag of tagged messages.
pub(crate) const TAG: u64 = 5;

/// A message of this vector, untagged and tagged.
pub(crate) fn messages(
    msg_iov: *const iovec,
    iov_count: usize,
    addr: u64,
    context: *mut c_void,
) -> (FiMsg, FiMsgTagged) {
    let desc = ptr::null_mut();
    let tagged = FiMsgTagged { msg_iov, desc, iov_count, addr, tag: TAG, ignore: 0, context, data: 0 };
    (FiMsg { msg_iov, desc, iov_count, addr, context, data: 0 }, tagged)
}

/// Describes a buffer for C.
pub(crate) fn to_iovec<T>(memory: &mut [T]) -> iovec {
    let iov_base = if memory.is_empty() { NULL } else { memory.as_mut_ptr().cast() };
    iovec { iov_base, iov_len: size_of_val(memory) }
}

/// Reads a string that C code made.
pub(crate) fn read_c_str<'a>(from: *const c_char) -> &'a str {
    assert!(!from.is_null());
    // SAFETY: not null, so a string, as the test guarantees.
    unsafe { CStr::from_ptr(from) }.to_str().expect("ASCII")
}
