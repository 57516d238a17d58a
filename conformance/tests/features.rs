//! A backend that declares other features than it has fails the contract.

use std::panic::catch_unwind;

use homespun_conformance::transport::{Backend, Features, assert_features};
use homespun_engine::loopback::{Faults, Network};

/// The features of a network without faults.
const FEATURES: Features = Features { pulls: false, maps: true, splits: true, wakes: false, backlog: false };

#[test]
fn wrongly_declared_features_are_detected() {
    let passes = |declared: Features| {
        catch_unwind(|| assert_features(Backend::new(&Network::new(1, Faults::default())), declared)).is_ok()
    };
    assert!(passes(FEATURES));
    for wrong in [
        Features { pulls: true, ..FEATURES },
        Features { maps: false, ..FEATURES },
        Features { splits: false, ..FEATURES },
        Features { wakes: true, ..FEATURES },
        Features { backlog: true, ..FEATURES },
    ] {
        assert!(!passes(wrong), "{wrong:?} passes");
    }
}
