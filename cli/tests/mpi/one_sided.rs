//! What is done to the memory of other ranks without their help.

use crate::mpi::Mpi;
use crate::programs::{ACCUMULATE, ONE_SIDED};

/// Open MPI makes one-sided communication of messages, over homespun, also where ranks could share the memory.
const OF_MESSAGES: &[&str] = &["--mca", "osc", "pt2pt"];

/// Open MPI makes it of reads, writes and atomic operations, those of libfabric and no others.
const OF_ACCESSES: &[&str] = &["--mca", "osc", "rdma", "--mca", "btl", "self,ofi"];

/// The same, but no more than its locks are made of atomic operations.
const WITH_LOCKS: &[&str] =
    &["--mca", "osc", "rdma", "--mca", "btl", "self,ofi", "--mca", "osc_rdma_acc_use_amo", "0"];

/// Open MPI 4.1 does not keep the order of accumulates that it makes of messages by way of its libfabric module, whatever the
/// provider: one that it has put off while it sent what another had fetched is overtaken by those of the next message.
const WITHOUT_ORDER: &[&str] = &["order"];

/// Open MPI 4.1 crashes where a rank compares and swaps eight bytes of its own by way of its libfabric module, which looks at
/// what only memory of other ranks has (`mca_btl_ofi_acswap`).
const WITHOUT_OWN: &[&str] = &["own"];

/// What Open MPI 4.1 has its libfabric module do although that can do no more than add and swap integers: it ends the
/// program ("Unknown or unsupported atomic op."), or adds complex numbers as if they were integers. And what it crashes at
/// in any case.
const ADDED_AND_SWAPPED: &[&str] = &[
    "MPI_MIN",
    "MPI_MAX",
    "MPI_LAND",
    "MPI_LOR",
    "MPI_LXOR",
    "MPI_BAND",
    "MPI_BOR",
    "MPI_BXOR",
    "MPI_C_FLOAT_COMPLEX",
    "own",
];

#[test]
fn open_mpi_puts_and_gets_by_messages() {
    ONE_SIDED.check(Mpi::Open, 3, OF_MESSAGES, &[]);
}

#[test]
fn open_mpi_accumulates_by_messages() {
    ACCUMULATE.check(Mpi::Open, 3, OF_MESSAGES, WITHOUT_ORDER);
}

#[test]
fn open_mpi_puts_and_gets_by_accesses() {
    ONE_SIDED.check(Mpi::Open, 3, OF_ACCESSES, &[]);
}

#[test]
fn open_mpi_accumulates_by_atomic_operations() {
    ACCUMULATE.check(Mpi::Open, 3, OF_ACCESSES, ADDED_AND_SWAPPED);
}

#[test]
fn open_mpi_accumulates_under_locks() {
    ACCUMULATE.check(Mpi::Open, 3, WITH_LOCKS, WITHOUT_OWN);
}

#[test]
fn mpich_puts_and_gets() {
    ONE_SIDED.check(Mpi::Mpich, 3, &[], &[]);
}

#[test]
fn mpich_accumulates() {
    ACCUMULATE.check(Mpi::Mpich, 3, &[], &[]);
}

#[test]
fn intel_mpi_puts_and_gets() {
    ONE_SIDED.check(Mpi::Intel, 3, &[], &[]);
}

#[test]
fn intel_mpi_accumulates() {
    ACCUMULATE.check(Mpi::Intel, 3, &[], &[]);
}
