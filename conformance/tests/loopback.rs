//! The contract over the in-process network, without and with faults.

use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, Network};

homespun_conformance::transport_contract!(Network::new(1, Faults::default()));

/// With small links that split frames anywhere, delay them, and are full at random.
mod choppy {
    use super::*;

    homespun_conformance::transport_contract!(Network::new(2, Faults::choppy()));
}

/// With links of the smallest capacity that deliver every byte by itself.
mod tiny {
    use super::*;

    homespun_conformance::transport_contract!(Network::new(
        3,
        Faults { capacity_bytes: CAPACITY_MIN_BYTES, split_per_mille: 1000, ..Faults::default() }
    ));
}

/// With links that pull payload and never refuse to.
mod pulling {
    use super::*;

    fn network() -> Network {
        Network::new(4, Faults { pull_min_bytes: Some(1000), ..Faults::default() })
    }

    homespun_conformance::transport_contract!(network());

    /// The contract tests pulling only if the provider offers it.
    #[test]
    fn provider_with_pull_enabled_pulls() {
        assert!(homespun_conformance::transport::pulls(homespun_conformance::transport::Backend::new(
            &network()
        )));
    }
}
