//! The parameters that a user may set in the environment: `FI_HOMESPUN_*`.
//!
//! In this crate only this module reads the environment. In the plugin, libfabric reads the same variables
//! and lists the parameters in `fi_info -e`.

mod offered_name;
mod problem;

use std::cell::RefCell;
use std::env;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use homespun_engine::limits::{
    DEPTH_MAX_OPS, EAGER_MAX_BYTES, RX_DEPTH_DEFAULT_OPS, TX_DEPTH_DEFAULT_OPS,
    UNEXPECTED_BUDGET_DEFAULT_BYTES, UNEXPECTED_BUDGET_MAX_BYTES, UNEXPECTED_BUDGET_MIN_BYTES,
};
use homespun_tcp::limits::ACCEPTED_DEFAULT_LINKS;
#[doc(inline)]
pub use homespun_tcp::{InterfaceSelector, InterfaceSelectorError};

pub use self::offered_name::{OfferedName, OfferedNameError};
pub use self::problem::{ParamProblem, ParamProblemKind};
use crate::cq::{CQ_DEPTH_DEFAULT_ENTRIES, CQ_DEPTH_MAX_ENTRIES};
pub use crate::ports::PortRange;

/// The largest value of [`EAGER_BYTES`], in bytes. Whatever the value, a message that exceeds the link's
/// credit waits for its receiver.
pub const EAGER_BYTES_MAX: usize = 1 << 30;

/// The largest value of [`TCP_ACCEPTED_LINKS`]. By default a process may not have that many descriptors.
pub const TCP_ACCEPTED_LINKS_MAX: usize = 1 << 20;

/// A parameter that a user may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// The name after `FI_HOMESPUN_`, in lower case, as `fi_param_define` of libfabric takes it.
    pub name: &'static str,
    /// The purpose, unit and default of the parameter.
    pub help: &'static str,
    /// The default: a value, or a description. The help ends with it.
    pub default: &'static str,
}

/// Defines a parameter. The macro appends the default to `$help`.
macro_rules! param {
    ($name:literal, $help:literal, default: $default:literal) => {
        Param { name: $name, help: concat!($help, " (default: ", $default, ")"), default: $default }
    };
}

/// The only domain that is offered to applications that name no domain.
pub const DOMAIN: Param = param!(
    "domain",
    "The only domain to offer to applications that name none: auto, shm or tcp. They get it even if they ask \
     for FI_REMOTE_COMM, which shm does not have",
    default: "all of them, auto first"
);

/// The name under which libfabric offers homespun.
pub const AS: Param = param!(
    "as",
    "Name under which libfabric offers homespun to C programs: homespun, tcp or sockets. As tcp or sockets \
     it replaces libfabric's own provider, for programs that accept only names they know; all processes of \
     such a program must run homespun",
    default: "homespun"
);

/// The interfaces whose addresses peers get from an endpoint on all interfaces.
pub const IFACE: Param = param!(
    "iface",
    "Network interfaces whose addresses endpoints give to peers if they are bound to all interfaces: names \
     (eth0) and networks (10.0.0.0/8), separated by commas, the best first; or, after ^, the interfaces to \
     leave out (^docker0). If none is left, homespun offers nothing",
    default: "the one with the default route, else the first that is up, where those of containers, virtual \
     machines and VPNs come last"
);

/// The range of ports for endpoints that request no port.
pub const PORTS: Param = param!(
    "ports",
    "Range of ports (7000-7099) for endpoints that request no port; if all of them are in use, opening an \
     endpoint fails with EADDRINUSE",
    default: "any port"
);

/// The longest time that closing an endpoint waits until its accepted sends have left.
pub const CLOSE_LINGER_MS: Param = param!(
    "close_linger_ms",
    "Milliseconds that closing an endpoint waits, at most, until its accepted sends have left",
    default: "2000"
);

/// The longest time that a peer's host may be silent, and that a request for a connection waits.
pub const CONNECT_TIMEOUT_MS: Param = param!(
    "connect_timeout_ms",
    "Milliseconds that a peer's host may leave all tries to connect over TCP unanswered, and, if this is \
     set, that a request for a connection (fi_connect) waits, at most, until it is accepted or rejected; \
     then they fail with ETIMEDOUT; 0 for no limit of homespun's own",
    default: "15000 for the host, no limit for a request"
);

