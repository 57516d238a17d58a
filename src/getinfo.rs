//! `fi_getinfo(3)`: finds the domains, endpoint types and addresses that satisfy the hints.
//!
//! [`negotiate`] compares the hints with the capabilities and limits of a provider, and makes an offer.
//! [`resolve`] finds pairs of source and destination address. An [`Info`] combines an offer with a pair: the
//! provider supports the format of the pair, and reaches its destination.

mod negotiate;

use homespun_engine::error::{Argument, DomainNameSource, Error, Misuse, NoDomain, Unmet};
use homespun_engine::flags::{Caps, InfoFlags, Mode};
use homespun_engine::transport::ProviderAttr;
use tracing::info;

pub(crate) use self::negotiate::{grant_key_size_bytes, grant_rx_attr};
use crate::info::{EndpointType, FABRIC_NAME, FabricAttr, Info, PROVIDER_NAME, PROVIDER_VERSION, TxAttr};
use crate::params::Params;
use crate::resolve::{self, AddressPair, resolve_address_pairs};

/// Implements [`getinfo`](crate::getinfo()) over these providers, best first. If the user prefers a
/// domain (`only_domain`), no other domain is offered, unless the hints name another domain.
pub(crate) fn getinfo_from_providers(
    providers: &[ProviderAttr],
    only_domain: Option<&str>,
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
    hints: Option<&Info>,
) -> Result<Vec<Info>, Error> {
    let unspecified = Info::default();
    let hints = hints.unwrap_or(&unspecified);
    if flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        return Ok(vec![info_for_prov_attr_only(hints)]);
    }

    let mut offers = collect_offers(providers, only_domain, &negotiate::candidate_ep_types(hints)?, hints)?;
    if negotiate::names_rx_cq_data(hints) {
        add_offers_with_rx_cq_data(&mut offers);
    }
    let ends = resolve_address_pairs(node, service, flags, hints)?;
    let mut infos = Vec::new();
    let mut unmet = Unmet::DomainAddressFormat;
    for offer in &offers {
        let (reached, others): (Vec<AddressPair>, Vec<AddressPair>) = ends.iter().partition(|ends| {
            offer.provider.remote || ends.dest.is_none_or(resolve::is_address_of_this_host)
        });
        infos.extend(infos_with_addresses(offer, &reached));
        if reached.is_empty() && !others.is_empty() {
            unmet = Unmet::LocalDestination;
        }
    }
    if infos.is_empty() {
        return Err(Misuse::Unmet(unmet).into());
    }
    Ok(infos)
}

/// Returns the attributes of an endpoint that is opened with `info`, with unspecified fields filled in.
/// `info` is a result of [`getinfo`](crate::fabric::getinfo) that the application may have changed.
///
/// # Errors
///
/// [`Misuse::Invalid`] if `info` asks for more than the provider has.
pub(crate) fn grant_info(provider: &ProviderAttr, info: &Info) -> Result<Info, Error> {
    let mut wanted = info.clone();
    // The application may have removed capabilities from the endpoint but not from its transmit and receive
    // sides, so only `caps` of the endpoint counts.
    wanted.tx.caps = Caps::empty();
    wanted.rx.caps = Caps::empty();
    wanted.fabric = FabricAttr::default();
    let refuse = |refusal| match refusal {
        Misuse::Unmet(unmet) => Misuse::Invalid(Argument::NotOffered(unmet)),
        other => other,
    };
    let ep_types = negotiate::candidate_ep_types(&wanted).map_err(refuse)?;
    let ep_type = ep_types.first().copied().unwrap_or(EndpointType::Rdm);
    let mut granted = negotiate::make_offer(provider, ep_type, &wanted).map_err(refuse)?;
    if (info.mode | info.rx.mode).contains(Mode::RX_CQ_DATA) {
        granted = negotiate::with_rx_cq_data(&granted).map_err(refuse)?;
    }
    Ok(Info {
        addr_format: info.addr_format,
        src_addr: info.src_addr,
        dest_addr: info.dest_addr,
        fabric: info.fabric.clone(),
        ..granted
    })
}

/// Returns the attributes granted to a transmit context that asks for `attr`.
///
/// # Errors
///
/// [`Misuse::Unmet`] if `attr` asks for more than the provider has.
pub(crate) fn grant_tx_attr(provider: &ProviderAttr, attr: &TxAttr) -> Result<TxAttr, Error> {
    // Only `caps` restricts the offer, as for an endpoint: `tx.caps` would keep out what the offer adds.
    let tx = TxAttr { caps: Caps::empty(), ..attr.clone() };
    let wanted = Info { caps: attr.caps, tx, ..Info::default() };
    Ok(negotiate::make_offer(provider, EndpointType::Rdm, &wanted)?.tx)
}

/// Returns the hints. Queue sizes and the memory for unexpected messages are taken from the user's
/// parameters where the hints have 0.
pub(crate) fn hints_with_param_defaults(hints: &Info, params: &Params) -> Info {
    let mut hints = hints.clone();
    let Info { tx, rx, .. } = &mut hints;
    for (asked, preferred) in [
        (&mut tx.size_ops, params.tx_size_ops),
        (&mut rx.size_ops, params.rx_size_ops),
        (&mut rx.total_buffered_recv_bytes, params.unexpected_bytes),
    ] {
        if *asked == 0 {
            *asked = preferred;
        }
    }
    hints
}

