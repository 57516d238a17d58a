//! Contexts that endpoints share: `fi_stx_context` and `fi_srx_context` of `fi_endpoint(3)`. What endpoints
//! with them do is the subject of `suite/src/semantics/`.

use crate::prelude::*;
use crate::triggered::{make_work, trigger_at};

const FI_SHARED_CONTEXT: usize = usize::MAX;

/// `fi_stx_context`.
fn open_stx(domain: &Object<FidDomain>, infos: &mut InfoList) -> Result<Object<FidStx>, c_int> {
    let attr = infos.tx();
    Object::open(|stx| call!(domain, ops.stx_ctx, attr, stx, numbered_context(3)))
}

/// `fi_srx_context`.
fn open_srx(domain: &Object<FidDomain>, infos: &mut InfoList) -> Result<Object<FidEp>, c_int> {
    let attr = infos.rx();
    Object::open(|srx| call!(domain, ops.srx_ctx, attr, srx, NULL))
}

/// Shows fi_cq/close-ebusy-for-context.
#[test]
fn transmit_context_closes_before_its_endpoints_and_after_its_domain() {
    let node = Node::open_disabled_with(|setup| setup.infos.ep().tx_ctx_cnt = FI_SHARED_CONTEXT);
    let mut infos = loopback_infos();
    let (stx, last) = (open_stx(&node.domain, &mut infos), open_stx(&node.domain, &mut infos));
    let (stx, last) = (stx.expect("a transmit context"), last.expect("another one"));
    // A context has a valid `fid`, as every object has.
    assert_eq!(stx.context(), numbered_context(3));
    let own = node.domain.open_endpoint(&infos).expect("an endpoint");
    assert_eq!((own.bind(&node.av, 0), own.bind(&node.cq, FI_TRANSMIT | FI_RECV), own.enable()), (0, 0, 0));
    assert_eq!(own.bind(&stx, 0), 0, "it has a context of its own, and is enabled");
    assert_eq!(node.ep.bind(&stx, 0), 0);
    assert!(stx.close().is_ok());
    let Node { ep, cq, av, eq, domain, fabric } = node.bind_and_enable();
    let (domain, cq) = (domain.assert_busy(), cq.assert_busy());
    drop((own, ep));
    assert!(cq.close().is_ok(), "though the context is there");
    drop(av);
    assert!(domain.close().is_ok() && last.close().is_ok());
    drop((eq, fabric));
}

/// Two endpoints of one domain. They share a receive context and an address vector. Each has its own queue.
/// The objects are closed in the order of the fields.
struct Sharers {
    ep: [Object<FidEp>; 2],
    srx: Object<FidEp>,
    cq: [Object<FidCq>; 2],
    av: Object<FidAv>,
    domain: Object<FidDomain>,
    fabric: Object<FidFabric>,
}

impl Sharers {
    fn open(change: fn(&mut InfoList)) -> Sharers {
        let mut infos = loopback_infos();
        infos.ep().rx_ctx_cnt = FI_SHARED_CONTEXT;
        change(&mut infos);
        let fabric = open_fabric(&mut infos, API_VERSION);
        let domain = fabric.open_domain(&infos).expect("a domain");
        let srx = open_srx(&domain, &mut infos).expect("a receive context");
        let av = domain.open_av(av_attr()).expect("an address vector");
        let cq = [(); 2].map(|()| domain.open_cq(cq_attr(FI_CQ_FORMAT_TAGGED)).expect("a queue"));
        let ep = [&cq[0], &cq[1]].map(|cq| {
            let ep = domain.open_endpoint(&infos).expect("an endpoint");
            assert_eq!((ep.bind(&av, 0), ep.bind(cq, FI_TRANSMIT | FI_RECV)), (0, 0));
            assert_eq!((ep.enable(), ep.bind(&srx, 0), ep.enable()), (EOPBADSTATE, 0, 0));
            ep
        });
        Sharers { ep, srx, cq, av, domain, fabric }
    }

    /// The addresses of both endpoints in the vector of a sender.
    fn insert_into(&self, sender: &Node) -> [u64; 2] {
        [0, 1].map(|index| sender.insert(&self.ep[index].name()))
    }

