//! Plays the host: calls the plugin as `libfabric.so` and the inline functions of its headers do.

use std::env;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use homespun::info::{Progress, Threading};
use homespun_fi::abi::domain::{FiAvAttr, FidAv, FidDomain};
use homespun_fi::abi::endpoint::{FidEp, FidStx};
use homespun_fi::abi::eq::{
    FiCntrAttr, FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiEqAttr, FidCntr, FidCq, FidEq,
};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::fid::Fid;
use homespun_fi::abi::info::{FiInfo, FiRxAttr, FiTxAttr};
use homespun_fi::abi::provider::FiProvider;
use homespun_fi::abi::{
    FI_CNTR_EVENTS_COMP, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_RM_DISABLED, FI_TRANSMIT, FI_WAIT_NONE,
    FI_WAIT_UNSPEC, fi_version,
};
use libc::{c_char, c_int, c_void};
use libloading::Library;

/// The API version of these tests, except those about versions.
pub(crate) const API_VERSION: u32 = fi_version(1, 17);

/// The time-out of every wait, so that a faulty test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plugin, loaded once.
pub(crate) struct Plugin {
    library: Library,
    provider: *mut FiProvider,
}

// SAFETY: the provider's functions may be called from any thread, and no test changes the provider.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    pub(crate) fn get() -> &'static Plugin {
        static PLUGIN: OnceLock<Plugin> = OnceLock::new();
        PLUGIN.get_or_init(|| {
            // Cargo builds the plugin before its tests, and puts both into one directory.
            let path = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
            // SAFETY: loading the plugin runs no code of it.
            let library = unsafe { Library::new(&path) };
            let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let provider = call_prov_ini(&library);
            Plugin { library, provider }
        })
    }

    pub(crate) fn provider(&self) -> &FiProvider {
        // SAFETY: the plugin's provider is never freed.
        unsafe { &*self.provider }
    }

    /// Calls `fi_prov_ini` again, like a host that was unloaded and reloaded.
    pub(crate) fn call_prov_ini_again(&self) -> *mut FiProvider {
        call_prov_ini(&self.library)
    }

    /// `fi_getinfo`.
    pub(crate) fn getinfo(
        &self,
        node: Option<&CStr>,
        service: Option<&CStr>,
        flags: u64,
        hints: *const FiInfo,
    ) -> Result<InfoList, c_int> {
        let mut list = ptr::dangling_mut();
        let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the strings are valid, hints are null or valid, and there is a place for the result.
        let result = unsafe {
            (self.provider().getinfo)(API_VERSION, text(node), text(service), flags, hints, &raw mut list)
        };
        match result {
            0 => Ok(InfoList(list)),
            error => {
                assert!(list.is_null(), "an error must leave no list behind");
                Err(error)
            }
        }
    }

    /// Returns infos for endpoints on the loopback interface.
    pub(crate) fn loopback_infos(&self) -> InfoList {
        const FI_SOURCE: u64 = 1 << 57;
        self.getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, ptr::null()).expect("a loopback interface")
    }
}

fn call_prov_ini(library: &Library) -> *mut FiProvider {
    // SAFETY: the plugin's function has this type.
    unsafe {
        let ini: libloading::Symbol<'_, extern "C" fn() -> *mut FiProvider> =
            library.get(c"fi_prov_ini").expect("the plugin's entry point");
        ini()
    }
}

/// An answer of `fi_getinfo`, freed as `fi_freeinfo` does.
pub(crate) struct InfoList(*mut FiInfo);

impl InfoList {
    /// Becomes the owner of an event's info. `None` if the event has none.
    pub(crate) fn from_event(info: *mut FiInfo) -> Option<InfoList> {
        (!info.is_null()).then_some(InfoList(info))
    }

    pub(crate) fn as_ptr(&self) -> *mut FiInfo {
        self.0
    }

    pub(crate) fn first(&self) -> &FiInfo {
        // SAFETY: a list is never empty.
        unsafe { &*self.0 }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FiInfo> {
        // SAFETY: the list is valid as long as `self`.
        std::iter::successors(Some(self.first()), |info| unsafe { info.next.as_ref() })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: every pointer in the list is null or comes from `malloc`.
            unsafe {
                let info = next;
                next = (*info).next;
                free((*(*info).ep_attr).auth_key);
                free((*(*info).domain_attr).auth_key);
                free((*(*info).domain_attr).name);
                free((*(*info).fabric_attr).name);
                free((*(*info).fabric_attr).prov_name);
                free((*info).tx_attr);
                free((*info).rx_attr);
                free((*info).ep_attr);
                free((*info).domain_attr);
                free((*info).fabric_attr);
                free((*info).src_addr);
                free((*info).dest_addr);
                free(info);
            }
        }
    }
}