/// How long a peer's host may leave all tries to connect unanswered, by default.
const REACH_TIMEOUT: Duration = Duration::from_secs(15);

/// Whether other processes of the same user may read this process's memory, if the system asks for consent.
pub const SHM_ANY_TRACER: Param = param!(
    "shm_any_tracer",
    "1 to let every process of this user read this one's memory even if kernel.yama.ptrace_scope is 1, so \
     that large messages over shm and to near peers of auto can take one copy; debuggers can then attach too",
    default: "0"
);

/// The number of links that peers may make to an endpoint over TCP.
pub const TCP_ACCEPTED_LINKS: Param = param!(
    "tcp_accepted_links",
    "How many links from peers an active or passive endpoint over tcp or auto accepts over TCP; each link \
     takes a descriptor, so RLIMIT_NOFILE may allow fewer; one host may have 75 percent of them; a further \
     peer takes the place of one whose address was never confirmed, or is refused; at most 1048576",
    default: "16384"
);

/// The length up to which a message is sent without a request of its receiver.
pub const EAGER_BYTES: Param = param!(
    "eager_bytes",
    "Length in bytes up to which a message is sent before its receiver asks for it. Does not apply to long \
     messages over shm and to near peers of auto, which the receiver reads from the sender's memory; at most \
     1073741824",
    default: "262144"
);

/// The memory that the unexpected messages of an endpoint may take.
pub const UNEXPECTED_BYTES: Param = param!(
    "unexpected_bytes",
    "Bytes that an endpoint sets aside, at most, for messages that arrive before their receive is posted, \
     unless the application asks for a number (rx_attr.total_buffered_recv); at least 32768",
    default: "67108864"
);

/// The number of sends that may be outstanding.
pub const TX_SIZE: Param = param!(
    "tx_size",
    "How many sends an endpoint may have outstanding, unless the application asks for a number \
     (tx_attr.size); at most 1048576",
    default: "65536"
);

/// The number of receives that may be posted.
pub const RX_SIZE: Param = param!(
    "rx_size",
    "How many receives an endpoint may have posted, unless the application asks for a number (rx_attr.size); \
     at most 1048576",
    default: "65536"
);

/// The number of entries in a completion queue.
pub const CQ_SIZE: Param = param!(
    "cq_size",
    "How many entries a completion queue has, unless the application asks for a number (cq_attr.size); at \
     most 16777216",
    default: "2048"
);

/// All parameters.
pub const PARAMS: &[Param] = &[
    DOMAIN,
    AS,
    IFACE,
    PORTS,
    CLOSE_LINGER_MS,
    CONNECT_TIMEOUT_MS,
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
    /// See [`AS`].
    pub offered_name: OfferedName,
    /// See [`IFACE`].
    pub iface: Option<InterfaceSelector>,
    /// See [`PORTS`].
    pub ports: Option<PortRange>,
    /// See [`CLOSE_LINGER_MS`].
    pub close_linger: Duration,
    /// See [`CONNECT_TIMEOUT_MS`]: the limit of a request for a connection. `None` for no limit.
    pub connect_timeout: Option<Duration>,
    /// See [`CONNECT_TIMEOUT_MS`]: the limit of a silent host. `None` for the limit of the system.
    pub reach_timeout: Option<Duration>,
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
            offered_name: OfferedName::Homespun,
            iface: None,
            ports: None,
            close_linger: Duration::from_millis(2000),
            connect_timeout: None,
            reach_timeout: Some(REACH_TIMEOUT),
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
        format!("{PREFIX}{}", self.name.to_uppercase())
    }

    /// Returns the purpose and the unit of the parameter, without its default.
    pub fn purpose(&self) -> &'static str {
        self.help.rsplit_once(" (default: ").map_or(self.help, |(purpose, _)| purpose)
    }
}

impl Params {
    /// Reads the values from the environment. Warns of each problem: an unknown variable `FI_HOMESPUN_*`, or
    /// a value that is malformed or out of range.
    pub fn from_env() -> Params {
        let (params, problems) = Params::check_env();
        problem::warn_once(&problems);
        params
    }

