//! Capabilities and address formats, displayed by the names that C code uses.

use std::fmt;

use crate::address::AddressFormat;
use crate::flags::Caps;

/// `FI_COLLECTIVE`. libfabric's layer `ofi_rxm` has it over the provider that is named with it.
const COLLECTIVE: Caps = Caps::from_bits_retain(1 << 6);

/// Displays capabilities as "the capability FI_MSG", or "the capabilities FI_MSG and FI_SEND".
pub(super) struct FiCaps(pub(super) Caps);

impl fmt::Display for FiCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named = self.0.iter_names().map(|(name, _)| name);
        let Some(first) = named.next() else {
            return f.write_str(match self.0.contains(COLLECTIVE) {
                true => "FI_COLLECTIVE, which the provider name \"homespun;ofi_rxm\" has",
                false => "a capability that is not known",
            });
        };
        let mut named = named.peekable();
        let are_several = named.peek().is_some();
        write!(f, "the {} FI_{first}", if are_several { "capabilities" } else { "capability" })?;
        while let Some(name) = named.next() {
            write!(f, "{} FI_{name}", if named.peek().is_some() { "," } else { " and" })?;
        }
        Ok(())
    }
}

/// Displays an address format as `FI_SOCKADDR_IN`.
pub(super) struct FiFormat(pub(super) AddressFormat);

impl fmt::Display for FiFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AddressFormat::SockaddrIn => "FI_SOCKADDR_IN",
            AddressFormat::SockaddrIn6 => "FI_SOCKADDR_IN6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_listed_by_their_fi_names() {
        let text = |caps| FiCaps(caps).to_string();
        assert_eq!(text(Caps::HMEM), "the capability FI_HMEM");
        assert_eq!(text(Caps::MSG | Caps::SEND), "the capabilities FI_MSG and FI_SEND");
        assert_eq!(text(Caps::MSG | Caps::RMA | Caps::SEND), "the capabilities FI_MSG, FI_RMA and FI_SEND");
        assert!(text(COLLECTIVE).contains("homespun;ofi_rxm"));
        assert_eq!(text(Caps::from_bits_retain(1 << 63)), "a capability that is not known");
    }
}
