//! The parameters that a user may set in the environment: `FI_HOMESPUN_*`.
//!
//! This is the only reader of the environment. Under libfabric the plugin asks its host for the values instead, which
//! also lists them in `fi_info -e`; both come to the same variables.

use std::env;
use std::str::FromStr;
use std::time::Duration;

use homespun_engine::limits::{
    UNEXPECTED_BUDGET_DEFAULT_BYTES, UNEXPECTED_BUDGET_MAX_BYTES, UNEXPECTED_BUDGET_MIN_BYTES,
};
use tracing::warn;

/// A parameter that a user may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// The name after `FI_HOMESPUN_`, in lower case, as libfabric's `fi_param_define` wants it.
    pub name: &'static str,
    /// What it does, its unit and its default.
    pub help: &'static str,
}

/// The only domain that is offered.
pub const DOMAIN: Param = Param {
    name: "domain",
    help: "The only domain that applications are offered: shm or tcp (default: all of them). It is offered also to \
           those that ask for FI_REMOTE_COMM, which shm does not have",
};

/// The interface whose address an endpoint gives as its name.
pub const IFACE: Param = Param {
    name: "iface",
    help: "Network interface (eth0) whose address an endpoint gives as its own when it is bound to all of them \
           (default: the first one that is up and not loopback, else loopback)",
};

/// How long closing an endpoint waits.
pub const CLOSE_LINGER_MS: Param = Param {
    name: "close_linger_ms",
    help: "Milliseconds that closing an endpoint waits, at most, for what it has accepted for sending to leave \
           (default: 2000)",
};

/// Whether other processes of this user may read this one's memory where the system asks for consent.
pub const SHM_ANY_TRACER: Param = Param {
    name: "shm_any_tracer",
    help: "1 to let every process of this user read this one's memory where kernel.yama.ptrace_scope is 1, so that \
           large messages over shm take one copy; debuggers can then attach too (default: 0)",
};

/// How much memory the unexpected messages of an endpoint may take.
pub const UNEXPECTED_BYTES: Param = Param {
    name: "unexpected_bytes",
    help: "Bytes that an endpoint sets aside, at most, for messages that arrive before a receive for them was posted, \
           where the application does not ask for a number of its own (rx_attr.total_buffered_recv); at least 32768 \
           (default: 67108864)",
};

/// All of them.
pub const PARAMS: &[Param] = &[DOMAIN, IFACE, CLOSE_LINGER_MS, SHM_ANY_TRACER, UNEXPECTED_BYTES];

/// The values of all parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// See [`DOMAIN`].
    pub domain: Option<String>,
    /// See [`IFACE`].
    pub iface: Option<String>,
    /// See [`CLOSE_LINGER_MS`].
    pub close_linger: Duration,
    /// See [`SHM_ANY_TRACER`].
    pub shm_any_tracer: bool,
    /// See [`UNEXPECTED_BYTES`].
    pub unexpected_bytes: usize,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            domain: None,
            iface: None,
            close_linger: Duration::from_millis(2000),
            shm_any_tracer: false,
            unexpected_bytes: UNEXPECTED_BUDGET_DEFAULT_BYTES,
        }
    }
}

impl Param {
    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("FI_HOMESPUN_{}", self.name.to_uppercase())
    }
}

impl Params {
    /// Takes the values from the environment.
    pub fn from_env() -> Params {
        Params::from_lookup(|param| env::var(param.variable()).ok())
    }

