//! Opening, binding and closing objects, and queries of endpoints.

use std::ptr;

use homespun_fi::abi::{
    FI_AFFINITY, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_GETOPSFLAG, FI_GETWAITOBJ, FI_PEER, FI_RECV,
    FI_SETOPSFLAG, FI_TRANSMIT, FI_WAIT_NONE, FI_WAIT_SET, FI_WAIT_UNSPEC,
};
use libc::{c_int, c_void};

use crate::host::{
    API_VERSION, Node, Object, Plugin, av_attr, cq_attr, eq_attr, numbered_context, open_fabric,
};

const EINVAL: c_int = -22;
const EBUSY: c_int = -16;
const ENOSYS: c_int = -38;
const ENODATA: c_int = -61;
const ETOOSMALL: c_int = -257;
const EOPBADSTATE: c_int = -258;
const EBADFLAGS: c_int = -260;
const ENOCQ: c_int = -263;
const ENOAV: c_int = -267;

fn assert_busy<T>(object: Object<T>) -> Object<T> {
    let (object, error) = object.close().expect_err("others depend on it");
    assert_eq!(error, EBUSY);
    object
}

#[test]
fn close_of_an_object_in_use_fails_with_ebusy() {
    let Node { ep, cq, av, eq, domain, fabric } = Node::open();
    let (cq, av, eq) = (assert_busy(cq), assert_busy(av), assert_busy(eq));
    let (domain, fabric) = (assert_busy(domain), assert_busy(fabric));
    assert!(ep.close().is_ok());
    assert!(av.close().is_ok());
    let domain = assert_busy(domain);
    assert!(cq.close().is_ok());
    let fabric = assert_busy(fabric);
    assert!(domain.close().is_ok());
    let fabric = assert_busy(fabric);
    assert!(eq.close().is_ok());
    assert!(fabric.close().is_ok());
}

#[test]
fn close_of_a_bound_queue_fails_with_ebusy() {
    let Node { ep, cq, av, eq, domain, fabric } = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    assert_eq!(ep.bind(&cq, FI_RECV), 0);
    let cq = assert_busy(cq);
    drop((ep, cq, av, eq, domain, fabric));
}

#[test]
fn object_of_another_class_is_refused() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    for wrong in [node.fabric.fid(), node.domain.fid(), node.ep.fid(), ptr::null_mut()] {
        let ep = node.ep.fid();
        // SAFETY: the objects are open.
        assert_eq!(unsafe { ((*(*ep).ops).bind)(ep, wrong, 0) }, EINVAL);
    }
    // Calls with an object of another class.
    let (cq, av) = (node.cq.as_ptr(), node.av.as_ptr());
    // SAFETY: the objects are open, and the call checks the class first.
    unsafe {
        assert_eq!(((*(*cq).ops).read)(av.cast(), ptr::null_mut(), 0), EINVAL as isize);
        assert_eq!(((*(*node.cq.fid()).ops).close)(av.cast()), EINVAL);
    }
}

#[test]
fn fabric_attributes_name_the_fabric() {
    let infos = Plugin::get().loopback_infos();
    let open = Plugin::get().provider().fabric;
    let attr = infos.first().fabric_attr;
    let mut name = *b"elsewhere\0";
    // SAFETY: the attributes are valid. The test puts their own name back before they are freed.
    unsafe {
        let own = (*attr).name;
        (*attr).name = name.as_mut_ptr().cast();
        assert_eq!(Object::open(|fabric| open(attr, fabric, ptr::null_mut())).err(), Some(ENODATA));
        (*attr).name = ptr::null_mut();
        assert_eq!(Object::open(|fabric| open(attr, fabric, ptr::null_mut())).err(), Some(EINVAL));
        (*attr).name = own;
        assert_eq!(open(attr, ptr::null_mut(), ptr::null_mut()), EINVAL);
        assert_eq!(open(ptr::null_mut(), ptr::null_mut(), ptr::null_mut()), EINVAL);
    }
    let fabric = open_fabric(infos.first(), API_VERSION);
    // SAFETY: the fabric is open.
    assert_eq!(unsafe { (*fabric.as_ptr()).api_version }, API_VERSION);
}

