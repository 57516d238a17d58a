//! The output of the command: results on standard output, messages and progress on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use textwrap::{Options, WordSeparator, WordSplitter};
use tracing::level_filters::LevelFilter;

use crate::failure::CommandFailure;

/// The largest width of results, in characters.
pub(crate) const WIDTH: usize = 80;

/// Wraps a paragraph to lines of [`WIDTH`]. The first line begins with `first_indent`, the others with
/// `rest_indent`. Words are never broken.
pub(crate) fn wrap(text: &str, first_indent: &str, rest_indent: &str) -> String {
    let options = Options::new(WIDTH)
        .initial_indent(first_indent)
        .subsequent_indent(rest_indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// Standard output and standard error. If standard error is a terminal, it shows a progress bar.
#[derive(Debug)]
pub(crate) struct Console {
    bar: ProgressBar,
}

impl Console {
    pub(crate) fn new() -> Console {
        Console { bar: ProgressBar::hidden() }
    }

    /// Writes a line of results. Flushes standard output, even if it is a pipe.
    ///
    /// # Errors
    ///
    /// [`CommandFailure::Output`], also for a closed pipe. (`println!` would panic.)
    pub(crate) fn print_line(&self, text: impl Display) -> Result<(), CommandFailure> {
        let line = format!("{text}\n");
        let write = || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush())
        };
        self.bar.suspend(write).map_err(CommandFailure::Output)
    }

    /// Writes a paragraph of results, wrapped to lines of [`WIDTH`].
    ///
    /// # Errors
    ///
    /// As [`print_line`](Self::print_line).
    pub(crate) fn print_wrapped(&self, text: impl Display) -> Result<(), CommandFailure> {
        self.print_line(wrap(&text.to_string(), "", ""))
    }

    /// Writes results as JSON, for programs.
    ///
    /// # Errors
    ///
    /// As [`print_line`](Self::print_line).
    pub(crate) fn print_json(&self, results: &impl Serialize) -> Result<(), CommandFailure> {
        let text =
            serde_json::to_string_pretty(results).map_err(|error| CommandFailure::Output(error.into()))?;
        self.print_line(text)
    }

    /// Writes a warning or an error message.
    pub(crate) fn print_warning(&self, text: impl Display) {
        // Use one write, so that simultaneous messages of two processes do not mix.
        let line = format!("homespun: {text}\n");
        // If standard error is closed, there is no other place for the message.
        let _ = self.bar.suspend(|| io::stderr().write_all(line.as_bytes()));
    }

    /// Shows a progress bar with this number of steps, if standard error is a terminal. With `-v` shows
    /// no bar, because log messages would hide it.
    pub(crate) fn start_progress(&mut self, steps: usize) {
        if LevelFilter::current() > LevelFilter::WARN {
            return;
        }
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len}  {msg}");
        self.bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    /// Shows the name of the next step. Draws the bar at once, so that drawing does not disturb the next
    /// measurement.
    pub(crate) fn show_step(&self, message: String) {
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// Counts a step as done.
    pub(crate) fn advance_progress(&self) {
        self.bar.inc(1);
    }

    /// Removes the progress bar.
    pub(crate) fn end_progress(&self) {
        self.bar.finish_and_clear();
    }
}
