//! What hints demand of the names and the protocol.

use homespun::error::Unmet;
use homespun::info::Info;
use homespun::params::OfferedName;
use homespun::{Error, Misuse};

use super::protocol::Protocol;

/// The names and the protocol that an application's hints ask for. `None` and zero ask for nothing.
pub(super) struct Wanted {
    fabric: Option<String>,
    domain: Option<String>,
    protocol: Protocol,
}

impl Wanted {
    /// Moves the demands out of the hints. A fabric or domain name that equals the provider's name
    /// demands nothing.
    pub(super) fn take_from(hints: &mut Info, name: OfferedName) -> Wanted {
        let is_specific = |text: &String| !text.eq_ignore_ascii_case(name.as_str());
        let ep = &mut hints.ep;
        Wanted {
            fabric: hints.fabric.name.take().filter(is_specific),
            domain: hints.domain.name.take().filter(is_specific),
            protocol: Protocol {
                number: std::mem::take(&mut ep.protocol),
                version: std::mem::take(&mut ep.protocol_version),
            },
        }
    }

    /// Whether the hints name an interface or a network.
    pub(super) fn names_interface(&self) -> bool {
        self.fabric.is_some() || self.domain.is_some()
    }

    /// Returns the infos that meet the hints.
    ///
    /// # Errors
    ///
    /// The first demand that no info meets.
    pub(super) fn select(&self, infos: impl Iterator<Item = Info>) -> Result<Vec<Info>, Error> {
        let mut infos: Vec<Info> = infos.collect();
        let Wanted { fabric, domain, protocol } = self;
        infos.retain(|info| protocol.number == 0 || info.ep.protocol == protocol.number);
        require_some(&infos, Unmet::Protocol)?;
        infos.retain(|info| info.ep.protocol_version >= protocol.version);
        require_some(&infos, Unmet::ProtocolVersion)?;
        infos.retain(|info| is_met(domain.as_ref(), info.domain.name.as_ref()));
        require_some(&infos, Unmet::DomainName)?;
        infos.retain(|info| is_met(fabric.as_ref(), info.fabric.name.as_ref()));
        require_some(&infos, Unmet::FabricName)?;
        Ok(infos)
    }
}

/// libfabric compares the names of fabrics and domains without regard to case.
fn is_met(asked: Option<&String>, offered: Option<&String>) -> bool {
    asked.is_none_or(|asked| offered.is_some_and(|offered| asked.eq_ignore_ascii_case(offered)))
}

fn require_some(infos: &[Info], unmet: Unmet) -> Result<(), Error> {
    if infos.is_empty() { Err(Misuse::Unmet(unmet).into()) } else { Ok(()) }
}
