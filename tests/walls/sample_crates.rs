//! Applies the checks to small made-up crates. These crates show what counts as an import, a cycle or a line
//! of code.

use std::path::PathBuf;

use crate::imports::import_cycles;
use crate::modules::{Crate, Module, display_name};

const NONE: [[&str; 0]; 0] = [];

fn parse_sample_crate(sources: &[(&str, &str)]) -> Crate {
    let owned = sources.iter().map(|(place, text)| (PathBuf::from(place), (*text).to_owned()));
    Crate::parse("made-up", owned).unwrap()
}

/// Returns the cycles of a crate with these sources.
fn import_cycles_of(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
    import_cycles(&parse_sample_crate(sources))
}

/// Returns the cycles of a crate with the files `lib.rs`, `a.rs` and `b.rs`. `a.rs` imports `crate::b::B`,
/// and `b.rs` has the text `b`.
fn import_cycles_with_b(b: &str) -> Vec<Vec<String>> {
    import_cycles_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", b),
    ])
}

#[test]
fn files_that_import_each_other_are_a_cycle() {
    assert_eq!(import_cycles_with_b("use crate::a::A; pub struct B(Box<A>);"), [["a", "b"]]);
    assert_eq!(import_cycles_with_b("pub struct B;"), NONE);
}

#[test]
fn indirect_cycle_is_found_with_all_its_files() {
    let sources = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use crate::c::C; pub struct B(C);"),
        ("c.rs", "use crate::a::A; pub struct C(Box<A>);"),
        // This file imports the cycle, but no file of the cycle imports it.
        ("d.rs", "use crate::a::A; pub struct D(A);"),
    ];
    assert_eq!(import_cycles_of(&sources), [["a", "b", "c"]]);
}

#[test]
fn larger_cycles_come_first() {
    let sources = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::f;"),
        ("b.rs", "use crate::a::f;"),
        ("c.rs", "use crate::d::f;"),
        ("d.rs", "use crate::e::f;"),
        ("e.rs", "use crate::c::f;"),
    ];
    assert_eq!(import_cycles_of(&sources), [vec!["c", "d", "e"], vec!["a", "b"]]);
}

#[test]
fn every_form_of_path_to_another_file_is_an_import() {
    for b in [
        "use super::a::A; pub struct B(Box<A>);",
        "use super::a; pub struct B(Box<a::A>);",
        "use crate::a::{self}; pub struct B(Box<a::A>);",
        "use crate::{a::{A as Other}}; pub struct B(Box<Other>);",
        "use crate::a::*; pub struct B(Box<A>);",
        "pub struct B(Box<crate::a::A>);",
        "pub struct B; fn f() { super::a::f(); }",
        "pub struct B; fn f() { use crate::a::f; f(); }",
        "pub struct B; impl super::a::Trait for B {}",
        "pub struct B; fn f() { let _ = |x: crate::a::A| x; }",
    ] {
        assert_eq!(import_cycles_with_b(b), [["a", "b"]], "{b}");
    }
}

#[test]
fn paths_of_other_crates_visibilities_and_tests_are_no_imports() {
    for b in [
        "use a::A; pub struct B(A);",
        "pub(in crate::a) struct B;",
        "pub(super) struct B;",
        "use std::a::A; pub struct B(A);",
        "pub struct B; // use crate::a::A;",
        "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
        "pub struct B; #[cfg(test)] use crate::a::A;",
    ] {
        assert_eq!(import_cycles_with_b(b), NONE, "{b}");
    }
}

#[test]
fn parent_and_child_that_import_each_other_are_a_cycle() {
    let child = ("parent/child.rs", "use super::Parent; pub struct Child(Box<Parent>);");
    for parent in [
        "mod child; use self::child::Child; pub struct Parent(Child);",
        "mod child; use child::Child; pub struct Parent(Child);",
        "mod child; pub struct Parent(self::child::Child);",
        "mod child; pub struct Parent(child::Child);",
        "mod child; pub struct Parent; fn f() { child::f(); }",
    ] {
        let cycles = import_cycles_of(&[("lib.rs", "mod parent;"), ("parent/mod.rs", parent), child]);
        assert_eq!(cycles, [["parent", "parent/child"]], "{parent}");
    }
}

#[test]
fn paths_with_super_lead_to_siblings_and_siblings_of_the_parent() {
    let sources = [
        ("lib.rs", "mod other; mod parent;"),
        ("other.rs", "use crate::parent::left::Left;"),
        ("parent.rs", "pub mod left; mod right;"),
        ("parent/left.rs", "use super::right::Right; pub struct Left(Right);"),
        ("parent/right.rs", "use super::super::other::f; pub struct Right;"),
    ];
    assert_eq!(import_cycles_of(&sources), [["other", "parent/left", "parent/right"]]);
}

