//! Whatever `getinfo` answers or grants, exercised: every capability, default flag, order, mode, choice and number, of every
//! domain and every kind of endpoint.
//!
//! Each is an entry of a table that names what exercises it. A bit that is answered or granted and is in no table fails the
//! test, and so does a field of an answer that nobody has thought of, since it would not compile.

mod caps;
mod choices;
mod flags;
mod numbers;
mod orders;
mod stage;
#[path = "../suite/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bitflags::Flags;
use homespun::flags::OpFlags;
use homespun::info::{EndpointType, Info, MrMode};
use homespun::{AddressFormat, Fabric, Hints};

/// What exercises something, in endpoints of this kind. Fails if it does not work.
pub(crate) type Check = fn(&Info);

/// Everything that there is to communicate with: an info for each domain, kind of endpoint, and address format. Endpoints
/// that are opened with one are on the loopback interface.
fn everything() -> Vec<Info> {
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

/// What is granted to hints that ask for all of this, changed so; `None` if it is refused. In place of the address that the
/// answer has stays the one of the info.
pub(crate) fn granted(info: &Info, change: impl FnOnce(&mut Info)) -> Option<Info> {
    let mut hints = Info { src_addr: None, dest_addr: None, ..info.clone() };
    change(&mut hints);
    let answer = Fabric::new().info(&Hints::from(hints)).ok()?;
    Some(Info { src_addr: info.src_addr, ..answer })
}

/// Every single flag of a word.
pub(crate) fn every_bit<F: Flags<Bits = u64>>() -> impl Iterator<Item = F> {
    (0..u64::BITS).map(|place| F::from_bits_retain(1 << place))
}

/// Finds what exercises a flag, and has it do so.
#[track_caller]
pub(crate) fn exercise<F: Flags<Bits = u64> + Debug + Copy>(
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
fn there_are_both_domains() {
    let mut domains: Vec<_> = everything().into_iter().filter_map(|info| info.domain.name).collect();
    domains.sort_unstable();
    domains.dedup();
    assert_eq!(domains, ["shm", "tcp"]);
}

#[test]
fn every_capability() {
    for info in everything() {
        let sides = info.tx.caps | info.rx.caps | info.domain.caps;
        assert!(info.caps.contains(sides), "{:?} are no capabilities of the endpoint", sides - info.caps);
        for bit in every_bit() {
            // Some are there only for those who ask.
            let granted = granted(&info, |hints| hints.caps |= bit);
            assert!(granted.is_some() || !info.caps.contains(bit), "{bit:?} is answered and not granted");
            if granted.is_some_and(|granted| granted.caps.contains(bit)) {
                exercise("the capability", bit, caps::TABLE, &info);
            }
        }
    }
}

#[test]
fn every_default_flag_of_transmit_operations() {
    for info in everything() {
        assert!(info.tx.op_flags.is_empty(), "who asks for none has none");
        let mut all = OpFlags::empty();
        for bit in every_bit() {
            if let Some(granted) = granted(&info, |hints| hints.tx.op_flags = bit) {
                assert_eq!(granted.tx.op_flags, bit);
                exercise("the transmit flag", bit, flags::TRANSMIT, &granted);
                all |= bit;
            }
        }
        assert!(all.contains(OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE), "only {all:?} is granted");
    }
}

#[test]
fn every_default_flag_of_receives() {
    for info in everything() {
        assert!(info.rx.op_flags.is_empty(), "who asks for none has none");
        let mut all = OpFlags::empty();
        for bit in every_bit() {
            if let Some(granted) = granted(&info, |hints| hints.rx.op_flags = bit) {
                assert_eq!(granted.rx.op_flags, bit);
                exercise("the receive flag", bit, flags::RECEIVE, &granted);
                all |= bit;
            }
        }
        assert!(all.contains(OpFlags::COMPLETION), "only {all:?} is granted");
    }
}

#[test]
fn every_order_of_messages() {
    for info in everything() {
        for bit in every_bit() {
            let ask = |hints: &mut Info| (hints.tx.msg_order, hints.rx.msg_order) = (bit, bit);
            let granted = granted(&info, ask);
            let answered = info.tx.msg_order | info.rx.msg_order;
            assert!(granted.is_some() || !answered.contains(bit), "{bit:?} is answered and not granted");
            if let Some(granted) = granted {
                assert!((granted.tx.msg_order & granted.rx.msg_order).contains(bit));
                exercise("the order", bit, orders::OF_MESSAGES, &granted);
            }
        }
    }
}

#[test]
fn every_order_of_completions() {
    for info in everything() {
        for bit in every_bit() {
            if let Some(granted) = granted(&info, |hints| hints.tx.comp_order = bit) {
                assert!(granted.tx.comp_order.contains(bit));
                exercise("the transmit completion order", bit, orders::OF_TRANSMIT_COMPLETIONS, &granted);
            }
            if let Some(granted) = granted(&info, |hints| hints.rx.comp_order = bit) {
                assert!(granted.rx.comp_order.contains(bit));
                exercise("the receive completion order", bit, orders::OF_RECEIVE_COMPLETIONS, &granted);
            }
        }
    }
}

#[test]
fn nothing_is_demanded() {
    for info in everything() {
        for mode in [info.mode, info.tx.mode, info.rx.mode, info.domain.mode] {
            assert!(mode.is_empty(), "{mode:?} is demanded of applications, and nothing here heeds it");
        }
        for bit in every_bit() {
            let granted =
                granted(&info, |hints| hints.mode = bit).expect("whoever offers more is not refused");
            assert!(granted.mode.is_empty(), "{:?}", granted.mode);
        }
    }
}

#[test]
fn every_mode_of_registration() {
    for info in everything() {
        // What is demanded of those who are ready for nothing, for one thing, and for everything.
        let single = (0..u32::BITS).map(|place| MrMode::from_bits_retain(1 << place));
        for asked in single.chain([MrMode::empty(), MrMode::from_bits_retain(u32::MAX)]) {
            let granted = granted(&info, |hints| hints.domain.mr_mode = asked);
            let Some(granted) = granted else { continue };
            let demanded = granted.domain.mr_mode;
            assert!(
                asked.contains(demanded),
                "{demanded:?} is demanded of those who are ready for {asked:?}"
            );
            choices::register(&granted);
            // An application may insist on what it has offered.
            let mut insisting = granted;
            insisting.domain.mr_mode = asked;
            if Fabric::new().domain(&insisting).is_ok() {
                choices::register(&insisting);
            }
        }
    }
}

#[test]
fn every_choice_of_a_domain() {
    for info in everything() {
        choices::threading(&info);
        choices::progress(&info);
        choices::resource_management(&info);
        choices::address_vectors(&info);
        choices::completion_formats(&info);
        choices::wait_objects(&info);
    }
}

#[test]
fn every_number() {
    for info in everything() {
        numbers::exercise(&info);
    }
}
