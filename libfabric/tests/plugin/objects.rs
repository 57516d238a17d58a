//! Opening, binding and closing objects, and what an endpoint says about itself.

use crate::prelude::*;

/// Shows fi_cq/open-belongs-to-domain, fi_cq/close-ebusy-for-endpoint, fi_mr/bound-region-may-be-closed,
/// fi_av/close-av-ebusy, fi_cntr/close-counter-ebusy.
#[test]
fn close_of_an_object_in_use_fails_with_ebusy() {
    let node = Node::open_disabled();
    let (counter, other) = (node.domain.counter(), node.domain.counter());
    assert_eq!(node.ep.bind(&counter, FI_TRANSMIT | WRITE), 0);
    // Each event has one counter. Without an event, a counter counts nothing.
    assert_eq!([READ | WRITE, 1 << 40, 0].map(|events| node.ep.bind(&other, events)), [EBUSY, EBADFLAGS, 0]);
    assert_eq!(node.ep.bind(&node.av, 1), EBADFLAGS);
    // Before the endpoint is enabled, too.
    let counter = counter.assert_busy();
    let Node { ep, cq, av, eq, domain, fabric } = node.bind_and_enable();
    let mut memory = [0; 8];
    let region = domain.reg(&mut memory, 77, 0).expect("a region");
    let bound = [FI_TRANSMIT, 0, REMOTE_WRITE].map(|events| region.bind(&counter, events));
    assert_eq!((bound, region.bind(&other, REMOTE_WRITE)), ([EBADFLAGS, EBADFLAGS, 0], EBUSY));

    let (cq, av, eq) = (cq.assert_busy(), av.assert_busy(), eq.assert_busy());
    let (domain, fabric, counter) = (domain.assert_busy(), fabric.assert_busy(), counter.assert_busy());
    assert!(ep.close().is_ok() && other.close().is_ok() && av.close().is_ok() && cq.close().is_ok());
    let (counter, domain) = (counter.assert_busy(), domain.assert_busy());
    assert!(region.close().is_ok() && counter.close().is_ok() && domain.close().is_ok());
    let fabric = fabric.assert_busy();
    assert!(eq.close().is_ok() && fabric.close().is_ok());
}

#[test]
fn object_of_another_class_is_refused() {
    let node = Node::open_disabled();
    let ep = node.ep.fid();
    for wrong in [node.fabric.fid(), node.domain.fid(), ep, ptr::null_mut()] {
        // SAFETY: the objects are open.
        assert_eq!(unsafe { ((*(*ep).ops).bind)(ep, wrong, 0) }, EINVAL);
    }
    let (cq, av) = (node.cq.as_ptr(), node.av.as_ptr());
    // SAFETY: the objects are open, and the calls check the class first.
    unsafe {
        assert_eq!(((*(*node.cq.fid()).ops).close)(av.cast()), EINVAL);
        assert_eq!(((*(*cq).ops).read)(av.cast(), NULL, 0), EINVAL as isize);
    }
}

#[test]
fn fabric_attributes_name_the_fabric() {
    let open = provider().fabric;
    for (name, error) in [(duplicate(c"elsewhere"), ENODATA), (ptr::null_mut(), EINVAL)] {
        let mut infos = loopback_infos();
        infos.fabric().name = name;
        // SAFETY: the attributes are valid.
        unsafe {
            let attr = infos.info().fabric_attr;
            assert_eq!(Object::open(|fabric| open(attr, fabric, NULL)).err(), Some(error));
            assert_eq!(open(attr, ptr::null_mut(), NULL), EINVAL);
            assert_eq!(open(ptr::null_mut(), ptr::null_mut(), NULL), EINVAL);
        }
    }
    let fabric = open_fabric(&mut loopback_infos(), API_VERSION);
    // SAFETY: the fabric is open.
    assert_eq!(unsafe { (*fabric.as_ptr()).api_version }, API_VERSION);
}

/// Shows fi_cq/context-stays-with-queue.
#[test]
fn objects_keep_the_applications_context() {
    let node = Node::open_disabled();
    let counter = node.domain.counter();
    let contexts = [node.domain.context(), node.cq.context(), counter.context()];
    assert_eq!(contexts, [77, 78, 79].map(numbered_context));
}

