//! homespun's headers of librpma: they declare what the library exports, and agree with the header of librpma
//! 1.2 and with that of libibverbs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use homespun_suite::prerequisites::Prerequisite;

use crate::compiler::{Compiler, Header};
use crate::exports::{all_functions, functions_of_every_version, functions_of_librpma, library};

/// What a header declares.
#[derive(Debug, Default)]
struct Declarations {
    /// The declaration of each function.
    functions: BTreeMap<String, String>,
    /// The definitions of types that C allows to repeat.
    types: Vec<String>,
    /// The constants of enumerations, and the macros that have a value.
    constants: BTreeSet<String>,
}

/// Reads what a file declares that `<librpma.h>` is or includes.
fn read(compiler: &Compiler, file: &str, prefix: &str) -> Declarations {
    let mut declarations = Declarations::default();
    let text = preprocess(compiler, "-E");
    for statement in statements(&lines_of(&text, file)) {
        if statement.starts_with("enum ") && statement.contains('{') {
            declarations.constants.extend(enumerators(&statement));
        } else if statement.starts_with("typedef ") {
            declarations.types.push(statement);
        } else if let Some((before, _)) = statement.split_once('(')
            && !statement.contains('{')
        {
            let name = before.rsplit([' ', '*']).next().expect("a last word").to_owned();
            declarations.functions.insert(name, statement);
        }
    }
    for definition in preprocess(compiler, "-E -dM").lines() {
        let mut words = definition.split(' ').skip(1);
        let (name, value) = (words.next().expect("a name"), words.next());
        if name.starts_with(prefix) && value.is_some_and(|value| !value.is_empty()) && !name.contains('(') {
            declarations.constants.insert(name.to_owned());
        }
    }
    declarations
}

