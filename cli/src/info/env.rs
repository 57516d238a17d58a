//! `homespun info --env`: the parameters and their values.

use std::env;
use std::fmt::Write;

use homespun::params::{PARAMS, Param, Params};
use serde::Serialize;

use crate::console::Console;
use crate::failure::Failure;

/// The width of an explanation, in characters.
const WIDTH: usize = 100;

/// The indentation of an explanation.
const INDENT: &str = "    ";

/// A parameter and its value.
#[derive(Debug, Serialize)]
struct Setting {
    variable: String,
    /// The value in force, or its description.
    value: String,
    default: &'static str,
    /// Whether the variable is in the environment, even if its value is invalid.
    is_set: bool,
    purpose: &'static str,
}

/// Shows all parameters.
pub(super) fn show(json: bool, console: &Console) -> Result<(), Failure> {
    let params = Params::from_env();
    let settings: Vec<Setting> = PARAMS.iter().map(|param| read_setting(param, &params)).collect();
    if json {
        return console.print_json(&settings);
    }
    let text: Vec<String> = settings.iter().map(Setting::to_text).collect();
    console.print_line(text.join("\n").trim_end())
}

fn read_setting(param: &Param, params: &Params) -> Setting {
    let variable = param.env_variable();
    Setting {
        value: params.value(param),
        default: param.default,
        is_set: env::var_os(&variable).is_some(),
        purpose: param.purpose(),
        variable,
    }
}

impl Setting {
    fn to_text(&self) -> String {
        let Setting { variable, value, default, is_set, purpose } = self;
        let mut text = match is_set {
            true => format!("{variable} = {value} (default: {default})\n"),
            false => format!("{variable}: not set (default: {default})\n"),
        };
        let mut line = String::new();
        for word in purpose.split(' ') {
            if !line.is_empty() && INDENT.len() + line.len() + 1 + word.len() > WIDTH {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{INDENT}{line}");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(text, "{INDENT}{line}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_shows_its_value_and_its_default() {
        let params = Params { tx_size_ops: 7, ..Params::default() };
        let mut setting = read_setting(&homespun::params::TX_SIZE, &params);
        setting.is_set = true;
        let text = setting.to_text();
        assert!(text.starts_with("FI_HOMESPUN_TX_SIZE = 7 (default: 65536)\n    How many sends "), "{text}");
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= WIDTH), "{text}");
        setting.is_set = false;
        assert!(setting.to_text().starts_with("FI_HOMESPUN_TX_SIZE: not set (default: 65536)\n"));
    }
}
