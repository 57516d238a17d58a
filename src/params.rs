//! The parameters that a user may set in the environment: `FI_HOMESPUN_*`.
//!
//! Only this module reads the environment. In the plugin, libfabric provides the values instead, and
//! lists the parameters in `fi_info -e`; they come from the same variables.

use std::env;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use homespun_engine::limits::{
    DEPTH_MAX_OPS, EAGER_MAX_BYTES, RX_DEPTH_DEFAULT_OPS, TX_DEPTH_DEFAULT_OPS,
    UNEXPECTED_BUDGET_DEFAULT_BYTES, UNEXPECTED_BUDGET_MAX_BYTES, UNEXPECTED_BUDGET_MIN_BYTES,
};
use homespun_tcp::limits::ACCEPTED_DEFAULT_LINKS;
use tracing::warn;

use crate::cq::{CQ_DEPTH_DEFAULT_ENTRIES, CQ_DEPTH_MAX_ENTRIES};
pub use crate::ports::PortRange;

/// The largest value of [`EAGER_BYTES`], in bytes. A message beyond a link's credit waits for its
/// receiver anyway.
pub const EAGER_BYTES_MAX: usize = 1 << 30;

/// The largest value of [`TCP_ACCEPTED_LINKS`]: more than a process may have descriptors by default.
pub const TCP_ACCEPTED_LINKS_MAX: usize = 1 << 20;

/// A parameter that a user may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// The name after `FI_HOMESPUN_`, in lower case, as `fi_param_define` of libfabric takes it.
    pub name: &'static str,
    /// Its purpose, unit and default.
    pub help: &'static str,
    /// The default: a value, or a description. The help ends with it.
    pub default: &'static str,
}

/// Defines a parameter. `$help` is without the default, which the macro appends.
macro_rules! param {
    ($name:literal, $help:literal, default: $default:literal) => {
        Param { name: $name, help: concat!($help, " (default: ", $default, ")"), default: $default }
    };
}

/// The only domain that is offered to applications that name none.
pub const DOMAIN: Param = param!(
    "domain",
    "The only domain that applications are offered that name none: auto, shm or tcp. It is offered also to \
     those that ask for FI_REMOTE_COMM, which shm does not have",
    default: "all of them, auto first"
);

/// The interface whose address an endpoint has as its name.
pub const IFACE: Param = param!(
    "iface",
    "Network interface (eth0) whose address an endpoint gives as its own when it is bound to all of them",
    default: "the first one that is up and not loopback, else loopback"
);

/// The range of ports for endpoints whose port is left to the system.
pub const PORTS: Param = param!(
    "ports",
    "Range of ports (7000-7099) that endpoints get whose port is left to the system; where all of them are \
     taken opening an endpoint fails with EADDRINUSE",
    default: "any port"
);

/// The longest time that closing an endpoint waits for its messages to leave.
pub const CLOSE_LINGER_MS: Param = param!(
    "close_linger_ms",
    "Milliseconds that closing an endpoint waits, at most, for what it has accepted for sending to leave",
    default: "2000"
);

/// Whether other processes of this user may read this process's memory if the system requires its
/// consent.
pub const SHM_ANY_TRACER: Param = param!(
    "shm_any_tracer",
    "1 to let every process of this user read this one's memory where kernel.yama.ptrace_scope is 1, so that \
     large messages over shm take one copy; debuggers can then attach too",
    default: "0"
);

/// The number of links that peers may make to an endpoint over TCP.
pub const TCP_ACCEPTED_LINKS: Param = param!(
    "tcp_accepted_links",
    "How many links of peers an endpoint over tcp accepts, passive ones too, each of which takes a \
     descriptor; further peers are refused; at most 1048576",
    default: "16384"
);

/// The length up to which a message is sent before its receiver asks for it.
pub const EAGER_BYTES: Param = param!(
    "eager_bytes",
    "Length in bytes up to which a message is sent before its receiver asks for it, if it is not read \
     from its sender's memory, as over shm long ones are; at most 1073741824",
    default: "262144"
);

/// The memory that the unexpected messages of an endpoint may take.
pub const UNEXPECTED_BYTES: Param = param!(
    "unexpected_bytes",
    "Bytes that an endpoint sets aside, at most, for messages that arrive before a receive for them was \
     posted, where the application does not ask for a number of its own (rx_attr.total_buffered_recv); at \
     least 32768",
    default: "67108864"
);

