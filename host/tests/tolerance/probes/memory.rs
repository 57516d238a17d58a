//! Probes of address vectors and memory registration: with each flag, each access, null pointers, zero, and
//! too large counts.

use std::ptr;

use homespun_host::abi::domain::{FiMrAttr, FidMr};
use homespun_host::abi::{FI_RECV, FI_TRANSMIT};
use libc::{c_void, iovec};

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::patience::absence_timeout;
use crate::setup::{
    Context, Node, Pair, bind, close, enable, leak_op_context as op_context, leak_zeroed_memory,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_av_probes(probes);
    add_region_probes(probes);
    add_bound_region_probes(probes);
}

fn endpoint_name(node: &Node) -> [u8; 256] {
    let mut name = [0_u8; 256];
    let mut len_bytes = name.len();
    unsafe {
        ((*(*node.ep).cm).getname)(node.ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes);
    }
    name
}

fn add_av_probes(probes: &mut Probes) {
    type Call = fn(&Context, &Node, [u8; 256]) -> i32;
    let calls: [(&str, Call); 22] = [
        ("fi_av_insert: count 0", |_, node, name| unsafe {
            let mut to = 0;
            ((*(*node.av).ops).insert)(node.av, name.as_ptr().cast(), 0, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insert: addresses null, count 0", |_, node, _| unsafe {
            let mut to = 0;
            ((*(*node.av).ops).insert)(node.av, ptr::null(), 0, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insert: addresses null", |_, node, _| unsafe {
            let mut to = 0;
            ((*(*node.av).ops).insert)(node.av, ptr::null(), 1, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insert: results null", |_, node, name| unsafe {
            let none = ptr::null_mut();
            ((*(*node.av).ops).insert)(node.av, name.as_ptr().cast(), 1, none, 0, ptr::null_mut())
        }),
        ("fi_av_insert: the same twice", |_, node, name| unsafe {
            let mut to = 0;
            let insert = (*(*node.av).ops).insert;
            insert(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
            insert(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insert: an address of zeros", |_, node, _| unsafe {
            let mut to = 0;
            let zeros = [0_u8; 256];
            ((*(*node.av).ops).insert)(node.av, zeros.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insert: context", |_, node, name| unsafe {
            let mut to = 0;
            ((*(*node.av).ops).insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, op_context())
        }),
        ("fi_av_insertsvc: 127.0.0.1 7471", |_, node, _| unsafe {
            let mut to = 0;
            let (host, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
            ((*(*node.av).ops).insertsvc)(node.av, host, service, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insertsvc: node null", |_, node, _| unsafe {
            let mut to = 0;
            let service = c"7471".as_ptr();
            ((*(*node.av).ops).insertsvc)(node.av, ptr::null(), service, &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insertsvc: service null", |_, node, _| unsafe {
            let mut to = 0;
            let host = c"127.0.0.1".as_ptr();
            ((*(*node.av).ops).insertsvc)(node.av, host, ptr::null(), &raw mut to, 0, ptr::null_mut())
        }),
        ("fi_av_insertsym: 2 ports", |_, node, _| unsafe {
            let mut to = [0; 4];
            let (host, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
            let insertsym = (*(*node.av).ops).insertsym;
            insertsym(node.av, host, 1, service, 2, to.as_mut_ptr(), 0, ptr::null_mut())
        }),
        ("fi_av_insertsym: no nodes", |_, node, _| unsafe {
            let mut to = [0; 4];
            let (host, service) = (c"127.0.0.1".as_ptr(), c"7471".as_ptr());
            let insertsym = (*(*node.av).ops).insertsym;
            insertsym(node.av, host, 0, service, 2, to.as_mut_ptr(), 0, ptr::null_mut())
        }),
        ("fi_av_remove: count 0", |_, node, _| unsafe {
            let mut to = 0;
            ((*(*node.av).ops).remove)(node.av, &raw mut to, 0, 0)
        }),
        ("fi_av_remove: null, count 0", |_, node, _| unsafe {
            ((*(*node.av).ops).remove)(node.av, ptr::null_mut(), 0, 0)
        }),
        ("fi_av_remove: of nothing", |_, node, _| unsafe {
            let mut to = 12345;
            ((*(*node.av).ops).remove)(node.av, &raw mut to, 1, 0)
        }),
        ("fi_av_remove: FI_ADDR_UNSPEC", |_, node, _| unsafe {
            let mut to = u64::MAX;
            ((*(*node.av).ops).remove)(node.av, &raw mut to, 1, 0)
        }),
        ("fi_av_remove: twice", |_, node, name| unsafe {
            let mut to = 0;
            let ops = &*(*node.av).ops;
            (ops.insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
            (ops.remove)(node.av, &raw mut to, 1, 0);
            (ops.remove)(node.av, &raw mut to, 1, 0)
        }),
        ("fi_av_lookup: of nothing", |_, node, _| unsafe {
            let mut len_bytes = 256;
            ((*(*node.av).ops).lookup)(node.av, 12345, leak_zeroed_memory(256).cast(), &raw mut len_bytes)
        }),
        ("fi_av_lookup: FI_ADDR_UNSPEC", |_, node, _| unsafe {
            let mut len_bytes = 256;
            ((*(*node.av).ops).lookup)(node.av, u64::MAX, leak_zeroed_memory(256).cast(), &raw mut len_bytes)
        }),
        ("fi_av_lookup: room 0", |_, node, name| unsafe {
            let mut to = 0;
            let ops = &*(*node.av).ops;
            (ops.insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
            let mut len_bytes = 0;
            (ops.lookup)(node.av, to, leak_zeroed_memory(256).cast(), &raw mut len_bytes)
        }),
        ("fi_av_lookup: buf null, room 0", |_, node, name| unsafe {
            let mut to = 0;
            let ops = &*(*node.av).ops;
            (ops.insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
            let mut len_bytes = 0;
            (ops.lookup)(node.av, to, ptr::null_mut(), &raw mut len_bytes)
        }),
        ("fi_av_lookup: room 4", |_, node, name| unsafe {
            let mut to = 0;
            let ops = &*(*node.av).ops;
            (ops.insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
            let mut len_bytes = 4;
            (ops.lookup)(node.av, to, leak_zeroed_memory(256).cast(), &raw mut len_bytes)
        }),
    ];
    let with_vector = |context: &Context| {
        assert!(!context.is_connection_oriented(), "no address vector");
        let node = context.open_enabled_node();
        (node, endpoint_name(&node))
    };
    for (text, call) in calls {
        probes.add_endpoint_probe(text, move |context| {
            let (node, name) = with_vector(context);
            describe_result(call(context, &node, name))
        });
    }
    for &(bit, flag) in FLAGS {
        probes.add_endpoint_probe(format!("fi_av_insert: flags {flag}"), move |context| {
            let (node, name) = with_vector(context);
            // With FI_SYNC_ERR the provider reports results in the context.
            let mut to = 0;
            unsafe {
                let insert = (*(*node.av).ops).insert;
                describe_result(insert(
                    node.av,
                    name.as_ptr().cast(),
                    1,
                    &raw mut to,
                    1 << bit,
                    leak_zeroed_memory(64).cast(),
                ))
            }
        });
        probes.add_endpoint_probe(format!("fi_av_remove: flags {flag}"), move |context| {
            let (node, name) = with_vector(context);
            let mut to = 0;
            unsafe {
                let ops = &*(*node.av).ops;
                (ops.insert)(node.av, name.as_ptr().cast(), 1, &raw mut to, 0, ptr::null_mut());
                describe_result((ops.remove)(node.av, &raw mut to, 1, 1 << bit))
            }
        });
    }
    for (text, room, has_buf) in [("room 0", 0, true), ("buf null, room 0", 0, false), ("room 8", 8, true)] {
        probes.add_endpoint_probe(format!("fi_av_straddr: {text}"), move |context| {
            let (node, name) = with_vector(context);
            let mut len_bytes = room;
            let buf = if has_buf { leak_zeroed_memory(64).cast() } else { ptr::null_mut() };
            unsafe {
                let straddr = (*(*node.av).ops).straddr;
                let text = straddr(node.av, name.as_ptr().cast(), buf, &raw mut len_bytes);
                if text.is_null() { "0 null".to_owned() } else { "0 text".to_owned() }
            }
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
        context: ptr::null_mut(),
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

/// Calls `fi_mr_reg`.
fn probe_mr_reg(
    context: &Context,
    buf: *mut u8,
    len_bytes: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
) -> String {
    let (_, domain) = context.open_domain();
    let mut mr: *mut FidMr = ptr::null_mut();
    unsafe {
        let reg = (*(*domain).mr).reg;
        let none = ptr::null_mut();
        describe_result(reg(
            domain.cast(),
            buf.cast(),
            len_bytes,
            access,
            offset,
            key,
            flags,
            &raw mut mr,
            none,
        ))
    }
}

fn add_region_probes(probes: &mut Probes) {
    let regattr = |context: &Context, attr: &FiMrAttr, flags: u64| {
        let (_, domain) = context.open_domain();
        let mut mr: *mut FidMr = ptr::null_mut();
        unsafe { describe_result(((*(*domain).mr).regattr)(domain.cast(), attr, flags, &raw mut mr)) }
    };
    let iov = || -> *const iovec {
        Box::leak(Box::new(
            [const { 0 }; 8].map(|_: i32| iovec { iov_base: leak_zeroed_memory(64).cast(), iov_len: 64 }),
        ))
        .as_ptr()
    };
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_mr_reg: access {name}"), move |context| {
            probe_mr_reg(context, leak_zeroed_memory(64), 64, 1 << bit, 0, 77, 0)
        });
        probes.add_object_probe(format!("fi_mr_reg: access all and {name}"), move |context| {
            probe_mr_reg(context, leak_zeroed_memory(64), 64, ALL | 1 << bit, 0, 77, 0)
        });
        probes.add_object_probe(format!("fi_mr_reg: flags {name}"), move |context| {
            probe_mr_reg(context, leak_zeroed_memory(64), 64, ALL, 0, 77, 1 << bit)
        });
        probes.add_object_probe(format!("fi_mr_regattr: access {name}"), move |context| {
            regattr(context, &make_mr_attr(iov(), 1, 1 << bit), 0)
        });
        probes.add_object_probe(format!("fi_mr_regattr: access all and {name}"), move |context| {
            regattr(context, &make_mr_attr(iov(), 1, ALL | 1 << bit), 0)
        });
        probes.add_object_probe(format!("fi_mr_regattr: flags {name}"), move |context| {
            regattr(context, &make_mr_attr(iov(), 1, ALL), 1 << bit)
        });
        probes.add_object_probe(format!("fi_mr_regv: flags {name}"), move |context| {
            let (_, domain) = context.open_domain();
            let mut mr: *mut FidMr = ptr::null_mut();
            unsafe {
                let regv = (*(*domain).mr).regv;
                describe_result(regv(
                    domain.cast(),
                    iov(),
                    1,
                    ALL,
                    0,
                    77,
                    1 << bit,
                    &raw mut mr,
                    ptr::null_mut(),
                ))
            }
        });
    }
    probes.add_object_probe("fi_mr_reg: access 0", |context| {
        probe_mr_reg(context, leak_zeroed_memory(64), 64, 0, 0, 77, 0)
    });
    probes.add_object_probe("fi_mr_reg: len 0", |context| {
        probe_mr_reg(context, leak_zeroed_memory(64), 0, ALL, 0, 77, 0)
    });
    probes.add_object_probe("fi_mr_reg: buf null, len 0", |context| {
        probe_mr_reg(context, ptr::null_mut(), 0, ALL, 0, 77, 0)
    });
    probes.add_object_probe("fi_mr_reg: buf null", |context| {
        probe_mr_reg(context, ptr::null_mut(), 64, ALL, 0, 77, 0)
    });
    probes.add_object_probe("fi_mr_reg: buf null, len max", |context| {
        probe_mr_reg(context, ptr::null_mut(), usize::MAX, ALL, 0, 77, 0)
    });
    probes.add_object_probe("fi_mr_reg: offset 8", |context| {
        probe_mr_reg(context, leak_zeroed_memory(64), 64, ALL, 8, 77, 0)
    });
    for (text, key) in [("0", 0), ("1 << 32", 1 << 32), ("max - 1", u64::MAX - 1), ("max", u64::MAX)] {
        probes.add_object_probe(format!("fi_mr_reg: key {text}"), move |context| {
            probe_mr_reg(context, leak_zeroed_memory(64), 64, ALL, 0, key, 0)
        });
    }
    for (text, accesses) in [
        ("local twice", [LOCAL; 2]),
        ("local, then remote", [LOCAL, ALL]),
        ("remote, then local", [ALL, LOCAL]),
    ] {
        probes.add_object_probe(format!("fi_mr_reg: one key, {text}"), move |context| {
            let (_, domain) = context.open_domain();
            let results = accesses.map(|access| {
                let mut mr: *mut FidMr = ptr::null_mut();
                let (buf, none) = (leak_zeroed_memory(64).cast(), ptr::null_mut());
                unsafe {
                    let reg = (*(*domain).mr).reg;
                    describe_result(reg(domain.cast(), buf, 64, access, 0, 77, 0, &raw mut mr, none))
                }
            });
            if results[0] == "0" { results[1].clone() } else { format!("not tried: {}", results[0]) }
        });
    }
    probes.add_object_probe("fi_mr_reg: the same key twice", |context| {
        let (_, domain) = context.open_domain();
        let mut mr: *mut FidMr = ptr::null_mut();
        unsafe {
            let reg = (*(*domain).mr).reg;
            let none = ptr::null_mut();
            reg(domain.cast(), leak_zeroed_memory(64).cast(), 64, ALL, 0, 77, 0, &raw mut mr, none);
            describe_result(reg(
                domain.cast(),
                leak_zeroed_memory(64).cast(),
                64,
                ALL,
                0,
                77,
                0,
                &raw mut mr,
                none,
            ))
        }
    });
    for (text, count, has_vector) in
        [("count 0", 0, true), ("count 0, vector null", 0, false), ("count 2", 2, true), ("count 8", 8, true)]
    {
        probes.add_object_probe(format!("fi_mr_regv: {text}"), move |context| {
            let (_, domain) = context.open_domain();
            let mut mr: *mut FidMr = ptr::null_mut();
            let iov = if has_vector { iov() } else { ptr::null() };
            unsafe {
                let regv = (*(*domain).mr).regv;
                describe_result(regv(domain.cast(), iov, count, ALL, 0, 77, 0, &raw mut mr, ptr::null_mut()))
            }
        });
        probes.add_object_probe(format!("fi_mr_regattr: {text}"), move |context| {
            let iov = if has_vector { iov() } else { ptr::null() };
            regattr(context, &make_mr_attr(iov, count, ALL), 0)
        });
    }
    for iface in 1..5 {
        probes.add_object_probe(format!("fi_mr_regattr: iface {iface}"), move |context| {
            regattr(context, &FiMrAttr { iface, ..make_mr_attr(iov(), 1, ALL) }, 0)
        });
    }
    probes.add_object_probe("fi_mr_regattr: device 1", move |context| {
        regattr(context, &FiMrAttr { device: 1, ..make_mr_attr(iov(), 1, ALL) }, 0)
    });
    probes.add_object_probe("fi_mr_regattr: auth_key", move |context| {
        regattr(
            context,
            &FiMrAttr { auth_key_size: 8, auth_key: leak_zeroed_memory(8), ..make_mr_attr(iov(), 1, ALL) },
            0,
        )
    });
    probes.add_object_probe("fi_mr_regattr: auth_key null of 8 bytes", move |context| {
        regattr(context, &FiMrAttr { auth_key_size: 8, ..make_mr_attr(iov(), 1, ALL) }, 0)
    });
}

/// Adds probes of regions with bound objects.
fn add_bound_region_probes(probes: &mut Probes) {
    for &(bit, name) in FLAGS {
        probes.add_endpoint_probe(format!("fi_mr_bind: cntr {name}"), move |context| {
            let node = context.open_enabled_node();
            let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
            unsafe { describe_result(bind(region.mr, context.open_counter(node.domain), 1 << bit)) }
        });
        probes.add_endpoint_probe(format!("fi_mr_bind: ep flags {name}"), move |context| {
            let node = context.open_enabled_node();
            let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
            unsafe { describe_result(bind(region.mr, node.ep, 1 << bit)) }
        });
    }
    type Other = fn(&Context, &Node) -> *mut c_void;
    let others: [(&str, Other); 6] = [
        ("ep", |_, node| node.ep.cast()),
        ("cntr", |context, node| context.open_counter(node.domain).cast()),
        ("cq", |_, node| node.cq.cast()),
        ("eq", |context, node| context.open_eq(node.fabric).cast()),
        ("domain", |_, node| node.domain.cast()),
        ("null", |_, _| ptr::null_mut()),
    ];
    for (name, other) in others {
        probes.add_endpoint_probe(format!("fi_mr_bind: {name} flags 0"), move |context| {
            let node = context.open_enabled_node();
            let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
            unsafe { describe_result(bind(region.mr, other(context, &node), 0)) }
        });
    }
    probes.add_endpoint_probe("fi_mr_enable: of a region that needs none", |context| {
        let node = context.open_enabled_node();
        let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
        unsafe { describe_result(enable(region.mr)) }
    });
    probes.add_endpoint_probe("fi_mr_refresh: null", |context| {
        let node = context.open_enabled_node();
        let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
        unsafe { describe_result(crate::setup::control(region.mr, 14, ptr::null_mut::<c_void>())) }
    });
    probes.add_endpoint_probe("fi_close: a region", |context| {
        let node = context.open_enabled_node();
        let region = context.register_region(&node, leak_zeroed_memory(64), 64, 5);
        unsafe { describe_result(close(region.mr)) }
    });
    probes.add_endpoint_probe("fi_close: domain of a region", |context| {
        let (_, domain) = context.open_domain();
        unsafe {
            let mut mr: *mut FidMr = ptr::null_mut();
            let none = ptr::null_mut();
            ((*(*domain).mr).reg)(
                domain.cast(),
                leak_zeroed_memory(64).cast(),
                64,
                ALL,
                0,
                5,
                0,
                &raw mut mr,
                none,
            );
            describe_result(close(domain))
        }
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
                        let bound = unsafe { bind(node.ep, counter, flags) };
                        assert!(bound == 0, "fi_ep_bind: {}", describe_result(bound));
                    }
                });
                let far = context.register_region(&pair.right, leak_zeroed_memory(64), 64, 12);
                if is_of_region {
                    counter = context.open_counter(pair.right.domain);
                    let bound = unsafe { bind(far.mr, counter, flags) };
                    assert!(bound == 0, "fi_mr_bind: {}", describe_result(bound));
                }
                write_and_wait(&mut pair, context, far.address, far.key, is_atomic);
                pair.drive_until(absence_timeout(), |_| unsafe { ((*(*counter).ops).read)(counter) } != 0);
                format!("0 counts {}", unsafe { ((*(*counter).ops).read)(counter) })
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
                let bound = unsafe { bind(end.ep, counter, flags) };
                if bound != 0 {
                    return describe_result(bound);
                }
                unsafe { enable(end.ep) };
                if flags == 1 << 9 {
                    let far = context.register_region(&pair.right, leak_zeroed_memory(64), 64, 12);
                    write_and_wait(&mut pair, context, far.address, far.key, false);
                } else {
                    let (left, right) = (pair.left.ep, pair.right.ep);
                    unsafe {
                        let (buf, none) = (leak_zeroed_memory(64).cast::<c_void>(), ptr::null_mut());
                        ((*(*right).msg).recv)(right, buf, 64, none, u64::MAX, op_context());
                        ((*(*left).msg).send)(left, buf, 64, none, pair.to_right, op_context());
                    }
                }
                pair.drive_until(absence_timeout(), |_| unsafe { ((*(*counter).ops).read)(counter) } != 0);
                format!("0 counts {}", unsafe { ((*(*counter).ops).read)(counter) })
            },
        );
    }
}

/// Makes a write or an atomic operation from the left endpoint to the right one, and waits for its
/// completion.
fn write_and_wait(pair: &mut Pair, context: &Context, address: u64, key: u64, is_atomic: bool) {
    let buf = leak_zeroed_memory(64);
    let near = context.register_region(&pair.left, buf, 64, 11);
    let (ep, addr, done) = (pair.left.ep, pair.to_right, op_context());
    let result = pair.retry_while_eagain(|| unsafe {
        if is_atomic {
            let atomic = (*ep).atomic;
            assert!(!atomic.is_null(), "no atomics");
            ((*atomic).write)(ep, buf.cast(), 1, near.desc, addr, address, key, 7, 2, done)
        } else {
            ((*(*ep).rma).write)(ep, buf.cast(), 8, near.desc, addr, address, key, done)
        }
    });
    assert!(result == 0, "fi_write: {}", describe_result(result as i64));
    let is_done =
        pair.drive_until(absence_timeout(), |pair| pair.at_left.iter().any(|it| it.context == done));
    assert!(is_done && pair.at_left.iter().all(|it| it.error == 0), "fi_write does not complete");
}
