//! Two transports in one thread, over loopback.

mod ending;
mod frames;
mod hello;
mod strangers;
