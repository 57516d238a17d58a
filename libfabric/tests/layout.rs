//! Compares the hand-written C interface with the installed headers: every size, offset and constant.
//!
//! The test needs a C compiler and the headers (Debian: `libfabric-dev`). Without them it is skipped
//! with a message; under `./test` it fails. `C_INCLUDE_PATH` chooses other headers.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use homespun::AddressFormat;
use homespun::Errno;
use homespun::atomic::{AtomicOp, Datatype};
use homespun::flags::{BindFlags, Caps, CompletionFlags, InfoFlags, Mode, MrAccess, OpFlags, Order};
use homespun::info::{
    AvType, EndpointType, MrMode, Progress, ResourceManagement, SHARED_CONTEXT, Threading, address_format_raw,
};
use homespun_fi::abi::{BASE_VERSION, CONSTANTS, Layout, struct_layouts};
use homespun_suite::prerequisites::Prerequisite;

const INCLUDES: &str = "\
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <homespun.h>
#define SHOW(name, value) printf(\"%s=%llu\\n\", name, (unsigned long long) (value));
int main(void)
{
";

/// Returns constants by their C names: the constants of the plugin, and homespun's flags and errors.
/// All must have C's values.
fn own_constants() -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> =
        CONSTANTS.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let mut add = |name: String, value: u64| {
        all.insert(name, value);
    };
    let plain = [
        list_named_flags::<Caps>(),
        list_named_flags::<OpFlags>(),
        list_named_flags::<CompletionFlags>(),
        list_named_flags::<BindFlags>(),
        list_named_flags::<InfoFlags>(),
        list_named_flags::<Mode>(),
        list_named_flags::<MrAccess>(),
    ];
    // Flushes are homespun's own, and no call of C makes one.
    let of_libfabric = |(name, _): &(&str, u64)| *name != "FLUSH";
    for (name, value) in plain.into_iter().flatten().filter(of_libfabric) {
        // The one name that homespun spells differently.
        add(format!("FI_{}", name.replace("NUMERIC_HOST", "NUMERICHOST")), value);
    }
    for (name, value) in list_named_flags::<Order>() {
        add(format!("FI_ORDER_{name}"), value);
    }
    for (name, flag) in MrMode::all().iter_names() {
        add(format!("FI_MR_{name}"), flag.bits().into());
    }
    for (name, errno) in (1..1000).map(Errno::new).filter_map(|errno| Some((errno.name()?, errno))) {
        // Numbers below 256 are the system's, and libfabric names only some of them.
        let prefix = if errno.raw() < 256 { "" } else { "FI_" };
        add(format!("{prefix}{name}"), errno.raw().cast_unsigned().into());
    }
    let choices = [
        ("FI_EP_MSG", EndpointType::Msg.raw()),
        ("FI_EP_DGRAM", EndpointType::Dgram.raw()),
        ("FI_EP_RDM", EndpointType::Rdm.raw()),
        ("FI_THREAD_SAFE", Threading::Safe.raw()),
        ("FI_THREAD_FID", Threading::Fid.raw()),
        ("FI_THREAD_DOMAIN", Threading::Domain.raw()),
        ("FI_THREAD_COMPLETION", Threading::Completion.raw()),
        ("FI_THREAD_ENDPOINT", Threading::Endpoint.raw()),
        ("FI_PROGRESS_AUTO", Progress::Auto.raw()),
        ("FI_PROGRESS_MANUAL", Progress::Manual.raw()),
        ("FI_RM_DISABLED", ResourceManagement::Disabled.raw()),
        ("FI_RM_ENABLED", ResourceManagement::Enabled.raw()),
        ("FI_AV_MAP", AvType::Map.raw()),
        ("FI_AV_TABLE", AvType::Table.raw()),
        ("FI_SOCKADDR_IN", address_format_raw(Some(AddressFormat::SockaddrIn))),
        ("FI_SOCKADDR_IN6", address_format_raw(Some(AddressFormat::SockaddrIn6))),
    ];
    for datatype in Datatype::ALL {
        add(datatype.to_string(), datatype as u64);
    }
    for op in AtomicOp::ALL {
        add(op.to_string(), op as u64);
    }
    for (name, value) in choices {
        add(name.to_owned(), value.into());
    }
    add("FI_SHARED_CONTEXT".to_owned(), SHARED_CONTEXT as u64);
    all
}