    /// As [`from_env`](Self::from_env), but returns the problems instead of warning. Problems of values come
    /// first, then unknown variables.
    pub fn check_env() -> (Params, Vec<ParamProblem>) {
        let lookup = |param: &Param| Some(env::var_os(param.env_variable())?.to_string_lossy().into_owned());
        let (params, mut problems) = Params::check_lookup(lookup);
        problems.extend(find_unknown_variables());
        (params, problems)
    }

    /// Reads the values by `lookup`. Warns of each value that is malformed or out of range.
    pub fn from_lookup(lookup: impl Fn(&Param) -> Option<String>) -> Params {
        let (params, problems) = Params::check_lookup(lookup);
        problem::warn_once(&problems);
        params
    }

    /// As [`from_lookup`](Self::from_lookup), but returns the problems instead of warning. For a malformed
    /// value the default applies. For a number out of range, the nearest number in the range applies.
    ///
    /// ```
    /// use homespun::params::{CQ_SIZE, Params};
    ///
    /// let (params, problems) = Params::check_lookup(|param| (*param == CQ_SIZE).then(|| "many".into()));
    /// assert_eq!(params, Params::default());
    /// assert_eq!(problems[0].to_string(), "FI_HOMESPUN_CQ_SIZE=many is ignored: it should be a number");
    /// ```
    pub fn check_lookup(lookup: impl Fn(&Param) -> Option<String>) -> (Params, Vec<ParamProblem>) {
        let values = Values { lookup, problems: RefCell::default() };
        let defaults = Params::default();
        let budget = UNEXPECTED_BUDGET_MIN_BYTES..=UNEXPECTED_BUDGET_MAX_BYTES;
        let connect_timeout = values.read_millis(CONNECT_TIMEOUT_MS);
        let or_no_limit = |timeout: Duration| (!timeout.is_zero()).then_some(timeout);
        let params = Params {
            domain: values.read_text(DOMAIN),
            offered_name: values
                .read_text(AS)
                .and_then(|value| values.parse_text(AS, &value))
                .unwrap_or(defaults.offered_name),
            iface: values.read_text(IFACE).and_then(|value| values.parse_text(IFACE, &value)),
            ports: values.read_text(PORTS).and_then(|value| values.parse_text(PORTS, &value)),
            close_linger: values.read_millis(CLOSE_LINGER_MS).unwrap_or(defaults.close_linger),
            connect_timeout: connect_timeout.and_then(or_no_limit),
            reach_timeout: connect_timeout.map_or(defaults.reach_timeout, or_no_limit),
            shm_any_tracer: values.read_flag(SHM_ANY_TRACER).unwrap_or(defaults.shm_any_tracer),
            tcp_accepted_links: values
                .read_number(TCP_ACCEPTED_LINKS, 1..=TCP_ACCEPTED_LINKS_MAX)
                .unwrap_or(defaults.tcp_accepted_links),
            eager_bytes: values.read_number(EAGER_BYTES, 0..=EAGER_BYTES_MAX).unwrap_or(defaults.eager_bytes),
            unexpected_bytes: values
                .read_number(UNEXPECTED_BYTES, budget)
                .unwrap_or(defaults.unexpected_bytes),
            tx_size_ops: values.read_number(TX_SIZE, 1..=DEPTH_MAX_OPS).unwrap_or(defaults.tx_size_ops),
            rx_size_ops: values.read_number(RX_SIZE, 1..=DEPTH_MAX_OPS).unwrap_or(defaults.rx_size_ops),
            cq_size_entries: values
                .read_number(CQ_SIZE, 1..=CQ_DEPTH_MAX_ENTRIES)
                .unwrap_or(defaults.cq_size_entries),
        };
        (params, values.problems.into_inner())
    }

