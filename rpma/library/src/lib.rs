//! `librpma.so.0`: programs that were made for librpma run over shared memory and TCP, without RDMA hardware.
//!
//! The library has the functions of librpma 0.10 to 1.3, with the versions of their symbols. So the dynamic
//! linker takes it for programs that were linked with librpma. `include/` has headers for new programs. The
//! library holds no semantics of its own: `homespun-rpma` has the objects, and their documentation.
//!
//! The library is made for Linux on x86-64. Elsewhere the crate is empty: the versions of its symbols need
//! the linker `rust-lld`.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod access;
mod completion;
mod conn;
mod conn_cfg;
mod conn_req;
mod cq;
mod device;
mod edge;
mod ep;
mod exports;
mod flush;
mod handle;
mod ibv;
mod listening_endpoint;
mod log;
mod message;
mod mr;
mod peer;
mod peer_cfg;
mod remote_mr;
mod srq;
mod srq_cfg;
mod text;
