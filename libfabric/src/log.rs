//! Diagnostics: forwards homespun's `tracing` events to the host's `fi_log`. `FI_LOG_LEVEL` and
//! `FI_LOG_SUBSYS` choose the level and the subsystems.

use std::ffi::CString;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber, callsite};

use crate::abi::{
    FI_LOG_AV, FI_LOG_CORE, FI_LOG_CQ, FI_LOG_DEBUG, FI_LOG_DOMAIN, FI_LOG_EP_CTRL, FI_LOG_EP_DATA,
    FI_LOG_EQ, FI_LOG_FABRIC, FI_LOG_INFO, FI_LOG_WARN,
};
use crate::host;

/// Sends log messages to the host from now on; drops them if the host is gone.
pub(crate) fn install_or_refresh_subscriber() {
    // The plugin has its own copy of `tracing`. So if a subscriber is already set, it is the
    // plugin's own.
    if set_global_default(Forward).is_err() {
        callsite::rebuild_interest_cache();
    }
}

/// The subscriber that forwards events, but no spans.
struct Forward;

impl Subscriber for Forward {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let Some(host) = host::current() else { return Some(LevelFilter::OFF) };
        let is_wanted = |level: &Level| {
            SUBSYSTEMS.iter().any(|&(_, subsystem)| host.is_log_enabled(host_log_level(level), subsystem))
        };
        let levels = [Level::TRACE, Level::INFO, Level::WARN];
        Some(levels.into_iter().find(is_wanted).map_or(LevelFilter::OFF, LevelFilter::from_level))
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = host_log_level(metadata.level());
        metadata.is_event()
            && host::current()
                .is_some_and(|host| host.is_log_enabled(level, host_subsystem(metadata.target())))
    }

    fn event(&self, event: &Event<'_>) {
        let Some(host) = host::current() else { return };
        let metadata = event.metadata();
        let mut line = Line(String::new());
        event.record(&mut line);
        let place = metadata.module_path().unwrap_or(metadata.target());
        let (function, message) = (to_c_string(place.to_owned()), to_c_string(line.0));
        let level = host_log_level(metadata.level());
        host.log(level, host_subsystem(metadata.target()), &function, metadata.line().unwrap_or(0), &message);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the host's level for a `tracing` level. Does not use the host's "trace", which is less
/// verbose than the host's "info".
fn host_log_level(level: &Level) -> u32 {
    match *level {
        Level::ERROR | Level::WARN => FI_LOG_WARN,
        Level::INFO => FI_LOG_INFO,
        Level::DEBUG | Level::TRACE => FI_LOG_DEBUG,
    }
}

/// The host's subsystem for each module; the first match counts.
const SUBSYSTEMS: &[(&str, u32)] = &[
    ("homespun::av", FI_LOG_AV),
    ("homespun::cq", FI_LOG_CQ),
    ("homespun::domain", FI_LOG_DOMAIN),
    ("homespun::endpoint", FI_LOG_EP_CTRL),
    ("homespun::eq", FI_LOG_EQ),
    ("homespun::fabric", FI_LOG_FABRIC),
    ("homespun::pump", FI_LOG_EP_DATA),
    ("homespun_auto", FI_LOG_EP_DATA),
    ("homespun_engine", FI_LOG_EP_DATA),
    ("homespun_tcp", FI_LOG_EP_DATA),
    ("", FI_LOG_CORE),
];

fn host_subsystem(target: &str) -> u32 {
    let found = SUBSYSTEMS.iter().find(|(module, _)| target.starts_with(module));
    found.map_or(FI_LOG_CORE, |&(_, subsystem)| subsystem)
}

/// An event as one line: the message, then the other fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

fn to_c_string(mut text: String) -> CString {
    text.retain(|character| character != '\0');
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_modules_map_to_subsystems() {
        assert_eq!(host_subsystem("homespun::endpoint::raw"), FI_LOG_EP_CTRL);
        assert_eq!(host_subsystem("homespun_engine::engine"), FI_LOG_EP_DATA);
        assert_eq!(host_subsystem("homespun_fi::edge"), FI_LOG_CORE);
    }

    #[test]
    fn log_text_for_c_has_no_zero_inside() {
        assert_eq!(to_c_string("a\0b".to_owned()).as_c_str(), c"ab");
    }
}