    /// Waits for the next entry of the endpoint with this index. Returns its context.
    fn await_context(&self, index: usize, sender: &Node) -> *mut c_void {
        self.cq[index].await_entry("a message at this endpoint", &sender.cq).0.op_context
    }
}

#[test]
fn every_call_that_posts_to_a_receive_context_serves_its_endpoints() {
    let undirected = |infos: &mut InfoList| {
        infos.rx().caps &= !DIRECTED_RECV;
        infos.info_mut().caps &= !DIRECTED_RECV;
    };
    // Without directed receives the source is ignored.
    for (sharers, from) in [(Sharers::open(|_| ()), FI_ADDR_UNSPEC), (Sharers::open(undirected), 12345)] {
        let sender = Node::open();
        let (to, srx) = (sharers.insert_into(&sender), &sharers.srx);
        let mut room = [[0_u8; 8]; 6];
        let parts = room.each_mut().map(|room| to_iovec(room));
        let context = |number| numbered_context(10 + number);
        let (at, iov, descs) =
            (|index: usize| parts[index].iov_base, |index: usize| &raw const parts[index], ptr::null_mut());
        let message = messages(&parts[2], 1, from, context(2)).0;
        let tagged = messages(&parts[5], 1, from, context(5)).1;
        let posted = [
            call!(srx, msg.recv, at(0), 8, NULL, from, context(0)),
            call!(srx, msg.recvv, iov(1), descs, 1, from, context(1)),
            call!(srx, msg.recvmsg, &raw const message, COMPLETION),
            call!(srx, tagged.recv, at(3), 8, NULL, from, 3, 0, context(3)),
            call!(srx, tagged.recvv, iov(4), descs, 1, from, 4, 0, context(4)),
            call!(srx, tagged.recvmsg, &raw const tagged, COMPLETION),
        ];
        assert_eq!(posted, [0; 6]);
        // An endpoint posts no receives of its own, and a context no sends.
        let own = call!(sharers.ep[1], msg.recv, NULL, 0, NULL, FI_ADDR_UNSPEC, NULL);
        assert_eq!([own, call!(srx, msg.send, ptr::null(), 0, NULL, 0, NULL)], [ENOSYS as isize; 2]);
        for number in 0..6 {
            let (message, to) = ([number as u8; 8], to[number % 2]);
            match number {
                0..3 => sender.ep.inject(&message, to),
                tag => {
                    let buf = message.as_ptr().cast();
                    assert_eq!(call!(sender.ep, tagged.inject, buf, 8, to, tag as u64), 0);
                }
            }
            assert_eq!(sharers.await_context(number % 2, &sender), context(number));
            assert_eq!(room[number], message);
        }
    }
}

#[test]
fn triggered_calls_post_to_a_receive_context() {
    let sharers = Sharers::open(|infos| {
        infos.rx().caps |= TRIGGER;
        infos.tx().caps |= TRIGGER;
    });
    let sender = Node::open();
    let (to, srx, domain) = (sharers.insert_into(&sender), &sharers.srx, &sharers.domain);
    let (counter, done) = (domain.counter(), domain.counter());
    counter.add(1);
    let (mut triggered, mut room) = (trigger_at(&counter, 1), [[0_u8; 8]; 3]);
    let context = (&raw mut triggered).cast();
    let parts = room.each_mut().map(|room| to_iovec(room));
    let message = messages(&parts[0], 1, FI_ADDR_UNSPEC, context).0;
    assert_eq!(call!(srx, msg.recvmsg, &raw const message, TRIGGER), 0);
    let nothing = messages(&parts[0], 1, FI_ADDR_UNSPEC, NULL).0;
    assert_eq!(call!(srx, msg.recvmsg, &raw const nothing, TRIGGER), EINVAL as isize);
    let (msg, _) = messages(&parts[1], 1, FI_ADDR_UNSPEC, numbered_context(11));
    let untagged = FiOpMsg { ep: srx.as_ptr(), msg, flags: COMPLETION };
    let (_, msg) = messages(&parts[2], 1, FI_ADDR_UNSPEC, numbered_context(12));
    let tagged = FiOpTagged { ep: srx.as_ptr(), msg, flags: 0 };
    for mut work in [make_work(FI_OP_RECV, &untagged, &counter), make_work(FI_OP_TRECV, &tagged, &counter)] {
        work.completion_cntr = done.as_ptr();
        assert_eq!(domain.control(FI_QUEUE_WORK, &raw mut work), 0);
    }
    sender.ep.inject(&[1; 8], to[1]);
    assert_eq!(sharers.await_context(1, &sender), context);
    sender.ep.inject(&[2; 8], to[0]);
    assert_eq!(sharers.await_context(0, &sender), numbered_context(11));
    assert_eq!(call!(sender.ep, tagged.inject, [3_u8; 8].as_ptr().cast(), 8, to[1], 5), 0);
    wait_until("both works", || {
        sender.cq.drive();
        done.values().0 == 2
    });
    assert_eq!(room, [[1; 8], [2; 8], [3; 8]]);
}