#[test]
fn endpoint_with_an_unspecified_domain_and_type_opens() {
    let node = Node::open_disabled_with(|setup| setup.infos.ep().r#type = 0);
    let mut infos = loopback_infos();
    infos.info_mut().domain_attr = ptr::null_mut();
    assert!(node.domain.open_endpoint(&infos).is_ok());
}

/// Opens objects with attributes, and checks the errors.
#[track_caller]
fn check_opened<A, T, const N: usize>(
    open: impl Fn(A) -> Result<Object<T>, c_int>,
    cases: [(A, Option<c_int>); N],
) {
    for (index, (attr, error)) in cases.into_iter().enumerate() {
        assert_eq!(open(attr).err(), error, "case {index}");
    }
}

/// Shows fi_cq/open-flags, fi_cq/signaling-vector, fi_cq/cond-needs-wait-object,
/// fi_cq/open-signal-return, fi_cq-1.4/wait-critsec-cond, fi_av/unspecified-type, fi_av/shared-vector,
/// fi_cntr/counter-wait-objects, fi_cntr/counter-flags-are-zero, fi_poll/poll-flags-are-zero,
/// fi_poll/wait-set-pollfd.
#[test]
fn unsupported_attributes_are_refused() {
    let node = Node::open_disabled();
    let no_set: *mut FidWait = node.av.as_ptr().cast();
    let attr = || cq_attr(FI_CQ_FORMAT_TAGGED);
    check_opened(
        |attr| node.domain.open_cq(attr),
        [
            (FiCqAttr { wait_obj: FI_WAIT_SET, ..attr() }, Some(EINVAL)),
            (FiCqAttr { wait_obj: FI_WAIT_SET, wait_set: no_set, ..attr() }, Some(EINVAL)),
            // The set is ignored with other wait objects.
            (FiCqAttr { wait_obj: FI_WAIT_FD, wait_set: no_set, ..attr() }, None),
            (FiCqAttr { wait_obj: FI_WAIT_POLLFD, ..attr() }, Some(ENOSYS)),
            (FiCqAttr { wait_obj: 99, ..attr() }, Some(EINVAL)),
            (FiCqAttr { wait_obj: FI_WAIT_FD, wait_cond: 2, ..attr() }, Some(EINVAL)),
            // The condition is ignored without a wait object.
            (FiCqAttr { wait_cond: 2, ..attr() }, None),
            (FiCqAttr { format: 99, ..attr() }, Some(EINVAL)),
            (FiCqAttr { flags: 1 << 42, ..attr() }, Some(EBADFLAGS)),
            // As fi_peer(3) demands.
            (FiCqAttr { flags: FI_PEER | FI_AFFINITY, ..attr() }, Some(EINVAL)),
            (FiCqAttr { flags: FI_AFFINITY, signaling_vector: 1_000_000, ..attr() }, None),
        ],
    );
    let attr = || counter_attr(FI_WAIT_NONE);
    check_opened(
        |attr| node.domain.open_counter(attr),
        [
            (FiCntrAttr { events: 1, ..attr() }, Some(ENOSYS)),
            (FiCntrAttr { flags: 1, ..attr() }, Some(EBADFLAGS)),
            (FiCntrAttr { wait_obj: FI_WAIT_POLLFD, ..attr() }, Some(ENOSYS)),
            (FiCntrAttr { wait_obj: FI_WAIT_SET, wait_set: no_set, ..attr() }, Some(EINVAL)),
            (FiCntrAttr { wait_obj: 99, ..attr() }, Some(EINVAL)),
        ],
    );
    check_opened(
        |attr| node.domain.open_av(attr),
        [
            (FiAvAttr { r#type: 99, ..av_attr() }, Some(ENODATA)),
            // Endpoints have one receive context.
            (FiAvAttr { rx_ctx_bits: -1, ..av_attr() }, None),
            (FiAvAttr { name: c"shared".as_ptr(), ..av_attr() }, Some(ENOSYS)),
            (FiAvAttr { flags: 1 << 3, ..av_attr() }, Some(EBADFLAGS)),
        ],
    );
    check_opened(
        |attr| node.fabric.open_eq(attr),
        [
            (FiEqAttr { wait_obj: FI_WAIT_SET, ..eq_attr(0) }, Some(EINVAL)),
            (FiEqAttr { wait_obj: 99, ..eq_attr(0) }, Some(EINVAL)),
            (eq_attr(1 << 42), Some(EBADFLAGS)),
            (eq_attr(FI_PEER), Some(EINVAL)),
        ],
    );
    check_opened(
        |mut attr| Object::open(|set| call!(node.fabric, ops.wait_open, &raw mut attr, set)),
        [
            (FiWaitAttr { wait_obj: FI_WAIT_NONE, flags: 0 }, Some(EINVAL)),
            (FiWaitAttr { wait_obj: FI_WAIT_SET, flags: 0 }, Some(EINVAL)),
            (FiWaitAttr { wait_obj: FI_WAIT_POLLFD, flags: 0 }, Some(ENOSYS)),
            (FiWaitAttr { wait_obj: FI_WAIT_UNSPEC, flags: 1 }, Some(EBADFLAGS)),
        ],
    );
    check_opened(
        |mut attr| Object::open(|set| call!(node.domain, ops.poll_open, &raw mut attr, set)),
        [(FiPollAttr { flags: 1 }, Some(EBADFLAGS))],
    );
}

/// Shows fi_cm/getname-etoosmall.
#[test]
fn getname_with_a_short_buffer_answers_etoosmall() {
    let node = Node::open();
    let (mut len_bytes, mut name) = (0, [0_u8; 16]);
    // `fi_pingpong` asks for the length in this way.
    assert_eq!((call!(node.ep, cm.getname, NULL, &raw mut len_bytes), len_bytes), (ETOOSMALL, 16));
    len_bytes = 4;
    let result = call!(node.ep, cm.getname, name.as_mut_ptr().cast(), &raw mut len_bytes);
    assert_eq!((result, len_bytes), (ETOOSMALL, 16));
    assert_eq!(call!(node.ep, cm.getname, name.as_mut_ptr().cast(), ptr::null_mut()), EINVAL);
    assert_eq!((&name[..4], &name[4..]), (&node.ep.name()[..4], &[0; 12][..]));
}

/// Shows fi_cm/setname.
#[test]
fn setname_is_refused_once_the_endpoint_has_an_address() {
    let node = Node::open_disabled();
    // The port stays open.
    let mut address = make_address([127, 0, 0, 2], 0);
    let mut setname = |len_bytes| call!(node.ep, cm.setname, address.as_mut_ptr().cast(), len_bytes);
    assert_eq!((setname(15), setname(16)), (EINVAL, 0));
    assert_eq!(node.ep.name()[4..8], [127, 0, 0, 2]);
    assert_eq!(setname(16), EOPBADSTATE);
}

/// Shows fi_endpoint/set-op-flags, fi_endpoint/endpoint-multicast.
#[test]
fn default_flags_are_kept_per_direction() {
    let node = Node::open();
    let set = |flags| node.ep.control_flags(FI_SETOPSFLAG, flags).0;
    let get = |flags| node.ep.control_flags(FI_GETOPSFLAG, flags);
    assert_eq!([set(FI_TRANSMIT | TRANSMIT_COMPLETE), set(FI_RECV | COMPLETION)], [0; 2]);
    assert_eq!([get(FI_TRANSMIT), get(FI_RECV)], [(0, TRANSMIT_COMPLETE), (0, COMPLETION)]);
    assert_eq!((get(FI_TRANSMIT | FI_RECV).0, set(COMPLETION)), (EINVAL, EINVAL));
    assert_eq!(set(FI_TRANSMIT | MULTICAST), EBADFLAGS);
    assert_eq!(node.ep.control(FI_GETOPSFLAG, NULL), EINVAL);
}

/// Shows fi_endpoint/min-multi-recv, fi_endpoint/buffered-limits, fi_endpoint/device-options,
/// fi_msg/multi-recv-released-below-minimum.
#[test]
fn min_multi_recv_is_an_endpoint_option() {
    let node = Node::open_disabled();
    let get = |level: c_int, name: c_int, mut len: usize| {
        let mut value = 0_usize;
        let result = call!(node.ep, ops.getopt, level, name, (&raw mut value).cast(), &raw mut len);
        (result, value, len)
    };
    let set = |level: c_int, name: c_int, value: usize, len: usize| {
        call!(node.ep, ops.setopt, level, name, (&raw const value).cast(), len)
    };
    let (level, option) = (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV);
    assert_eq!(get(level, option, 8), (0, 64, 8), "the default");
    assert_eq!(set(level, option, 1000, 8), 0);
    assert_eq!(get(level, option, 100), (0, 1000, 8));
    assert_eq!(get(level, option, 7), (ETOOSMALL, 0, 8));
    assert_eq!([0, 4, 9].map(|len| set(level, option, 7, len)), [EINVAL; 3]);
    let nulls = [
        call!(node.ep, ops.setopt, level, option, ptr::null(), 8),
        call!(node.ep, ops.getopt, level, option, NULL, &mut 8),
        call!(node.ep, ops.getopt, level, option, ptr::from_mut(&mut 0_usize).cast(), ptr::null_mut()),
    ];
    assert_eq!(nulls, [EINVAL; 3]);
    // Of the options without a name here, 2 and 3 are limits of buffered receives, and 8 is about devices.
    let others = [FI_OPT_CM_DATA_SIZE, -1, 2, 3, 8].map(|name| (level, name));
    for (level, name) in others.into_iter().chain([(1, option), (-1, option)]) {
        assert_eq!(get(level, name, 8).0, ENOPROTOOPT);
        assert_eq!(set(level, name, 7, 8), ENOPROTOOPT);
    }
    assert_eq!(get(level, option, 8).1, 1000, "nothing has changed");
}
