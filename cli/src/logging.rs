//! Shows the fabric's `tracing` events on standard error while the command runs.

use std::fmt;
use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The levels by the number of `-v`.
const LEVELS: [LevelFilter; 4] =
    [LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];

/// Shows events from now on: `shown`, or more with `-v`.
pub(crate) fn install_subscriber(verbosity: u8, shown: Targets) {
    let level = LEVELS[usize::from(verbosity).min(LEVELS.len() - 1)];
    let shown = if verbosity == 0 { shown } else { Targets::new().with_default(level) };
    let format = Line { has_target: verbosity > 0 };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).event_format(format);
    // `init` panics only if a subscriber is already installed. No other code installs one.
    lines.finish().with(shown).init();
}

/// Returns the arguments that give another process of this program the same verbosity.
pub(crate) fn verbosity_arguments() -> impl Iterator<Item = &'static str> {
    let count = LEVELS.iter().position(|level| *level == LevelFilter::current());
    std::iter::repeat_n("-v", count.unwrap_or(0))
}

/// Writes an event as a line that begins like the command's own messages.
struct Line {
    /// Whether to name the part of homespun that reports.
    has_target: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        write!(writer, "homespun: {}: ", level_name(*metadata.level()))?;
        if self.has_target {
            write!(writer, "{}: ", metadata.target())?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}
