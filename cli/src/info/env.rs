//! `homespun info --env`: the parameters and their values.

use std::env;

use homespun::params::{PARAMS, Param, ParamProblem, Params};
use serde::Serialize;

use crate::console::{Console, wrap};
use crate::failure::CommandFailure;

/// The indentation of an explanation.
const INDENT: &str = "    ";

/// The mark and the indentation of a problem.
const MARK: &str = "  ! ";

/// A parameter and its value, or a variable that is no parameter.
#[derive(Debug, Serialize)]
struct Setting {
    variable: String,
    /// The value in force, or a description of it; `null` if there is no such parameter.
    value: Option<String>,
    default: Option<&'static str>,
    /// Whether the variable is in the environment, even if its value is invalid.
    is_set: bool,
    /// Why homespun does not use the value as it is written; `null` if homespun uses the value, or if
    /// no value is set.
    problem: Option<String>,
    purpose: Option<&'static str>,
}

/// Shows all parameters. Then shows all environment variables that look like parameters but are unknown.
pub(super) fn show_parameters(json: bool, console: &Console) -> Result<(), CommandFailure> {
    let (params, problems) = Params::check_env();
    let settings = list_settings(&params, &problems, |variable| env::var_os(variable).is_some());
    if json {
        return console.print_json(&settings);
    }
    let text: Vec<String> = settings.iter().map(Setting::to_text).collect();
    console.print_line(text.join("\n").trim_end())
}

fn list_settings(params: &Params, problems: &[ParamProblem], is_set: impl Fn(&str) -> bool) -> Vec<Setting> {
    let parameters = PARAMS.iter().map(|param| {
        let variable = param.env_variable();
        let problem = problems.iter().find(|problem| problem.variable == variable);
        Setting {
            value: Some(params.value(param)),
            default: Some(param.default),
            is_set: is_set(&variable),
            problem: problem.map(ParamProblem::to_string),
            purpose: Some(param.purpose()),
            variable,
        }
    });
    let is_known = |variable: &str| PARAMS.iter().map(Param::env_variable).any(|known| known == variable);
    let unknown = problems.iter().filter(|problem| !is_known(&problem.variable)).map(|problem| Setting {
        variable: problem.variable.clone(),
        value: None,
        default: None,
        is_set: true,
        problem: Some(problem.to_string()),
        purpose: None,
    });
    parameters.chain(unknown).collect()
}

impl Setting {
    fn to_text(&self) -> String {
        let Setting { variable, value, default, is_set, problem, purpose } = self;
        let state = match (value.as_deref(), *default) {
            (Some(_), Some(default)) if !is_set => format!(": not set (default: {default})"),
            (Some(value), Some(default)) if value == default => format!(" = {value} (the default)"),
            (Some(value), Some(default)) => format!(" = {value} (default: {default})"),
            _ => ": no such parameter".to_owned(),
        };
        let mut lines = vec![wrap(&format!("{variable}{state}"), "", INDENT)];
        lines.extend(problem.as_ref().map(|problem| wrap(problem, MARK, INDENT)));
        lines.extend(purpose.map(|purpose| wrap(purpose, INDENT, INDENT)));
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use homespun::params::{ParamProblemKind, TX_SIZE};

    use super::*;
    use crate::console::WIDTH;

    fn find_setting<'a>(settings: &'a [Setting], variable: &str) -> &'a Setting {
        settings.iter().find(|setting| setting.variable == variable).expect("it is listed")
    }

    #[test]
    fn setting_shows_its_value_and_its_default() {
        let params = Params { tx_size_ops: 7, ..Params::default() };
        let variable = TX_SIZE.env_variable();
        let settings = list_settings(&params, &[], |name| name == variable);
        let text = find_setting(&settings, &variable).to_text();
        assert!(text.starts_with("FI_HOMESPUN_TX_SIZE = 7 (default: 65536)\n    How many sends "), "{text}");
        assert!(text.lines().count() > 2, "{text}");
        let unset = find_setting(&settings, "FI_HOMESPUN_RX_SIZE").to_text();
        assert!(unset.starts_with("FI_HOMESPUN_RX_SIZE: not set (default: 65536)\n"), "{unset}");
        for setting in settings {
            assert!(setting.to_text().lines().all(|line| line.chars().count() <= WIDTH));
        }
    }

    #[test]
    fn problem_is_marked_below_its_variable() {
        let problem =
            |variable: &str, kind| ParamProblem { variable: variable.into(), value: "x".into(), kind };
        let problems = [
            problem("FI_HOMESPUN_TX_SIZE", ParamProblemKind::OutOfRange { taken: 1 }),
            problem("FI_HOMESPUN_SIZE", ParamProblemKind::Unknown),
        ];
        let settings = list_settings(&Params::default(), &problems, |_| true);
        let marked: Vec<&Setting> = settings.iter().filter(|setting| setting.problem.is_some()).collect();
        let [known, unknown] = marked[..] else { panic!("{marked:?}") };
        let mark =
            "(the default)\n  ! FI_HOMESPUN_TX_SIZE=x is out of range: 1 is used instead\n    How many";
        assert!(known.to_text().contains(mark), "{}", known.to_text());
        assert_eq!(
            unknown.to_text(),
            "FI_HOMESPUN_SIZE: no such parameter\n  \
             ! FI_HOMESPUN_SIZE is ignored: homespun has no such parameter\n"
        );
        assert_eq!((unknown.value.as_deref(), unknown.default), (None, None));
    }
}
