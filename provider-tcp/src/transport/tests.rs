//! Two transports in one thread, over loopback.

mod claims;
mod ending;
mod frames;
mod hello;
mod strangers;
