//! The contract of a transport, by theme.
//!
//! Each function opens endpoints of a provider and lets them communicate. The function panics if the backend
//! breaks a promise of [`Transport`](homespun_engine::transport::Transport),
//! [`Provider`](homespun_engine::transport::Provider) or
//! [`FrameHandler`](homespun_engine::transport::FrameHandler).
//! [`Contract`](crate::Contract) makes a test of each function.

pub mod at_once;
mod backend;
pub mod closing;
pub mod connecting;
mod deadline;
pub mod exposing;
mod features;
pub mod frames;
mod headers;
pub mod mapping;
pub mod opening;
mod payload;
mod recorder;
pub mod room;
mod test_endpoint;
pub mod waking;

pub use self::backend::{Backend, Linked};
pub use self::deadline::Deadline;
pub use self::features::{Features, assert_features};
pub use self::payload::{SIZES, message_header, pseudo_random_payload};
pub use self::recorder::{Event, Recorder};
pub use self::test_endpoint::{BUDGET_FRAMES, TestEndpoint, drive_all_until, drive_until};
