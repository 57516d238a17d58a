//! What every transport owes its caller, by theme.
//!
//! Each function opens endpoints of the provider that it is given, lets them talk, and panics where a promise of
//! [`Transport`](homespun_engine::transport::Transport), [`Provider`](homespun_engine::transport::Provider) or
//! [`FrameHandler`](homespun_engine::transport::FrameHandler) is broken. [`transport_contract`](crate::transport_contract) makes
//! tests of them all.

pub mod closing;
pub mod connecting;
mod deadline;
pub mod exposing;
pub mod frames;
mod headers;
pub mod mapping;
pub mod opening;
mod payload;
mod recorder;
pub mod room;
mod test_endpoint;
pub mod waking;

pub use self::deadline::Deadline;
pub use self::exposing::pulls;
pub use self::mapping::maps;
pub use self::payload::{SIZES, message, payload};
pub use self::recorder::{Event, Recorder};
pub use self::test_endpoint::{BUDGET_FRAMES, TestEndpoint, drive, drive_all, linked};
pub use self::waking::wakes;
