//! The plan of a measurement. The client makes the plan, and sends it to the server.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use homespun::Address;

use crate::exchange::run::Run;
use crate::exchange::sizes::SIZES_MAX;

/// The measurements that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Whether messages have tags.
    pub(super) tagged: bool,
    /// Whether every byte is checked.
    pub(super) check: bool,
    pub(super) runs: Vec<Run>,
}

/// The first message of a client: its address, and its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanRequest {
    pub(super) from: Address,
    /// The plan, or the reason why the server refuses it.
    pub(super) plan: Result<Plan, &'static str>,
}

/// The first word of every greeting.
const MAGIC: &str = "homespun-pingpong";

/// The version of the protocol between client and server.
const VERSION: &str = "1";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tagged={} check={} runs=", self.tagged, self.check)?;
        for (index, run) in self.runs.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{run}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let mut value = |key: &str| words.next().and_then(|word| word.strip_prefix(key));
        let flag = |word: Option<&str>| word.and_then(|word| word.parse().ok());
        let tagged = flag(value("tagged=")).ok_or("the plan does not say whether messages have tags")?;
        let check = flag(value("check=")).ok_or("the plan does not say whether data is checked")?;
        let runs = value("runs=").ok_or("the plan has no sizes")?;
        if words.next().is_some() {
            return Err("the plan has extra words");
        }
        if runs.split(',').count() > SIZES_MAX {
            return Err("the plan has too many sizes");
        }
        let runs = runs.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Plan { tagged, check, runs })
    }
}

impl PlanRequest {
    /// The text of the greeting.
    pub(super) fn encode(from: Address, plan: &Plan) -> String {
        format!("{MAGIC} {VERSION} {from} {plan}")
    }

    /// Parses a client's first message. `None` if the message is no greeting.
    pub(super) fn parse(message: &[u8]) -> Option<PlanRequest> {
        let text = std::str::from_utf8(message).ok()?;
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next();
        let (magic, version, from) = (word()?, word()?, word()?.parse::<SocketAddr>().ok()?);
        if magic != MAGIC {
            return None;
        }
        let plan = match version {
            VERSION => word().unwrap_or_default().parse(),
            _ => Err("client and server are of different versions"),
        };
        Some(PlanRequest { from: from.into(), plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_plan() -> Plan {
        let runs = [0, 1, 4096, 4 << 20].map(|size| Run::new(size, None)).to_vec();
        Plan { tagged: true, check: false, runs }
    }

    fn parse_address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn written_greeting_parses_to_the_same_greeting() {
        for from in ["127.0.0.1:7471", "[::1]:7471", "[fe80::1%2]:1"].map(parse_address) {
            let text = PlanRequest::encode(from, &make_plan());
            assert_eq!(
                PlanRequest::parse(text.as_bytes()),
                Some(PlanRequest { from, plan: Ok(make_plan()) })
            );
        }
    }

    #[test]
    fn truncated_greeting_has_no_complete_plan() {
        let text = PlanRequest::encode(parse_address("127.0.0.1:1"), &make_plan());
        let last = text.rfind(':').unwrap() + 1;
        for end in 0..last {
            if let Some(greeting) = PlanRequest::parse(&text.as_bytes()[..end]) {
                assert!(greeting.plan != Ok(make_plan()), "{:?}", &text[..end]);
            }
        }
    }

    #[test]
    fn malformed_or_excessive_plan_is_refused() {
        let refused = [
            "",
            "tagged=true check=true",
            "tagged=true check=true runs=",
            "tagged=yes check=true runs=1:1:1:1:1",
            "tagged=true check=true runs=1:1:1:1",
            "tagged=true check=true runs=1:1:1:1:1:1",
            "tagged=true check=true runs=1:1:1:1:1 more",
            "tagged=true check=true runs=1:1:1:1:1,",
            "tagged=true check=true runs=1:1:0:1:1",
            "tagged=true check=true runs=1:1:1:1:65",
            "tagged=true check=true runs=1048576:1:1:1:64",
            "tagged=true check=true runs=67108865:1:1:1:1",
            "tagged=true check=true runs=1:1:4294967295:1:1",
            "tagged=true check=true runs=-1:1:1:1:1",
        ];
        for text in refused {
            assert!(text.parse::<Plan>().is_err(), "{text:?}");
        }
        let many = vec!["1:1:1:1:1"; SIZES_MAX + 1].join(",");
        let too_many = format!("tagged=true check=true runs={many}").parse::<Plan>();
        assert_eq!(too_many, Err("the plan has too many sizes"));
    }

    #[test]
    fn greeting_of_another_version_has_an_address_and_no_plan() {
        let greeting = PlanRequest::parse(b"homespun-pingpong 2 127.0.0.1:9 whatever").unwrap();
        assert_eq!(greeting.from, parse_address("127.0.0.1:9"));
        assert!(greeting.plan.is_err());
    }
}
