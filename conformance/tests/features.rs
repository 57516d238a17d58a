//! A backend that declares other features than it has fails the contract.

use homespun_conformance::transport::{Backend, Features, assert_features};
use homespun_engine::loopback::{Faults, Network};

/// The features of a network without faults.
const FEATURES: Features = Features { pulls: false, maps: true, splits: true, wakes: false, backlog: false };

fn assert_features_of_network(declared: Features) {
    assert_features(Backend::new(&Network::new(1, Faults::default())), declared);
}

#[test]
fn true_features_are_accepted() {
    assert_features_of_network(FEATURES);
}

#[test]
#[should_panic(expected = "the declared features")]
fn missing_maps_is_found() {
    assert_features_of_network(Features { maps: false, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn missing_splits_is_found() {
    assert_features_of_network(Features { splits: false, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn false_pulls_is_found() {
    assert_features_of_network(Features { pulls: true, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn false_wakes_is_found() {
    assert_features_of_network(Features { wakes: true, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn false_backlog_is_found() {
    assert_features_of_network(Features { backlog: true, ..FEATURES });
}