/// The number of sends that may be outstanding.
pub const TX_SIZE: Param = param!(
    "tx_size",
    "How many sends an endpoint may have outstanding, where the application does not ask for a number of its \
     own (tx_attr.size); at most 1048576",
    default: "65536"
);

/// The number of receives that may be posted.
pub const RX_SIZE: Param = param!(
    "rx_size",
    "How many receives an endpoint may have posted, where the application does not ask for a number of its \
     own (rx_attr.size); at most 1048576",
    default: "65536"
);

/// The number of entries in a completion queue.
pub const CQ_SIZE: Param = param!(
    "cq_size",
    "How many entries a completion queue has, where the application does not ask for a number of its own \
     (cq_attr.size); at most 16777216",
    default: "2048"
);

/// All parameters.
pub const PARAMS: &[Param] = &[
    DOMAIN,
    IFACE,
    PORTS,
    CLOSE_LINGER_MS,
    SHM_ANY_TRACER,
    TCP_ACCEPTED_LINKS,
    EAGER_BYTES,
    UNEXPECTED_BYTES,
    TX_SIZE,
    RX_SIZE,
    CQ_SIZE,
];

/// The values of all parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// See [`DOMAIN`].
    pub domain: Option<String>,
    /// See [`IFACE`].
    pub iface: Option<String>,
    /// See [`PORTS`].
    pub ports: Option<PortRange>,
    /// See [`CLOSE_LINGER_MS`].
    pub close_linger: Duration,
    /// See [`SHM_ANY_TRACER`].
    pub shm_any_tracer: bool,
    /// See [`TCP_ACCEPTED_LINKS`].
    pub tcp_accepted_links: usize,
    /// See [`EAGER_BYTES`].
    pub eager_bytes: usize,
    /// See [`UNEXPECTED_BYTES`].
    pub unexpected_bytes: usize,
    /// See [`TX_SIZE`].
    pub tx_size_ops: usize,
    /// See [`RX_SIZE`].
    pub rx_size_ops: usize,
    /// See [`CQ_SIZE`].
    pub cq_size_entries: usize,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            domain: None,
            iface: None,
            ports: None,
            close_linger: Duration::from_millis(2000),
            shm_any_tracer: false,
            tcp_accepted_links: ACCEPTED_DEFAULT_LINKS,
            eager_bytes: EAGER_MAX_BYTES,
            unexpected_bytes: UNEXPECTED_BUDGET_DEFAULT_BYTES,
            tx_size_ops: TX_DEPTH_DEFAULT_OPS,
            rx_size_ops: RX_DEPTH_DEFAULT_OPS,
            cq_size_entries: CQ_DEPTH_DEFAULT_ENTRIES,
        }
    }
}

impl Param {
    /// Returns the name of the environment variable.
    pub fn env_variable(&self) -> String {
        format!("FI_HOMESPUN_{}", self.name.to_uppercase())
    }

    /// Returns its purpose and unit, without the default.
    pub fn purpose(&self) -> &'static str {
        self.help.rsplit_once(" (default: ").map_or(self.help, |(purpose, _)| purpose)
    }
}

impl Params {
    /// Takes the values from the environment.
    pub fn from_env() -> Params {
        Params::from_lookup(|param| env::var(param.env_variable()).ok())
    }

