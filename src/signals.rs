//! Signals of the application, and the threads and waits of a library.

mod waiting;

pub use homespun_engine::thread::with_signals_blocked;

pub use self::waiting::{Interrupted, wait_readable};
