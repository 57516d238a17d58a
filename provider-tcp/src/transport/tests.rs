//! Two transports in one thread, over loopback.

mod accepted_links;
mod address_claimer;
mod address_claims;
mod bursts;
mod cores;
mod ending;
mod frames;
mod held_links;
mod hello;
mod questions;
mod strangers;
