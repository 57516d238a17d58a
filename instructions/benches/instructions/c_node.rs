//! The C interface: of the plugin, which is loaded as libfabric loads it, and of libfabric with its provider
//! `shm`. Both are called through the function tables of their objects.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::{env, ptr};

use homespun::atomic::{AtomicOp, Datatype};
use homespun::flags::{InfoFlags, MrAccess};
use homespun::info::{EndpointType, MrMode, Progress, Threading};
use homespun_fi::abi::domain::{FiAvAttr, FidAv, FidDomain, FidMr};
use homespun_fi::abi::endpoint::FidEp;
use homespun_fi::abi::eq::{FiCqAttr, FiCqTaggedEntry, FidCq};
use homespun_fi::abi::fid::Fid;
use homespun_fi::abi::info::FiInfo;
use homespun_fi::abi::provider::{FiProvider, GetInfo, OpenFabric};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_RECV, FI_TRANSMIT, FI_WAIT_NONE, fi_version,
};
use libc::{c_char, c_int, c_void};
use libloading::{Library, Symbol};

use crate::Result;
use crate::node::{LEN_BYTES, Node};
use crate::path::{Interface, Path};

const API_VERSION: u32 = fi_version(1, 17);

/// The result of a read of an empty queue, or of a call that the endpoint cannot accept now.
const EAGAIN: isize = -(libc::EAGAIN as isize);

const NONE: *mut c_void = ptr::null_mut();

/// The message that operations send or write, and the number that they add.
static MESSAGE: u64 = 1;

/// Room for the name of an endpoint of any provider.
const NAME_MAX_BYTES: usize = 256;

/// The functions of a library that begin everything else.
struct Entry {
    getinfo: GetInfo,
    fabric: OpenFabric,
    /// Whether endpoints have addresses of the network.
    has_network_addresses: bool,
}

/// An endpoint. All objects stay open until the process ends.
pub(crate) struct CNode {
    ep: *mut FidEp,
    cq: *mut FidCq,
    av: *mut FidAv,
    /// The buffer of receives and reads.
    room: *mut u64,
    peer: u64,
    /// The address and the key of the node's memory, and those of its peer's.
    own: (u64, u64),
    target: (u64, u64),
}

impl CNode {
    /// Opens an endpoint, and memory for its peer under this key.
    ///
    /// # Safety
    ///
    /// The domain is open, and the info is one of its infos.
    unsafe fn open(domain: *mut FidDomain, info: *mut FiInfo, key: u64) -> CNode {
        // SAFETY: each call gets open objects, valid attributes, and room for the new object. The memory of
        // the region is never freed.
        unsafe {
            let cq = open_object(|cq| ((*(*domain).ops).cq_open)(domain, &mut cq_attr(), cq, NONE));
            let av = open_object(|av| ((*(*domain).ops).av_open)(domain, &mut av_attr(), av, NONE));
            let ep = open_object(|ep| ((*(*domain).ops).endpoint)(domain, info, ep, NONE));
            let fid: *mut Fid = ep.cast();
            assert_eq!(((*(*fid).ops).bind)(fid, cq.cast(), FI_TRANSMIT | FI_RECV), 0);
            assert_eq!(((*(*fid).ops).bind)(fid, av.cast(), 0), 0);
            assert_eq!(((*(*fid).ops).control)(fid, FI_ENABLE, NONE), 0);
            let (memory, room) = (Box::into_raw(Box::new(0)), Box::into_raw(Box::new(0)));
            let access = (MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE).bits();
            let reg = (*(*domain).mr).reg;
            let memory_fid = memory.cast_const().cast();
            open_object(|mr: *mut *mut FidMr| {
                reg(domain.cast(), memory_fid, LEN_BYTES, access, 0, key, 0, mr, NONE)
            });
            let has_addresses = (*(*info).domain_attr).mr_mode & MrMode::VIRT_ADDR.bits().cast_signed() != 0;
            let memory_address = if has_addresses { memory.addr() as u64 } else { 0 };
            CNode { ep, cq, av, room, peer: FI_ADDR_UNSPEC, own: (memory_address, key), target: (0, 0) }
        }
    }
}

impl Node for CNode {
    type Name = ([u8; NAME_MAX_BYTES], (u64, u64));

    fn open_pair(path: Path) -> [CNode; 2] {
        let entry = match path.interface {
            Interface::Libfabric => load_libfabric().expect("libfabric"),
            Interface::Native | Interface::Plugin => load_plugin(),
        };
        let info = find_unlocked_info(&entry, path.domain);
        // SAFETY: each call gets open objects, valid attributes, and room for the new object.
        unsafe {
            let fabric = open_object(|fabric| (entry.fabric)((*info).fabric_attr, fabric, NONE));
            let domain = open_object(|domain| ((*(*fabric).ops).domain)(fabric, info, domain, NONE));
            [1, 2].map(|key| CNode::open(domain, info, key))
        }
    }

