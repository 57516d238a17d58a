//! The parts of a Markdown page that name something.

use std::fmt;

/// A page.
pub(crate) struct Page {
    pub(crate) path: String,
    lines: Vec<Line>,
}

/// A line of a page, outside of code.
struct Line {
    number: usize,
    text: String,
    /// Whether it is part of a picture: a block of `text`.
    is_picture: bool,
}

/// Something that a page has in backticks, or a line of a picture.
pub(crate) struct Span<'a> {
    page: &'a str,
    line: usize,
    text: &'a str,
    is_picture: bool,
}

impl Page {
    pub(crate) fn parse(path: String, text: &str) -> Page {
        let mut lines = Vec::new();
        let mut block: Option<&str> = None;
        for (text, number) in text.lines().zip(1..) {
            match (text.trim_start().strip_prefix("```"), block) {
                (Some(_), Some(_)) => block = None,
                (Some(language), None) => block = Some(language),
                (None, Some(language)) if language != "text" => {}
                (None, _) => {
                    lines.push(Line { number, text: text.to_owned(), is_picture: block.is_some() });
                }
            }
        }
        Page { path, lines }
    }

    /// Returns what the page has in backticks, and the lines of its pictures.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.lines.iter().flat_map(|line| self.spans_of_line(line))
    }

    fn spans_of_line<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = Span<'a>> {
        let texts: Vec<&str> = match line.is_picture {
            true => vec![&line.text],
            false => {
                let pieces: Vec<&str> = line.text.split('`').collect();
                assert!(pieces.len() % 2 == 1, "code ends in another line: {}", line.text);
                pieces.into_iter().skip(1).step_by(2).collect()
            }
        };
        let Line { number, is_picture, .. } = *line;
        texts.into_iter().map(move |text| Span { page: &self.path, line: number, text, is_picture })
    }

    /// Returns the targets of links within the repository, with their lines.
    pub(crate) fn links(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().filter(|line| !line.is_picture);
        lines.flat_map(|line| {
            let targets = line.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            targets.filter(|target| !target.contains("://")).map(|target| (line.number, target))
        })
    }

    /// Turns a path relative to this page into a path relative to the root of the repository.
    pub(crate) fn resolve(&self, path: &str) -> String {
        let mut names: Vec<&str> = self.path.split('/').collect();
        names.pop();
        for name in path.trim_end_matches('/').split('/') {
            match name {
                ".." => {
                    names.pop();
                }
                _ => names.push(name),
            }
        }
        names.join("/")
    }

    /// Whether the page has a heading with this anchor.
    pub(crate) fn has_heading(&self, anchor: &str) -> bool {
        let headings = self.lines.iter().filter(|line| !line.is_picture && line.text.starts_with('#'));
        headings.map(|line| anchor_of(&line.text)).any(|known| known == anchor)
    }
}

/// Returns the anchor that GitHub makes of a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

impl<'a> Span<'a> {
    /// Returns what may be paths, without braces: each alternative by itself.
    pub(crate) fn paths(&self) -> Vec<String> {
        let is_in_path = |letter: char| letter.is_alphanumeric() || "/._-{},*<>".contains(letter);
        match self.is_picture {
            true => {
                let words =
                    self.text.split(|letter: char| !(letter.is_alphanumeric() || "/._-".contains(letter)));
                words.filter(|word| word.ends_with(".rs")).map(str::to_owned).collect()
            }
            false if self.text.chars().all(is_in_path) => expand_braces(self.text),
            false => Vec::new(),
        }
    }

    /// Returns the words that may be names of items. In a picture, only words with `::` count.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let words = self.text.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
        let is_picture = self.is_picture;
        let names = words.map(|word| word.trim_matches(':'));
        names.filter(move |name| !is_picture || name.contains("::"))
    }
}

impl fmt::Display for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.line)
    }
}

/// Returns the alternatives of `{one,other}`.
fn expand_braces(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else { return vec![text.to_owned()] };
    let Some((alternatives, after)) = rest.split_once('}') else { return vec![text.to_owned()] };
    let expand = |alternative: &str| expand_braces(&format!("{before}{alternative}{after}"));
    alternatives.split(',').flat_map(expand).collect()
}
