//! Log messages: `rpma_log_set_function(3)`. homespun's own messages go to the application's function, too.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber, callsite};

use crate::edge::{BadArgument, run};
use crate::handle::OutParam;

/// `enum rpma_log_level`
const DISABLED: c_int = -1;
const FATAL: c_int = 0;
const ERROR: c_int = 1;
const WARNING: c_int = 2;
const NOTICE: c_int = 3;
const INFO: c_int = 4;
const DEBUG: c_int = 5;

/// `RPMA_LOG_THRESHOLD`: messages above it are not logged.
static THRESHOLD: AtomicI32 = AtomicI32::new(WARNING);
/// `RPMA_LOG_THRESHOLD_AUX`: without a function of the application, messages above it go to `syslog(3)`
/// alone, others also to standard error.
static AUXILIARY_THRESHOLD: AtomicI32 = AtomicI32::new(DISABLED);

/// The function of the application, or null.
static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// `rpma_log_function`, which takes the arguments of its format in addition.
type LogFunction = unsafe extern "C" fn(
    level: c_int,
    file_name: *const c_char,
    line_no: c_int,
    function_name: *const c_char,
    message_format: *const c_char,
    ...
);

/// Sets the function for messages. Without one, they go to `syslog(3)` and standard error.
///
/// # Safety
///
/// `function` is null or may be called from any thread from now on.
pub(crate) unsafe extern "C" fn rpma_log_set_function(function: Option<LogFunction>) -> c_int {
    run(|| {
        install();
        let function = function.map_or(ptr::null_mut(), |function| function as *mut c_void);
        FUNCTION.store(function, Ordering::SeqCst);
        Ok(())
    })
}

pub(crate) extern "C" fn rpma_log_set_threshold(threshold: c_int, level: c_int) -> c_int {
    run(|| {
        let place = threshold_place(threshold)?;
        if !(DISABLED..=DEBUG).contains(&level) {
            return Err(BadArgument::UnknownValue.into());
        }
        place.store(level, Ordering::SeqCst);
        callsite::rebuild_interest_cache();
        Ok(())
    })
}

/// # Safety
///
/// `level` is null or writable.
pub(crate) unsafe extern "C" fn rpma_log_get_threshold(threshold: c_int, level: *mut c_int) -> c_int {
    run(|| {
        let threshold = threshold_place(threshold)?;
        // SAFETY: the caller promises it.
        unsafe { OutParam::new(level)? }.write(threshold.load(Ordering::SeqCst));
        Ok(())
    })
}

fn threshold_place(threshold: c_int) -> Result<&'static AtomicI32, BadArgument> {
    match threshold {
        0 => Ok(&THRESHOLD),
        1 => Ok(&AUXILIARY_THRESHOLD),
        _ => Err(BadArgument::UnknownValue),
    }
}

/// Sends messages to the application from now on.
pub(crate) fn install() {
    // The library has its own copy of `tracing`. So a subscriber that is already set is the library's own.
    let _ = set_global_default(Forward);
}

/// The subscriber that forwards events, but no spans.
struct Forward;

impl Subscriber for Forward {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match THRESHOLD.load(Ordering::SeqCst) {
            DISABLED | FATAL => LevelFilter::OFF,
            ERROR => LevelFilter::ERROR,
            WARNING => LevelFilter::WARN,
            NOTICE => LevelFilter::INFO,
            INFO => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && number(metadata.level()) <= THRESHOLD.load(Ordering::Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut text = Text(String::new());
        event.record(&mut text);
        let message = Message {
            level: number(metadata.level()),
            file: to_c_string(metadata.file().unwrap_or_default()),
            line: metadata.line().and_then(|line| c_int::try_from(line).ok()).unwrap_or(0),
            place: to_c_string(metadata.module_path().unwrap_or(metadata.target())),
            text: to_c_string(&text.0),
        };
        let function = FUNCTION.load(Ordering::SeqCst);
        if function.is_null() {
            message.write_to_system();
        } else {
            // SAFETY: only `rpma_log_set_function` changes the pointer, to functions of this type.
            message.pass_to(unsafe { mem::transmute::<*mut c_void, LogFunction>(function) });
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message {
    level: c_int,
    file: CString,
    line: c_int,
    place: CString,
    text: CString,
}

impl Message {
    fn pass_to(&self, function: LogFunction) {
        let Message { level, file, line, place, text } = self;
        // Formats of librpma end in a newline.
        // SAFETY: the application has passed a function of this type. `%s` takes one C string.
        unsafe { function(*level, file.as_ptr(), *line, place.as_ptr(), c"%s\n".as_ptr(), text.as_ptr()) };
    }

    fn write_to_system(&self) {
        let Message { level, place, text, .. } = self;
        let severity = match *level {
            FATAL => libc::LOG_CRIT,
            ERROR => libc::LOG_ERR,
            WARNING => libc::LOG_WARNING,
            NOTICE => libc::LOG_NOTICE,
            INFO => libc::LOG_INFO,
            _ => libc::LOG_DEBUG,
        };
        let format = c"rpma: %s: %s";
        // SAFETY: the format takes two C strings.
        unsafe {
            libc::syslog(libc::LOG_LOCAL7 | severity, format.as_ptr(), place.as_ptr(), text.as_ptr());
        }
        if *level <= AUXILIARY_THRESHOLD.load(Ordering::Relaxed) {
            let line = format!("rpma: {}: {}\n", place.to_string_lossy(), text.to_string_lossy());
            // One call writes the whole line. There is no other place to report a failure.
            // SAFETY: the line is readable for its length.
            let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        }
    }
}

/// Returns librpma's level for a level of `tracing`.
fn number(level: &Level) -> c_int {
    match *level {
        Level::ERROR => ERROR,
        Level::WARN => WARNING,
        Level::INFO => NOTICE,
        Level::DEBUG => INFO,
        Level::TRACE => DEBUG,
    }
}

/// An event as one line: the message, then the other fields.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

fn to_c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
