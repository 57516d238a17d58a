//! A test program without the harness of `rustc`.

use std::env;
use std::num::NonZero;
use std::process::ExitCode;
use std::thread;

use libtest_mimic::{Arguments, Trial};

/// Runs tests as the arguments of the program say, which are those of `cargo test`.
pub fn run_tests(mut tests: Vec<Trial>) -> ExitCode {
    tests.sort_by(|left, right| left.name().cmp(right.name()));
    let (filters, options) = split_arguments(env::args());
    let mut arguments = Arguments::from_iter(options);
    arguments.test_threads.get_or_insert_with(default_thread_count);
    if !filters.is_empty() {
        let is_chosen = |test: &Trial, filter: &String| {
            if arguments.exact { test.name() == filter } else { test.name().contains(filter.as_str()) }
        };
        tests.retain(|test| filters.iter().any(|filter| is_chosen(test, filter)));
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Two threads a processor: most tests wait for other threads and processes most of the time.
fn default_thread_count() -> usize {
    2 * thread::available_parallelism().map_or(1, NonZero::get)
}

/// Separates the names of tests from the other arguments: `cargo test` takes several, and the parser one.
fn split_arguments(arguments: impl IntoIterator<Item = String>) -> (Vec<String>, Vec<String>) {
    const WITH_VALUE: [&str; 6] = ["-Z", "--skip", "--test-threads", "--format", "--logfile", "--color"];
    let (mut filters, mut options) = (Vec::new(), Vec::new());
    let mut arguments = arguments.into_iter();
    options.extend(arguments.next());
    while let Some(argument) = arguments.next() {
        let has_value = WITH_VALUE.contains(&argument.as_str());
        if !argument.starts_with('-') {
            filters.push(argument);
            continue;
        }
        options.push(argument);
        if has_value {
            options.extend(arguments.next());
        }
    }
    (filters, options)
}