#[test]
fn receive_context_supports_options_op_flags_and_cancel() {
    let srx = &Sharers::open(|_| ()).srx;
    let (asked, mut found, mut len_bytes) = (100_usize, 0_usize, 8);
    let (level, option, value) = (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, (&raw mut found).cast());
    assert_eq!(call!(srx, ops.setopt, level, option, (&raw const asked).cast(), 8), 0);
    assert_eq!(call!(srx, ops.getopt, level, option, value, &raw mut len_bytes), 0);
    assert_eq!(call!(srx, ops.getopt, level, FI_OPT_CM_DATA_SIZE, value, &raw mut len_bytes), ENOPROTOOPT);
    assert_eq!(found, asked);
    assert_eq!(srx.control_flags(FI_SETOPSFLAG, COMPLETION | FI_RECV).0, 0);
    assert_eq!(srx.control_flags(FI_GETOPSFLAG, FI_RECV), (0, COMPLETION));
    assert_eq!(srx.control_flags(FI_GETOPSFLAG, FI_TRANSMIT).0, EINVAL, "it sends nothing");
    assert_eq!(srx.enable(), 0, "it takes receives anyhow");
    srx.recv(&mut [], 7);
    assert_eq!([8, 7].map(|number| call!(srx, ops.cancel, numbered_context(number))), [ENOENT as isize, 0]);
}

/// Shows fi_cq/close-ebusy-for-context.
#[test]
fn invalid_uses_of_contexts_are_refused() {
    let Sharers { ep: [first, second], srx, cq: [of_first, of_second], av, domain, fabric } =
        Sharers::open(|_| ());
    let mut infos = loopback_infos();
    let stx = open_stx(&domain, &mut infos).expect("a transmit context");
    assert_eq!([first.bind(&stx, FI_TRANSMIT), first.bind(&srx, FI_RECV)], [EBADFLAGS; 2]);
    let bound = [stx.bind(&of_first, FI_TRANSMIT), srx.bind(&of_first, FI_RECV)];
    assert_eq!(bound, [ENOSYS; 2], "queues are those of the endpoints");
    // The attributes of a transmit context are optional, and bounded.
    let attr = ptr::null_mut();
    drop(Object::open(|stx| call!(domain, ops.stx_ctx, attr, stx, NULL)).expect("a context"));
    infos.tx().iov_limit = 1000;
    assert_eq!(open_stx(&domain, &mut infos).err(), Some(ENODATA));
    let unwritten = [
        call!(domain, ops.stx_ctx, attr, ptr::null_mut(), NULL),
        call!(domain, ops.srx_ctx, ptr::null_mut(), ptr::null_mut(), NULL),
    ];
    assert_eq!(unwritten, [EINVAL; 2]);
    // Queues close once the endpoint that reports to them is closed, though the context is there.
    let of_first = of_first.assert_busy();
    drop(first);
    assert!(of_first.close().is_ok());
    let (of_second, srx) = (of_second.assert_busy(), srx.assert_busy());
    drop((second, srx, stx, of_second, av, domain, fabric));
}