    /// Takes the values from wherever `lookup` finds them. A value that is not of its kind counts as not set, with a
    /// warning, since it must not keep an application from starting. A number that is out of range counts as the nearest
    /// one that is not.
    pub fn from_lookup(lookup: impl Fn(&Param) -> Option<String>) -> Params {
        fn parsed<T: FromStr>(param: Param, value: &str) -> Option<T> {
            let number = value.trim().parse().ok();
            if number.is_none() {
                warn!(variable = param.variable(), value, "not a number, and so ignored");
            }
            number
        }
        let millis = |param: Param| parsed::<u32>(param, &lookup(&param)?);
        let bytes = |param: Param, min_bytes: usize, max_bytes: usize| {
            let asked = parsed::<usize>(param, &lookup(&param)?)?;
            let bytes = asked.clamp(min_bytes, max_bytes);
            if bytes != asked {
                warn!(variable = param.variable(), asked, bytes, "out of range, and so taken as the nearest");
            }
            Some(bytes)
        };
        let flag = |param: Param| {
            let value = lookup(&param)?;
            let flag = match value.trim().to_lowercase().as_str() {
                "1" | "yes" | "true" | "on" => Some(true),
                "0" | "no" | "false" | "off" => Some(false),
                _ => None,
            };
            if flag.is_none() {
                warn!(variable = param.variable(), value, "neither 1 nor 0, and so ignored");
            }
            flag
        };
        let name = |param: Param| lookup(&param).filter(|name| !name.is_empty());
        let defaults = Params::default();
        Params {
            domain: name(DOMAIN),
            iface: name(IFACE),
            close_linger: millis(CLOSE_LINGER_MS)
                .map_or(defaults.close_linger, |ms| Duration::from_millis(ms.into())),
            shm_any_tracer: flag(SHM_ANY_TRACER).unwrap_or(defaults.shm_any_tracer),
            unexpected_bytes: bytes(
                UNEXPECTED_BYTES,
                UNEXPECTED_BUDGET_MIN_BYTES,
                UNEXPECTED_BUDGET_MAX_BYTES,
            )
            .unwrap_or(defaults.unexpected_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_or_makes_no_sense_has_its_default() {
        assert_eq!(Params::from_lookup(|_| None), Params::default());
        assert_eq!(
            Params::from_lookup(|param| (*param == CLOSE_LINGER_MS).then(|| "soon".into())),
            Params::default()
        );
        for name in [DOMAIN, IFACE] {
            assert_eq!(Params::from_lookup(|param| (*param == name).then(String::new)), Params::default());
        }
        let maybe = |param: &Param| (*param == SHM_ANY_TRACER).then(|| "maybe".into());
        assert_eq!(Params::from_lookup(maybe), Params::default());
        let negative = |param: &Param| (*param == UNEXPECTED_BYTES).then(|| "-1".into());
        assert_eq!(Params::from_lookup(negative), Params::default());
    }

    #[test]
    fn a_budget_out_of_range_is_the_nearest_within() {
        let with = |value: usize| {
            Params::from_lookup(|param| (*param == UNEXPECTED_BYTES).then(|| value.to_string()))
                .unexpected_bytes
        };
        assert_eq!(with(0), UNEXPECTED_BUDGET_MIN_BYTES);
        assert_eq!(with(5 << 30), 5 << 30, "more than fits in 32 bits");
        assert_eq!(with(usize::MAX), UNEXPECTED_BUDGET_MAX_BYTES);
    }

    #[test]
    fn the_help_names_the_numbers_that_are_in_force() {
        for bytes in [UNEXPECTED_BUDGET_MIN_BYTES, UNEXPECTED_BUDGET_DEFAULT_BYTES] {
            assert!(UNEXPECTED_BYTES.help.contains(&format!(" {bytes}")), "{bytes}");
        }
    }

    #[test]
    fn values_are_taken_by_their_variable() {
        let params = Params::from_lookup(|param| match param.variable().as_str() {
            "FI_HOMESPUN_DOMAIN" => Some("shm".into()),
            "FI_HOMESPUN_IFACE" => Some("eth1".into()),
            "FI_HOMESPUN_CLOSE_LINGER_MS" => Some(" 50 ".into()),
            "FI_HOMESPUN_SHM_ANY_TRACER" => Some("Yes".into()),
            "FI_HOMESPUN_UNEXPECTED_BYTES" => Some("2097152".into()),
            other => panic!("nobody knows {other}"),
        });
        let close_linger = Duration::from_millis(50);
        assert_eq!(
            params,
            Params {
                domain: Some("shm".into()),
                iface: Some("eth1".into()),
                close_linger,
                shm_any_tracer: true,
                unexpected_bytes: 2 << 20
            }
        );
    }
}
