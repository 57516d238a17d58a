//! Compares the recorded instructions of operations on near peers over `auto` with those over `shm`.

use std::path::Path;

use homespun_instructions::record::Record;

/// The share of instructions that an operation over `auto` may take more than over `shm`.
const MAX_EXCESS: f64 = 0.05;

/// An operation over `auto` may always take this many instructions more, since its passes also look at TCP.
/// Under callgrind, time is so slow that every 32nd empty read looks for peers on its core
/// (docs/decisions/shared-cores.md); otherwise a read does so once in 4 us. What the compiler inlines differs
/// between the two by up to twenty instructions.
const MIN_EXCESS_INSTRUCTIONS: f64 = 100.0;

#[test]
fn operations_on_near_peers_over_auto_cost_little_more_than_over_shm() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.json");
    let paths = Record::read(&path).expect("a record").expect("the repository has a record").paths;
    let mut compared = 0;
    for (name, over_auto) in &paths {
        let Some(operation) = name.strip_prefix("auto/") else { continue };
        let over_shm = paths[&format!("shm/{operation}")].total;
        let excess = over_auto.total - over_shm;
        let allowed = (over_shm * MAX_EXCESS).max(MIN_EXCESS_INSTRUCTIONS);
        assert!(excess <= allowed, "{name} takes {excess:.1} instructions more than over shm");
        compared += 1;
    }
    assert!(compared > 0, "no path of auto is recorded");
}
