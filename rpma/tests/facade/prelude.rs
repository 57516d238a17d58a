//! What most of these tests use.

pub(crate) use std::thread;
pub(crate) use std::time::Duration;

pub(crate) use homespun_rpma::*;
pub(crate) use homespun_suite::sleeping::{join_in_time, spawn_sleeper};

pub(crate) use crate::harness::*;