    /// Returns the value of a parameter as a text. If the parameter has no value, returns the text of its
    /// [`default`](Param::default), such as "any port".
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
            AS => Some(self.offered_name.to_string()),
            IFACE => self.iface.as_ref().map(InterfaceSelector::to_string),
            PORTS => self.ports.map(|ports| ports.to_string()),
            CLOSE_LINGER_MS => Some(self.close_linger.as_millis().to_string()),
            CONNECT_TIMEOUT_MS => match (self.connect_timeout, self.reach_timeout) {
                (None, None) => Some("0".to_owned()),
                (timeout, _) => timeout.map(|timeout| timeout.as_millis().to_string()),
            },
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

/// Reads the values of parameters, and collects their problems.
struct Values<L> {
    lookup: L,
    problems: RefCell<Vec<ParamProblem>>,
}

impl<L: Fn(&Param) -> Option<String>> Values<L> {
    /// An empty value counts as not set.
    fn read_text(&self, param: Param) -> Option<String> {
        (self.lookup)(&param).filter(|name| !name.is_empty())
    }

    fn parse_text<T: FromStr<Err: ToString>>(&self, param: Param, value: &str) -> Option<T> {
        match value.parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => self.reject_value(param, value, &error.to_string()),
        }
    }

    fn read_millis(&self, param: Param) -> Option<Duration> {
        let value = (self.lookup)(&param)?;
        match value.trim().parse::<u32>() {
            Ok(millis) => Some(Duration::from_millis(millis.into())),
            Err(_) => self.reject_value(param, &value, "a number of milliseconds"),
        }
    }

    fn read_number(&self, param: Param, range: RangeInclusive<usize>) -> Option<usize> {
        let value = (self.lookup)(&param)?;
        let Ok(asked) = value.trim().parse::<usize>() else {
            return self.reject_value(param, &value, "a number");
        };
        let taken = asked.clamp(*range.start(), *range.end());
        if taken != asked {
            self.add_problem(param, &value, ParamProblemKind::OutOfRange { taken });
        }
        Some(taken)
    }

    fn read_flag(&self, param: Param) -> Option<bool> {
        let value = (self.lookup)(&param)?;
        match value.trim().to_lowercase().as_str() {
            "1" | "yes" | "true" | "on" => Some(true),
            "0" | "no" | "false" | "off" => Some(false),
            _ => self.reject_value(param, &value, "1 or 0"),
        }
    }

    fn reject_value<T>(&self, param: Param, value: &str, expected: &str) -> Option<T> {
        self.add_problem(param, value, ParamProblemKind::Malformed { expected: expected.to_owned() });
        None
    }

    fn add_problem(&self, param: Param, value: &str, kind: ParamProblemKind) {
        let problem = ParamProblem { variable: param.env_variable(), value: value.to_owned(), kind };
        self.problems.borrow_mut().push(problem);
    }
}

/// The beginning of the names of all variables.
const PREFIX: &str = "FI_HOMESPUN_";

/// Warns of unknown variables `FI_HOMESPUN_*` in the environment. The plugin calls this, since it reads the
/// values from libfabric instead of calling [`Params::from_env`].
pub fn warn_of_unknown_variables() {
    problem::warn_once(&find_unknown_variables());
}

fn find_unknown_variables() -> Vec<ParamProblem> {
    let variables =
        env::vars_os().map(|(name, value)| [name, value].map(|text| text.to_string_lossy().into()));
    select_unknown_variables(variables)
}

