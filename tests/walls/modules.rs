//! The files of a crate, as modules.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use syn::{Attribute, Item};

/// The attribute that begins the tests of a file.
const TESTS_BEGIN: &str = "\n#[cfg(test)]\nmod tests {\n";

/// The files of a crate, by the paths of their modules.
pub(crate) struct Crate {
    name: String,
    modules: BTreeMap<ModulePath, Module>,
}

/// The names that lead from the root of the crate to a module.
pub(crate) type ModulePath = Vec<String>;

/// One file.
pub(crate) struct Module {
    path: ModulePath,
    text: String,
    /// The items of the file, without its tests.
    items: Vec<Item>,
}

impl Crate {
    /// Reads the sources of a crate, except the files that only tests use.
    ///
    /// # Errors
    ///
    /// Errors of reading or parsing the files.
    pub(crate) fn read(directory: &str) -> io::Result<Crate> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join("src");
        let mut files = Vec::new();
        list_sources(&root, &mut files)?;
        let mut sources = Vec::new();
        for file in files {
            let place = file.strip_prefix(&root).map_err(io::Error::other)?.to_owned();
            sources.push((place, fs::read_to_string(&file)?));
        }
        Crate::parse(if directory.is_empty() { "homespun" } else { directory }, sources)
    }

    /// Parses a crate. Each source has its path below `src`. Leaves out the files that only tests use.
    ///
    /// # Errors
    ///
    /// A source that is not valid Rust.
    pub(crate) fn parse(
        name: &str,
        sources: impl IntoIterator<Item = (PathBuf, String)>,
    ) -> io::Result<Crate> {
        let mut modules = BTreeMap::new();
        for (place, text) in sources {
            let path = module_path(&place);
            if !path.iter().any(|name| name == "tests" || name.ends_with("_tests")) {
                modules.insert(path.clone(), Module::parse(&place, path, text)?);
            }
        }
        Ok(Crate { name: name.to_owned(), modules })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    pub(crate) fn has_module(&self, path: &[String]) -> bool {
        self.modules.contains_key(path)
    }
}

impl Module {
    fn parse(place: &Path, path: ModulePath, text: String) -> io::Result<Module> {
        let parsed = syn::parse_file(&text).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", place.display()))
        })?;
        let items = parsed.items.into_iter().filter(|item| !is_for_tests(item)).collect();
        Ok(Module { path, text, items })
    }

    pub(crate) fn path(&self) -> &ModulePath {
        &self.path
    }

    /// Returns the items of the file, without its tests.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Counts the lines that have code, without its tests, which come last.
    pub(crate) fn count_code_lines(&self) -> usize {
        let (code, _) = self.text.split_once(TESTS_BEGIN).unwrap_or((&self.text, ""));
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        code.lines().filter(is_code).count()
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display_name(&self.path))
    }
}

/// Returns a module's name for messages.
pub(crate) fn display_name(path: &[String]) -> String {
    if path.is_empty() { "lib".to_owned() } else { path.join("/") }
}

fn list_sources(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list_sources(&path, files)?;
        } else if path.extension() == Some(OsStr::new("rs")) {
            files.push(path);
        }
    }
    Ok(())
}

fn module_path(file: &Path) -> ModulePath {
    let path = file.with_extension("");
    let mut names: ModulePath = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}