/// # Safety
///
/// `memory` comes from `malloc`.
unsafe fn free<T>(memory: *mut T) {
    // SAFETY: the caller promises it.
    unsafe { libc::free(memory.cast()) };
}

/// Owns an object of any class. Closes the object when dropped, and panics if the object does not
/// close.
pub(crate) struct Object<T>(*mut T);

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

    /// `fi_close`, which may be refused.
    pub(crate) fn close(self) -> Result<(), (Self, c_int)> {
        // SAFETY: the object is open.
        match unsafe { ((*(*self.fid()).ops).close)(self.fid()) } {
            0 => {
                std::mem::forget(self);
                Ok(())
            }
            error => Err((self, error)),
        }
    }

    /// `fi_control`.
    pub(crate) fn control<A>(&self, command: c_int, arg: *mut A) -> c_int {
        // SAFETY: the object is open, and the tests pass the argument that the command needs.
        unsafe { ((*(*self.fid()).ops).control)(self.fid(), command, arg.cast()) }
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
        if !std::thread::panicking() {
            assert_eq!(result, 0, "an object could not be closed");
        }
    }
}

pub(crate) fn open_fabric(info: &FiInfo, api_version: u32) -> Object<FidFabric> {
    // SAFETY: the info is valid, and only this thread uses it.
    let fabric = unsafe {
        (*info.fabric_attr).api_version = api_version;
        let open = Plugin::get().provider().fabric;
        Object::open(|fabric| open(info.fabric_attr, fabric, ptr::null_mut()))
    };
    fabric.expect("a fabric")
}

impl Object<FidFabric> {
    pub(crate) fn open_domain(&self, info: *mut FiInfo) -> Result<Object<FidDomain>, c_int> {
        // SAFETY: the fabric is open and the info valid.
        Object::open(|domain| unsafe { ((*(*self.0).ops).domain)(self.0, info, domain, ptr::null_mut()) })
    }

    pub(crate) fn open_eq(&self, attr: &mut FiEqAttr) -> Result<Object<FidEq>, c_int> {
        // SAFETY: the fabric is open.
        Object::open(|eq| unsafe { ((*(*self.0).ops).eq_open)(self.0, attr, eq, ptr::null_mut()) })
    }
}

impl Object<FidDomain> {
    pub(crate) fn open_cq(&self, attr: &mut FiCqAttr) -> Result<Object<FidCq>, c_int> {
        // SAFETY: the domain is open.
        Object::open(|cq| unsafe { ((*(*self.0).ops).cq_open)(self.0, attr, cq, ptr::null_mut()) })
    }

    pub(crate) fn open_counter(&self, attr: &mut FiCntrAttr) -> Result<Object<FidCntr>, c_int> {
        // SAFETY: the domain is open.
        Object::open(|cntr| unsafe { ((*(*self.0).ops).cntr_open)(self.0, attr, cntr, ptr::null_mut()) })
    }

    pub(crate) fn open_av(&self, attr: &mut FiAvAttr) -> Result<Object<FidAv>, c_int> {
        // SAFETY: the domain is open.
        Object::open(|av| unsafe { ((*(*self.0).ops).av_open)(self.0, attr, av, ptr::null_mut()) })
    }

    /// `fi_stx_context`.
    pub(crate) fn open_transmit_context(&self, attr: *mut FiTxAttr) -> Result<Object<FidStx>, c_int> {
        // SAFETY: the domain is open, and the attributes are null or valid.
        Object::open(|stx| unsafe { ((*(*self.0).ops).stx_ctx)(self.0, attr, stx, numbered_context(3)) })
    }

    /// `fi_srx_context`.
    pub(crate) fn open_receive_context(&self, attr: *mut FiRxAttr) -> Result<Object<FidEp>, c_int> {
        // SAFETY: the domain is open, and the attributes are null or valid.
        Object::open(|srx| unsafe { ((*(*self.0).ops).srx_ctx)(self.0, attr, srx, ptr::null_mut()) })
    }

    pub(crate) fn open_endpoint(&self, info: *mut FiInfo) -> Result<Object<FidEp>, c_int> {
        // SAFETY: the domain is open and the info valid.
        Object::open(|ep| unsafe { ((*(*self.0).ops).endpoint)(self.0, info, ep, ptr::null_mut()) })
    }
}

