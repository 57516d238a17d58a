//! A backend that declares other features than it has fails the contract.

use std::panic::catch_unwind;

use homespun_conformance::transport::{Backend, Features, assert_features};
use homespun_engine::loopback::{Faults, Network};

#[test]
fn wrong_declaration_of_each_feature_is_found() {
    let check = |declared| assert_features(Backend::new(&Network::new(1, Faults::default())), declared);
    let of_network = Features::MAPS | Features::SPLITS;
    check(of_network);
    for feature in Features::all().iter() {
        let Err(panic) = catch_unwind(|| check(of_network ^ feature)) else {
            panic!("a wrong declaration of {feature:?} passes");
        };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(text.contains("the declared features"), "{feature:?}: {text}");
    }
}