#[test]
fn objects_keep_the_applications_context() {
    let infos = Plugin::get().loopback_infos();
    let fabric = open_fabric(infos.first(), API_VERSION);
    let open = |domain| {
        // SAFETY: the fabric is open and the info valid.
        unsafe {
            ((*(*fabric.as_ptr()).ops).domain)(fabric.as_ptr(), infos.as_ptr(), domain, numbered_context(77))
        }
    };
    let domain = Object::open(open).expect("a domain");
    // SAFETY: the domain is open.
    assert_eq!(unsafe { (*domain.fid()).context }, numbered_context(77));
    let (at, mut attr) = (domain.as_ptr(), cq_attr(FI_CQ_FORMAT_TAGGED));
    // SAFETY: the domain is open.
    let cq =
        Object::open(|cq| unsafe { ((*(*at).ops).cq_open)(at, &raw mut attr, cq, numbered_context(78)) });
    let cq = cq.expect("a completion queue");
    // SAFETY: the queue is open.
    assert_eq!(unsafe { (*cq.fid()).context }, numbered_context(78));
    drop(cq);
    drop(domain);
}

#[test]
fn unsupported_attributes_are_refused() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let refused_cq = |change: fn(&mut homespun_fi::abi::eq::FiCqAttr)| {
        let mut attr = cq_attr(FI_CQ_FORMAT_TAGGED);
        change(&mut attr);
        node.domain.open_cq(&mut attr).err()
    };
    assert_eq!(refused_cq(|attr| attr.wait_obj = FI_WAIT_SET), Some(EINVAL), "there is no set");
    assert_eq!(refused_cq(|attr| attr.wait_obj = 99), Some(EINVAL));
    assert_eq!(refused_cq(|attr| attr.format = 99), Some(EINVAL));
    assert_eq!(refused_cq(|attr| attr.flags = 1 << 42), Some(EBADFLAGS));
    assert_eq!(refused_cq(|attr| attr.flags = FI_PEER), Some(EINVAL), "fi_peer(3)");
    assert_eq!(refused_cq(|attr| attr.flags = FI_PEER | FI_AFFINITY), Some(EINVAL), "fi_peer(3)");

    let refused_av = |change: fn(&mut homespun_fi::abi::domain::FiAvAttr)| {
        let mut attr = av_attr();
        change(&mut attr);
        node.domain.open_av(&mut attr).err()
    };
    assert_eq!(refused_av(|attr| attr.r#type = 99), Some(ENODATA));
    assert_eq!(refused_av(|attr| attr.rx_ctx_bits = -1), None, "endpoints have one receive context");
    assert_eq!(refused_av(|attr| attr.name = c"shared".as_ptr()), Some(ENOSYS));
    assert_eq!(refused_av(|attr| attr.flags = 1 << 3), Some(EBADFLAGS));

    let mut attr = eq_attr(0);
    attr.wait_obj = FI_WAIT_SET;
    assert_eq!(node.fabric.open_eq(&mut attr).err(), Some(EINVAL), "there is no set");
    attr.wait_obj = 99;
    assert_eq!(node.fabric.open_eq(&mut attr).err(), Some(EINVAL));
    assert_eq!(node.fabric.open_eq(&mut eq_attr(1 << 42)).err(), Some(EBADFLAGS));
    assert_eq!(node.fabric.open_eq(&mut eq_attr(FI_PEER)).err(), Some(EINVAL), "fi_peer(3)");
}

#[test]
fn signaling_vector_is_ignored() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let mut attr = cq_attr(FI_CQ_FORMAT_TAGGED);
    (attr.flags, attr.signaling_vector) = (FI_AFFINITY, 1_000_000);
    assert!(node.domain.open_cq(&mut attr).is_ok());
}