    fn own_address(&self) -> Self::Name {
        let mut name = [0; NAME_MAX_BYTES];
        let mut len_bytes = name.len();
        // SAFETY: the endpoint is open, and the buffer has the stated length.
        let result = unsafe {
            ((*(*self.ep).cm).getname)(self.ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes)
        };
        assert_eq!(result, 0);
        assert!(len_bytes <= name.len(), "a name of {len_bytes} bytes");
        (name, self.own)
    }

    fn set_peer(&mut self, (name, target): Self::Name) {
        let (av, address) = (self.av, &raw mut self.peer);
        // SAFETY: the vector is open, and holds addresses of this size. `address` has room for one fabric
        // address.
        let inserted = unsafe { ((*(*av).ops).insert)(av, name.as_ptr().cast(), 1, address, 0, NONE) };
        assert_eq!(inserted, 1);
        self.target = target;
    }

    fn post_receive(&mut self, tag: Option<u64>) {
        let (ep, room) = (self.ep, self.room.cast());
        // SAFETY: the endpoint is open, and the room stays where it is.
        let result = unsafe {
            match tag {
                Some(tag) => ((*(*ep).tagged).recv)(ep, room, LEN_BYTES, NONE, FI_ADDR_UNSPEC, tag, 0, NONE),
                None => ((*(*ep).msg).recv)(ep, room, LEN_BYTES, NONE, FI_ADDR_UNSPEC, NONE),
            }
        };
        assert_eq!(result, 0);
    }

    fn try_send(&mut self, tag: Option<u64>) -> bool {
        let (ep, peer) = (self.ep, self.peer);
        // SAFETY: the endpoint is open, and the message is static.
        let result = unsafe {
            match tag {
                Some(tag) => ((*(*ep).tagged).send)(ep, message_ptr(), LEN_BYTES, NONE, peer, tag, NONE),
                None => ((*(*ep).msg).send)(ep, message_ptr(), LEN_BYTES, NONE, peer, NONE),
            }
        };
        assert!(result == 0 || result == EAGAIN, "the send returns {result}");
        result == 0
    }

    fn inject(&mut self) {
        let ep = self.ep;
        // SAFETY: the endpoint is open, and the message is static.
        assert_eq!(unsafe { ((*(*ep).msg).inject)(ep, message_ptr(), LEN_BYTES, self.peer) }, 0);
    }

    fn write(&mut self) {
        let (ep, peer, (at, key)) = (self.ep, self.peer, self.target);
        // SAFETY: the endpoint is open, and the written number is static.
        let result = unsafe { ((*(*ep).rma).write)(ep, message_ptr(), LEN_BYTES, NONE, peer, at, key, NONE) };
        assert_eq!(result, 0);
    }

    fn read(&mut self) {
        let (ep, peer, room, (at, key)) = (self.ep, self.peer, self.room.cast(), self.target);
        // SAFETY: the endpoint is open, and the room stays where it is.
        let result = unsafe { ((*(*ep).rma).read)(ep, room, LEN_BYTES, NONE, peer, at, key, NONE) };
        assert_eq!(result, 0);
    }

    fn fetch_add(&mut self) {
        let (ep, peer, room, (at, key)) = (self.ep, self.peer, self.room.cast(), self.target);
        let (datatype, op) = (Datatype::Uint64 as u32, AtomicOp::Sum as u32);
        // SAFETY: the endpoint is open, the operand is static, and the room does not move.
        let result = unsafe {
            let readwrite = (*(*ep).atomic).readwrite;
            readwrite(ep, message_ptr(), 1, NONE, room, NONE, peer, at, key, datatype, op, NONE)
        };
        assert_eq!(result, 0);
    }

    fn poll_cq(&mut self) -> bool {
        let mut entry = FiCqTaggedEntry { op_context: NONE, flags: 0, len: 0, buf: NONE, data: 0, tag: 0 };
        let cq = self.cq;
        // SAFETY: the queue is open, and there is room for an entry of its format.
        match unsafe { ((*(*cq).ops).read)(cq, (&raw mut entry).cast(), 1) } {
            1 => true,
            EAGAIN => false,
            error => panic!("fi_cq_read returns {error}"),
        }
    }
}

fn message_ptr() -> *const c_void {
    (&raw const MESSAGE).cast()
}

/// Loads the plugin, and never unloads it. Cargo puts the plugin beside this program.
fn load_plugin() -> Entry {
    let path = env::current_exe().expect("this program's path").with_file_name("libhomespun_fi.so");
    // SAFETY: loading the plugin runs none of its code.
    let library = unsafe { Library::new(&path) };
    let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let library = ManuallyDrop::new(library);
    // SAFETY: the plugin's entry point has this type, and the structure that it returns is never freed.
    let &FiProvider { getinfo, fabric, .. } = unsafe {
        let ini: Symbol<'_, extern "C" fn() -> *const FiProvider> =
            library.get(c"fi_prov_ini").expect("the plugin's entry point");
        &*ini()
    };
    Entry { getinfo, fabric, has_network_addresses: true }
}

