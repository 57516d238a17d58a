//! Tests what `getinfo` returns and grants: every capability, default flag, order, mode, choice and number,
//! of every domain and endpoint type.
//!
//! Tables list a check for each capability, flag, order and mode. A bit that `getinfo` returns or grants
//! fails the test if it is in no table. A new field of an info stops the compilation until a test names the
//! field.

mod caps;
mod choices;
mod endpoint_pair;
mod flags;
mod modes;
mod numbers;
mod orders;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bitflags::Flags;
use homespun::flags::{Mode, OpFlags};
use homespun::info::{EndpointType, Info, MrMode};
use homespun::{AddressFormat, Fabric, Hints};

/// A check of a feature, with endpoints of this info. Panics if the feature does not work.
pub(crate) type Check = fn(&Info);

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

/// Asks `getinfo` with a changed copy of this info as hints. Returns the answer with the source address of
/// this info, or `None` if `getinfo` refuses the hints.
pub(crate) fn getinfo_with_changed_hints(info: &Info, change: impl FnOnce(&mut Info)) -> Option<Info> {
    let mut hints = Info { src_addr: None, dest_addr: None, ..info.clone() };
    change(&mut hints);
    let answer = Fabric::new().info(&Hints::from(hints)).ok()?;
    Some(Info { src_addr: info.src_addr, ..answer })
}

/// Returns each flag of a word.
pub(crate) fn single_bit_flags<F: Flags<Bits = u64>>() -> impl Iterator<Item = F> {
    (0..u64::BITS).map(|place| F::from_bits_retain(1 << place))
}

/// Runs the check of a flag.
#[track_caller]
pub(crate) fn exercise_flag<F: Flags<Bits = u64> + Debug + Copy>(
    what: &str,
    bit: F,
    table: &[(F, Check)],
    info: &Info,
) {
    let entry = table.iter().find(|(flag, _)| flag.bits() == bit.bits());
    let (_, check) = entry.unwrap_or_else(|| {
        let of = (&info.domain.name, info.ep.ep_type);
        panic!("{what} {bit:?} ({:#x}) of {of:?} is there, and nothing exercises it", bit.bits())
    });
    check(info);
}

#[test]
fn getinfo_offers_every_domain() {
    let mut domains: Vec<_> = offered_infos().into_iter().filter_map(|info| info.domain.name).collect();
    domains.sort_unstable();
    domains.dedup();
    assert_eq!(domains, ["auto", "shm", "tcp"]);
}

#[test]
fn every_capability_works() {
    for info in offered_infos() {
        let sides = info.tx.caps | info.rx.caps | info.domain.caps;
        assert!(info.caps.contains(sides), "{:?} are no capabilities of the endpoint", sides - info.caps);
        for bit in single_bit_flags() {
            // Some capabilities are granted only on request.
            let granted = getinfo_with_changed_hints(&info, |hints| hints.caps |= bit);
            assert!(granted.is_some() || !info.caps.contains(bit), "{bit:?} is answered and not granted");
            if granted.is_some_and(|granted| granted.caps.contains(bit)) {
                exercise_flag("the capability", bit, caps::TABLE, &info);
            }
        }
    }
}

#[test]
fn every_default_transmit_flag_works() {
    for info in offered_infos() {
        assert!(info.tx.op_flags.is_empty(), "who asks for none has none");
        let mut all = OpFlags::empty();
        for bit in single_bit_flags() {
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.op_flags = bit) {
                assert_eq!(granted.tx.op_flags, bit);
                exercise_flag("the transmit flag", bit, flags::TRANSMIT, &granted);
                all |= bit;
            }
        }
        assert!(all.contains(OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE), "only {all:?} is granted");
    }
}

#[test]
fn every_default_receive_flag_works() {
    for info in offered_infos() {
        assert!(info.rx.op_flags.is_empty(), "who asks for none has none");
        let mut all = OpFlags::empty();
        for bit in single_bit_flags() {
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.rx.op_flags = bit) {
                assert_eq!(granted.rx.op_flags, bit);
                exercise_flag("the receive flag", bit, flags::RECEIVE, &granted);
                all |= bit;
            }
        }
        assert!(all.contains(OpFlags::COMPLETION), "only {all:?} is granted");
    }
}