fn select_unknown_variables(variables: impl Iterator<Item = [String; 2]>) -> Vec<ParamProblem> {
    let is_known = |variable: &str| PARAMS.iter().any(|param| param.env_variable() == variable);
    let mut unknown: Vec<ParamProblem> = variables
        .filter(|[variable, _]| variable.starts_with(PREFIX) && !is_known(variable))
        .map(|[variable, value]| ParamProblem { variable, value, kind: ParamProblemKind::Unknown })
        .collect();
    unknown.sort_by(|one, other| one.variable.cmp(&other.variable));
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parameters and the problems if only the parameter `set` has a value.
    fn check_with_param_value(set: Param, value: &str) -> (Params, Vec<ParamProblem>) {
        Params::check_lookup(|param| (*param == set).then(|| value.to_owned()))
    }

    #[test]
    fn unset_or_empty_parameter_has_its_default() {
        assert_eq!(Params::check_lookup(|_| None), (Params::default(), Vec::new()));
        for name in [DOMAIN, AS, IFACE, PORTS] {
            assert_eq!(check_with_param_value(name, ""), (Params::default(), Vec::new()));
        }
    }

    #[test]
    fn connect_timeout_of_zero_is_no_limit() {
        let unlimited = Params { reach_timeout: None, ..Params::default() };
        assert_eq!(check_with_param_value(CONNECT_TIMEOUT_MS, "0"), (unlimited.clone(), Vec::new()));
        assert_eq!(unlimited.value(&CONNECT_TIMEOUT_MS), "0");
    }

    #[test]
    fn connect_timeout_limits_a_silent_host_even_if_unset() {
        let unset = Params::default();
        assert_eq!((unset.reach_timeout, unset.connect_timeout), (Some(Duration::from_secs(15)), None));
        assert_eq!(unset.value(&CONNECT_TIMEOUT_MS), CONNECT_TIMEOUT_MS.default);
        let (set, _) = check_with_param_value(CONNECT_TIMEOUT_MS, "60");
        assert_eq!([set.reach_timeout, set.connect_timeout], [Some(Duration::from_millis(60)); 2]);
    }

    #[test]
    fn malformed_value_has_the_default_and_is_reported() {
        for (param, value, expected) in [
            (CLOSE_LINGER_MS, "soon", "a number of milliseconds"),
            (PORTS, "7099-7000", "a range of ports, the lower one first, such as 7000-7099"),
            (PORTS, "some", "a range of ports, the lower one first, such as 7000-7099"),
            (SHM_ANY_TRACER, "maybe", "1 or 0"),
            (UNEXPECTED_BYTES, "-1", "a number"),
            (TX_SIZE, "", "a number"),
            (AS, "verbs", "homespun, tcp or sockets"),
            (IFACE, "a/8", "a list of names and networks: \"a/8\" is no network such as 10.0.0.0/8"),
            (IFACE, "eth0,", "a list of names and networks without empty elements"),
        ] {
            let (params, problems) = check_with_param_value(param, value);
            assert_eq!(params, Params::default(), "{value}");
            let kind = ParamProblemKind::Malformed { expected: expected.into() };
            let problem = ParamProblem { variable: param.env_variable(), value: value.into(), kind };
            assert_eq!(problems, [problem]);
        }
    }

    #[test]
    fn out_of_range_number_is_reported_with_its_replacement() {
        let (params, problems) = check_with_param_value(CQ_SIZE, "0");
        assert_eq!(params.cq_size_entries, 1);
        assert_eq!(problems[0].kind, ParamProblemKind::OutOfRange { taken: 1 });
        assert_eq!(check_with_param_value(CQ_SIZE, "1").1, []);
    }

    #[test]
    fn unknown_variables_are_found_in_order() {
        let variables = ["FI_HOMESPUN_TX_SIZES", "FI_HOMESPUN_TX_SIZE", "FI_TCP_X", "HOME", "FI_HOMESPUN_"]
            .map(|name| [name.to_owned(), "7".to_owned()]);
        let unknown = select_unknown_variables(variables.into_iter());
        let names: Vec<&str> = unknown.iter().map(|problem| problem.variable.as_str()).collect();
        assert_eq!(names, ["FI_HOMESPUN_", "FI_HOMESPUN_TX_SIZES"]);
        assert!(unknown.iter().all(|problem| problem.kind == ParamProblemKind::Unknown));
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
            "FI_HOMESPUN_AS" => Some("Sockets".into()),
            "FI_HOMESPUN_IFACE" => Some("eth1,10.0.0.0/8,^eth2".into()),
            "FI_HOMESPUN_PORTS" => Some("7000-7099".into()),
            "FI_HOMESPUN_CLOSE_LINGER_MS" => Some(" 50 ".into()),
            "FI_HOMESPUN_CONNECT_TIMEOUT_MS" => Some("60".into()),
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
                offered_name: OfferedName::Sockets,
                iface: Some("eth1,10.0.0.0/8,^eth2".parse().unwrap()),
                ports: PortRange::new(7000..=7099),
                close_linger,
                connect_timeout: Some(Duration::from_millis(60)),
                reach_timeout: Some(Duration::from_millis(60)),
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
