//! The shared-memory backend of homespun. It connects endpoints of one user's processes on one host. A small
//! message between two polling endpoints costs no system call.
//!
//! [`ShmProvider`] opens a [`ShmTransport`] for each endpoint. An endpoint listens at an abstract UNIX name
//! made of its address. A link is a connection to that name. Over this connection, each side passes a ring
//! in sealed anonymous memory to the peer. Nothing has a name in a file system, so a process that dies
//! leaves nothing behind.
//!
//! ```text
//!   sender                                                     receiver
//!   Producer --- lines, each with its sequence number ------>  Consumer      one ring for each direction
//!      \\-------- payload too long for a line ------------>      /
//!   doorbell --- rung when the ring has gone cold --------->   epoll
//!   control  --- greeting, ring and doorbell; hang-up ----->   control
//!   memory   <-- large payload, if that is faster ----------   process_vm_readv
//!   regions  --- written and read where they are mapped ---->  without the receiver's help
//!            <-- payload in a region ------------------------  copied where it is mapped
//! ```
//!
//! A small message is one cache line. A ring that carries messages is *hot*: its receiver polls it in every
//! pass. A ring that stays empty becomes *cold*: its receiver stops polling it until the doorbell rings. So
//! idle links cost no polling.
//!
//! The receiver copies each value out of a ring, and checks and uses only the copy. A faulty peer may
//! overwrite the ring at any time, but ends only its own link. Processes of other users are refused.
//!
//! # Memory
//!
//! A link takes two segments of shared memory of about 290 KiB, one for each ring. It also takes up to four
//! descriptors on each side. The kernel allocates the pages of a segment when they are first used.

#![deny(unsafe_code)]

pub mod limits;

mod clock;
mod control;
mod cookie;
mod cross_memory;
mod crowding;
mod descriptors;
mod exposed;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod line;
mod link;
mod listener;
mod memory;
mod memory_file;
mod name;
mod own_regions;
#[expect(unsafe_code, reason = "copies between addresses, with instructions of the processor")]
mod payload_copy;
mod peer_regions;
mod poller;
mod provider;
mod ring;
#[expect(unsafe_code, reason = "shares memory with other processes")]
mod segment;
#[expect(unsafe_code, reason = "maps memory that processes share")]
mod shareable;
mod sync;
#[expect(unsafe_code, reason = "makes system calls without a safe interface")]
mod sys;
mod transport;
mod ways;
#[expect(unsafe_code, reason = "an instruction of the processor")]
mod write_back;

pub use provider::ShmProvider;
pub use transport::ShmTransport;