/// The variables that name the prefixes of another libfabric than the system's, and of an MPICH that brings
/// one; and where it is below the prefix.
pub(crate) const PREFIXES: [(&str, &str); 2] =
    [("LIBFABRIC", "lib/libfabric.so.1"), ("HOMESPUN_MPICH", "lib/mpich/libfabric.so.1")];

/// Opens libfabric's library, which is never unloaded.
fn open_libfabric() -> Result<ManuallyDrop<Library>> {
    let named = PREFIXES.iter().find_map(|(name, path)| Some(PathBuf::from(env::var_os(name)?).join(path)));
    let path = named.unwrap_or_else(|| "libfabric.so.1".into());
    // SAFETY: loading libfabric runs its constructors, which programs that link it run, too.
    Ok(ManuallyDrop::new(unsafe { Library::new(path)? }))
}

/// Returns the version of a libfabric with which the plugin can be compared, such as `2.7.0`.
///
/// # Errors
///
/// There is no libfabric, or it is older than 2.0: its sends complete later, so that a call does not do the
/// same.
pub(crate) fn version_of_libfabric() -> Result<String> {
    /// `FI_TYPE_VERSION`
    const TYPE_VERSION: c_int = 18;
    let library = open_libfabric()?;
    // SAFETY: the function has this type (fi_fabric(3)). For a version it reads nothing from its argument,
    // which must not be null, and returns text.
    let version = unsafe {
        let to_string =
            library.get::<unsafe extern "C" fn(*const c_void, c_int) -> *const c_char>(c"fi_tostr")?;
        CStr::from_ptr(to_string((&raw const MESSAGE).cast(), TYPE_VERSION)).to_str()?.to_owned()
    };
    if version.starts_with("1.") {
        return Err(format!("{version} is installed, and {} names no 2.x", PREFIXES[0].0).into());
    }
    Ok(version)
}

fn load_libfabric() -> Result<Entry> {
    let library = open_libfabric()?;
    // SAFETY: the functions have these types, and the library stays.
    unsafe {
        let getinfo = *library.get::<GetInfo>(c"fi_getinfo")?;
        let fabric = *library.get::<OpenFabric>(c"fi_fabric")?;
        Ok(Entry { getinfo, fabric, has_network_addresses: false })
    }
}

/// Returns an info for endpoints of this host, in a domain without locks. The info is never freed.
fn find_unlocked_info(entry: &Entry, domain: &str) -> *mut FiInfo {
    let hints = find_domain(getinfo(entry, ptr::null()), domain);
    // SAFETY: every answer has all its attributes, and nothing else uses this answer.
    unsafe {
        let attr = (*hints).domain_attr;
        (*attr).threading = Threading::Domain.raw();
        (*attr).data_progress = Progress::Manual.raw();
        (*attr).domain = NONE;
        // Libfabric's provider answers with all the flags that it has.
        (*(*hints).tx_attr).op_flags = 0;
        (*(*hints).rx_attr).op_flags = 0;
    }
    let info = find_domain(getinfo(entry, hints), domain);
    // SAFETY: as above.
    assert_eq!(unsafe { (*(*info).domain_attr).threading }, Threading::Domain.raw());
    info
}

/// Calls `fi_getinfo`.
fn getinfo(entry: &Entry, hints: *const FiInfo) -> *mut FiInfo {
    let (node, flags) = match entry.has_network_addresses {
        true => (c"127.0.0.1".as_ptr(), InfoFlags::SOURCE),
        false => (ptr::null(), InfoFlags::empty()),
    };
    let mut list = ptr::null_mut();
    // SAFETY: the strings are valid, the hints are null or valid, and `list` has room for the result.
    let result =
        unsafe { (entry.getinfo)(API_VERSION, node, ptr::null(), flags.bits(), hints, &raw mut list) };
    assert_eq!(result, 0);
    list
}

/// Returns the first info in the list for unconnected endpoints (`FI_EP_RDM`) in a domain of this name.
fn find_domain(mut list: *mut FiInfo, domain: &str) -> *mut FiInfo {
    loop {
        assert!(!list.is_null(), "{domain} is offered");
        // SAFETY: the list is valid. Each answer has all its attributes, and each name is a C string.
        unsafe {
            let name = CStr::from_ptr((*(*list).domain_attr).name);
            let is_rdm = (*(*list).ep_attr).r#type == EndpointType::Rdm.raw();
            if name.to_bytes() == domain.as_bytes() && is_rdm {
                return list;
            }
            list = (*list).next;
        }
    }
}

/// Opens an object by a call that writes it to its argument.
fn open_object<T>(open: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut object = ptr::null_mut();
    assert_eq!(open(&raw mut object), 0);
    object
}

fn cq_attr() -> FiCqAttr {
    let (format, wait_obj, wait_set) = (FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, ptr::null_mut());
    FiCqAttr { size: 0, flags: 0, format, wait_obj, signaling_vector: 0, wait_cond: 0, wait_set }
}

fn av_attr() -> FiAvAttr {
    let (name, map_addr) = (ptr::null(), NONE);
    FiAvAttr { r#type: 0, rx_ctx_bits: 0, count: 1, ep_per_node: 0, name, map_addr, flags: 0 }
}
