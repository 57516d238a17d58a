//! The features that tests need and that a host may lack. A test may be skipped for no other reason.
//!
//! A test checks here for the feature that it needs. If the host lacks the feature, the test returns, and
//! [`Prerequisite::report_skipped`] reports it on standard error. The report also goes to the file that the
//! environment variable `HOMESPUN_SKIPPED` names. `./test` makes its summary from this file.

use std::cell::RefCell;
use std::env;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;

use rustix::fs::statfs;
use rustix::process::geteuid;

use self::Required::{InCi, InTestScript, Never};

/// The number of tmpfs in `statfs(2)`. The files of a tmpfs are only in memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A feature that a host may lack. Each constant of this type is one of these features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prerequisite {
    name: &'static str,
    reason: &'static str,
    required: Required,
}

/// Where a test fails, instead of being skipped, if the host lacks a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Required {
    /// In `./test`, which installs it.
    InTestScript,
    /// In CI, whose hosts have it.
    InCi,
    /// Nowhere.
    Never,
}

impl Required {
    fn applies_here(self) -> bool {
        match self {
            InTestScript => env::var_os("HOMESPUN_REQUIRE_PREREQUISITES").is_some(),
            InCi => env::var_os("CI").is_some(),
            Never => false,
        }
    }
}

impl Prerequisite {
    const fn new(name: &'static str, reason: &'static str, required: Required) -> Prerequisite {
        Prerequisite { name, reason, required }
    }

    /// A host on which this process may become another user.
    pub const ANOTHER_USER: Self =
        Self::new("another user", "only the superuser can become another user, who must exist", Never);

    /// A host on which this process may start processes in other namespaces.
    pub const PID_NAMESPACES: Self =
        Self::new("PID namespaces", "only the superuser can start a process in a new PID namespace", Never);

    /// A host on which this process may make network namespaces, and join them.
    pub const NETWORK_NAMESPACES: Self =
        Self::new("network namespaces", "this user may not make network namespaces or interfaces", Never);

    /// The program `ip`, which configures interfaces.
    pub const IP: Self = Self::new("ip", "it is not installed (Debian: iproute2)", InTestScript);

    /// A kernel that keeps a sandboxed process from connecting to abstract names outside of the sandbox.
    pub const SCOPED_ABSTRACT_NAMES: Self =
        Self::new("scoped abstract names", "Landlock is off, or is older than Linux 6.12", Never);

    /// Files on a device, whose dirty pages the system counts.
    pub const FILES_ON_A_DEVICE: Self =
        Self::new("files on a device", "the system counts no dirty pages of a file on tmpfs", Never);

    /// A C library that counts the bytes of the heap, `mallinfo2(3)`.
    pub const COUNTED_HEAP: Self =
        Self::new("counted heap", "only the C library of GNU counts the bytes of the heap", Never);

    /// The program `fi_info` of an installed libfabric.
    pub const FI_INFO: Self =
        Self::new("fi_info", "it is not installed (Debian: libfabric-bin)", InTestScript);

    /// The library of an installed libfabric.
    pub const LIBFABRIC: Self =
        Self::new("libfabric", "it is not installed (Debian: libfabric-bin)", InTestScript);

    /// The version of libfabric that docs/tolerance.md describes, with the providers of that version.
    pub const DOCUMENTED_LIBFABRIC: Self =
        Self::new("the documented libfabric", "docs/tolerance.md is about providers of libfabric 1.17", InCi);

    /// The manual pages of libfabric and librpma.
    pub const MANUAL_PAGES: Self =
        Self::new("manual pages", "a page is missing (Debian: libfabric-dev, librpma-dev)", InTestScript);

    /// The versions of these pages that the clauses describe.
    pub const DOCUMENTED_MANUAL_PAGES: Self =
        Self::new("the documented manual pages", "clauses are about libfabric 1.17 and librpma 1.2", Never);

