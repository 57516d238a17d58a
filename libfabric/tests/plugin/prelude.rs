//! What most of these tests use: the host, and the structures and constants of C.

pub(crate) use std::ffi::CStr;
pub(crate) use std::time::{Duration, Instant};
pub(crate) use std::{mem, ptr, slice, thread};

pub(crate) use homespun_fi::abi::atomic::*;
pub(crate) use homespun_fi::abi::domain::*;
pub(crate) use homespun_fi::abi::endpoint::*;
pub(crate) use homespun_fi::abi::eq::*;
pub(crate) use homespun_fi::abi::fabric::*;
pub(crate) use homespun_fi::abi::fid::*;
pub(crate) use homespun_fi::abi::info::*;
pub(crate) use homespun_fi::abi::memory::*;
pub(crate) use homespun_fi::abi::provider::*;
pub(crate) use homespun_fi::abi::rma::*;
pub(crate) use homespun_fi::abi::trigger::*;
pub(crate) use homespun_fi::abi::*;
pub(crate) use libc::{c_char, c_int, c_void, iovec};

pub(crate) use crate::host::*;