pub(crate) fn cq_attr(format: u32) -> FiCqAttr {
    FiCqAttr {
        size: 64,
        flags: 0,
        format,
        wait_obj: FI_WAIT_NONE,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: ptr::null_mut(),
    }
}

pub(crate) fn counter_attr(wait_obj: u32) -> FiCntrAttr {
    FiCntrAttr { events: FI_CNTR_EVENTS_COMP, wait_obj, wait_set: ptr::null_mut(), flags: 0 }
}

pub(crate) fn av_attr() -> FiAvAttr {
    FiAvAttr {
        r#type: 0,
        rx_ctx_bits: 0,
        count: 2,
        ep_per_node: 0,
        name: ptr::null(),
        map_addr: ptr::null_mut(),
        flags: 0,
    }
}

pub(crate) fn eq_attr(flags: u64) -> FiEqAttr {
    FiEqAttr { size: 4, flags, wait_obj: FI_WAIT_UNSPEC, signaling_vector: 0, wait_set: ptr::null_mut() }
}

/// An enabled endpoint with its objects. They are closed in the order of the fields.
pub(crate) struct Node {
    pub(crate) ep: Object<FidEp>,
    pub(crate) cq: Object<FidCq>,
    pub(crate) av: Object<FidAv>,
    pub(crate) eq: Object<FidEq>,
    pub(crate) domain: Object<FidDomain>,
    pub(crate) fabric: Object<FidFabric>,
}

impl Node {
    pub(crate) fn open() -> Node {
        Node::open_with(API_VERSION, FI_CQ_FORMAT_TAGGED)
    }

    pub(crate) fn open_with(api_version: u32, cq_format: u32) -> Node {
        Node::open_disabled(api_version, cq_format).bind_and_enable()
    }