    /// A C compiler and the headers of libfabric.
    pub const LIBFABRIC_HEADERS: Self =
        Self::new("headers of libfabric", "gcc or libfabric-dev (Debian's names) is missing", InTestScript);

    /// A compiler of C++.
    pub const CPP_COMPILER: Self =
        Self::new("a compiler of C++", "it is not installed (Debian: g++)", InTestScript);

    /// A C compiler and the header of librpma, which includes one of libibverbs.
    pub const LIBRPMA_HEADERS: Self =
        Self::new("headers of librpma", "gcc, librpma-dev or libibverbs-dev is missing", InTestScript);

    /// The library of an installed librpma.
    pub const LIBRPMA: Self = Self::new("librpma", "it is not installed (Debian: librpma0)", InTestScript);

    /// A program of an MPI, or of a benchmark of one.
    pub const MPI: Self = Self::new("MPI", "a program is not installed (./test installs it)", InTestScript);

    /// A processor that Intel MPI supports.
    pub const PROCESSOR_OF_INTEL_MPI: Self =
        Self::new("processor of Intel MPI", "Intel MPI is made for x86-64 only", Never);

    /// Reports that the calling test is skipped, since the host lacks this feature. `detail` adds what is
    /// known about it.
    ///
    /// # Panics
    ///
    /// If `./test` or CI runs the test, and requires the feature.
    #[track_caller]
    pub fn report_skipped(self, detail: impl Display) {
        let Prerequisite { name, reason, required } = self;
        assert!(!required.applies_here(), "there must be {name} here: {detail}");
        let test = TEST_NAME.with_borrow(Clone::clone);
        let test =
            test.or_else(|| thread::current().name().map(str::to_owned)).unwrap_or("a test".to_owned());
        let line = format!("skipped: {test}: {name}: {reason} ({detail})\n");
        // Write to standard error directly. The test harness hides what a passing test prints.
        let _ = std::io::stderr().write_all(line.as_bytes());
        append_to_summary(&line);
    }

    /// Returns `found`. If it is `None`, reports that the calling test is skipped.
    #[track_caller]
    pub fn report_skipped_if_none<T>(self, found: Option<T>, detail: impl Display) -> Option<T> {
        if found.is_none() {
            self.report_skipped(detail);
        }
        found
    }
}

thread_local! {
    /// The name of the test that this thread runs, if the thread itself has another.
    static TEST_NAME: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Tells the name of the test that this thread runs from now on.
pub(crate) fn set_test_name(name: &str) {
    TEST_NAME.set(Some(name.to_owned()));
}

/// Notes for the summary of `./test` that a provider does not have what a test needs.
pub(crate) fn record_not_offered(provider: &str, what: &str) {
    append_to_summary(&format!("not offered: {provider}: {what}\n"));
}

fn append_to_summary(line: &str) {
    if let Some(path) = env::var_os("HOMESPUN_SKIPPED") {
        // One call appends the whole line, even while other tests append theirs.
        let file = File::options().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of skipped tests");
    }
}

/// Returns whether this process may start a process of this user. The user must exist in the user namespace
/// (`user_namespaces(7)`). If not, reports that the test is skipped.
#[track_caller]
pub fn probe_user_change_or_skip(uid: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").expect("Linux has this file");
    let exists = map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        matches!(numbers[..], [first, _, count] if (first..first + count).contains(&u64::from(uid)))
    });
    let may = exists && geteuid().is_root();
    if !may {
        Prerequisite::ANOTHER_USER.report_skipped(format_args!("user {uid}"));
    }
    may
}

/// Returns whether the system counts dirty pages of this file. If not, reports that the test is skipped.
#[track_caller]
pub(crate) fn probe_dirty_page_counts_or_skip(path: &Path) -> bool {
    let counts = statfs(path).expect("the file is there").f_type as i64 != TMPFS_MAGIC;
    if !counts {
        Prerequisite::FILES_ON_A_DEVICE.report_skipped(path.display());
    }
    counts
}
