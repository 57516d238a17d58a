//! Probes of address vectors and memory registration: with each flag, each access, null pointers, zero, and
//! too large counts.

use std::ptr;

use homespun_host::abi::domain::{FiMrAttr, FidAv, FidDomain};
use homespun_host::abi::{FI_RECV, FI_TRANSMIT};
use libc::{c_int, c_void, iovec};

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::patience::absence_timeout;
use crate::setup::{
    Context, NULL, Node, Pair, Region, assert_success, bind, call, close, control, enable, endpoint_name,
    leak_op_context as op_context, leak_zeroed_memory, recv, send, try_open,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_av_probes(probes);
    add_region_probes(probes);
    add_bound_region_probes(probes);
}

/// A vector, and an address that it may hold.
struct Vector {
    av: *mut FidAv,
    name: [u8; 256],
}

impl Vector {
    fn open(context: &Context) -> Vector {
        assert!(!context.is_connection_oriented(), "no address vector");
        let node = context.open_enabled_node();
        Vector { av: node.av, name: endpoint_name(&node) }
    }

    /// Inserts the address. Returns its place.
    fn insert(&self) -> u64 {
        let mut place = 0;
        self.insert_addresses(self.name.as_ptr(), 1, &raw mut place, 0, NULL);
        place
    }

    fn insert_addresses(
        &self,
        addresses: *const u8,
        count: usize,
        places: *mut u64,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        call!(self.av, ops.insert, addresses.cast(), count, places, flags, context)
    }

    fn insertsvc(&self, has_node: bool, has_service: bool) -> c_int {
        let node = if has_node { c"127.0.0.1".as_ptr() } else { ptr::null() };
        let service = if has_service { c"7471".as_ptr() } else { ptr::null() };
        call!(self.av, ops.insertsvc, node, service, ptr::from_mut(&mut 0), 0, NULL)
    }

