//! Probes of memory registration: with each flag, each access, null pointers, zero, and too large counts.

use std::ptr;

use homespun_host::abi::domain::{FiMrAttr, FidDomain};
use libc::{c_int, iovec};

use super::{Family, Probes};
use crate::bits::flags;
use crate::setup::{NULL, call, leak_zeroed_memory, try_open};

/// All access flags of a region.
const ALL: u64 = 0x3f00;

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

pub(super) fn add_probes(probes: &mut Probes) {
    let mut add_reg = |name: String, arguments: Reg| {
        probes.add(Family::Object, format!("fi_mr_reg: {name}"), move |context| {
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
    let mut add_regattr = |name: String, flags: u64, change: Box<dyn Fn(&mut FiMrAttr)>| {
        probes.add(Family::Object, format!("fi_mr_regattr: {name}"), move |context| {
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
        probes.add(Family::Object, format!("fi_mr_regv: {name}"), move |context| {
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
