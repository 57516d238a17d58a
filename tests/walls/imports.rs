//! The imports between files, and the cycles of imports.
//!
//! If a file imports a name that a second file only re-exports, the import counts as one from the file that
//! defines the name. The check sees neither paths in the arguments of macros nor the names of a glob `use`.

use std::collections::{BTreeSet, HashMap, HashSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::modules::{Crate, Module, ModulePath, display_name};

/// Returns each group of files that import each other, directly or indirectly. The largest group comes
/// first.
pub(crate) fn import_cycles(of_crate: &Crate) -> Vec<Vec<String>> {
    let modules: Vec<&Module> = of_crate.modules().collect();
    let numbers: HashMap<&ModulePath, usize> = modules.iter().map(|module| module.path()).zip(0..).collect();
    let paths: Vec<NamedPaths> = modules.iter().map(|module| NamedPaths::of_module(module)).collect();
    let mut definitions = Definitions::default();
    for (module, paths) in modules.iter().zip(&paths) {
        definitions.add_module(of_crate, module, &paths.re_exported);
    }
    let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
    for (from, module) in modules.iter().enumerate() {
        for path in &paths[from].used {
            let to = definitions
                .defining_module(of_crate, module.path(), path)
                .and_then(|path| numbers.get(&path));
            if let Some(to) = to.filter(|to| **to != from) {
                graph.add_edge(from, *to, ());
            }
        }
    }
    let names = |group: Vec<usize>| -> Vec<String> {
        let names: BTreeSet<String> =
            group.into_iter().map(|number| display_name(modules[number].path())).collect();
        names.into_iter().collect()
    };
    let mut cycles: Vec<_> =
        tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1).map(names).collect();
    cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    cycles
}

/// The paths that a file names.
#[derive(Default)]
struct NamedPaths {
    /// The names that it uses.
    used: Vec<Vec<String>>,
    /// The first name of each path that the file uses outside of its inline modules.
    beginnings: HashSet<String>,
    /// The names that the file re-exports, each with the path that it comes from.
    re_exported: Vec<(String, Vec<String>)>,
    /// The number of inline modules of the file around the visitor's place.
    inline_depth: usize,
}

impl NamedPaths {
    fn of_module(module: &Module) -> NamedPaths {
        let mut paths = NamedPaths::default();
        for item in module.items() {
            paths.visit_item(item);
        }
        // A name that the file re-exports may also be used in the file. Any other name is defined in the
        // file, or is local.
        let NamedPaths { used, beginnings, re_exported, .. } = &mut paths;
        used.extend(
            re_exported.iter().filter(|(name, _)| beginnings.contains(name)).map(|(_, path)| path.clone()),
        );
        paths
    }

    fn add_used_path(&mut self, path: Vec<String>) {
        self.used.extend(self.relative_to_file(path));
    }

    /// Rewrites a path in an inline module as a path from the file. Returns `None` if the path stays in the
    /// inline module.
    fn relative_to_file(&self, path: Vec<String>) -> Option<Vec<String>> {
        if self.inline_depth == 0 || path.first().is_some_and(|first| first == "crate") {
            return Some(path);
        }
        let supers = path.iter().take_while(|name| *name == "super").count();
        let outside = supers.checked_sub(self.inline_depth)?;
        let before = if outside == 0 { vec!["self".to_owned()] } else { vec!["super".to_owned(); outside] };
        Some(before.into_iter().chain(path.into_iter().skip(supers)).collect())
    }
}

impl<'ast> Visit<'ast> for NamedPaths {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.inline_depth += 1;
        visit::visit_item_mod(self, item);
        self.inline_depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut leaves = Vec::new();
        list_imported_names(&item.tree, &mut Vec::new(), &mut leaves);
        match &item.vis {
            Visibility::Inherited => leaves.into_iter().for_each(|(_, path)| self.add_used_path(path)),
            _ if self.inline_depth > 0 => leaves.into_iter().for_each(|(_, path)| self.add_used_path(path)),
            _ => self.re_exported.extend(leaves),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A path that begins with `::` begins with another crate. A single name may be a variable.
        if path.leading_colon.is_none() {
            self.beginnings.extend(names.first().filter(|_| self.inline_depth == 0).cloned());
            if names.len() > 1 {
                self.add_used_path(names);
            }
        }
        visit::visit_path(self, path);
    }

