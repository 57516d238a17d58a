//! Compiles programs of `tests/c`, with one of the headers of librpma.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use homespun_suite::prerequisites::Prerequisite;
use tempfile::TempDir;

use crate::exports::library;

/// The header that a program includes as `<librpma.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// That of the package librpma-dev, which is of 1.2.
    Packaged,
    /// homespun's, with the installed header of libibverbs.
    Own,
    /// homespun's on a system without libibverbs.
    OwnWithoutVerbs,
    /// homespun's of librpma 0.10, with the installed header of libibverbs.
    OwnOf010,
    /// homespun's of librpma 0.10 on a system without libibverbs.
    OwnOf010WithoutVerbs,
}

impl Header {
    fn needs_verbs(self) -> bool {
        matches!(self, Header::Packaged | Header::Own | Header::OwnOf010)
    }

    /// Returns the directory of the header, if it is homespun's.
    fn directory(self) -> Option<PathBuf> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        match self {
            Header::Packaged => None,
            Header::Own | Header::OwnWithoutVerbs => Some(own),
            Header::OwnOf010 | Header::OwnOf010WithoutVerbs => Some(own.join("0.10")),
        }
    }
}

/// A compiler for programs that include a header, with a directory for what it makes.
#[derive(Debug)]
pub(crate) struct Compiler {
    header: Header,
    directory: TempDir,
}

impl Compiler {
    /// Returns `None` if the host lacks the header.
    pub(crate) fn new(header: Header) -> Option<Compiler> {
        let packaged = (header == Header::Packaged).then_some("/usr/include/librpma.h");
        let verbs = header.needs_verbs().then_some("/usr/include/infiniband/verbs.h");
        for needed in packaged.into_iter().chain(verbs) {
            if !Path::new(needed).exists() {
                Prerequisite::LIBRPMA_HEADERS.report_skipped(needed);
                return None;
            }
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        symlink(library(), directory.path().join("librpma.so.0")).expect("a temporary directory");
        if !header.needs_verbs() {
            copy_system_headers(directory.path());
        }
        Some(Compiler { header, directory })
    }

    /// Returns the directory, which has the library.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a command of a compiler that finds the header.
    fn command(&self, compiler: &str, standard: &str) -> Command {
        let mut command = Command::new(compiler);
        command.args([standard, "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        if let Some(own) = self.header.directory() {
            command.arg("-I").arg(own);
        }
        if !self.header.needs_verbs() {
            command.arg("-nostdinc");
            let copies = (0..).map(|index| system_copy(self.directory(), index));
            for copy in copies.take_while(|copy| copy.exists()) {
                command.arg("-isystem").arg(copy);
            }
        }
        command
    }

    /// Compiles a program of `tests/c`, in C or C++, and links it with a library. Returns its path.
    pub(crate) fn compile(&self, file: &str, library: &Path) -> PathBuf {
        let is_cpp = file.ends_with(".cpp");
        let (compiler, standard) = if is_cpp { ("c++", "-std=c++11") } else { ("cc", "-std=gnu11") };
        let mut command = self.command(compiler, standard);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(file);
        let program = self.directory().join(file).with_extension("");
        let compiled = command.arg("-o").arg(&program).arg(source).arg(library).status();
        assert!(compiled.expect("a compiler").success(), "{file} does not compile with {:?}", self.header);
        program
    }

    /// Gives the compiler a text of C, and returns what it prints.
    pub(crate) fn read(&self, options: &[&str], text: &str) -> Output {
        let mut compiler = self.command("cc", "-std=gnu11");
        compiler.args(options).args(["-x", "c", "-"]);
        compiler.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut compiler = compiler.spawn().expect("a C compiler");
        let mut input = compiler.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("the compiler reads");
        drop(input);
        compiler.wait_with_output().expect("the compiler ends")
    }
}

/// Returns the directory with the headers of one of the directories of the system, but libibverbs'.
fn system_copy(directory: &Path, index: usize) -> PathBuf {
    directory.join(format!("system-{index}"))
}

/// Makes directories with all headers of the system but those of libibverbs and librpma.
fn copy_system_headers(directory: &Path) {
    for (index, original) in system_directories().iter().enumerate() {
        let copy = system_copy(directory, index);
        fs::create_dir(&copy).expect("a temporary directory");
        for entry in fs::read_dir(original).expect("the compiler has named it") {
            let name = entry.expect("the directory is read").file_name();
            if name != "infiniband" && name != "librpma.h" {
                symlink(original.join(&name), copy.join(&name)).expect("a temporary directory");
            }
        }
    }
}

/// Returns the directories in which the compiler looks for headers.
fn system_directories() -> Vec<PathBuf> {
    let output = Command::new("cc").args(["-E", "-v", "-x", "c", "/dev/null"]).output();
    let said = String::from_utf8(output.expect("a C compiler").stderr).expect("paths are UTF-8");
    let listed = said.lines().skip_while(|line| !line.starts_with("#include <...>")).skip(1);
    let listed = listed.take_while(|line| !line.starts_with("End of search list"));
    let directories: Vec<_> = listed.map(|line| PathBuf::from(line.trim())).collect();
    assert!(!directories.is_empty(), "{said}");
    directories
}