    fn insertsym(&self, nodes: usize) -> c_int {
        let (node, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
        call!(self.av, ops.insertsym, node, nodes, service, 2, [0; 4].as_mut_ptr(), 0, NULL)
    }

    fn remove(&self, mut place: u64, flags: u64) -> c_int {
        call!(self.av, ops.remove, &raw mut place, 1, flags)
    }

    fn lookup(&self, place: u64, buf: *mut c_void, mut room: usize) -> c_int {
        call!(self.av, ops.lookup, place, buf, &raw mut room)
    }
}

fn add_av_probes(probes: &mut Probes) {
    type Call = fn(&Vector) -> c_int;
    const BUF: fn() -> *mut c_void = || leak_zeroed_memory(256).cast();
    let calls: [(&str, Call); 22] = [
        ("fi_av_insert: count 0", |it| {
            it.insert_addresses(it.name.as_ptr(), 0, ptr::from_mut(&mut 0), 0, NULL)
        }),
        ("fi_av_insert: addresses null, count 0", |it| {
            it.insert_addresses(ptr::null(), 0, ptr::from_mut(&mut 0), 0, NULL)
        }),
        ("fi_av_insert: addresses null", |it| {
            it.insert_addresses(ptr::null(), 1, ptr::from_mut(&mut 0), 0, NULL)
        }),
        ("fi_av_insert: results null", |it| {
            it.insert_addresses(it.name.as_ptr(), 1, ptr::null_mut(), 0, NULL)
        }),
        ("fi_av_insert: the same twice", |it| {
            it.insert();
            it.insert_addresses(it.name.as_ptr(), 1, ptr::from_mut(&mut 0), 0, NULL)
        }),
        ("fi_av_insert: an address of zeros", |it| {
            it.insert_addresses([0; 256].as_ptr(), 1, ptr::from_mut(&mut 0), 0, NULL)
        }),
        ("fi_av_insert: context", |it| {
            it.insert_addresses(it.name.as_ptr(), 1, ptr::from_mut(&mut 0), 0, op_context())
        }),
        ("fi_av_insertsvc: 127.0.0.1 7471", |it| it.insertsvc(true, true)),
        ("fi_av_insertsvc: node null", |it| it.insertsvc(false, true)),
        ("fi_av_insertsvc: service null", |it| it.insertsvc(true, false)),
        ("fi_av_insertsym: 2 ports", |it| it.insertsym(1)),
        ("fi_av_insertsym: no nodes", |it| it.insertsym(0)),
        ("fi_av_remove: count 0", |it| call!(it.av, ops.remove, ptr::from_mut(&mut 0), 0, 0)),
        ("fi_av_remove: null, count 0", |it| call!(it.av, ops.remove, ptr::null_mut(), 0, 0)),
        ("fi_av_remove: of nothing", |it| it.remove(12345, 0)),
        ("fi_av_remove: FI_ADDR_UNSPEC", |it| it.remove(u64::MAX, 0)),
        ("fi_av_remove: twice", |it| {
            let place = it.insert();
            it.remove(place, 0);
            it.remove(place, 0)
        }),
        ("fi_av_lookup: of nothing", |it| it.lookup(12345, BUF(), 256)),
        ("fi_av_lookup: FI_ADDR_UNSPEC", |it| it.lookup(u64::MAX, BUF(), 256)),
        ("fi_av_lookup: room 0", |it| it.lookup(it.insert(), BUF(), 0)),
        ("fi_av_lookup: buf null, room 0", |it| it.lookup(it.insert(), NULL, 0)),
        ("fi_av_lookup: room 4", |it| it.lookup(it.insert(), BUF(), 4)),
    ];
    for (text, call) in calls {
        probes.add_endpoint_probe(text, move |context| call(&Vector::open(context)));
    }
    for &(bit, flag) in FLAGS {
        probes.add_endpoint_probe(format!("fi_av_insert: flags {flag}"), move |context| {
            let vector = Vector::open(context);
            // With FI_SYNC_ERR the provider reports results in the context.
            let errors = leak_zeroed_memory(64).cast();
            vector.insert_addresses(vector.name.as_ptr(), 1, ptr::from_mut(&mut 0), 1 << bit, errors)
        });
        probes.add_endpoint_probe(format!("fi_av_remove: flags {flag}"), move |context| {
            let vector = Vector::open(context);
            vector.remove(vector.insert(), 1 << bit)
        });
    }
    for (text, room, has_buf) in [("room 0", 0, true), ("buf null, room 0", 0, false), ("room 8", 8, true)] {
        probes.add_endpoint_probe(format!("fi_av_straddr: {text}"), move |context| {
            let (vector, mut len_bytes) = (Vector::open(context), room);
            let buf = if has_buf { leak_zeroed_memory(64).cast() } else { ptr::null_mut() };
            let address = vector.name.as_ptr().cast();
            let text = call!(vector.av, ops.straddr, address, buf, &raw mut len_bytes);
            if text.is_null() { "0 null".to_owned() } else { "0 text".to_owned() }
        });
    }
}

fn make_mr_attr(iov: *const iovec, iov_count: usize, access: u64) -> FiMrAttr {
    FiMrAttr {
        mr_iov: iov,
        iov_count,
        access,
        offset: 0,
        requested_key: 77,
        context: NULL,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
        iface: 0,
        device: 0,
    }
}

/// All access flags of a region.
const ALL: u64 = 0x3f00;
/// The access flags that give peers no rights.
const LOCAL: u64 = 0xf00;

/// The arguments of `fi_mr_reg`.
#[derive(Clone, Copy)]
struct Reg {
    has_buf: bool,
    len_bytes: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
}

const USUAL: Reg = Reg { has_buf: true, len_bytes: 64, access: ALL, offset: 0, key: 77, flags: 0 };

/// Calls `fi_mr_reg`.
fn reg(domain: *mut FidDomain, reg: Reg) -> c_int {
    let Reg { has_buf, len_bytes, access, offset, key, flags } = reg;
    let buf = if has_buf { leak_zeroed_memory(64) } else { ptr::null_mut() };
    let buf = buf.cast_const().cast();
    try_open(|mr| call!(domain, mr.reg, buf, len_bytes, access, offset, key, flags, mr, NULL))
}

fn regattr(context: &Context, attr: &FiMrAttr, flags: u64) -> c_int {
    let domain = context.open_domain().1;
    try_open(|mr| call!(domain, mr.regattr, ptr::from_ref(attr), flags, mr))
}

fn regv(context: &Context, iov: *const iovec, count: usize, flags: u64) -> c_int {
    let domain = context.open_domain().1;
    try_open(|mr| call!(domain, mr.regv, iov, count, ALL, 0, 77, flags, mr, NULL))
}

fn leak_iov() -> *const iovec {
    let part = |_| iovec { iov_base: leak_zeroed_memory(64).cast(), iov_len: 64 };
    Box::leak(Box::new([0; 8].map(part))).as_ptr()
}

fn add_region_probes(probes: &mut Probes) {
    let mut add_reg = |name: String, arguments: Reg| {
        probes.add_object_probe(format!("fi_mr_reg: {name}"), move |context| {
            reg(context.open_domain().1, arguments)
        });
    };
    for &(bit, name) in FLAGS {
        add_reg(format!("access {name}"), Reg { access: 1 << bit, ..USUAL });
        add_reg(format!("access all and {name}"), Reg { access: ALL | 1 << bit, ..USUAL });
        add_reg(format!("flags {name}"), Reg { flags: 1 << bit, ..USUAL });
    }
    for (name, arguments) in [
        ("access 0", Reg { access: 0, ..USUAL }),
        ("len 0", Reg { len_bytes: 0, ..USUAL }),
        ("buf null, len 0", Reg { has_buf: false, len_bytes: 0, ..USUAL }),
        ("buf null", Reg { has_buf: false, ..USUAL }),
        ("buf null, len max", Reg { has_buf: false, len_bytes: usize::MAX, ..USUAL }),
        ("offset 8", Reg { offset: 8, ..USUAL }),
        ("key 0", Reg { key: 0, ..USUAL }),
        ("key 1 << 32", Reg { key: 1 << 32, ..USUAL }),
        ("key max - 1", Reg { key: u64::MAX - 1, ..USUAL }),
        ("key max", Reg { key: u64::MAX, ..USUAL }),
    ] {
        add_reg(name.to_owned(), arguments);
    }
    for (text, accesses) in [
        ("local twice", [LOCAL; 2]),
        ("local, then remote", [LOCAL, ALL]),
        ("remote, then local", [ALL, LOCAL]),
    ] {
        probes.add_object_probe(format!("fi_mr_reg: one key, {text}"), move |context| {
            let domain = context.open_domain().1;
            let [first, second] =
                accesses.map(|access| describe_result(reg(domain, Reg { access, ..USUAL })));
            if first == "0" { second } else { format!("not tried: {first}") }
        });
    }
    probes.add_object_probe("fi_mr_reg: the same key twice", |context| {
        let domain = context.open_domain().1;
        reg(domain, USUAL);
        reg(domain, USUAL)
    });
    let mut add_regattr = |name: String, make: Box<dyn Fn() -> FiMrAttr>, flags| {
        probes.add_object_probe(format!("fi_mr_regattr: {name}"), move |context| {
            regattr(context, &make(), flags)
        });
    };
    let usual = || make_mr_attr(leak_iov(), 1, ALL);
    for &(bit, name) in FLAGS {
        for (text, access) in [("access", 1 << bit), ("access all and", ALL | 1 << bit)] {
            let make = move || make_mr_attr(leak_iov(), 1, access);
            add_regattr(format!("{text} {name}"), Box::new(make), 0);
        }
        add_regattr(format!("flags {name}"), Box::new(usual), 1 << bit);
    }
    for iface in 1..5 {
        add_regattr(format!("iface {iface}"), Box::new(move || FiMrAttr { iface, ..usual() }), 0);
    }
    add_regattr("device 1".to_owned(), Box::new(move || FiMrAttr { device: 1, ..usual() }), 0);
    let with_key = move || FiMrAttr { auth_key_size: 8, auth_key: leak_zeroed_memory(8), ..usual() };
    add_regattr("auth_key".to_owned(), Box::new(with_key), 0);
    let without_key = move || FiMrAttr { auth_key_size: 8, ..usual() };
    add_regattr("auth_key null of 8 bytes".to_owned(), Box::new(without_key), 0);
    for (text, count, has_vector) in
        [("count 0", 0, true), ("count 0, vector null", 0, false), ("count 2", 2, true), ("count 8", 8, true)]
    {
        let iov = move || if has_vector { leak_iov() } else { ptr::null() };
        probes.add_object_probe(format!("fi_mr_regv: {text}"), move |context| regv(context, iov(), count, 0));
        probes.add_object_probe(format!("fi_mr_regattr: {text}"), move |context| {
            regattr(context, &make_mr_attr(iov(), count, ALL), 0)
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_mr_regv: flags {name}"), move |context| {
            regv(context, leak_iov(), 1, 1 << bit)
        });
    }
}

/// A call of a region of a node.
type RegionCall = Box<dyn Fn(&Context, &Node, Region) -> c_int>;

/// Adds probes of regions with bound objects.
fn add_bound_region_probes(probes: &mut Probes) {
    let mut add = |name: String, call: RegionCall| {
        probes.add_endpoint_probe(name, move |context| {
            let node = context.open_enabled_node();
            let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
            call(context, &node, region)
        });
    };
    for &(bit, name) in FLAGS {
        add(
            format!("fi_mr_bind: cntr {name}"),
            Box::new(move |context, node, region| {
                bind(region.mr, context.open_counter(node.domain), 1 << bit)
            }),
        );
        let bind_ep = move |_: &Context, node: &Node, region: Region| bind(region.mr, node.ep, 1 << bit);
        add(format!("fi_mr_bind: ep flags {name}"), Box::new(bind_ep));
    }
    type Other = fn(&Context, &Node) -> *mut c_void;
    let others: [(&str, Other); 6] = [
        ("ep", |_, node| node.ep.cast()),
        ("cntr", |context, node| context.open_counter(node.domain).cast()),
        ("cq", |_, node| node.cq.cast()),
        ("eq", |context, node| context.open_eq(node.fabric).cast()),
        ("domain", |_, node| node.domain.cast()),
        ("null", |_, _| NULL),
    ];
    for (name, other) in others {
        add(
            format!("fi_mr_bind: {name} flags 0"),
            Box::new(move |context, node, region| bind(region.mr, other(context, node), 0)),
        );
    }
    add("fi_mr_enable: of a region that needs none".to_owned(), Box::new(|_, _, region| enable(region.mr)));
    add("fi_mr_refresh: null".to_owned(), Box::new(|_, _, region| control(region.mr, 14, NULL)));
    add("fi_close: a region".to_owned(), Box::new(|_, _, region| close(region.mr)));
    probes.add_endpoint_probe("fi_close: domain of a region", |context| {
        let domain = context.open_domain().1;
        reg(domain, Reg { key: 5, ..USUAL });
        close(domain)
    });
    // These probes show which events the counters of regions and endpoints count.
    for (text, flags, is_atomic) in [
        ("FI_REMOTE_WRITE counts a write", 1_u64 << 13, false),
        ("FI_REMOTE_WRITE counts an atomic", 1 << 13, true),
        ("FI_REMOTE_READ counts a write", 1 << 12, false),
    ] {
        for is_of_region in [true, false] {
            let of = if is_of_region { "fi_mr_bind" } else { "fi_ep_bind" };
            probes.add_endpoint_probe(format!("{of}: cntr {text}"), move |context| {
                let mut counter = ptr::null_mut();
                let mut pair = context.open_pair_with(|node, is_left| {
                    if !is_left && !is_of_region {
                        counter = context.open_counter(node.domain);
                        assert_success("fi_ep_bind", bind(node.ep, counter, flags));
                    }
                });
                let far = context.register_region(&pair.right, leak_zeroed_memory(64), 64, 12);
                if is_of_region {
                    counter = context.open_counter(pair.right.domain);
                    assert_success("fi_mr_bind", bind(far.mr, counter, flags));
                }
                write_and_wait(&mut pair, context, &far, is_atomic);
                pair.drive_until(absence_timeout(), |_| call!(counter, ops.read) != 0);
                format!("0 counts {}", call!(counter, ops.read))
            });
        }
    }
    for (text, flags) in [("FI_SEND", FI_TRANSMIT), ("FI_RECV", FI_RECV), ("FI_WRITE", 1 << 9)] {
        probes.add_endpoint_probe(
            format!("fi_ep_bind: cntr {text} after fi_enable counts"),
            move |context| {
                let mut pair = context.open_pair_after_exchange();
                let end = if flags == FI_RECV { pair.right } else { pair.left };
                let counter = context.open_counter(end.domain);
                let bound = bind(end.ep, counter, flags);
                if bound != 0 {
                    return describe_result(bound);
                }
                enable(end.ep);
                if flags == 1 << 9 {
                    let far = context.register_region(&pair.right, leak_zeroed_memory(64), 64, 12);
                    write_and_wait(&mut pair, context, &far, false);
                } else {
                    recv(pair.right.ep, op_context());
                    send(pair.left.ep, pair.to_right, op_context());
                }
                pair.drive_until(absence_timeout(), |_| call!(counter, ops.read) != 0);
                format!("0 counts {}", call!(counter, ops.read))
            },
        );
    }
}

/// Makes a write or an atomic operation from the left endpoint to the right one, and waits for its
/// completion.
fn write_and_wait(pair: &mut Pair, context: &Context, far: &Region, is_atomic: bool) {
    let buf = leak_zeroed_memory(64);
    let near = context.register_region(&pair.left, buf, 64, 11);
    let (ep, addr, done) = (pair.left.ep, pair.to_right, op_context());
    let (buf, desc, Region { address, key, .. }) = (buf.cast_const().cast(), near.desc, *far);
    let result = pair.retry_while_eagain(|| {
        if is_atomic {
            assert!(!unsafe { (*ep).atomic }.is_null(), "no atomics");
            call!(ep, atomic.write, buf, 1, desc, addr, address, key, 7, 2, done)
        } else {
            call!(ep, rma.write, buf, 8, desc, addr, address, key, done)
        }
    });
    assert_success("fi_write", result);
    let is_done =
        pair.drive_until(absence_timeout(), |pair| pair.at_left.iter().any(|it| it.context == done));
    assert!(is_done && pair.at_left.iter().all(|it| it.error == 0), "fi_write does not complete");
}
