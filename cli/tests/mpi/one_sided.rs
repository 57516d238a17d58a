//! One-sided communication between ranks.

use crate::mpi::Mpi;
use crate::programs::ONE_SIDED;

/// Makes Open MPI use messages over homespun for one-sided communication, even between ranks that could
/// share memory.
const OF_MESSAGES: &[&str] = &["--mca", "osc", "pt2pt"];

/// Makes Open MPI use libfabric's reads, writes and atomic operations for one-sided communication.
const OF_ACCESSES: &[&str] = &["--mca", "osc", "rdma", "--mca", "btl", "self,ofi"];

/// The same as [`OF_ACCESSES`], but only the locks use atomic operations.
const WITH_LOCKS: &[&str] =
    &["--mca", "osc", "rdma", "--mca", "btl", "self,ofi", "--mca", "osc_rdma_acc_use_amo", "0"];

/// Excludes a test of order. Open MPI 4.1 sends accumulates as messages. If an accumulate is postponed,
/// those in the next message overtake it, with any provider.
const WITHOUT_ORDER: &[&str] = &["order"];

/// Excludes accesses of a rank to its own memory. Open MPI 4.1 crashes if a rank compares and swaps
/// eight of its own bytes through the libfabric module. The module (`mca_btl_ofi_acswap`) then
/// dereferences a handle that only memory of other ranks has.
const WITHOUT_OWN: &[&str] = &["own"];

/// Excludes operations that Open MPI 4.1's libfabric module cannot do: it can only add and swap
/// integers. For other operations it ends the program ("Unknown or unsupported atomic op."). Also
/// excludes "own", as [`WITHOUT_OWN`] does.
const ADDED_AND_SWAPPED: &[&str] = &["MPI_MIN", "MPI_MAX", "MPI_LAND", "MPI_BXOR", "own"];

#[test]
fn open_mpi_accesses_with_messages_are_intact() {
    ONE_SIDED.run_and_check(Mpi::Open, 3, OF_MESSAGES, WITHOUT_ORDER);
}

#[test]
fn open_mpi_accesses_with_rma_and_atomic_operations_are_intact() {
    ONE_SIDED.run_and_check(Mpi::Open, 3, OF_ACCESSES, ADDED_AND_SWAPPED);
}

#[test]
fn open_mpi_accesses_under_locks_are_intact() {
    ONE_SIDED.run_and_check(Mpi::Open, 3, WITH_LOCKS, WITHOUT_OWN);
}

#[test]
fn mpich_accesses_are_intact() {
    ONE_SIDED.run_and_check(Mpi::Mpich, 3, &[], &[]);
}

#[test]
fn intel_mpi_accesses_are_intact() {
    ONE_SIDED.run_and_check(Mpi::Intel, 3, &[], &[]);
}
