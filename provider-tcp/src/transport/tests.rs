//! Two transports in one thread, over loopback.

mod address_claims;
mod ending;
mod frames;
mod hello;
mod strangers;
