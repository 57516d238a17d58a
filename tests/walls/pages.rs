//! Compares the paths, names and links in the Markdown pages with the repository.

mod markdown;
mod repository;

use self::markdown::Page;
pub(crate) use self::repository::{Paths, Sources};
use crate::files;

/// The pages whose paths and links are checked: these and all of `docs`.
const PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"];

/// The pages whose names are checked. Other pages have many names of libfabric.
const PAGES_WITH_NAMES: [&str; 4] = ["ARCHITECTURE.md", "docs/design/", "docs/decisions/", "docs/recipes.md"];

/// Paths that look like this repository's but are not, with the reason.
const FOREIGN_PATHS: [(&str, &str); 4] = [
    ("fi_direct*.h", "headers of libfabric"),
    ("include/ofi.h", "a header of libfabric"),
    ("rdma/fabric.h", "a header of libfabric"),
    ("rdma/fi_errno.h", "a header of libfabric"),
];

/// The beginnings of names of other projects.
const FOREIGN_PREFIXES: [&str; 7] = ["fi_", "FI_", "ofi_", "util_", "MPI_", "rpma_", "RPMA_"];

/// Names that look like this project's but are not, with the reason.
const FOREIGN_NAMES: [(&str, &str); 8] = [
    ("epoll_create1", "of Linux"),
    ("epoll_ctl", "of Linux"),
    ("epoll_wait", "of Linux"),
    ("MADV_DONTFORK", "of Linux"),
    ("MAP_SYNC", "of Linux"),
    ("TCP_USER_TIMEOUT", "of Linux"),
    ("MyProvider::new", "stands for the provider that a reader writes"),
    ("std::io::BorrowedBuf", "of the standard library"),
];

/// Reads the pages of the repository.
pub(crate) fn read_all() -> Vec<Page> {
    let below_docs = files::read_below("docs", "md").unwrap();
    let others = PAGES.into_iter().flat_map(|page| files::read_below(page, "md").unwrap());
    others.chain(below_docs).map(|file| Page::parse(file.path, &file.text)).collect()
}

/// Returns the paths in backticks that look like paths of this repository and do not exist.
pub(crate) fn stale_paths(pages: &[Page], existing: &Paths) -> Vec<String> {
    let mut stale = Vec::new();
    for span in pages.iter().flat_map(Page::spans) {
        for path in span.paths() {
            let is_foreign = FOREIGN_PATHS.iter().any(|(foreign, _)| *foreign == path);
            if existing.is_like_own_path(&path) && !is_foreign && !existing.has_path(&path) {
                stale.push(format!("{span}: no file or directory has the path {path}"));
            }
        }
    }
    stale
}

/// Returns the names in backticks that look like names of this project and are in no source.
pub(crate) fn stale_names(pages: &[Page], sources: &Sources) -> Vec<String> {
    let mut stale = Vec::new();
    let has_names = |page: &&Page| PAGES_WITH_NAMES.iter().any(|begin| page.path.starts_with(begin));
    for span in pages.iter().filter(has_names).flat_map(Page::spans) {
        for name in span.names().filter(|name| is_like_own_name(name)) {
            let is_foreign = FOREIGN_NAMES.iter().any(|(foreign, _)| *foreign == name);
            if !is_foreign && !sources.has_name(name) {
                stale.push(format!("{span}: no source has the name {name}"));
            }
        }
    }
    stale
}

/// Returns the links to files or headings that do not exist.
pub(crate) fn broken_links(pages: &[Page], existing: &Paths) -> Vec<String> {
    let mut broken = Vec::new();
    for page in pages {
        for (line, target) in page.links() {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { page.path.clone() } else { page.resolve(path) };
            let known = pages.iter().find(|page| page.path == path);
            let has_heading = heading.is_empty() || known.is_some_and(|page| page.has_heading(heading));
            if !existing.has_exact_path(&path) || !has_heading {
                broken.push(format!("{}:{line}: {target} leads nowhere", page.path));
            }
        }
    }
    broken
}

/// Whether a name in backticks looks like one that this project has chosen.
fn is_like_own_name(name: &str) -> bool {
    let is_foreign = FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let begins_type = name.starts_with(|first: char| first.is_ascii_uppercase());
    let is_camel_case = begins_type && name.contains(|letter: char| letter.is_ascii_lowercase());
    !is_foreign && (is_camel_case || name.contains('_') || name.contains("::"))
}