    /// Takes the values from `lookup`. A malformed value causes a warning and counts as not set, since it
    /// must not keep an application from starting. A number out of range is clamped to the range.
    pub fn from_lookup(lookup: impl Fn(&Param) -> Option<String>) -> Params {
        fn parse_or_warn<T: FromStr>(param: Param, value: &str, kind: &str) -> Option<T> {
            let parsed = value.trim().parse().ok();
            if parsed.is_none() {
                warn!(variable = param.env_variable(), value, "not {kind}, and so ignored");
            }
            parsed
        }
        let millis = |param: Param| parse_or_warn::<u32>(param, &lookup(&param)?, "a number");
        let number = |param: Param, range: RangeInclusive<usize>| {
            let asked = parse_or_warn::<usize>(param, &lookup(&param)?, "a number")?;
            let taken = asked.clamp(*range.start(), *range.end());
            if taken != asked {
                warn!(
                    variable = param.env_variable(),
                    asked, taken, "out of range, and so taken as the nearest"
                );
            }
            Some(taken)
        };
        let flag = |param: Param| {
            let value = lookup(&param)?;
            let flag = match value.trim().to_lowercase().as_str() {
                "1" | "yes" | "true" | "on" => Some(true),
                "0" | "no" | "false" | "off" => Some(false),
                _ => None,
            };
            if flag.is_none() {
                warn!(variable = param.env_variable(), value, "neither 1 nor 0, and so ignored");
            }
            flag
        };
        let name = |param: Param| lookup(&param).filter(|name| !name.is_empty());
        let defaults = Params::default();
        Params {
            domain: name(DOMAIN),
            iface: name(IFACE),
            ports: name(PORTS).and_then(|value| parse_or_warn(PORTS, &value, "a range of ports")),
            close_linger: millis(CLOSE_LINGER_MS)
                .map_or(defaults.close_linger, |ms| Duration::from_millis(ms.into())),
            shm_any_tracer: flag(SHM_ANY_TRACER).unwrap_or(defaults.shm_any_tracer),
            tcp_accepted_links: number(TCP_ACCEPTED_LINKS, 1..=TCP_ACCEPTED_LINKS_MAX)
                .unwrap_or(defaults.tcp_accepted_links),
            eager_bytes: number(EAGER_BYTES, 0..=EAGER_BYTES_MAX).unwrap_or(defaults.eager_bytes),
            unexpected_bytes: number(
                UNEXPECTED_BYTES,
                UNEXPECTED_BUDGET_MIN_BYTES..=UNEXPECTED_BUDGET_MAX_BYTES,
            )
            .unwrap_or(defaults.unexpected_bytes),
            tx_size_ops: number(TX_SIZE, 1..=DEPTH_MAX_OPS).unwrap_or(defaults.tx_size_ops),
            rx_size_ops: number(RX_SIZE, 1..=DEPTH_MAX_OPS).unwrap_or(defaults.rx_size_ops),
            cq_size_entries: number(CQ_SIZE, 1..=CQ_DEPTH_MAX_ENTRIES).unwrap_or(defaults.cq_size_entries),
        }
    }

