//! The parameters that a user may set in the environment: `FI_HOMESPUN_*`.
//!
//! This is the only reader of the environment. Under libfabric the plugin asks its host for the values instead, which
//! also lists them in `fi_info -e`; both come to the same variables.

use std::env;
use std::time::Duration;

use tracing::warn;

/// A parameter that a user may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// The name after `FI_HOMESPUN_`, in lower case, as libfabric's `fi_param_define` wants it.
    pub name: &'static str,
    /// What it does, its unit and its default.
    pub help: &'static str,
}

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

/// All of them.
pub const PARAMS: &[Param] = &[IFACE, CLOSE_LINGER_MS, SHM_ANY_TRACER];

/// The values of all parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// See [`IFACE`].
    pub iface: Option<String>,
    /// See [`CLOSE_LINGER_MS`].
    pub close_linger: Duration,
    /// See [`SHM_ANY_TRACER`].
    pub shm_any_tracer: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params { iface: None, close_linger: Duration::from_millis(2000), shm_any_tracer: false }
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
    /// warning, since it must not keep an application from starting.
    pub fn from_lookup(lookup: impl Fn(&Param) -> Option<String>) -> Params {
        let size = |param: Param| {
            let value = lookup(&param)?;
            let number = value.trim().parse::<u32>();
            if number.is_err() {
                warn!(variable = param.variable(), value, "not a number, and so ignored");
            }
            number.ok()
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
        let defaults = Params::default();
        Params {
            iface: lookup(&IFACE).filter(|name| !name.is_empty()),
            close_linger: size(CLOSE_LINGER_MS)
                .map_or(defaults.close_linger, |ms| Duration::from_millis(ms.into())),
            shm_any_tracer: flag(SHM_ANY_TRACER).unwrap_or(defaults.shm_any_tracer),
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
        assert_eq!(Params::from_lookup(|param| (*param == IFACE).then(String::new)), Params::default());
        let maybe = |param: &Param| (*param == SHM_ANY_TRACER).then(|| "maybe".into());
        assert_eq!(Params::from_lookup(maybe), Params::default());
    }

    #[test]
    fn values_are_taken_by_their_variable() {
        let params = Params::from_lookup(|param| match param.variable().as_str() {
            "FI_HOMESPUN_IFACE" => Some("eth1".into()),
            "FI_HOMESPUN_CLOSE_LINGER_MS" => Some(" 50 ".into()),
            "FI_HOMESPUN_SHM_ANY_TRACER" => Some("Yes".into()),
            other => panic!("nobody knows {other}"),
        });
        let close_linger = Duration::from_millis(50);
        assert_eq!(params, Params { iface: Some("eth1".into()), close_linger, shm_any_tracer: true });
    }
}
