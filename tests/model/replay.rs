//! A planted fault: the model finds it, shrinks the program, and finds it again in the program's file.

use std::time::Duration;
use std::{env, fs, process};

use homespun_engine::loopback::Faults;
use homespun_suite::model::{Offer, Program, Search};
use homespun_suite::{Outcome, TransportKind, Turns};

/// How many programs are tried. Most programs receive a message.
const PROGRAMS: u64 = 20;

#[test]
fn program_that_shows_a_planted_duplicate_is_shrunk_and_fails_again_from_a_file() {
    let transport = TransportKind::Loopback { seed: 0, faults: Faults::default() };
    let search = |offer| Search { turns: Turns::Alternate, transport: &transport, offer, seed: 1 };
    let faulty = search(Offer::NATIVE.with_planted_duplicates());
    let number = (0..PROGRAMS).find(|&number| faulty.run(number) != Outcome::Passed);
    let mut smallest = None;
    let number = number.expect("a program receives a message");
    faulty.shrink(number, Duration::MAX, |program, text| {
        smallest = Some((serde_json::to_string(program).unwrap(), text));
    });
    let (program, text) = smallest.expect("the program fails again");
    assert!(text.contains("fi_cq/reports-ends-of-transfers"), "{text}");

    let file = env::temp_dir().join(format!("homespun-planted-duplicate-{}.json", process::id()));
    fs::write(&file, program).unwrap();
    let replayed: Program = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(replayed.steps_len() <= 2, "{replayed:?}");
    assert!(matches!(faulty.run_program(&replayed), Outcome::Failed(_)));
    assert_eq!(search(Offer::NATIVE).run_program(&replayed), Outcome::Passed);
}
