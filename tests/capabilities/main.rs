//! Tests what `getinfo` offers and grants, for every domain and endpoint type: every capability, default
//! flag, order, mode, choice and number.
//!
//! Tables name the topic of `suite/src/semantics/` that tests each of them. A bit that `getinfo` offers or
//! grants fails the test if it is in no table. A new field of an info, or a new choice, stops the compilation
//! until it is named. What is granted must be accepted when a domain and an endpoint are opened.

mod tables;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use bitflags::Flags;
use homespun::flags::{Mode, OpFlags};
use homespun::info::{AvType, EndpointType, Info, MrMode, Progress, ResourceManagement, Threading};
use homespun::{AddressFormat, CqAttr, CqFormat, Errno, Fabric, Hints, WaitObject};

use self::tables::Table;

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

/// Asserts that the table has a flag.
#[track_caller]
fn assert_listed<F: Flags + Debug>(what: &str, flag: &F, table: Table<F>, info: &Info) {
    let is_listed = table.iter().any(|(listed, _)| listed.bits() == flag.bits());
    let of = (&info.domain.name, info.ep.ep_type);
    assert!(is_listed, "{what} {flag:?} of {of:?} is there, and nothing exercises it");
}

/// Returns each variant of an enumeration with libfabric's numbers.
fn variants<T, E>(from_raw: impl Fn(u32) -> Result<Option<T>, E>) -> impl Iterator<Item = T> {
    (0..u32::from(u8::MAX)).filter_map(move |raw| from_raw(raw).ok().flatten())
}

/// Shows fi_endpoint/subset-of-capabilities.
#[test]
fn getinfo_offers_every_domain() {
    let domains: BTreeSet<_> = offered_infos().into_iter().filter_map(|info| info.domain.name).collect();
    assert!(domains.iter().eq(["auto", "shm", "tcp"]), "{domains:?}");
}

#[test]
fn topics_of_the_tables_exist() {
    fn topics<F>(table: Table<F>) -> impl Iterator<Item = &'static str> {
        table.iter().map(|(_, topic)| *topic)
    }
    let mut all: BTreeSet<&str> = topics(tables::CAPS).chain(topics(tables::MESSAGE_ORDERS)).collect();
    all.extend(topics(tables::TRANSMIT_FLAGS).chain(topics(tables::RECEIVE_FLAGS)));
    all.extend(topics(tables::TRANSMIT_COMPLETION_ORDERS).chain(topics(tables::MODES)));
    all.extend(topics(tables::MR_MODES).chain(variants(Threading::from_raw).map(tables::topic_of_threading)));
    all.extend([Progress::Manual, Progress::Auto].map(tables::topic_of_progress));
    all.extend(variants(ResourceManagement::from_raw).map(tables::topic_of_resource_mgmt));
    all.extend(variants(AvType::from_raw).map(tables::topic_of_av_type));
    all.extend([CqFormat::Context, CqFormat::Tagged].map(tables::topic_of_cq_format));
    all.extend([WaitObject::Set, WaitObject::Unspec].map(tables::topic_of_wait_object).iter().flatten());
    for topic in all {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("suite/src/semantics/{topic}.rs"));
        assert!(path.is_file(), "no topic {topic}");
    }
}

#[test]
fn granted_capabilities_have_a_topic() {
    for info in offered_infos() {
        let sides = info.tx.caps | info.rx.caps | info.domain.caps;
        assert!(info.caps.contains(sides), "{:?} are no capabilities of the endpoint", sides - info.caps);
        for bit in single_bit_flags() {
            // Some capabilities are granted only on request.
            let granted = getinfo_with_changed_hints(&info, |hints| hints.caps |= bit);
            assert!(granted.is_some() || !info.caps.contains(bit), "{bit:?} is answered and not granted");
            if granted.is_some_and(|granted| granted.caps.contains(bit)) {
                assert_listed("the capability", &bit, tables::CAPS, &info);
            }
        }
    }
}

/// Shows fi_endpoint/default-flags, fi_endpoint/endpoint-multicast.
#[test]
fn granted_default_flags_have_a_topic() {
    for info in offered_infos() {
        assert!(
            (info.tx.op_flags | info.rx.op_flags).is_empty(),
            "an application that asks for no default flags gets some"
        );
        let (mut of_sends, mut of_receives) = (OpFlags::empty(), OpFlags::empty());
        for bit in single_bit_flags() {
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.op_flags = bit) {
                assert_eq!(granted.tx.op_flags, bit, "{bit:?}");
                assert_listed("the transmit flag", &bit, tables::TRANSMIT_FLAGS, &info);
                of_sends |= bit;
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.rx.op_flags = bit) {
                assert_eq!(granted.rx.op_flags, bit, "{bit:?}");
                assert_listed("the receive flag", &bit, tables::RECEIVE_FLAGS, &info);
                of_receives |= bit;
            }
        }
        assert!(of_sends.contains(OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE), "only {of_sends:?}");
        assert!(of_receives.contains(OpFlags::COMPLETION), "only {of_receives:?}");
    }
}

