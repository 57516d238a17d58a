//! Tests what `getinfo` offers and grants, for every domain and endpoint type: every capability, default
//! flag, order, registration mode and choice.
//!
//! A bit that `getinfo` grants fails the test if it is not listed here: it then needs a test in
//! `suite/src/semantics/`. What is granted must be accepted when a domain and an endpoint are opened.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bitflags::Flags;
use homespun::flags::{OpFlags, Order};
use homespun::info::{AvType, EndpointType, Info, MrMode, Progress, ResourceManagement, Threading};
use homespun::{AddressFormat, Caps, Fabric, Hints};

const CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::SEND)
    .union(Caps::RECV)
    .union(Caps::RMA)
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::ATOMIC)
    .union(Caps::RMA_EVENT)
    .union(Caps::RMA_PMEM)
    .union(Caps::MULTI_RECV)
    .union(Caps::TRIGGER)
    .union(Caps::FENCE)
    .union(Caps::SOURCE)
    .union(Caps::SOURCE_ERR)
    .union(Caps::DIRECTED_RECV)
    .union(Caps::LOCAL_COMM)
    .union(Caps::REMOTE_COMM);

const LEVELS: OpFlags =
    OpFlags::INJECT_COMPLETE.union(OpFlags::TRANSMIT_COMPLETE).union(OpFlags::DELIVERY_COMPLETE);

const TRANSMIT_FLAGS: OpFlags = LEVELS
    .union(OpFlags::COMPLETION)
    .union(OpFlags::INJECT)
    .union(OpFlags::MORE)
    .union(OpFlags::MATCH_COMPLETE)
    .union(OpFlags::COMMIT_COMPLETE);

const RECEIVE_FLAGS: OpFlags =
    LEVELS.union(OpFlags::COMPLETION).union(OpFlags::MORE).union(OpFlags::MULTI_RECV);

/// An application that asks for one of these orders of completions gets all of them.
const TRANSMIT_COMPLETION_ORDERS: Order = Order::RAR
    .union(Order::RAW)
    .union(Order::RAS)
    .union(Order::WAR)
    .union(Order::WAW)
    .union(Order::WAS)
    .union(Order::SAR)
    .union(Order::SAW)
    .union(Order::SAS);

const MESSAGE_ORDERS: Order = TRANSMIT_COMPLETION_ORDERS
    .union(Order::RMA_RAR)
    .union(Order::RMA_RAW)
    .union(Order::RMA_WAR)
    .union(Order::RMA_WAW)
    .union(Order::ATOMIC_RAR)
    .union(Order::ATOMIC_RAW)
    .union(Order::ATOMIC_WAR)
    .union(Order::ATOMIC_WAW);

/// Returns an info for each combination of domain, endpoint type and address format that `getinfo` offers.
/// Each has a source address of the loopback interface.
fn offered_infos() -> Vec<Info> {
    let kinds = [EndpointType::Msg, EndpointType::Dgram, EndpointType::Rdm];
    let of_kind = |kind| Fabric::new().infos(&Hints::new().ep_type(kind)).unwrap_or_default();
    let mut infos: Vec<Info> = kinds.into_iter().flat_map(of_kind).collect();
    let unasked = Fabric::new().infos(&Hints::new()).expect("an answer");
    assert!(unasked.iter().all(|info| infos.contains(info)), "what is there is of some kind");
    for info in &mut infos {
        let here: IpAddr = match info.addr_format.expect("an answer has a format") {
            AddressFormat::SockaddrIn => Ipv4Addr::LOCALHOST.into(),
            AddressFormat::SockaddrIn6 => Ipv6Addr::LOCALHOST.into(),
        };
        info.src_addr = Some(SocketAddr::from((here, 0)).into());
    }
    infos
}

/// Asks `getinfo` with a changed copy of this info as hints. Opens a domain and an endpoint with the answer,
/// and returns it. Returns `None` if `getinfo` refuses the hints.
fn getinfo_with_changed_hints(info: &Info, change: impl FnOnce(&mut Info)) -> Option<Info> {
    let mut hints = Info { src_addr: None, dest_addr: None, ..info.clone() };
    change(&mut hints);
    let answer = Fabric::new().info(&Hints::from(hints)).ok()?;
    let granted = Info { src_addr: info.src_addr, ..answer };
    let domain = Fabric::new().domain(&granted).expect("the domain was granted");
    domain.endpoint(&granted).expect("the endpoint was granted");
    Some(granted)
}

/// Returns each flag of a word.
fn single_bit_flags<F: Flags<Bits = u64>>() -> impl Iterator<Item = F> {
    (0..u64::BITS).map(|place| F::from_bits_retain(1 << place))
}

/// Asserts that this flag is listed above, as those that the suite exercises are.
#[track_caller]
fn assert_known<F: Flags + Debug + Copy>(what: &str, flag: F, known: F, info: &Info) {
    let of = (&info.domain.name, info.ep.ep_type);
    assert!(
        known.contains(flag),
        "{what} {flag:?} of {of:?} is granted, and not listed: give it a test in the suite"
    );
}

/// Returns each variant of an enumeration with libfabric's numbers.
fn variants<T, E>(from_raw: impl Fn(u32) -> Result<Option<T>, E>) -> impl Iterator<Item = T> {
    (0..u32::from(u8::MAX)).filter_map(move |raw| from_raw(raw).ok().flatten())
}

#[test]
fn getinfo_offers_every_domain() {
    let domains: BTreeSet<_> = offered_infos().into_iter().filter_map(|info| info.domain.name).collect();
    assert!(domains.iter().eq(["auto", "shm", "tcp"]), "{domains:?}");
}

