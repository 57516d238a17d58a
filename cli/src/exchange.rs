//! Messages between two processes through the fabric, and the time that they take.

pub(crate) mod conversation;
pub(crate) mod host_and_port;
pub(crate) mod measure;
pub(crate) mod pattern;
pub(crate) mod port;
pub(crate) mod remote_region;
pub(crate) mod run;
pub(crate) mod sizes;
pub(crate) mod timing;