    /// The visibility of an item names a module without using it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Collects every name that a `use` imports, with the path that it comes from.
fn list_imported_names(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            list_imported_names(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                list_imported_names(tree, before, leaves);
            }
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => leaves.push((name.ident.to_string(), child_path(before, &name.ident))),
        UseTree::Rename(rename) => {
            leaves.push((rename.rename.to_string(), child_path(before, &rename.ident)));
        }
        UseTree::Glob(_) => leaves.push(("*".to_owned(), before.clone())),
    }
}

fn child_path(before: &[String], name: &syn::Ident) -> Vec<String> {
    before.iter().cloned().chain([name.to_string()]).collect()
}

/// The definitions of names that modules re-export.
#[derive(Default)]
struct Definitions {
    /// The source of each re-exported name: a module, and the name in that module. The second name is `None`
    /// if the re-exported item is a module.
    named: HashMap<(ModulePath, String), (ModulePath, Option<String>)>,
    /// For each module, the modules that it re-exports as a whole.
    globs: HashMap<ModulePath, Vec<ModulePath>>,
    /// The names that modules define themselves.
    defined: HashSet<(ModulePath, String)>,
}

impl Definitions {
    fn add_module(&mut self, of_crate: &Crate, module: &Module, re_exported: &[(String, Vec<String>)]) {
        let defined = module.items().iter().filter_map(defined_name);
        self.defined.extend(defined.map(|name| (module.path().clone(), name)));
        for (name, path) in re_exported {
            let Some(found) = resolve_path(of_crate, module.path(), path) else { continue };
            match found {
                (defining, _) if defining == *module.path() => {}
                (defining, None) if name == "*" => {
                    self.globs.entry(module.path().clone()).or_default().push(defining);
                }
                found => {
                    self.named.insert((module.path().clone(), name.clone()), found);
                }
            }
        }
    }

    /// Returns the module that defines what a path names, or `None` if that module is not in the crate.
    fn defining_module(&self, of_crate: &Crate, from: &[String], path: &[String]) -> Option<ModulePath> {
        let (mut module, mut name) = resolve_path(of_crate, from, path)?;
        // A name may be re-exported more than once.
        while let Some(next) = name.take().and_then(|name| self.source_of_re_export(&module, name)) {
            (module, name) = next;
        }
        Some(module)
    }

    /// Returns the source of a name that a module re-exports.
    fn source_of_re_export(&self, module: &ModulePath, name: String) -> Option<(ModulePath, Option<String>)> {
        let key = (module.clone(), name);
        if let Some(found) = self.named.get(&key) {
            return Some(found.clone());
        }
        let globs = self.globs.get(module).filter(|_| !self.defined.contains(&key))?;
        let (_, name) = key;
        let has = |glob: &&ModulePath| {
            let key = ((*glob).clone(), name.clone());
            self.defined.contains(&key) || self.named.contains_key(&key) || self.globs.contains_key(*glob)
        };
        // Macros may define names that this check does not see.
        let found = globs.iter().find(has).or_else(|| globs.first().filter(|_| globs.len() == 1))?;
        Some((found.clone(), Some(name)))
    }
}

/// Returns the name that an item defines.
fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Splits a path into the module to which it leads, and the next name in that module. The name is `None` if
/// the path names a module.
fn resolve_path(of_crate: &Crate, from: &[String], path: &[String]) -> Option<(ModulePath, Option<String>)> {
    let mut module = from.to_vec();
    let mut names = path.iter().peekable();
    match names.peek()?.as_str() {
        "crate" => {
            module.clear();
            names.next();
        }
        "self" => {
            names.next();
        }
        "super" => {
            while names.next_if(|name| *name == "super").is_some() {
                module.pop()?;
            }
        }
        first => {
            module.push(first.to_owned());
            if !of_crate.has_module(&module) {
                return None;
            }
            names.next();
        }
    }
    while let Some(name) = names.peek() {
        module.push((*name).clone());
        if !of_crate.has_module(&module) {
            module.pop();
            break;
        }
        names.next();
    }
    of_crate.has_module(&module).then(|| (module, names.next().cloned()))
}