#[test]
fn granted_orders_have_a_topic() {
    for info in offered_infos() {
        for bit in single_bit_flags() {
            let ask = |hints: &mut Info| (hints.tx.msg_order, hints.rx.msg_order) = (bit, bit);
            let granted = getinfo_with_changed_hints(&info, ask);
            let answered = info.tx.msg_order | info.rx.msg_order;
            assert!(granted.is_some() || !answered.contains(bit), "{bit:?} is answered and not granted");
            if let Some(granted) = granted {
                assert!((granted.tx.msg_order & granted.rx.msg_order).contains(bit), "{bit:?}");
                assert_listed("the order", &bit, tables::MESSAGE_ORDERS, &info);
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.comp_order = bit) {
                assert!(granted.tx.comp_order.contains(bit), "{bit:?}");
                let table = tables::TRANSMIT_COMPLETION_ORDERS;
                assert_listed("the transmit completion order", &bit, table, &info);
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.rx.comp_order = bit) {
                assert!(granted.rx.comp_order.contains(bit), "{bit:?}");
                let table = tables::RECEIVE_COMPLETION_ORDERS;
                assert_listed("the receive completion order", &bit, table, &info);
            }
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

#[test]
fn offered_modes_are_listed() {
    for info in offered_infos() {
        for bit in single_bit_flags::<Mode>() {
            let hints = Hints::from(Info { src_addr: None, ..info.clone() }).mode(bit);
            let found = Fabric::new().infos(&hints).expect("unused mode bits are no reason to refuse");
            let modes: Vec<_> = found.iter().map(|found| (found.mode, found.rx.mode)).collect();
            let is_listed = tables::MODES.iter().any(|(mode, _)| *mode == bit);
            assert_eq!(modes.contains(&(bit, bit)), is_listed, "{bit:?}");
            let none = (Mode::empty(), Mode::empty());
            assert!(modes.iter().all(|found| [none, (bit, bit)].contains(found)), "{modes:?}");
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
            for bit in demanded.iter() {
                assert_listed("the registration mode", &bit, tables::MR_MODES, &info);
            }
        }
    }
}

#[test]
fn asked_key_sizes_are_granted_up_to_eight_bytes() {
    for info in offered_infos() {
        for (asked, expected) in [(0, 8), (1, 8), (3, 8), (4, 4), (7, 7), (9, 8)] {
            let granted = getinfo_with_changed_hints(&info, |hints| hints.domain.mr_key_size_bytes = asked);
            let granted = granted.expect("no size is refused");
            assert_eq!(granted.domain.mr_key_size_bytes, expected, "{asked} bytes");
        }
        let mut insisting = info;
        insisting.domain.mr_key_size_bytes = 3;
        let domain = Fabric::new().domain(&insisting).expect("no size is refused");
        assert_eq!(domain.key_size_bytes(), 8);
    }
}

/// Asks for each variant of an enumeration. Calls `check` with each that is granted.
fn ask_for_each<T: Copy + PartialEq + Debug>(
    info: &Info,
    variants: impl Iterator<Item = T>,
    field: impl Fn(&mut Info) -> &mut Option<T>,
    check: impl Fn(T) -> &'static str,
) {
    let mut granted_count = 0;
    for asked in variants {
        let granted = getinfo_with_changed_hints(info, |hints| *field(hints) = Some(asked));
        let Some(mut granted) = granted else { continue };
        assert_eq!(*field(&mut granted), Some(asked));
        check(asked);
        granted_count += 1;
    }
    assert!(granted_count > 0, "no choice is granted");
}

#[test]
fn granted_models_formats_and_waits_have_a_topic() {
    use WaitObject::{Fd, MutexCond, None, PollFd, Set, Unspec, Yield};

    for info in offered_infos() {
        let threading = variants(Threading::from_raw);
        ask_for_each(&info, threading, |info| &mut info.domain.threading, tables::topic_of_threading);
        let control = variants(Progress::from_raw);
        ask_for_each(&info, control, |info| &mut info.domain.control_progress, |_| "calls");
        let data = variants(Progress::from_raw);
        ask_for_each(&info, data, |info| &mut info.domain.data_progress, tables::topic_of_progress);
        let management = variants(ResourceManagement::from_raw);
        let topic = tables::topic_of_resource_mgmt;
        ask_for_each(&info, management, |info| &mut info.domain.resource_mgmt, topic);
        let av_types = variants(AvType::from_raw);
        ask_for_each(&info, av_types, |info| &mut info.domain.av_type, tables::topic_of_av_type);

        let fabric = Fabric::new();
        let domain = fabric.domain(&info).unwrap();
        for wait in [None, Unspec, Set, Fd, MutexCond, Yield, PollFd] {
            let wait_set = Some(fabric.open_wait_set(Unspec).unwrap());
            let opened = domain.open_cq(&CqAttr { wait, wait_set, ..CqAttr::default() });
            let expected = match tables::topic_of_wait_object(wait) {
                Some(_) => Ok(()),
                Option::None => Err(Errno::ENOSYS),
            };
            assert_eq!(opened.map(drop).map_err(|error| error.errno()), expected, "{wait:?}");
        }
    }
}

#[test]
fn answered_numbers_are_known() {
    for info in offered_infos() {
        tables::assert_numbers_are_known(&info);
    }
}