    /// Opens an endpoint in a domain without resource management. Its completion queue has this depth.
    pub(crate) fn open_without_resource_mgmt(cq_depth_entries: usize) -> Node {
        let infos = Plugin::get().loopback_infos();
        // SAFETY: answers have all their attributes, and only this thread uses these.
        unsafe { (*infos.first().domain_attr).resource_mgmt = FI_RM_DISABLED };
        let mut cq_attr = FiCqAttr { size: cq_depth_entries, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
        Node::open_with_infos(&infos, API_VERSION, &mut cq_attr).bind_and_enable()
    }

    /// Opens an endpoint that reports senders outside its address vector.
    pub(crate) fn open_reporting_unknown_sources(api_version: u32) -> Node {
        const FI_SOURCE_ERR: u64 = 1 << 50;
        let infos = Plugin::get().loopback_infos();
        // SAFETY: the answer is valid, and only this thread uses it.
        unsafe { (*infos.as_ptr()).caps |= FI_SOURCE_ERR };
        Node::open_with_infos(&infos, api_version, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Opens an endpoint with these capabilities alone.
    pub(crate) fn open_with_caps(caps: u64) -> Node {
        let infos = Plugin::get().loopback_infos();
        // SAFETY: the answer is valid, and only this thread uses it.
        unsafe { (*infos.as_ptr()).caps = caps };
        Node::open_with_infos(&infos, API_VERSION, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Opens an endpoint with the first info that has this mode.
    pub(crate) fn open_with_offered_mode(mode: u64) -> Node {
        const FI_SOURCE: u64 = 1 << 57;
        let hints = Plugin::get().loopback_infos();
        // SAFETY: the answer is valid, and only this thread uses it. It may name another test's open domain.
        unsafe {
            (*hints.as_ptr()).mode = mode;
            (*hints.first().rx_attr).mode = mode;
            (*hints.first().domain_attr).domain = ptr::null_mut();
        }
        let infos = Plugin::get().getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, hints.as_ptr());
        let infos = infos.expect("unused modes are no reason to refuse");
        let info = infos.iter().find(|info| info.mode == mode).expect("an info with the mode");
        let info = ptr::from_ref(info).cast_mut();
        Node::open_with_info(info, API_VERSION, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Opens an endpoint whose receive attributes have this mode, which the application has set itself.
    pub(crate) fn open_with_receive_mode(mode: u64) -> Node {
        let infos = Plugin::get().loopback_infos();
        // SAFETY: answers have all their attributes, and only this thread uses these.
        unsafe { (*infos.first().rx_attr).mode = mode };
        Node::open_with_infos(&infos, API_VERSION, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Opens an endpoint whose completion queue has these attributes.
    pub(crate) fn open_with_cq_attr(cq_attr: &mut FiCqAttr) -> Node {
        Node::open_with_infos(&Plugin::get().loopback_infos(), API_VERSION, cq_attr).bind_and_enable()
    }

    /// Opens an endpoint in a domain with this threading level and data progress, which the hints ask
    /// for.
    pub(crate) fn open_with_threading_and_progress(threading: Threading, data_progress: Progress) -> Node {
        const FI_SOURCE: u64 = 1 << 57;
        let asked = (threading.raw(), data_progress.raw());
        let hints = Plugin::get().loopback_infos();
        // SAFETY: answers have all their attributes, and only this thread uses these.
        unsafe {
            let attr = hints.first().domain_attr;
            ((*attr).threading, (*attr).data_progress) = asked;
            // The answer may name another test's open domain, which may have other attributes.
            (*attr).domain = std::ptr::null_mut();
        }
        let infos = Plugin::get().getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, hints.as_ptr());
        let infos = infos.expect("what was asked for");
        // SAFETY: as above.
        let answered = unsafe {
            let attr = infos.first().domain_attr;
            ((*attr).threading, (*attr).data_progress)
        };
        assert_eq!(answered, asked);
        Node::open_with_infos(&infos, API_VERSION, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Opens an endpoint in a domain with keys of this size, which the hints ask for. The domain is opened
    /// with this `mr_mode`.
    pub(crate) fn open_with_key_size(size_bytes: usize, mr_mode: c_int) -> Node {
        const FI_SOURCE: u64 = 1 << 57;
        let hints = Plugin::get().loopback_infos();
        // SAFETY: answers have all their attributes, and only this thread uses these.
        unsafe {
            let attr = hints.first().domain_attr;
            (*attr).mr_key_size = size_bytes;
            // The answer may name another test's open domain, which may have other attributes.
            (*attr).domain = std::ptr::null_mut();
        }
        let infos = Plugin::get().getinfo(Some(c"127.0.0.1"), None, FI_SOURCE, hints.as_ptr());
        let infos = infos.expect("what was asked for");
        // SAFETY: as above.
        unsafe {
            let attr = infos.first().domain_attr;
            assert_eq!((*attr).mr_key_size, size_bytes);
            (*attr).mr_mode = mr_mode;
        }
        Node::open_with_infos(&infos, API_VERSION, &mut cq_attr(FI_CQ_FORMAT_TAGGED)).bind_and_enable()
    }

    /// Binds the objects of an endpoint, and enables it.
    pub(crate) fn bind_and_enable(self) -> Node {
        assert_eq!(self.ep.bind(&self.av, 0), 0);
        assert_eq!(self.ep.bind(&self.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(self.ep.bind(&self.eq, 0), 0);
        assert_eq!(self.ep.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
        self
    }

    /// Opens an endpoint without bindings, not enabled, on the loopback interface.
    pub(crate) fn open_disabled(api_version: u32, cq_format: u32) -> Node {
        Node::open_with_infos(&Plugin::get().loopback_infos(), api_version, &mut cq_attr(cq_format))
    }

    /// Opens an endpoint with the first of these infos. Does not bind or enable the endpoint.
    fn open_with_infos(infos: &InfoList, api_version: u32, cq_attr: &mut FiCqAttr) -> Node {
        Node::open_with_info(infos.as_ptr(), api_version, cq_attr)
    }

    /// As [`open_with_infos`](Self::open_with_infos), with this info.
    fn open_with_info(info: *mut FiInfo, api_version: u32, cq_attr: &mut FiCqAttr) -> Node {
        // SAFETY: the tests pass an info of a list that they own.
        let fabric = open_fabric(unsafe { &*info }, api_version);
        let eq = fabric.open_eq(&mut eq_attr(0)).expect("an event queue");
        let domain = fabric.open_domain(info).expect("a domain");
        let av = domain.open_av(&mut av_attr()).expect("an address vector");
        let cq = domain.open_cq(cq_attr).expect("a completion queue");
        let ep = domain.open_endpoint(info).expect("an endpoint");
        Node { ep, cq, av, eq, domain, fabric }
    }

    /// `fi_getname`.
    pub(crate) fn name(&self) -> [u8; 16] {
        let mut name = [0; 16];
        let mut len_bytes = name.len();
        let ep = self.ep.as_ptr();
        // SAFETY: the endpoint is open, and the length is the buffer's.
        let result =
            unsafe { ((*(*ep).cm).getname)(ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes) };
        assert_eq!((result, len_bytes), (0, 16));
        name
    }

    /// `fi_av_insert` of one address.
    pub(crate) fn insert(&self, name: &[u8; 16]) -> u64 {
        let mut address = 0;
        let av = self.av.as_ptr();
        // SAFETY: the vector is open and holds addresses of this size.
        let inserted = unsafe {
            ((*(*av).ops).insert)(av, name.as_ptr().cast(), 1, &raw mut address, 0, ptr::null_mut())
        };
        assert_eq!(inserted, 1);
        address
    }

    /// Calls `fi_cq_readfrom` for one entry. If the call reads none, returns its result as the error.
    pub(crate) fn try_read<E: CqEntry>(&self) -> Result<(E, u64), isize> {
        let mut entry = E::EMPTY;
        let mut source = 0;
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open; the test chooses the entry of its format.
        match unsafe { ((*(*cq).ops).readfrom)(cq, (&raw mut entry).cast(), 1, &raw mut source) } {
            1 => Ok((entry, source)),
            other => Err(other),
        }
    }

    /// `fi_cq_readerr`.
    pub(crate) fn read_error(&self, entry: &mut FiCqErrEntry) -> isize {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open.
        unsafe { ((*(*cq).ops).readerr)(cq, entry, 0) }
    }

    /// `fi_cq_strerror`, with a buffer.
    pub(crate) fn error_text_in(&self, prov_errno: c_int, buf: &mut [c_char]) -> &'static CStr {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open, and the length is the buffer's; the text is static.
        unsafe {
            let strerror = (*(*cq).ops).strerror;
            CStr::from_ptr(strerror(cq, prov_errno, ptr::null(), buf.as_mut_ptr(), buf.len()))
        }
    }

    /// `fi_cq_strerror`, without a buffer.
    pub(crate) fn error_text(&self, prov_errno: c_int) -> &'static CStr {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is open; the text is static.
        unsafe { CStr::from_ptr(((*(*cq).ops).strerror)(cq, prov_errno, ptr::null(), ptr::null_mut(), 0)) }
    }
}

/// An entry of a completion queue of one format.
pub(crate) trait CqEntry {
    const EMPTY: Self;
}

impl CqEntry for FiCqTaggedEntry {
    const EMPTY: Self = FiCqTaggedEntry {
        op_context: ptr::null_mut(),
        flags: 0,
        len: 0,
        buf: ptr::null_mut(),
        data: 0,
        tag: 0,
    };
}

/// Two endpoints in each other's address vectors.
pub(crate) struct Pair<E = FiCqTaggedEntry> {
    pub(crate) left: Node,
    pub(crate) right: Node,
    /// The right endpoint's address in the left one's vector; unused over a connection.
    pub(crate) to_right: u64,
    /// The left endpoint's address in the right one's vector; unused over a connection.
    pub(crate) to_left: u64,
    entry: PhantomData<E>,
}

impl<E: CqEntry> Pair<E> {
    pub(crate) fn open(api_version: u32, cq_format: u32) -> Pair<E> {
        Pair::from_nodes(Node::open_with(api_version, cq_format), Node::open_with(api_version, cq_format))
    }

    /// Makes a pair of two nodes.
    pub(crate) fn from_nodes(left: Node, right: Node) -> Pair<E> {
        // Another address comes first, so that no peer's address is 0 by accident.
        left.insert(&left.name());
        right.insert(&right.name());
        let to_right = left.insert(&right.name());
        let to_left = right.insert(&left.name());
        Pair { left, right, to_right, to_left, entry: PhantomData }
    }

    /// Reads completions of both endpoints until each has the expected number. Returns them in order.
    pub(crate) fn read_completions(&self, left: usize, right: usize) -> [Vec<(E, u64)>; 2] {
        let mut found = [Vec::new(), Vec::new()];
        self.wait_until(|pair| {
            for (node, found) in [&pair.left, &pair.right].into_iter().zip(&mut found) {
                match node.try_read() {
                    Ok(entry) => found.push(entry),
                    Err(error) => assert_eq!(error, -11, "fi_cq_read"),
                }
            }
            found[0].len() >= left && found[1].len() >= right
        });
        found
    }

    /// Repeats `is_done` with the pair until it returns true.
    pub(crate) fn wait_until(&self, mut is_done: impl FnMut(&Self) -> bool) {
        wait_until(|| is_done(self));
    }
}

/// Repeats `is_done` until it returns true.
pub(crate) fn wait_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "nothing happens any more");
        std::thread::yield_now();
    }
}

/// Returns a context with this number.
pub(crate) fn numbered_context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// Reads a string that C code made.
pub(crate) fn read_c_str<'a>(from: *const c_char) -> &'a str {
    assert!(!from.is_null());
    // SAFETY: not null, so a string, as the test guarantees.
    unsafe { CStr::from_ptr(from) }.to_str().expect("ASCII")
}