#[test]
fn re_export_is_an_import_from_the_file_that_defines_the_name() {
    let sources = [
        ("lib.rs", "mod a; mod parent;"),
        ("a.rs", "use crate::parent::Child; pub struct A(Child);"),
        ("parent.rs", "mod child; pub(crate) use self::child::Child;"),
        ("parent/child.rs", "use crate::a::A; pub struct Child(Box<A>);"),
    ];
    assert_eq!(import_cycles_of(&sources), [["a", "parent/child"]]);
}

#[test]
fn re_exports_are_followed_through_several_files_and_names() {
    for (outer, name) in [
        ("mod inner; pub use self::inner::Child;", "Child"),
        ("mod inner; pub use self::inner::Child as Renamed;", "Renamed"),
        ("mod inner; pub use self::inner::*;", "Child"),
        ("mod inner; pub use inner::{Child as Renamed, Other};", "Renamed"),
    ] {
        for inner in [
            "mod child; pub use self::child::Child;",
            "mod child; pub(super) use child::{Original as Child};",
            "mod child; pub use self::child::*;",
        ] {
            let a = format!("use crate::outer::{name}; pub struct A({name});");
            let sources = [
                ("lib.rs", "mod a; mod outer;"),
                ("a.rs", &a),
                ("outer.rs", outer),
                ("outer/inner.rs", inner),
                ("outer/inner/child.rs", "use crate::a::A; pub struct Child(Box<A>); pub struct Original;"),
            ];
            assert_eq!(import_cycles_of(&sources), [["a", "outer/inner/child"]], "{outer} {inner}");
        }
    }
}

#[test]
fn re_exporting_file_is_not_part_of_the_cycle_of_its_children() {
    let sources = [
        ("lib.rs", "mod parent;"),
        ("parent.rs", "mod left; mod right; pub use left::Left; pub use right::Right;"),
        ("parent/left.rs", "use super::Right; pub struct Left(Right);"),
        ("parent/right.rs", "use super::Left; pub struct Right(Box<Left>);"),
    ];
    assert_eq!(import_cycles_of(&sources), [["parent/left", "parent/right"]]);
}

#[test]
fn file_that_uses_its_re_export_imports_the_definition() {
    let child = ("parent/child.rs", "use super::Parent; pub struct Child(Box<Parent>);");
    let parent = "mod child; pub use self::child::Child; pub struct Parent(Child);";
    assert_eq!(import_cycles_of(&[("parent.rs", parent), child]), [["parent", "parent/child"]]);
    let parent = "mod child; pub use self::child::Child; pub struct Parent { child: u8 }";
    assert_eq!(import_cycles_of(&[("parent.rs", parent), child]), NONE);
}

#[test]
fn variable_with_the_name_of_a_child_is_no_import() {
    let parent = "mod child; pub struct Parent; fn f(child: u8) -> u8 { child }";
    let child = "use super::Parent; pub struct Child(Box<Parent>);";
    assert_eq!(import_cycles_of(&[("parent.rs", parent), ("parent/child.rs", child)]), NONE);
}

#[test]
fn paths_in_an_inline_module_are_relative_to_it() {
    let with_b =
        |b| import_cycles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", b)]);
    for b in [
        "pub struct B; mod within { use super::super::a::A; }",
        "pub struct B; mod within { mod further { fn f() { super::super::super::a::f(); } } }",
        "pub struct B; mod within { use crate::a::A; }",
        "pub struct B; mod within { pub use crate::a::A; }",
    ] {
        assert_eq!(with_b(b), [["a", "b"]], "{b}");
    }
    for b in [
        "pub struct B; mod within { use super::a::A; } mod a {}",
        "pub struct B; mod within { use self::a::A; }",
    ] {
        assert_eq!(with_b(b), NONE, "{b}");
    }
}

#[test]
fn modules_leave_out_files_of_tests() {
    let sources = [
        ("lib.rs", "mod a; pub struct Root;"),
        ("a.rs", "#[cfg(test)] mod tests; pub struct A;"),
        ("a/tests.rs", "use super::A; use crate::Root;"),
        ("a/loom_tests.rs", "use super::A;"),
    ];
    let of_crate = parse_sample_crate(&sources);
    let names: Vec<String> = of_crate.modules().map(|module| display_name(module.path())).collect();
    assert_eq!(names, ["lib", "a"]);
}

#[test]
fn code_lines_leave_out_tests_comments_and_blank_lines() {
    let text = "//! What it is.\n\nfn f() {\n    // Why.\n    g(); // how\n}\n\n\
                #[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    let of_crate = parse_sample_crate(&[("lib.rs", text)]);
    let lines: Vec<usize> = of_crate.modules().map(Module::count_code_lines).collect();
    assert_eq!(lines, [3]);
}