fn preprocess(compiler: &Compiler, options: &str) -> String {
    let options: Vec<_> = options.split(' ').collect();
    let output = compiler.read(&options, "#include <librpma.h>\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("headers are UTF-8")
}

/// Returns the lines that come from a file. A line `# 7 "/path/file"` is before lines of a file.
fn lines_of(text: &str, file: &str) -> String {
    let mut is_of_file = false;
    let mut found = String::new();
    for line in text.lines() {
        if line.starts_with("# ") {
            is_of_file = line.split('"').nth(1).is_some_and(|path| path.ends_with(&format!("/{file}")));
        } else if is_of_file {
            found.push_str(line);
            found.push('\n');
        }
    }
    found
}

/// Divides the text of a header at the semicolons outside of braces.
fn statements(text: &str) -> Vec<String> {
    let mut depth = 0;
    let mut found = vec![String::new()];
    for character in text.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match character {
            ';' if depth == 0 => found.push(String::new()),
            _ => found.last_mut().expect("one at least").push(character),
        }
    }
    found.iter().map(|statement| statement.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn enumerators(definition: &str) -> BTreeSet<String> {
    let (_, inside) = definition.split_once('{').expect("a definition");
    let inside = inside.trim_end_matches('}').split(',');
    inside.filter_map(|constant| constant.split_whitespace().next().map(str::to_owned)).collect()
}

/// Compiles a program that prints numbers, and returns what they are.
fn evaluate(compiler: &Compiler, expressions: &BTreeSet<String>) -> BTreeMap<String, String> {
    let print = |name: &String| format!("printf(\"{name}\\t%ld\\n\", (long)({name}));\n");
    let prints: String = expressions.iter().map(print).collect();
    let program = compiler.directory().join("constants");
    let text =
        format!("#include <librpma.h>\n#include <stdio.h>\nint main(void) {{\n{prints}return 0;\n}}\n");
    let compiled = compiler.read(&["-o", program.to_str().expect("a path of the test")], &text);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(program).output().expect("the program is there").stdout;
    let printed = String::from_utf8(printed).expect("the program prints numbers");
    let values: BTreeMap<_, _> = printed
        .lines()
        .map(|line| line.split_once('\t').expect("a tab"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(values.len(), expressions.len());
    values
}

/// Returns the expressions for the size of a structure, and for the offset and the size of each field.
fn layout(structure: &str, fields: &[&str]) -> BTreeSet<String> {
    let of_field = |field: &&str| {
        let offset = format!("offsetof(struct {structure}, {field})");
        [offset, format!("sizeof(((struct {structure} *)0)->{field})")]
    };
    let fields = fields.iter().flat_map(of_field);
    fields.chain([format!("sizeof(struct {structure})")]).collect()
}

/// Returns whether declarations agree with the header of a compiler: C refuses different ones of one name.
fn agrees<'a>(compiler: &Compiler, declarations: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    let repeated: Vec<_> = declarations.into_iter().map(String::as_str).collect();
    let text = format!("#include <librpma.h>\n{};\n", repeated.join(";\n"));
    let output = compiler.read(&["-fsyntax-only"], &text);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn names(declarations: &Declarations) -> BTreeSet<String> {
    declarations.functions.keys().cloned().collect()
}

#[test]
fn own_headers_declare_every_function_of_the_library() {
    let compiler = Compiler::new(Header::OwnWithoutVerbs).expect("it needs no package");
    let latest = names(&read(&compiler, "librpma.h", "RPMA_"));
    assert_eq!(latest, functions_of_librpma("LIBRPMA_1.0"));
    let compiler = Compiler::new(Header::OwnOf010WithoutVerbs).expect("it needs no package");
    let of_0_10 = names(&read(&compiler, "librpma.h", "RPMA_"));
    assert_eq!(of_0_10, all_functions(&library(), "LIBRPMA_0.10"));

    let both: BTreeSet<_> = latest.union(&of_0_10).cloned().collect();
    assert_eq!(both, all_functions(&library(), "LIBRPMA_1.0"));
    assert_eq!(both, functions_of_every_version());
    assert_eq!(both.len(), 89);
}

#[test]
fn own_header_agrees_with_the_packaged_one() {
    let (Some(packaged), Some(own)) = (Compiler::new(Header::Packaged), Compiler::new(Header::Own)) else {
        return;
    };
    let declared = read(&own, "librpma.h", "RPMA_");
    let of_package = read(&packaged, "librpma.h", "RPMA_");
    assert_eq!(names(&declared), names(&of_package));
    assert_eq!(declared.types.len(), of_package.types.len());
    agrees(&packaged, declared.functions.values().chain(&declared.types)).expect("the same declarations");

    assert_eq!(declared.constants, of_package.constants);
    assert!(declared.constants.len() > 40, "{:?}", declared.constants);
    let expressions: BTreeSet<_> =
        declared.constants.into_iter().chain(layout("rpma_conn_private_data", &["ptr", "len"])).collect();
    assert_eq!(evaluate(&own, &expressions), evaluate(&packaged, &expressions));
}

#[test]
fn own_declarations_of_libibverbs_agree_with_its_header() {
    let Some(with_verbs) = Compiler::new(Header::Own) else { return };
    let without = Compiler::new(Header::OwnWithoutVerbs).expect("it needs no package");
    assert!(preprocess(&with_verbs, "-E -dM").contains("#define INFINIBAND_VERBS_H"));
    assert!(!preprocess(&without, "-E -dM").contains("INFINIBAND_VERBS_H"));

    let declared = read(&without, "librpma_verbs.h", "IBV_");
    assert_eq!(names(&declared), BTreeSet::from(["ibv_wc_status_str".to_owned()]));
    agrees(&with_verbs, declared.functions.values()).expect("the same declarations");
    let fields = "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl \
        dlid_path_bits";
    let fields: Vec<_> = fields.split_whitespace().collect();
    assert_eq!(declared.constants.len(), 24 + 5 + 1 + 4, "{:?}", declared.constants);
    let expressions: BTreeSet<_> = declared.constants.into_iter().chain(layout("ibv_wc", &fields)).collect();
    assert_eq!(evaluate(&without, &expressions), evaluate(&with_verbs, &expressions));
}

#[test]
fn own_headers_are_strict_c99() {
    for header in [Header::OwnWithoutVerbs, Header::OwnOf010WithoutVerbs] {
        let compiler = Compiler::new(header).expect("it needs no package");
        let strict = ["-std=c99", "-pedantic", "-Wstrict-prototypes", "-Wundef", "-fsyntax-only"];
        let output = compiler.read(&strict, "#include <librpma.h>\n#include <librpma.h>\n");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn cpp_program_calls_the_library() {
    if Command::new("c++").arg("--version").output().is_err() {
        Prerequisite::CPP_COMPILER.report_skipped("c++");
        return;
    }
    for header in [Header::Own, Header::OwnWithoutVerbs, Header::OwnOf010, Header::OwnOf010WithoutVerbs] {
        let Some(compiler) = Compiler::new(header) else { continue };
        let program = compiler.compile("describe.cpp", &compiler.directory().join("librpma.so.0"));
        let status = Command::new(program).env("LD_LIBRARY_PATH", compiler.directory()).status();
        assert!(status.expect("the program is there").success(), "{header:?}");
    }
}
