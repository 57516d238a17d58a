//! Tests that look at the transport over TCP.

mod bursts;
