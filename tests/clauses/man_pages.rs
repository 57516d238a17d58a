//! The sentences of manual pages.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use homespun_suite::clauses::Page;

/// Words that begin a promise, a demand or a permission.
const BINDING_WORDS: [&str; 7] = ["must", "may", "will", "shall", "guarantee", "guarantees", "guaranteed"];

/// A sentence with fewer words is a reference or a mark.
const WORDS_MIN: usize = 3;

/// Returns the source of an installed page. The environment variable `HOMESPUN_MANUAL_PAGES` names another
/// directory than `/usr/share/man/man3`.
pub(crate) fn read(page: &str) -> Option<String> {
    let directory = env::var_os("HOMESPUN_MANUAL_PAGES").map(PathBuf::from);
    let directory = directory.as_deref().unwrap_or(Path::new("/usr/share/man/man3"));
    let path = directory.join(format!("{page}.gz"));
    path.exists().then(|| {
        let output = Command::new("gzip").arg("--decompress").arg("--stdout").arg(&path).output();
        let output = output.expect("gzip is installed");
        assert!(output.status.success(), "gzip cannot read {}", path.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

/// Whether the page's title has another date than the clauses.
pub(crate) fn is_of_another_date(page: &Page, source: &str) -> bool {
    let title = source.lines().find(|line| line.starts_with(".TH ")).unwrap_or_default().replace("\\-", "-");
    !title.contains(page.date.as_deref().expect("a page of a package has a date"))
}

/// Returns what a page says that no clause claims, and which clauses claim what it does not say.
pub(crate) fn compare(page: &Page, source: &str) -> Vec<String> {
    let claims = page.clauses().flat_map(|clause| clause.sentences.iter().map(|hash| (&*clause.id, hash)));
    let claims: Vec<_> = claims.chain(page.nothing.iter().map(|hash| ("nothing", hash))).collect();
    let claimed: BTreeSet<&str> = claims.iter().map(|&(_, hash)| hash.as_str()).collect();
    let (mut differences, mut said) = (Vec::new(), BTreeSet::new());
    for sentence in split_sentences(source) {
        let words: Vec<&str> = words_of(&sentence).collect();
        let hash = format!("{:016x}", hash_fnv1a(&words.join(" ")));
        let binds = words.iter().any(|word| BINDING_WORDS.contains(&word.to_lowercase().as_str()));
        let matters = if page.complete { words.len() >= WORDS_MIN } else { binds };
        if matters && !claimed.contains(&*hash) {
            differences.push(format!("{}: no clause has {hash}: {sentence}", page.page));
        }
        said.insert(hash);
    }
    let gone = claims.into_iter().filter(|&(_, hash)| !said.contains(hash));
    differences.extend(gone.map(|(id, hash)| format!("{}/{id}: the page has no sentence {hash}", page.name)));
    differences
}

/// Splits the source of a page into its sentences: each ends a line, or stands before a request. Examples of
/// code are left out.
fn split_sentences(source: &str) -> Vec<String> {
    let (mut sentences, mut open) = (Vec::new(), String::new());
    let mut is_code = false;
    for line in source.lines() {
        if line.starts_with('.') {
            is_code = line.starts_with(".nf") || is_code && !line.starts_with(".fi");
            sentences.push(std::mem::take(&mut open));
        } else if !is_code {
            let text = remove_escapes(line);
            let ends = text.trim_end_matches(['\'', '"', ')', ']']).ends_with(['.', ':', '?', '!']);
            open = format!("{open} {text}").trim_start().to_owned();
            if ends {
                sentences.push(std::mem::take(&mut open));
            }
        }
    }
    sentences.push(open);
    sentences.retain(|sentence| words_of(sentence).next().is_some());
    sentences
}

/// Removes changes of the font, and replaces other escapes of roff by blanks.
fn remove_escapes(line: &str) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, escape)) = rest.split_once('\\') {
        text.push_str(before);
        let (is_font, name) = escape.strip_prefix('f').map_or((false, escape), |name| (true, name));
        let len = match name.chars().next() {
            Some('[') => name.find(']').map_or(name.len(), |end| end + 1),
            Some('(') => name.len().min(3),
            first => first.map_or(0, char::len_utf8),
        };
        rest = &name[len..];
        if !is_font {
            text.push(' ');
        }
    }
    text + rest
}

/// The words of a sentence, without punctuation and marks of the page.
fn words_of(sentence: &str) -> impl Iterator<Item = &str> {
    sentence.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The 64-bit hash FNV-1a.
fn hash_fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
