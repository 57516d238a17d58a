//! What the repository has: paths, and names in its sources.

use std::collections::HashSet;

use crate::files::{self, File};

/// The files that have names: sources, headers and manifests.
const SOURCES: [&str; 4] = ["rs", "h", "c", "toml"];

/// The ends of the names of files that pages name.
const EXTENSIONS: [&str; 7] = [".rs", ".md", ".toml", ".json", ".h", ".c", ".svg"];

/// The paths of all files and directories.
pub(crate) struct Paths(Vec<String>);

impl Paths {
    pub(crate) fn list() -> Paths {
        Paths(files::list_paths().unwrap())
    }

    /// Whether something in backticks looks like a path of this repository.
    pub(crate) fn is_like_own_path(&self, path: &str) -> bool {
        let (first, rest) = path.split_once('/').unwrap_or(("", path));
        let is_below_root = self.has_exact_path(first) && !rest.starts_with('/');
        let is_name = rest.starts_with('.') || rest.is_empty() && first.is_empty();
        !path.starts_with('/')
            && !is_name
            && (is_below_root || path.ends_with('/') || EXTENSIONS.iter().any(|end| path.ends_with(end)))
    }

    /// Whether a file or directory has this path. A path whose first directory is below the root begins at
    /// the root. Any other path may be the end of a longer path. `*` and `<...>` stand for any text.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        let is_from_root = path.contains('/') && self.has_exact_path(first);
        let pattern = path.replace('<', "*<").replace('>', ">*");
        let pieces: Vec<&str> = pattern.split('*').filter(|piece| !piece.starts_with('<')).collect();
        self.0.iter().any(|known| {
            matches_pieces(known, &pieces) || !is_from_root && end_matches_pieces_after_slash(known, &pieces)
        })
    }

    pub(crate) fn has_exact_path(&self, path: &str) -> bool {
        self.0.iter().any(|known| known == path)
    }
}

/// The source files.
pub(crate) struct Sources {
    /// The text of each file, without lines of comments.
    codes: Vec<String>,
    /// The words of all files.
    words: HashSet<String>,
}

impl Sources {
    pub(crate) fn read() -> Sources {
        let files = SOURCES.into_iter().flat_map(|extension| files::read_below("", extension).unwrap());
        let without_comments = |file: File| {
            let code: Vec<&str> = file.text.lines().filter(|line| !is_comment(line)).collect();
            code.join("\n")
        };
        let codes: Vec<String> = files.map(without_comments).collect();
        let words = codes.iter().flat_map(|code| words(code)).map(str::to_owned).collect();
        Sources { codes, words }
    }

    /// Whether the code contains this name. Of a path, one file must contain the last two names.
    pub(crate) fn has_name(&self, path: &str) -> bool {
        let names: Vec<&str> = path.rsplit("::").take(2).collect();
        let has_all = |code: &String| names.iter().all(|name| words(code).any(|word| word == *name));
        names.iter().all(|name| self.words.contains(*name))
            && (names.len() == 1 || self.codes.iter().filter(|code| code.contains(names[0])).any(has_all))
    }
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether a path consists of these pieces, with any text between them.
fn matches_pieces(path: &str, pieces: &[&str]) -> bool {
    let [first, others @ ..] = pieces else { return false };
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let Some((last, between)) = others.split_last() else { return rest.is_empty() };
    for piece in between {
        match rest.find(piece) {
            Some(begin) => rest = &rest[begin + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether a path ends with these pieces, behind a directory.
fn end_matches_pieces_after_slash(path: &str, pieces: &[&str]) -> bool {
    path.match_indices('/').any(|(slash, _)| matches_pieces(&path[slash + 1..], pieces))
}