#[test]
fn enable_needs_address_vector_and_queues() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let enable = || node.ep.control::<c_void>(FI_ENABLE, ptr::null_mut());
    assert_eq!(enable(), ENOAV);
    assert_eq!(node.ep.bind(&node.av, 1), EBADFLAGS);
    assert_eq!(node.ep.bind(&node.av, 0), 0);
    assert_eq!(enable(), ENOCQ);
    assert_eq!(node.ep.bind(&node.cq, 0), 0, "it is bound to no direction");
    assert_eq!(enable(), ENOCQ);
    assert_eq!(node.ep.bind(&node.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(enable(), 0);
    assert_eq!(enable(), 0, "an endpoint that is enabled stays so");
}

#[test]
fn getwaitobj_names_the_wait_object() {
    let node = Node::open();
    let mut wait_obj = 99u32;
    assert_eq!((node.cq.control(FI_GETWAITOBJ, &raw mut wait_obj), wait_obj), (0, FI_WAIT_NONE));
    assert_eq!((node.eq.control(FI_GETWAITOBJ, &raw mut wait_obj), wait_obj), (0, FI_WAIT_UNSPEC));
}

#[test]
fn getname_with_a_short_buffer_answers_etoosmall() {
    let node = Node::open();
    let ep = node.ep.as_ptr();
    let mut len_bytes = 0;
    let mut name = [0u8; 16];
    // SAFETY: the endpoint is open, and `len_bytes` is at most the buffer's length.
    unsafe {
        let getname = (*(*ep).cm).getname;
        // `fi_pingpong` asks for the length in this way.
        assert_eq!((getname(ep.cast(), ptr::null_mut(), &raw mut len_bytes), len_bytes), (ETOOSMALL, 16));
        len_bytes = 4;
        assert_eq!(
            (getname(ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes), len_bytes),
            (ETOOSMALL, 16)
        );
        assert_eq!(getname(ep.cast(), name.as_mut_ptr().cast(), ptr::null_mut()), EINVAL);
    }
    assert_eq!(name[4..], [0; 12]);
    assert_eq!(name[..4], node.name()[..4]);
}

#[test]
fn setname_is_refused_once_the_endpoint_has_an_address() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let ep = node.ep.as_ptr();
    // SAFETY: all zeroes are an address.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::to_be(0x7f00_0002);
    // SAFETY: the endpoint is open, and `len_bytes` is at most the address's length.
    let mut setname =
        |len_bytes| unsafe { ((*(*ep).cm).setname)(ep.cast(), (&raw mut address).cast(), len_bytes) };
    assert_eq!(setname(15), EINVAL);
    assert_eq!(setname(16), 0);
    assert_eq!(node.name()[4..8], [127, 0, 0, 2]);
    assert_eq!(setname(16), EOPBADSTATE);
}

#[test]
fn default_flags_are_kept_per_direction() {
    const COMPLETION: u64 = 1 << 24;
    const TRANSMIT_COMPLETE: u64 = 1 << 27;
    let node = Node::open();
    let control = |command, flags: u64| {
        let mut flags = flags;
        (node.ep.control(command, &raw mut flags), flags)
    };
    assert_eq!(control(FI_SETOPSFLAG, FI_TRANSMIT | COMPLETION | TRANSMIT_COMPLETE).0, 0);
    assert_eq!(control(FI_SETOPSFLAG, FI_RECV | COMPLETION).0, 0);
    assert_eq!(control(FI_GETOPSFLAG, FI_TRANSMIT), (0, COMPLETION | TRANSMIT_COMPLETE));
    assert_eq!(control(FI_GETOPSFLAG, FI_RECV), (0, COMPLETION));
    assert_eq!(control(FI_GETOPSFLAG, FI_TRANSMIT | FI_RECV).0, EINVAL);
    assert_eq!(control(FI_SETOPSFLAG, COMPLETION).0, EINVAL);
    assert_eq!(control(FI_SETOPSFLAG, FI_TRANSMIT | 1 << 5).0, EBADFLAGS);
    assert_eq!(node.ep.control::<u64>(FI_GETOPSFLAG, ptr::null_mut()), EINVAL);
}
