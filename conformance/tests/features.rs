//! A backend that declares other features than it has fails the contract.

use homespun_conformance::transport::{Backend, Features, assert_features};
use homespun_engine::loopback::{Faults, Network};

/// The features of a network without faults.
const FEATURES: Features = Features { pulls: false, maps: true, splits: true, wakes: false, backlog: false };

fn assert_features_of_network(declared: Features) {
    assert_features(Backend::new(&Network::new(1, Faults::default())), declared);
}

#[test]
fn correctly_declared_features_pass() {
    assert_features_of_network(FEATURES);
}

#[test]
#[should_panic(expected = "the declared features")]
fn undeclared_maps_feature_is_detected() {
    assert_features_of_network(Features { maps: false, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn undeclared_splits_feature_is_detected() {
    assert_features_of_network(Features { splits: false, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn falsely_declared_pulls_feature_is_detected() {
    assert_features_of_network(Features { pulls: true, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn falsely_declared_wakes_feature_is_detected() {
    assert_features_of_network(Features { wakes: true, ..FEATURES });
}

#[test]
#[should_panic(expected = "the declared features")]
fn falsely_declared_backlog_feature_is_detected() {
    assert_features_of_network(Features { backlog: true, ..FEATURES });
}