    /// Returns the value of a parameter as a text; if it is not set, its [`default`](Param::default).
    ///
    /// ```
    /// use homespun::params::{PARAMS, Params};
    ///
    /// let params = Params { shm_any_tracer: true, ..Params::default() };
    /// for param in PARAMS {
    ///     println!("{}={}", param.env_variable(), params.value(param));
    /// }
    /// # assert_eq!(params.value(&homespun::params::SHM_ANY_TRACER), "1");
    /// # assert_eq!(params.value(&homespun::params::PORTS), "any port");
    /// ```
    pub fn value(&self, param: &Param) -> String {
        let set = match *param {
            DOMAIN => self.domain.clone(),
            IFACE => self.iface.clone(),
            PORTS => self.ports.map(|ports| ports.to_string()),
            CLOSE_LINGER_MS => Some(self.close_linger.as_millis().to_string()),
            SHM_ANY_TRACER => Some(u8::from(self.shm_any_tracer).to_string()),
            TCP_ACCEPTED_LINKS => Some(self.tcp_accepted_links.to_string()),
            EAGER_BYTES => Some(self.eager_bytes.to_string()),
            UNEXPECTED_BYTES => Some(self.unexpected_bytes.to_string()),
            TX_SIZE => Some(self.tx_size_ops.to_string()),
            RX_SIZE => Some(self.rx_size_ops.to_string()),
            CQ_SIZE => Some(self.cq_size_entries.to_string()),
            _ => None,
        };
        set.unwrap_or_else(|| param.default.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_or_invalid_parameter_has_its_default() {
        assert_eq!(Params::from_lookup(|_| None), Params::default());
        assert_eq!(
            Params::from_lookup(|param| (*param == CLOSE_LINGER_MS).then(|| "soon".into())),
            Params::default()
        );
        let reversed = |param: &Param| (*param == PORTS).then(|| "7099-7000".into());
        assert_eq!(Params::from_lookup(reversed), Params::default());
        for name in [DOMAIN, IFACE, PORTS] {
            assert_eq!(Params::from_lookup(|param| (*param == name).then(String::new)), Params::default());
        }
        let maybe = |param: &Param| (*param == SHM_ANY_TRACER).then(|| "maybe".into());
        assert_eq!(Params::from_lookup(maybe), Params::default());
        let negative = |param: &Param| (*param == UNEXPECTED_BYTES).then(|| "-1".into());
        assert_eq!(Params::from_lookup(negative), Params::default());
    }

    #[test]
    fn out_of_range_number_is_clamped() {
        let with = |set: Param, value: usize| {
            Params::from_lookup(|param| (*param == set).then(|| value.to_string())).value(&set)
        };
        assert_eq!(with(UNEXPECTED_BYTES, 5 << 30), (5usize << 30).to_string(), "more than fits in 32 bits");
        assert_eq!(with(EAGER_BYTES, 0), "0");
        for (param, min, max) in [
            (EAGER_BYTES, 0, EAGER_BYTES_MAX),
            (TCP_ACCEPTED_LINKS, 1, TCP_ACCEPTED_LINKS_MAX),
            (UNEXPECTED_BYTES, UNEXPECTED_BUDGET_MIN_BYTES, UNEXPECTED_BUDGET_MAX_BYTES),
            (TX_SIZE, 1, DEPTH_MAX_OPS),
            (RX_SIZE, 1, DEPTH_MAX_OPS),
            (CQ_SIZE, 1, CQ_DEPTH_MAX_ENTRIES),
        ] {
            assert_eq!(with(param, 0), min.to_string(), "{}", param.name);
            assert_eq!(with(param, usize::MAX), max.to_string(), "{}", param.name);
        }
    }

    #[test]
    fn parameter_help_names_the_limits_in_force() {
        for param in PARAMS {
            assert_eq!(Params::default().value(param), param.default, "{}", param.name);
            assert_eq!(format!("{} (default: {})", param.purpose(), param.default), param.help);
        }
        for (param, limit) in [
            (EAGER_BYTES, EAGER_BYTES_MAX),
            (TCP_ACCEPTED_LINKS, TCP_ACCEPTED_LINKS_MAX),
            (UNEXPECTED_BYTES, UNEXPECTED_BUDGET_MIN_BYTES),
            (TX_SIZE, DEPTH_MAX_OPS),
            (RX_SIZE, DEPTH_MAX_OPS),
            (CQ_SIZE, CQ_DEPTH_MAX_ENTRIES),
        ] {
            assert!(param.purpose().ends_with(&format!(" {limit}")), "{}", param.name);
        }
    }

    #[test]
    fn manual_lists_every_parameter_with_its_default() {
        let manual = include_str!("../docs/programs.md");
        let rows: Vec<Vec<&str>> = manual
            .lines()
            .filter(|line| line.starts_with("| `FI_HOMESPUN_"))
            .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        let listed: Vec<(&str, &str)> = rows.iter().map(|row| (row[0].trim_matches('`'), row[2])).collect();
        let variables: Vec<String> = PARAMS.iter().map(Param::env_variable).collect();
        let there: Vec<(&str, &str)> =
            variables.iter().map(String::as_str).zip(PARAMS.iter().map(|param| param.default)).collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn parameters_are_set_by_their_environment_variable() {
        let params = Params::from_lookup(|param| match param.env_variable().as_str() {
            "FI_HOMESPUN_DOMAIN" => Some("shm".into()),
            "FI_HOMESPUN_IFACE" => Some("eth1".into()),
            "FI_HOMESPUN_PORTS" => Some("7000-7099".into()),
            "FI_HOMESPUN_CLOSE_LINGER_MS" => Some(" 50 ".into()),
            "FI_HOMESPUN_SHM_ANY_TRACER" => Some("Yes".into()),
            "FI_HOMESPUN_TCP_ACCEPTED_LINKS" => Some("40".into()),
            "FI_HOMESPUN_EAGER_BYTES" => Some("4096".into()),
            "FI_HOMESPUN_UNEXPECTED_BYTES" => Some("2097152".into()),
            "FI_HOMESPUN_TX_SIZE" => Some("10".into()),
            "FI_HOMESPUN_RX_SIZE" => Some("20".into()),
            "FI_HOMESPUN_CQ_SIZE" => Some("30".into()),
            other => panic!("unknown parameter {other}"),
        });
        let close_linger = Duration::from_millis(50);
        assert_eq!(
            params,
            Params {
                domain: Some("shm".into()),
                iface: Some("eth1".into()),
                ports: PortRange::new(7000..=7099),
                close_linger,
                shm_any_tracer: true,
                tcp_accepted_links: 40,
                eager_bytes: 4096,
                unexpected_bytes: 2 << 20,
                tx_size_ops: 10,
                rx_size_ops: 20,
                cq_size_entries: 30,
            }
        );
    }
}