#[test]
fn every_message_order_holds() {
    for info in offered_infos() {
        for bit in single_bit_flags() {
            let ask = |hints: &mut Info| (hints.tx.msg_order, hints.rx.msg_order) = (bit, bit);
            let granted = getinfo_with_changed_hints(&info, ask);
            let answered = info.tx.msg_order | info.rx.msg_order;
            assert!(granted.is_some() || !answered.contains(bit), "{bit:?} is answered and not granted");
            if let Some(granted) = granted {
                assert!((granted.tx.msg_order & granted.rx.msg_order).contains(bit));
                exercise_flag("the order", bit, orders::OF_MESSAGES, &granted);
            }
        }
    }
}

#[test]
fn every_completion_order_holds() {
    for info in offered_infos() {
        for bit in single_bit_flags() {
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.tx.comp_order = bit) {
                assert!(granted.tx.comp_order.contains(bit));
                exercise_flag(
                    "the transmit completion order",
                    bit,
                    orders::OF_TRANSMIT_COMPLETIONS,
                    &granted,
                );
            }
            if let Some(granted) = getinfo_with_changed_hints(&info, |hints| hints.rx.comp_order = bit) {
                assert!(granted.rx.comp_order.contains(bit));
                exercise_flag("the receive completion order", bit, orders::OF_RECEIVE_COMPLETIONS, &granted);
            }
        }
    }
}

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
fn every_offered_mode_works() {
    for info in offered_infos() {
        for bit in single_bit_flags::<Mode>() {
            let hints = Hints::from(Info { src_addr: None, ..info.clone() }).mode(bit);
            let found = Fabric::new().infos(&hints).expect("unused mode bits are no reason to refuse");
            let is_offered = found.iter().any(|found| !found.mode.is_empty());
            assert_eq!(is_offered, modes::CHECKS.iter().any(|(mode, _)| *mode == bit), "{bit:?}");
            for with_mode in found.into_iter().filter(|found| !found.mode.is_empty()) {
                assert_eq!((with_mode.mode, with_mode.rx.mode), (bit, bit));
                let with_mode = Info { src_addr: info.src_addr, ..with_mode };
                exercise_flag("the mode", bit, modes::CHECKS, &with_mode);
            }
        }
    }
}

#[test]
fn every_mr_mode_works() {
    for info in offered_infos() {
        // The mode bits that are required if the hints allow none, one, or all.
        let single = (0..u32::BITS).map(|place| MrMode::from_bits_retain(1 << place));
        for asked in single.chain([MrMode::empty(), MrMode::from_bits_retain(u32::MAX)]) {
            let granted = getinfo_with_changed_hints(&info, |hints| hints.domain.mr_mode = asked);
            let Some(granted) = granted else { continue };
            let demanded = granted.domain.mr_mode;
            assert!(asked.contains(demanded), "{demanded:?} is required though the hints allow {asked:?}");
            choices::check_registration(&granted);
            // An application may demand the modes that its hints offered.
            let mut insisting = granted;
            insisting.domain.mr_mode = asked;
            if Fabric::new().domain(&insisting).is_ok() {
                choices::check_registration(&insisting);
            }
        }
    }
}

#[test]
fn every_key_size_works() {
    for info in offered_infos() {
        for (asked, expected) in [(0, 8), (1, 8), (3, 8), (4, 4), (7, 7), (9, 8)] {
            let granted = getinfo_with_changed_hints(&info, |hints| hints.domain.mr_key_size_bytes = asked);
            let granted = granted.expect("no size is refused");
            assert_eq!(granted.domain.mr_key_size_bytes, expected, "{asked} bytes");
            numbers::check_key_bytes(&granted, granted.domain.mr_key_size_bytes);
            choices::check_chosen_keys(&granted);
        }
        let mut insisting = info;
        insisting.domain.mr_key_size_bytes = 3;
        let domain = Fabric::new().domain(&insisting).expect("no size is refused");
        assert_eq!(domain.key_size_bytes(), 8);
    }
}

#[test]
fn every_offered_choice_of_models_formats_and_waits_works() {
    for info in offered_infos() {
        choices::check_threading_models(&info);
        choices::check_progress_models(&info);
        choices::check_resource_management(&info);
        choices::check_address_vector_kinds(&info);
        choices::check_completion_formats(&info);
        choices::check_wait_objects(&info);
    }
}

#[test]
fn every_limit_works() {
    for info in offered_infos() {
        numbers::exercise_limits(&info);
    }
}
