//! Which files import which, and where that goes round in a circle.
//!
//! A name that a file makes public for another counts as imported from the file that defines it. Paths within
//! the arguments of macros are not seen.

use std::collections::{BTreeSet, HashMap};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree, Visibility};

use crate::modules::{Crate, Module, ModulePath, name_of};

/// The files that import each other, directly or by way of others: each circle by the names of its files, the
/// largest first.
pub(crate) fn circles(of_crate: &Crate) -> Vec<Vec<String>> {
    let modules: Vec<&Module> = of_crate.modules().collect();
    let numbers: HashMap<&ModulePath, usize> = modules.iter().map(|module| module.path()).zip(0..).collect();
    let paths: Vec<NamedPaths> = modules.iter().map(|module| NamedPaths::of(module)).collect();
    let mut definitions = Definitions::default();
    for (module, paths) in modules.iter().zip(&paths) {
        definitions.enter(of_crate, module, &paths.handed_on);
    }
    let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
    for (from, module) in modules.iter().enumerate() {
        for path in &paths[from].used {
            let to = definitions.origin(of_crate, module.path(), path).and_then(|path| numbers.get(&path));
            if let Some(to) = to.filter(|to| **to != from) {
                graph.add_edge(from, *to, ());
            }
        }
    }
    let names = |group: Vec<usize>| -> Vec<String> {
        let names: BTreeSet<String> =
            group.into_iter().map(|number| name_of(modules[number].path())).collect();
        names.into_iter().collect()
    };
    let mut circles: Vec<_> =
        tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1).map(names).collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// The paths that a file names.
#[derive(Default)]
struct NamedPaths {
    /// What it uses itself.
    used: Vec<Vec<String>>,
    /// What it makes public under a name.
    handed_on: Vec<(String, Vec<String>)>,
}

impl NamedPaths {
    fn of(module: &Module) -> NamedPaths {
        let mut paths = NamedPaths::default();
        for item in module.items() {
            paths.visit_item(item);
        }
        paths
    }
}

impl<'ast> Visit<'ast> for NamedPaths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut leaves = Vec::new();
        list_leaves(&item.tree, &mut Vec::new(), &mut leaves);
        match &item.vis {
            Visibility::Inherited => self.used.extend(leaves.into_iter().map(|(_, path)| path)),
            _ => self.handed_on.extend(leaves),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path
            .segments
            .first()
            .is_some_and(|first| ["crate", "super"].iter().any(|name| first.ident == name))
        {
            self.used.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    /// Where an item may be seen is no use of the place.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Every name that a `use` brings in, with the path that it comes from.
fn list_leaves(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            list_leaves(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                list_leaves(tree, before, leaves);
            }
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => leaves.push((name.ident.to_string(), joined(before, &name.ident))),
        UseTree::Rename(rename) => leaves.push((rename.rename.to_string(), joined(before, &rename.ident))),
        UseTree::Glob(_) => leaves.push(("*".to_owned(), before.clone())),
    }
}

fn joined(before: &[String], name: &syn::Ident) -> Vec<String> {
    before.iter().cloned().chain([name.to_string()]).collect()
}

/// Where names are defined that another module hands on.
#[derive(Default)]
struct Definitions(HashMap<(ModulePath, String), ModulePath>);

impl Definitions {
    fn enter(&mut self, of_crate: &Crate, module: &Module, handed_on: &[(String, Vec<String>)]) {
        for (name, path) in handed_on {
            let found = resolve(of_crate, module.path(), path);
            if let Some((defining, Some(_))) = found.filter(|(defining, _)| defining != module.path()) {
                self.0.insert((module.path().clone(), name.clone()), defining);
            }
        }
    }

    /// The module that defines what a path names, if it is of the crate.
    fn origin(&self, of_crate: &Crate, from: &[String], path: &[String]) -> Option<ModulePath> {
        let (mut module, name) = resolve(of_crate, from, path)?;
        let Some(name) = name else { return Some(module) };
        // A name may be handed on more than once.
        while let Some(next) = self.0.get(&(module.clone(), name.clone())) {
            module.clone_from(next);
        }
        Some(module)
    }
}

/// The module that a path leads to, and the name that it ends with there, if it names no module.
fn resolve(of_crate: &Crate, from: &[String], path: &[String]) -> Option<(ModulePath, Option<String>)> {
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
            if !of_crate.has(&module) {
                return None;
            }
            names.next();
        }
    }
    while let Some(name) = names.peek() {
        module.push((*name).clone());
        if !of_crate.has(&module) {
            module.pop();
            break;
        }
        names.next();
    }
    of_crate.has(&module).then(|| (module, names.next().cloned()))
}