/// Returns the result for [`InfoFlags::PROV_ATTR_ONLY`].
fn info_for_prov_attr_only(hints: &Info) -> Info {
    let fabric = FabricAttr {
        name: Some(FABRIC_NAME.into()),
        prov_name: Some(PROVIDER_NAME.into()),
        prov_version: PROVIDER_VERSION,
        api_version: hints.fabric.api_version,
    };
    Info { fabric, ..Info::default() }
}

/// The offer of a provider, still without addresses.
struct Offer<'a> {
    provider: &'a ProviderAttr,
    info: Info,
}

/// Collects the offers of these providers for these endpoint types.
///
/// # Errors
///
/// [`Misuse::Unmet`] if there is no offer. The error names the hint that the first allowed provider refuses
/// for the first type.
fn collect_offers<'a>(
    providers: &'a [ProviderAttr],
    only_domain: Option<&str>,
    ep_types: &[EndpointType],
    hints: &Info,
) -> Result<Vec<Offer<'a>>, Error> {
    // libfabric, too, compares names of domains without regard to case.
    let is_named = |provider: &ProviderAttr, name: Option<&str>| {
        name.is_none_or(|name| name.eq_ignore_ascii_case(&provider.domain))
    };
    let asked = hints.domain.name.as_deref();
    let mut offers = Vec::new();
    let mut reason = Misuse::Unmet(Unmet::DomainName);
    // If the hints name another domain, the user's domain does not count.
    let only_domain = only_domain.filter(|only| asked.is_none_or(|asked| asked.eq_ignore_ascii_case(only)));
    for (named, source) in [(only_domain, DomainNameSource::Environment), (asked, DomainNameSource::Hints)] {
        if let Some(name) = named
            && !providers.iter().any(|provider| is_named(provider, named))
        {
            return Err(no_domain(name, source, providers.iter().map(|provider| &*provider.domain)));
        }
    }
    let of_types = ep_types.iter().rev();
    for (&ep_type, provider) in of_types.flat_map(|of| providers.iter().rev().map(move |by| (of, by))) {
        if !is_named(provider, only_domain) || !is_named(provider, asked) {
            continue;
        }
        let offer = match only_domain {
            Some(_) => {
                negotiate::make_offer(provider, ep_type, &hints_without_unmet_remote_comm(provider, hints))
            }
            None => negotiate::make_offer(provider, ep_type, hints),
        };
        match offer {
            Ok(info) => offers.push(Offer { provider, info }),
            Err(refusal) => {
                info!(domain = provider.domain, ?ep_type, reason = %refusal, "the hints are refused");
                reason = refusal;
            }
        }
    }
    if offers.is_empty() {
        return Err(reason.into());
    }
    offers.reverse();
    Ok(offers)
}

/// Returns the error for a name that none of the `available` domains has.
pub(crate) fn no_domain<'a>(
    name: &str,
    source: DomainNameSource,
    available: impl Iterator<Item = &'a str>,
) -> Error {
    let available = available.map(str::to_owned).collect();
    Misuse::NoDomain(Box::new(NoDomain { name: name.to_owned(), source, available })).into()
}

/// Adds to the offers, after all others, the same offers with [`Mode::RX_CQ_DATA`], where the mode has an
/// effect. An application that takes the first info gets no mode.
fn add_offers_with_rx_cq_data(offers: &mut Vec<Offer<'_>>) {
    let targets = offers.iter().filter(|offer| negotiate::is_target_of_writes(offer.info.caps));
    let with_mode = targets.filter_map(|offer| {
        let info = negotiate::with_rx_cq_data(&offer.info).ok()?;
        Some(Offer { provider: offer.provider, info })
    });
    let with_mode: Vec<Offer<'_>> = with_mode.collect();
    offers.extend(with_mode);
}

/// Returns the hints, but without `FI_REMOTE_COMM` if the provider does not reach other hosts.
///
/// Parallel programs ask for `FI_REMOTE_COMM` without knowing where their peers are. A user who restricts
/// such a program to one domain knows where the peers are.
fn hints_without_unmet_remote_comm(provider: &ProviderAttr, hints: &Info) -> Info {
    let mut hints = hints.clone();
    if !provider.remote {
        for caps in [&mut hints.caps, &mut hints.tx.caps, &mut hints.rx.caps, &mut hints.domain.caps] {
            caps.remove(Caps::REMOTE_COMM);
        }
    }
    hints
}

/// For each pair of addresses whose format the provider supports, returns the offer with these addresses.
/// The infos are in the provider's order of formats.
fn infos_with_addresses(offer: &Offer<'_>, ends: &[AddressPair]) -> impl Iterator<Item = Info> {
    offer.provider.formats.iter().flat_map(move |&format| {
        ends.iter().filter(move |ends| ends.format == format).map(move |ends| Info {
            addr_format: Some(ends.format),
            src_addr: ends.src,
            dest_addr: ends.dest,
            ..offer.info.clone()
        })
    })
}

#[cfg(test)]
mod tests;
