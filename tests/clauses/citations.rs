//! Which tests show which clauses: lines `/// Shows page/clause, page/clause.` of their documentation.

use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A function that shows a clause: a test, or a rule of the model.
#[derive(Debug)]
pub(crate) struct Citation {
    /// The name of the clause.
    pub(crate) clause: String,
    /// The file of the function, from the root of the repository.
    pub(crate) file: String,
    pub(crate) function: String,
    /// The words of its attribute `over`, if it is a test of the suite.
    pub(crate) over: Option<String>,
}

/// Returns the citations of all sources, in the order of their files.
pub(crate) fn read_all() -> Vec<Citation> {
    let mut citations = Vec::new();
    read_directory(Path::new(ROOT), &mut citations);
    citations
}

fn read_directory(directory: &Path, citations: &mut Vec<Citation>) {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| !path.is_symlink()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            read_directory(&path, citations);
        } else if name.ends_with(".rs") {
            let file = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
            read_source(file, &fs::read_to_string(&path).unwrap(), citations);
        }
    }
}

fn read_source(file: &str, text: &str, citations: &mut Vec<Citation>) {
    let (mut cited, mut over) = (Vec::new(), None);
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(begin) = line.strip_prefix("/// Shows ") {
            // The sentence may take several lines.
            let mut sentence = begin.to_owned();
            while !sentence.ends_with('.') {
                let Some(more) = lines.next().and_then(|line| line.strip_prefix("///")) else { break };
                sentence.push_str(more);
            }
            let names: Vec<&str> = sentence.trim_end_matches('.').split(',').map(str::trim).collect();
            if names.iter().any(|name| is_clause_name(name)) {
                let wrong: Vec<_> = names.iter().filter(|name| !is_clause_name(name)).collect();
                assert!(wrong.is_empty(), "{file}: no names of clauses: {wrong:?}");
                cited.extend(names.into_iter().map(str::to_owned));
            }
        } else if let Some(words) = line.strip_prefix("#[over(") {
            over = Some(words.trim_end_matches(")]").replace('_', " "));
        } else if let Some(function) = read_function_name(line) {
            let over = over.take();
            citations.extend(cited.drain(..).map(|clause| {
                let (file, function) = (file.to_owned(), function.to_owned());
                Citation { clause, file, function, over: over.clone() }
            }));
        }
    }
    assert!(cited.is_empty(), "{file}: no function follows {cited:?}");
}

/// Whether this is a page and a clause, and not another sentence that begins with "Shows".
fn is_clause_name(name: &str) -> bool {
    name.contains('/') && !name.contains([' ', '`', ':'])
}

fn read_function_name(line: &str) -> Option<&str> {
    let (_, behind) = line.split_once("fn ").filter(|_| !line.starts_with("//"))?;
    behind.split_once(['(', '<']).map(|(name, _)| name)
}
