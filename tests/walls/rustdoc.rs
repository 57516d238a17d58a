//! Checks that documentation for application authors names the crate `homespun`, and not the engine's crate.

use std::collections::BTreeSet;

use crate::files::{self, File};

/// The crate whose items `homespun` re-exports.
const ENGINE: &str = "homespun_engine";

/// Modules of the engine from which `homespun` re-exports only single items, without examples.
const PARTLY_RE_EXPORTED: [&str; 1] = ["wire"];

/// Returns the documentation lines that would show `homespun_engine` to an author of an application. Only
/// authors of transports use that crate.
pub(crate) fn foreign_paths() -> Vec<String> {
    let own = files::read_below("src", "rs").unwrap();
    let lib = own.iter().find(|file| file.path == "src/lib.rs").unwrap();
    let re_exported: BTreeSet<&str> = re_exported_modules(&lib.text).collect();
    let engine = files::read_below("engine/src", "rs").unwrap();
    let engine = engine.iter().filter(|file| re_exported.contains(top_module_of_engine_path(&file.path)));
    own.iter().chain(engine).flat_map(foreign_paths_in).collect()
}

/// Returns the engine's modules that `pub use` names.
fn re_exported_modules(lib: &str) -> impl Iterator<Item = &str> {
    let paths = lib.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_prefix(ENGINE));
    let names = paths.flat_map(|path| {
        let path = path.trim_start_matches("::");
        match path.strip_prefix('{') {
            Some(group) => group.trim_end_matches("};").split(", ").collect(),
            None => path.split([':', ';']).take(1).collect::<Vec<_>>(),
        }
    });
    names.filter(|name| !PARTLY_RE_EXPORTED.contains(name))
}

fn top_module_of_engine_path(path: &str) -> &str {
    path.trim_start_matches("engine/src/").split(['/', '.']).next().unwrap_or_default()
}

fn foreign_paths_in(file: &File) -> Vec<String> {
    let is_foreign = |line: &str| {
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        // Rustdoc does not show a line of an example that begins with `#`.
        doc.is_some_and(|doc| doc.contains(ENGINE) && !doc.trim_start().starts_with("# "))
    };
    let lines = file.text.lines().map(str::trim).zip(1..).filter(|(line, _)| is_foreign(line));
    lines.map(|(line, number)| format!("{}:{number}: {line}", file.path)).collect()
}
