//! Tests that a panic inside the plugin does not reach C code. The panic closes the plugin, so the test
//! has a process of its own.

use std::panic;
use std::ptr;

use homespun_fi::abi::fi_version;
use homespun_fi::abi::info::{FiEpAttr, FiInfo};
use homespun_fi::abi::provider::FiProvider;
use homespun_fi::fi_prov_ini;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

/// Simulates a bug: panics where the plugin logs a failed call.
struct Bug;

impl Subscriber for Bug {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, _: &Event<'_>) {
        panic!("a bug");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Calls `fi_getinfo` with hints that no provider meets.
fn call_getinfo(provider: *const FiProvider) -> i32 {
    // SAFETY: all zeroes are hints that specify nothing.
    let (mut hints, mut ep): (FiInfo, FiEpAttr) = unsafe { std::mem::zeroed() };
    ep.r#type = 2;
    hints.ep_attr = &raw mut ep;
    let mut list = ptr::null_mut();
    // SAFETY: the provider is static, the hints are valid, and there is room for the answer.
    unsafe {
        ((*provider).getinfo)(fi_version(1, 17), ptr::null(), ptr::null(), 0, &raw const hints, &raw mut list)
    }
}

#[test]
fn panic_becomes_an_error_and_closes_the_plugin() {
    const ENODATA: i32 = -61;
    const EOTHER: i32 = -256;
    let provider = fi_prov_ini().cast_const();
    assert_eq!(call_getinfo(provider), ENODATA);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = with_default(Bug, || call_getinfo(provider));
    panic::set_hook(hook);
    assert_eq!(result, EOTHER);
    // No call of the plugin works any more.
    assert_eq!(call_getinfo(provider), EOTHER);
    assert!(fi_prov_ini().is_null());
}
