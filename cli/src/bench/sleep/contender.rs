//! The providers that are measured side by side.

use std::ffi::OsString;
use std::path::Path;

use homespun::info::PROVIDER_NAME;
use homespun::params;

use crate::bench::survey::MeasuredDomain;
use crate::run::plugin;

/// Restricts libfabric to the listed providers, which are separated by commas (`fi_getinfo(3)`).
const FI_PROVIDER: &str = "FI_PROVIDER";

/// A provider of libfabric, homespun or a rival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SleepContender {
    /// The name in results: `homespun/tcp`, `sockets`.
    pub(super) name: String,
    /// libfabric's name of the provider.
    pub(super) provider: String,
    /// The name of the homespun contender with which this contender is compared. `None` for homespun's
    /// own contenders.
    pub(super) rival_of: Option<String>,
    /// The environment variables of its processes.
    pub(super) environment: Vec<(String, OsString)>,
}

impl SleepContender {
    /// Returns for each domain homespun's plugin, then those of `providers` that use the same medium.
    pub(super) fn all_contenders(
        domains: &[MeasuredDomain],
        providers: &[String],
        directory: &Path,
    ) -> Vec<SleepContender> {
        let mut contenders = Vec::new();
        for &domain in domains {
            let own = SleepContender::new_homespun(domain, directory);
            let rivals = providers.iter().filter(|provider| MeasuredDomain::of_provider(provider) == domain);
            let rivals: Vec<SleepContender> =
                rivals.map(|provider| SleepContender::new_rival(provider, &own)).collect();
            contenders.push(own);
            for rival in rivals {
                if !contenders.contains(&rival) {
                    contenders.push(rival);
                }
            }
        }
        contenders
    }

    fn new_homespun(domain: MeasuredDomain, directory: &Path) -> SleepContender {
        SleepContender {
            name: format!("{PROVIDER_NAME}/{}", domain.name()),
            provider: PROVIDER_NAME.to_owned(),
            rival_of: None,
            environment: vec![
                (plugin::FI_PROVIDER_PATH.to_owned(), directory.into()),
                (FI_PROVIDER.to_owned(), PROVIDER_NAME.into()),
                (params::DOMAIN.env_variable(), domain.name().into()),
            ],
        }
    }

    fn new_rival(provider: &str, of: &SleepContender) -> SleepContender {
        // With this variable libfabric initialises no other provider. A layered provider needs each of
        // its layers in the list.
        let layers = provider.replace(';', ",");
        SleepContender {
            name: provider.to_owned(),
            provider: provider.to_owned(),
            rival_of: Some(of.name.clone()),
            environment: vec![(FI_PROVIDER.to_owned(), layers.into())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_contender_names(domains: &[MeasuredDomain], providers: &[&str]) -> Vec<String> {
        let providers: Vec<String> = providers.iter().map(ToString::to_string).collect();
        let contenders = SleepContender::all_contenders(domains, &providers, Path::new("/plugin"));
        contenders.into_iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn rivals_follow_the_domain_that_they_are_compared_with() {
        let all = ["tcp", "shm", "tcp;ofi_rxm", "tcp"];
        assert_eq!(
            list_contender_names(&MeasuredDomain::ALL, &all),
            ["homespun/shm", "shm", "homespun/tcp", "tcp", "tcp;ofi_rxm"]
        );
        assert_eq!(
            list_contender_names(&[MeasuredDomain::Tcp], &all),
            ["homespun/tcp", "tcp", "tcp;ofi_rxm"]
        );
        assert_eq!(list_contender_names(&[MeasuredDomain::Shm], &[]), ["homespun/shm"]);
    }

    #[test]
    fn layered_rival_lists_each_layer_in_its_environment() {
        let contenders = SleepContender::all_contenders(
            &[MeasuredDomain::Tcp],
            &["tcp;ofi_rxm".into()],
            Path::new("/plugin"),
        );
        assert_eq!(contenders[1].environment, [("FI_PROVIDER".to_owned(), "tcp,ofi_rxm".into())]);
        assert_eq!(contenders[1].rival_of.as_deref(), Some("homespun/tcp"));
        assert_eq!(contenders[0].environment[0], ("FI_PROVIDER_PATH".to_owned(), "/plugin".into()));
    }
}
