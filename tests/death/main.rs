//! Death: processes that are killed at every step of what they do, and what is left of it where they were known.
//!
//! The test is the survivor. It has one endpoint for all of its peers, which it outlives one by one; each is a process
//! that exchanges messages of all kinds with it until it is killed: by itself after so many calls of the library, by
//! the system at a certain system call, or by the test at any moment.
//!
//! `HOMESPUN_DEATHS` sets how many peers die in each test.

#[path = "../suite/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;
mod survivor;
mod victim;

use std::env;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::suite::Transport;
use crate::suite::possessions::Possessions;
use crate::suite::seccomp::{COPIES_ACROSS, refuse_in_this_thread};
use crate::survivor::{Survivor, Tally};
use crate::victim::{End, First, Life, SYSTEM_CALLS};

/// What a process has is counted, so its tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// How many peers die if nobody says otherwise.
fn deaths(default: u64) -> u64 {
    match env::var("HOMESPUN_DEATHS") {
        Ok(asked) => asked.parse().expect("HOMESPUN_DEATHS is a number"),
        Err(_) => default,
    }
}

/// Has so many peers live and die, and looks at what they leave.
fn outlive(transport: &Transport, count: u64, end: impl Fn(u64) -> End) {
    outlive_those(transport, count, false, end);
}

fn outlive_those(transport: &Transport, count: u64, is_confined: bool, end: impl Fn(u64) -> End) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // What the process opens once and keeps is not counted.
    drop(Survivor::new(transport));
    let before = Possessions::now();
    let mut survivor = Survivor::new(transport);
    for number in 0..count {
        let first = [First::Victim, First::Survivor, First::Both][number as usize % 3];
        survivor.outlive(&Life { number, first, is_confined, end: end(number / 3) });
    }
    survivor.is_well();
    report(&survivor.tally);
    drop(survivor);
    assert_eq!(Possessions::now(), before);
}

#[expect(clippy::print_stdout, reason = "a long run is worth its numbers")]
fn report(tally: &Tally) {
    println!("{tally:?}");
}

/// After each of its first so many calls of the library.
fn at_every_call(transport: &Transport, default: u64) {
    let count = deaths(default);
    outlive(transport, count, End::AfterCalls);
}

/// At each system call that a transport makes, the first time or later.
fn at_every_system_call(transport: &Transport, default: u64) {
    let count = deaths(default);
    outlive(transport, count, |number| {
        let kinds = SYSTEM_CALLS.len() as u64;
        End::AtSystemCall { which: (number % kinds) as usize, after_calls: number / kinds * 7 }
    });
}

fn at_any_moment(transport: &Transport, default: u64) {
    outlive(transport, deaths(default), |_| End::FromOutside);
}

mod over_shared_memory {
    use super::*;

    #[test]
    fn at_every_call_of_the_library() {
        at_every_call(&Transport::Shm4, 45);
    }

    #[test]
    fn at_every_system_call_of_the_transport() {
        at_every_system_call(&Transport::Shm4, 3 * SYSTEM_CALLS.len() as u64);
    }

    #[test]
    fn at_any_moment_at_all() {
        at_any_moment(&Transport::Shm6, 45);
    }
}

/// As over shared memory, where everything has to go through the rings.
mod over_rings {
    use super::*;

    #[test]
    fn at_any_moment_at_all() {
        let confined = thread::spawn(|| {
            refuse_in_this_thread(&COPIES_ACROSS, libc::EPERM);
            outlive_those(&Transport::Shm4, deaths(30), true, |_| End::FromOutside);
        });
        if let Err(panic) = confined.join() {
            resume_unwind(panic);
        }
    }
}

mod over_tcp {
    use super::*;

    #[test]
    fn at_every_call_of_the_library() {
        at_every_call(&Transport::Tcp4, 24);
    }

    #[test]
    fn at_every_system_call_of_the_transport() {
        at_every_system_call(&Transport::Tcp4, 3 * SYSTEM_CALLS.len() as u64);
    }

    #[test]
    fn at_any_moment_at_all() {
        at_any_moment(&Transport::Tcp6, 24);
    }
}
