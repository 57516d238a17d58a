//! What the manual pages say, clause by clause, in this project's words (`suite/clauses/`). A test names the
//! clauses that it shows in a line of its documentation: "Shows `fi_cq/signal-unblocks-sread`", without the
//! quotation marks.

use std::sync::LazyLock;

use serde::Deserialize;

/// The files: the name of each, which begins the names of its clauses, and its text.
const FILES: [(&str, &str); 20] = [
    ("fi_atomic", include_str!("../clauses/fi_atomic.toml")),
    ("fi_av", include_str!("../clauses/fi_av.toml")),
    ("fi_cm", include_str!("../clauses/fi_cm.toml")),
    ("fi_cntr", include_str!("../clauses/fi_cntr.toml")),
    ("fi_cq", include_str!("../clauses/fi_cq.toml")),
    ("fi_cq-1.4", include_str!("../clauses/fi_cq-1.4.toml")),
    ("fi_endpoint", include_str!("../clauses/fi_endpoint.toml")),
    ("fi_eq", include_str!("../clauses/fi_eq.toml")),
    ("fi_mr", include_str!("../clauses/fi_mr.toml")),
    ("fi_msg", include_str!("../clauses/fi_msg.toml")),
    ("fi_poll", include_str!("../clauses/fi_poll.toml")),
    ("fi_rma", include_str!("../clauses/fi_rma.toml")),
    ("fi_tagged", include_str!("../clauses/fi_tagged.toml")),
    ("fi_trigger", include_str!("../clauses/fi_trigger.toml")),
    ("rpma_conn_wait", include_str!("../clauses/rpma_conn_wait.toml")),
    ("rpma_cq_get_completion", include_str!("../clauses/rpma_cq_get_completion.toml")),
    ("rpma_cq_get_fd", include_str!("../clauses/rpma_cq_get_fd.toml")),
    ("rpma_cq_get_wc", include_str!("../clauses/rpma_cq_get_wc.toml")),
    ("rpma_cq_wait", include_str!("../clauses/rpma_cq_wait.toml")),
    ("rpma_srq_new", include_str!("../clauses/rpma_srq_new.toml")),
];

static PAGES: LazyLock<Vec<Page>> =
    LazyLock::new(|| FILES.map(|(name, text)| Page::parse(name, text)).into());

/// The clauses of a manual page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The name of the file, which begins the names of the clauses.
    #[serde(skip)]
    pub name: &'static str,
    /// The name and the section of the page.
    pub page: String,
    /// The package of Debian that has the page, if one has it.
    pub package: Option<String>,
    /// The date of the page, which tells its version.
    pub date: Option<String>,
    /// Whether each sentence has its hash here. If not, only sentences that promise, demand or permit
    /// something have.
    #[serde(default)]
    pub complete: bool,
    /// The hashes of the sentences that need no clause.
    #[serde(default)]
    pub nothing: Vec<String>,
    /// The sections, in the order of the page.
    #[serde(rename = "section")]
    pub sections: Vec<Section>,
}

/// The clauses of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The title.
    pub title: String,
    /// The clauses.
    #[serde(rename = "clause")]
    pub clauses: Vec<Clause>,
}

/// What a page says of one matter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clause {
    /// The name within its page.
    pub id: String,
    /// The matter, in a sentence.
    pub says: String,
    /// The hashes of the sentences of the page. A page that no package has needs none.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// What the clause is.
    #[serde(default)]
    pub kind: Kind,
    /// What else there is to say: for what is not offered, the error number that a request gets.
    pub note: Option<String>,
    /// Why there is no fault that breaks it, if there is none (`mutated!`).
    pub unbroken: Option<String>,
    /// Why the tests do not find a program that breaks it, if they do not (`tests/mutants`).
    pub survives: Option<String>,
}

/// What a clause is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An application may rely on it, so a test shows it.
    #[default]
    Promise,
    /// It says what a word means, or leaves a choice, of which a test may show what was chosen.
    Definition,
    /// An application must do it, or must not rely on something.
    Application,
    /// The feature is not there.
    NotOffered,
}

impl Page {
    /// Parses the clauses of a page.
    ///
    /// # Panics
    ///
    /// If they are malformed.
    pub fn parse(name: &'static str, text: &str) -> Page {
        let page: Page = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Page { name, ..page }
    }

    /// The clauses, in the order of the page.
    pub fn clauses(&self) -> impl Iterator<Item = &Clause> {
        self.sections.iter().flat_map(|section| &section.clauses)
    }
}

/// All pages.
pub fn pages() -> &'static [Page] {
    &PAGES
}

/// All clauses, each with its page.
pub fn all() -> impl Iterator<Item = (&'static Page, &'static Clause)> {
    pages().iter().flat_map(|page| page.clauses().map(move |clause| (page, clause)))
}

/// Returns the clause of this name: the page, a slash, and the name within the page.
pub fn find(name: &str) -> Option<&'static Clause> {
    let (page, id) = name.split_once('/')?;
    all().find(|(of, clause)| of.name == page && clause.id == id).map(|(_, clause)| clause)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clause_is_found_by_its_name() {
        let signal = find("fi_cq/signal-unblocks-sread").expect("a clause");
        assert_eq!((signal.kind, signal.sentences.len()), (Kind::Promise, 3));
        assert!(find("fi_cq/no-such-clause").is_none() && find("fi_cq").is_none());
    }

    #[test]
    fn clauses_have_unique_names_and_whole_sentences() {
        let mut names = BTreeSet::new();
        for (page, clause) in all() {
            let name = format!("{}/{}", page.name, clause.id);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(clause.id.chars().all(is_plain), "{name}");
            assert!(clause.says.ends_with('.'), "{name}");
            assert!(names.insert(name.clone()), "two clauses are called {name}");
        }
    }

    #[test]
    fn clauses_of_what_is_not_offered_tell_the_error() {
        for (page, clause) in all().filter(|(_, clause)| clause.kind == Kind::NotOffered) {
            let note = clause.note.as_deref().unwrap_or_default();
            let tells_errno = note.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
                word.len() > 4 && word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase())
            });
            let is_mode = note.starts_with("no answer has the mode") || note == "the bit is cleared";
            assert!(tells_errno || is_mode, "{}/{}: which error does the caller get?", page.name, clause.id);
        }
    }
}
