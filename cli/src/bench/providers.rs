//! The providers of libfabric named on the command line.

use std::str::FromStr;

use homespun::info::PROVIDER_NAME;

/// Names of providers of libfabric, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Providers(Vec<String>);

impl Providers {
    /// The names, without duplicates.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl FromStr for Providers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',') {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-;".contains(letter);
            if name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
                return Err(format!(
                    "{name:?} is not the name of a provider, such as shm, tcp or tcp;ofi_rxm"
                ));
            }
            if name == PROVIDER_NAME {
                return Err(format!(
                    "{PROVIDER_NAME} takes part anyway; name the providers to compare it with"
                ));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(Providers(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_listed_once_each() {
        let read = |text: &str| text.parse::<Providers>().map(|Providers(names)| names);
        assert_eq!(read("shm,tcp;ofi_rxm,shm").unwrap(), ["shm", "tcp;ofi_rxm"]);
        for text in ["", "shm,", "-p", "a b", "../x", "homespun"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
