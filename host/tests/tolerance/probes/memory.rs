//! Probes of address vectors and memory registration: with each flag, each access, null pointers, zero, and
//! too large counts.

use std::ptr;

use homespun_host::abi::domain::{FiMrAttr, FidAv, FidDomain};
use libc::{c_int, c_void, iovec};

use super::Probes;
use crate::bits::flags;
use crate::outcome::describe_result;
use crate::setup::{
    Context, NULL, Node, Region, bind, call, close, control, enable, endpoint_name,
    leak_op_context as op_context, leak_zeroed_memory, try_open,
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
    fn place(&self) -> u64 {
        let mut place = 0;
        call!(self.av, ops.insert, self.name.as_ptr().cast(), 1, &raw mut place, 0, NULL);
        place
    }

    fn insert(&self, addresses: *const u8, count: usize) -> c_int {
        call!(self.av, ops.insert, addresses.cast(), count, ptr::from_mut(&mut 0), 0, NULL)
    }

    fn insertsvc(&self, has_node: bool, has_service: bool) -> c_int {
        let [node, service] = [(c"127.0.0.1", has_node), (c"7471", has_service)]
            .map(|(text, is_there)| if is_there { text.as_ptr() } else { ptr::null() });
        call!(self.av, ops.insertsvc, node, service, ptr::from_mut(&mut 0), 0, NULL)
    }

    fn insertsym(&self, nodes: usize) -> c_int {
        let (node, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
        call!(self.av, ops.insertsym, node, nodes, service, 2, [0; 4].as_mut_ptr(), 0, NULL)
    }

    fn remove(&self, mut place: u64) -> c_int {
        call!(self.av, ops.remove, &raw mut place, 1, 0)
    }

    /// Looks an address up, into a buffer of this length, or without one.
    fn lookup(&self, place: u64, room: Option<usize>) -> c_int {
        let (buf, mut room) =
            (room.map_or(NULL, |_| leak_zeroed_memory(256).cast()), room.unwrap_or_default());
        call!(self.av, ops.lookup, place, buf, &raw mut room)
    }
}

fn add_av_probes(probes: &mut Probes) {
    type Call = fn(&Vector) -> c_int;
    let calls: [(&str, Call); 22] = [
        ("fi_av_insert: count 0", |it| it.insert(it.name.as_ptr(), 0)),
        ("fi_av_insert: addresses null, count 0", |it| it.insert(ptr::null(), 0)),
        ("fi_av_insert: addresses null", |it| it.insert(ptr::null(), 1)),
        ("fi_av_insert: results null", |it| {
            call!(it.av, ops.insert, it.name.as_ptr().cast(), 1, ptr::null_mut(), 0, NULL)
        }),
        ("fi_av_insert: the same twice", |it| {
            it.place();
            it.insert(it.name.as_ptr(), 1)
        }),
        ("fi_av_insert: an address of zeros", |it| it.insert([0; 256].as_ptr(), 1)),
        ("fi_av_insert: context", |it| {
            call!(it.av, ops.insert, it.name.as_ptr().cast(), 1, ptr::from_mut(&mut 0), 0, op_context())
        }),
        ("fi_av_insertsvc: 127.0.0.1 7471", |it| it.insertsvc(true, true)),
        ("fi_av_insertsvc: node null", |it| it.insertsvc(false, true)),
        ("fi_av_insertsvc: service null", |it| it.insertsvc(true, false)),
        ("fi_av_insertsym: 2 ports", |it| it.insertsym(1)),
        ("fi_av_insertsym: no nodes", |it| it.insertsym(0)),
        ("fi_av_remove: count 0", |it| call!(it.av, ops.remove, ptr::from_mut(&mut 0), 0, 0)),
        ("fi_av_remove: null, count 0", |it| call!(it.av, ops.remove, ptr::null_mut(), 0, 0)),
        ("fi_av_remove: of nothing", |it| it.remove(12345)),
        ("fi_av_remove: FI_ADDR_UNSPEC", |it| it.remove(u64::MAX)),
        ("fi_av_remove: twice", |it| {
            let place = it.place();
            it.remove(place);
            it.remove(place)
        }),
        ("fi_av_lookup: of nothing", |it| it.lookup(12345, Some(256))),
        ("fi_av_lookup: FI_ADDR_UNSPEC", |it| it.lookup(u64::MAX, Some(256))),
        ("fi_av_lookup: room 0", |it| it.lookup(it.place(), Some(0))),
        ("fi_av_lookup: buf null, room 0", |it| it.lookup(it.place(), None)),
        ("fi_av_lookup: room 4", |it| it.lookup(it.place(), Some(4))),
    ];
    for (text, call) in calls {
        probes.add_endpoint_probe(text, move |context| call(&Vector::open(context)));
    }
    for (bit, flag) in flags() {
        probes.add_endpoint_probe(format!("fi_av_insert: flags {flag}"), move |context| {
            let vector = Vector::open(context);
            // With FI_SYNC_ERR the provider reports results in the context.
            let (name, errors) = (vector.name.as_ptr().cast(), leak_zeroed_memory(64).cast());
            call!(vector.av, ops.insert, name, 1, ptr::from_mut(&mut 0), 1 << bit, errors)
        });
        probes.add_endpoint_probe(format!("fi_av_remove: flags {flag}"), move |context| {
            let vector = Vector::open(context);
            call!(vector.av, ops.remove, &mut vector.place(), 1, 1 << bit)
        });
    }
    for (text, room, has_buf) in [("room 0", 0, true), ("buf null, room 0", 0, false), ("room 8", 8, true)] {
        probes.add_endpoint_probe(format!("fi_av_straddr: {text}"), move |context| {
            let (vector, mut len_bytes) = (Vector::open(context), room);
            let buf = if has_buf { leak_zeroed_memory(64).cast() } else { ptr::null_mut() };
            let text = call!(vector.av, ops.straddr, vector.name.as_ptr().cast(), buf, &raw mut len_bytes);
            if text.is_null() { "0 null" } else { "0 text" }.to_owned()
        });
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

fn leak_iov() -> *const iovec {
    let part = |_| iovec { iov_base: leak_zeroed_memory(64).cast(), iov_len: 64 };
    Box::leak(Box::new([0; 8].map(part))).as_ptr()
}

fn usual_attr() -> FiMrAttr {
    FiMrAttr {
        mr_iov: leak_iov(),
        iov_count: 1,
        access: ALL,
        offset: 0,
        requested_key: 77,
        context: NULL,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
        iface: 0,
        device: 0,
    }
}

fn add_region_probes(probes: &mut Probes) {
    let mut add_reg = |name: String, arguments: Reg| {
        probes.add_object_probe(format!("fi_mr_reg: {name}"), move |context| {
            reg(context.open_domain().1, arguments)
        });
    };
    for (bit, name) in flags() {
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
        ("all twice", [ALL; 2]),
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
    let mut add_regattr = |name: String, flags: u64, change: Box<dyn Fn(&mut FiMrAttr)>| {
        probes.add_object_probe(format!("fi_mr_regattr: {name}"), move |context| {
            let (domain, mut attr) = (context.open_domain().1, usual_attr());
            change(&mut attr);
            try_open(|mr| call!(domain, mr.regattr, &raw const attr, flags, mr))
        });
    };
    for (bit, name) in flags() {
        add_regattr(format!("access {name}"), 0, Box::new(move |attr| attr.access = 1 << bit));
        add_regattr(format!("access all and {name}"), 0, Box::new(move |attr| attr.access |= 1 << bit));
        add_regattr(format!("flags {name}"), 1 << bit, Box::new(|_| ()));
    }
    for iface in 1..5 {
        add_regattr(format!("iface {iface}"), 0, Box::new(move |attr| attr.iface = iface));
    }
    type Change = fn(&mut FiMrAttr);
    let changes: [(&str, Change); 7] = [
        ("device 1", |attr| attr.device = 1),
        ("auth_key", |attr| (attr.auth_key_size, attr.auth_key) = (8, leak_zeroed_memory(8))),
        ("auth_key null of 8 bytes", |attr| attr.auth_key_size = 8),
        ("count 0", |attr| attr.iov_count = 0),
        ("count 0, vector null", |attr| (attr.iov_count, attr.mr_iov) = (0, ptr::null())),
        ("count 2", |attr| attr.iov_count = 2),
        ("count 8", |attr| attr.iov_count = 8),
    ];
    for (name, change) in changes {
        add_regattr(name.to_owned(), 0, Box::new(change));
    }
    let mut add_regv = |name: String, has_vector, count, flags: u64| {
        probes.add_object_probe(format!("fi_mr_regv: {name}"), move |context| {
            let domain = context.open_domain().1;
            let iov = if has_vector { leak_iov() } else { ptr::null() };
            try_open(|mr| call!(domain, mr.regv, iov, count, ALL, 0, 77, flags, mr, NULL))
        });
    };
    for count in [0, 2, 8] {
        add_regv(format!("count {count}"), true, count, 0);
    }
    add_regv("count 0, vector null".to_owned(), false, 0, 0);
    for (bit, name) in flags() {
        add_regv(format!("flags {name}"), true, 1, 1 << bit);
    }
}

/// Adds probes of regions with bound objects.
fn add_bound_region_probes(probes: &mut Probes) {
    type Other = fn(&Context, &Node) -> *mut c_void;
    const EP: Other = |_, node| node.ep.cast();
    const COUNTER: Other = |context, node| context.open_counter(node.domain).cast();
    type RegionCall = Box<dyn Fn(&Context, &Node, Region) -> c_int>;
    let mut add = |name: String, call: RegionCall| {
        probes.add_endpoint_probe(name, move |context| {
            let node = context.open_enabled_node();
            let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
            call(context, &node, region)
        });
    };
    let mut add_bind = |name: String, other: Other, flags: u64| {
        let call = move |context: &Context, node: &Node, region: Region| {
            bind(region.mr, other(context, node), flags)
        };
        add(format!("fi_mr_bind: {name}"), Box::new(call));
    };
    for (bit, name) in flags() {
        add_bind(format!("cntr {name}"), COUNTER, 1 << bit);
        add_bind(format!("ep flags {name}"), EP, 1 << bit);
    }
    let others: [(&str, Other); 6] = [
        ("ep", EP),
        ("cntr", COUNTER),
        ("cq", |_, node| node.cq.cast()),
        ("eq", |context, node| context.open_eq(node.fabric).cast()),
        ("domain", |_, node| node.domain.cast()),
        ("null", |_, _| NULL),
    ];
    for (name, other) in others {
        add_bind(format!("{name} flags 0"), other, 0);
    }
    add("fi_mr_enable: of a region that needs none".to_owned(), Box::new(|_, _, region| enable(region.mr)));
    add("fi_mr_refresh: null".to_owned(), Box::new(|_, _, region| control(region.mr, 14, NULL)));
    add("fi_close: a region".to_owned(), Box::new(|_, _, region| close(region.mr)));
    probes.add_endpoint_probe("fi_close: domain of a region", |context| {
        let domain = context.open_domain().1;
        reg(domain, Reg { key: 5, ..USUAL });
        close(domain)
    });
}
