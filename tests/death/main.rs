//! Kills processes at every step. The peer of these processes must survive.
//!
//! The test process is the survivor. One endpoint of the survivor serves all victims, one after the other.
//! Each victim is a process that exchanges messages of all kinds with the survivor until it dies. There are
//! three ways to die: the victim kills itself after a number of library calls, the system kills the victim
//! at a certain system call, or the test kills the victim at a random moment.
//!
//! `HOMESPUN_DEATHS` sets how many victims die in each test.

mod survivor;
mod victim;

use std::env;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::survivor::{Survivor, Tally};
use crate::victim::{CauseOfDeath, FirstSender, SYSTEM_CALLS, VictimPlan};
use homespun_suite::TransportKind;
use homespun_suite::process_resources::ProcessResources;
use homespun_suite::seccomp::{COPIES_ACROSS, fail_system_calls_of_thread};

/// The tests count resources of the process, so they run one after the other.
static EXCLUSIVE_RUN: Mutex<()> = Mutex::new(());

/// Returns how many victims die: `HOMESPUN_DEATHS`, or the default if the variable is not set.
fn death_count(default_deaths: u64) -> u64 {
    match env::var("HOMESPUN_DEATHS") {
        Ok(asked) => asked.parse().expect("HOMESPUN_DEATHS is a number"),
        Err(_) => default_deaths,
    }
}

/// Runs `count` victims until they die. Checks that the process then has the same resources as before.
fn outlive_victims(transport: &TransportKind, count: u64, end: impl Fn(u64) -> CauseOfDeath) {
    outlive_victims_of_kind(transport, count, false, end);
}

fn outlive_victims_of_kind(
    transport: &TransportKind,
    count: u64,
    is_confined: bool,
    end: impl Fn(u64) -> CauseOfDeath,
) {
    let _alone = EXCLUSIVE_RUN.lock().unwrap_or_else(PoisonError::into_inner);
    // Resources that the process opens once and keeps are not counted.
    drop(Survivor::new(transport));
    let before = ProcessResources::measure_now();
    let mut survivor = Survivor::new(transport);
    for number in 0..count {
        let first = [FirstSender::Victim, FirstSender::Survivor, FirstSender::Both][number as usize % 3];
        survivor.outlive_victim(&VictimPlan { number, first, is_confined, end: end(number / 3) });
    }
    survivor.check_exchange_with_a_living_peer();
    print_tally(&survivor.tally);
    drop(survivor);
    assert_eq!(ProcessResources::measure_now(), before);
}

#[expect(clippy::print_stdout, reason = "a long run is worth its numbers")]
fn print_tally(tally: &Tally) {
    println!("{tally:?}");
}

/// Over mixed networks, the survivor shares memory with every second victim, and reaches the others over TCP.
const TRANSPORTS: [(TransportKind, u64); 3] =
    [(TransportKind::Shm4, 18), (TransportKind::MIXED4, 12), (TransportKind::Tcp4, 12)];

#[test]
fn peer_killed_at_every_library_call_is_survived() {
    for (transport, default_deaths) in TRANSPORTS {
        // The first victims die at each step of opening and connecting, the later ones far apart.
        let after_calls = |number| if number < 3 { number } else { 5 * number - 12 };
        let end = |number| CauseOfDeath::AfterCalls(after_calls(number));
        outlive_victims(&transport, death_count(default_deaths), end);
    }
}

/// Kills victims at each system call of a transport. A later victim survives more library calls before that.
#[test]
fn peer_killed_at_every_system_call_is_survived() {
    let kinds = SYSTEM_CALLS.len() as u64;
    for (transport, _) in TRANSPORTS {
        outlive_victims(&transport, death_count(3 * kinds), |number| CauseOfDeath::AtSystemCall {
            which: (number % kinds) as usize,
            after_calls: number / kinds * 7,
        });
    }
}

#[test]
fn peer_killed_at_any_moment_is_survived() {
    for (transport, default_deaths) in
        [(TransportKind::Shm6, 18), (TransportKind::MIXED4, 12), (TransportKind::Tcp6, 12)]
    {
        outlive_victims(&transport, death_count(default_deaths), |_| CauseOfDeath::FromOutside);
    }
}

/// Forbids copies between processes, so all bytes go through the rings of shared memory.
#[test]
fn peer_killed_at_any_moment_over_rings_is_survived() {
    let confined = thread::spawn(|| {
        fail_system_calls_of_thread(&COPIES_ACROSS, libc::EPERM);
        outlive_victims_of_kind(&TransportKind::Shm4, death_count(12), true, |_| CauseOfDeath::FromOutside);
    });
    if let Err(panic) = confined.join() {
        resume_unwind(panic);
    }
}
