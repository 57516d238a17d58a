//! What a peer tells others about itself.

use crate::error::Invalid;

/// What a peer tells others about itself: `rpma_peer_cfg_new(3)`. The application sends the
/// [descriptor](Self::descriptor) to the peer, which [applies](crate::Connection::apply_remote_peer_config)
/// it to its connection.
///
/// ```
/// use homespun_rpma::PeerConfig;
///
/// let config = PeerConfig { direct_write_to_pmem: true };
/// assert_eq!(PeerConfig::from_descriptor(&config.descriptor()), Ok(config));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PeerConfig {
    /// Whether a write of a peer, followed by a persistent [flush](crate::Connection::flush), is durable in
    /// this host's persistent memory. `false` by default: then peers cannot flush to persistence.
    pub direct_write_to_pmem: bool,
}

impl PeerConfig {
    /// The length of a descriptor in bytes: `rpma_peer_cfg_get_descriptor_size(3)`.
    pub const DESCRIPTOR_BYTES: usize = 1;

    /// Returns the configuration as bytes for the peer: `rpma_peer_cfg_get_descriptor(3)`.
    pub fn descriptor(self) -> [u8; PeerConfig::DESCRIPTOR_BYTES] {
        [self.direct_write_to_pmem.into()]
    }

    /// Reads the descriptor of a peer: `rpma_peer_cfg_from_descriptor(3)`. Ignores bytes behind it. Any value
    /// but 0 stands for `true`.
    ///
    /// # Errors
    ///
    /// [`Invalid::ShortDescriptor`] without a byte.
    pub fn from_descriptor(descriptor: &[u8]) -> Result<PeerConfig, Invalid> {
        match descriptor {
            [] => Err(Invalid::ShortDescriptor { len_bytes: 0, min_bytes: PeerConfig::DESCRIPTOR_BYTES }),
            [byte, ..] => Ok(PeerConfig { direct_write_to_pmem: *byte != 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_one_byte_and_more_are_ignored() {
        for direct_write_to_pmem in [false, true] {
            let config = PeerConfig { direct_write_to_pmem };
            assert_eq!(config.descriptor(), [u8::from(direct_write_to_pmem)]);
            assert_eq!(PeerConfig::from_descriptor(&[config.descriptor()[0], 7, 9]), Ok(config));
        }
        assert_eq!(PeerConfig::from_descriptor(&[0x80]), Ok(PeerConfig { direct_write_to_pmem: true }));
        assert_eq!(
            PeerConfig::from_descriptor(&[]),
            Err(Invalid::ShortDescriptor { len_bytes: 0, min_bytes: 1 })
        );
    }
}