/// Returns the names and values of flags.
fn list_named_flags<F: bitflags::Flags<Bits = u64>>() -> Vec<(&'static str, u64)> {
    F::all().iter_names().map(|(name, flag)| (name, flag.bits())).collect()
}

fn make_layout_program() -> String {
    let mut text = INCLUDES.to_owned();
    // Writing to a string does not fail.
    let mut line = |line: String| writeln!(text, "{line}").expect("memory");
    line("SHOW(\"major\", FI_MAJOR_VERSION) SHOW(\"minor\", FI_MINOR_VERSION)".to_owned());
    for Layout { name, fields, .. } in struct_layouts() {
        line(format!("SHOW(\"{name}\", sizeof({name}))"));
        for field in *fields {
            let (major, minor) = field.since;
            let c_field = field.name.trim_start_matches("r#");
            line(format!(
                "#if FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION({major}, {minor})"
            ));
            line(format!("SHOW(\"{name}.{}\", offsetof({name}, {c_field}))", field.name));
            line("#endif".to_owned());
        }
    }
    for name in own_constants().keys() {
        line(format!("SHOW(\"{name}\", {name})"));
    }
    line("return 0; }".to_owned());
    text
}

/// Compiles a program in a directory of its own. Returns `None` if there is no compiler.
fn compile(directory: &Path, source: &str) -> Option<Output> {
    fs::write(directory.join("layout.c"), source).expect("a temporary directory");
    let own = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    Command::new("cc").current_dir(directory).args(["-w", own, "-o", "layout", "layout.c"]).output().ok()
}

/// Whether the headers are installed.
fn has_headers(directory: &Path) -> bool {
    let probe = compile(directory, "#include <rdma/fabric.h>\nint main(void) { return 0; }\n");
    probe.is_some_and(|output| output.status.success())
}

/// Returns the values in the headers by name, or `None` without headers.
fn compile_header_values() -> Option<BTreeMap<String, u64>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    if !has_headers(directory.path()) {
        return None;
    }
    let output = compile(directory.path(), &make_layout_program()).expect("a compiler, as just now");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown =
        Command::new(directory.path().join("layout")).output().expect("the program that was compiled");
    assert!(shown.status.success());
    let shown = String::from_utf8(shown.stdout).expect("ASCII");
    let parse = |line: &str| {
        let (name, value) = line.split_once('=').expect("name=value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    Some(shown.lines().map(parse).collect())
}

/// Shows fi_cq/functions-and-structures, fi_cq/readerr-entry, fi_cq/errno-values.
#[test]
fn interface_matches_the_installed_headers() {
    let Some(headers) = compile_header_values() else {
        return Prerequisite::LIBFABRIC_HEADERS.report_skipped("nothing to compare with");
    };
    let version = (headers["major"] as u16, headers["minor"] as u16);
    assert!(version >= BASE_VERSION, "headers of {version:?} are older than the interface");
    let mut differences = Vec::new();
    let mut compare = |name: &str, ours: u64, is_same: fn(&u64, &u64) -> bool| match headers.get(name) {
        Some(theirs) if is_same(theirs, &ours) => {}
        theirs => differences.push(format!("{name}: {ours} here, {theirs:?} in the headers")),
    };
    for Layout { name, size_bytes, fields } in struct_layouts() {
        for field in fields.iter().filter(|field| field.since <= version) {
            compare(&format!("{name}.{}", field.name), field.offset_bytes as u64, u64::eq);
        }
        // Headers may be older than a field: their structure ends before that field. In headers newer
        // than 1.17 a structure may be longer. A vtable may not: the plugin would leave its new slots
        // empty.
        let newer = fields.iter().find(|field| field.since > version);
        let size_bytes = newer.map_or(*size_bytes, |field| field.offset_bytes) as u64;
        let may_be_longer = version > BASE_VERSION && !name.starts_with("struct fi_ops");
        compare(name, size_bytes, if may_be_longer { u64::ge } else { u64::eq });
    }
    for (name, value) in own_constants() {
        compare(&name, value, u64::eq);
    }
    assert!(differences.is_empty(), "headers of {version:?}:\n{}", differences.join("\n"));
}