#[test]
fn granted_capabilities_are_known() {
    for info in offered_infos() {
        let sides = info.tx.caps | info.rx.caps | info.domain.caps;
        assert!(info.caps.contains(sides), "{:?} are no capabilities of the endpoint", sides - info.caps);
        for bit in single_bit_flags() {
            // Some capabilities are granted only on request.
            let granted = getinfo_with_changed_hints(&info, |hints| hints.caps |= bit);
            assert!(granted.is_some() || !info.caps.contains(bit), "{bit:?} is answered and not granted");
            if granted.is_some_and(|granted| granted.caps.contains(bit)) {
                assert_known("the capability", bit, CAPS, &info);
            }
        }
    }
}

/// Shows fi_endpoint/default-flags.
#[test]
fn granted_default_flags_are_known() {
    for info in offered_infos() {
        assert!(
            (info.tx.op_flags | info.rx.op_flags).is_empty(),
            "an application that asks for no default flags gets some"
        );
        let (mut of_sends, mut of_receives) = (OpFlags::empty(), OpFlags::empty());
        for bit in single_bit_flags() {
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.op_flags = bit) {
                assert_eq!(granted.tx.op_flags, bit, "{bit:?}");
                assert_known("the transmit flag", bit, TRANSMIT_FLAGS, &info);
                of_sends |= bit;
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.rx.op_flags = bit) {
                assert_eq!(granted.rx.op_flags, bit, "{bit:?}");
                assert_known("the receive flag", bit, RECEIVE_FLAGS, &info);
                of_receives |= bit;
            }
        }
        assert!(of_sends.contains(OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE), "only {of_sends:?}");
        assert!(of_receives.contains(OpFlags::COMPLETION), "only {of_receives:?}");
    }
}

#[test]
fn granted_orders_are_known() {
    for info in offered_infos() {
        for bit in single_bit_flags() {
            let ask = |hints: &mut Info| (hints.tx.msg_order, hints.rx.msg_order) = (bit, bit);
            let granted = getinfo_with_changed_hints(&info, ask);
            let answered = info.tx.msg_order | info.rx.msg_order;
            assert!(granted.is_some() || !answered.contains(bit), "{bit:?} is answered and not granted");
            if let Some(granted) = granted {
                assert!((granted.tx.msg_order & granted.rx.msg_order).contains(bit), "{bit:?}");
                assert_known("the order", bit, MESSAGE_ORDERS, &info);
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.comp_order = bit) {
                assert!(granted.tx.comp_order.contains(bit), "{bit:?}");
                let known = TRANSMIT_COMPLETION_ORDERS;
                assert_known("the transmit completion order", bit, known, &info);
            }
            let granted = getinfo_with_changed_hints(&info, |hints| hints.rx.comp_order = bit);
            assert!(granted.is_none(), "receives complete in no order: {bit:?}");
        }
    }
}

/// Shows fi_endpoint/context-structures, fi_msg/buffered-receives, fi_msg/prefix-of-messages.
#[test]
fn getinfo_requires_no_mode_bits() {
    for info in offered_infos() {
        for mode in [info.mode, info.tx.mode, info.rx.mode, info.domain.mode] {
            assert!(mode.is_empty(), "{mode:?} is demanded of applications, and nothing here heeds it");
        }
        for bit in single_bit_flags() {
            let granted = getinfo_with_changed_hints(&info, |hints| hints.mode = bit)
                .expect("unused mode bits are no reason to refuse");
            assert!(granted.mode.is_empty(), "{:?}", granted.mode);
        }
    }
}

/// Shows fi_mr/unneeded-mr-mode-is-cleared, fi_mr/provider-key, fi_mr/mr-raw, fi_mr/device-regions.
#[test]
fn required_mr_modes_are_among_those_asked() {
    for info in offered_infos() {
        // The mode bits that are required if the hints allow none, one, or all.
        let single = (0..u32::BITS).map(|place| MrMode::from_bits_retain(1 << place));
        for asked in single.chain([MrMode::empty(), MrMode::from_bits_retain(u32::MAX)]) {
            let granted = getinfo_with_changed_hints(&info, |hints| hints.domain.mr_mode = asked);
            let Some(granted) = granted else { continue };
            let demanded = granted.domain.mr_mode;
            assert!(asked.contains(demanded), "{demanded:?} is required though the hints allow {asked:?}");
            assert_known("the registration mode", demanded, MrMode::BASIC | MrMode::SCALABLE, &info);
        }
    }
}

/// Asks for each variant of an enumeration.
fn ask_for_each<T: Copy + PartialEq + Debug>(
    info: &Info,
    variants: impl Iterator<Item = T>,
    field: impl Fn(&mut Info) -> &mut Option<T>,
) {
    let mut granted_count = 0;
    for asked in variants {
        let granted = getinfo_with_changed_hints(info, |hints| *field(hints) = Some(asked));
        let Some(mut granted) = granted else { continue };
        assert_eq!(*field(&mut granted), Some(asked));
        granted_count += 1;
    }
    assert!(granted_count > 0, "no choice is granted");
}

#[test]
fn granted_choices_are_accepted() {
    for info in offered_infos() {
        ask_for_each(&info, variants(Threading::from_raw), |info| &mut info.domain.threading);
        ask_for_each(&info, variants(Progress::from_raw), |info| &mut info.domain.control_progress);
        ask_for_each(&info, variants(Progress::from_raw), |info| &mut info.domain.data_progress);
        ask_for_each(&info, variants(ResourceManagement::from_raw), |info| &mut info.domain.resource_mgmt);
        ask_for_each(&info, variants(AvType::from_raw), |info| &mut info.domain.av_type);
    }
}
