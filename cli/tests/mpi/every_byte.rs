//! Messages of every kind and size.

use crate::mpi::Mpi;
use crate::programs::EVERY_BYTE;

#[test]
fn two_ranks_of_open_mpi() {
    EVERY_BYTE.check(Mpi::Open, 2, &[], &[]);
}

#[test]
fn four_ranks_of_open_mpi() {
    EVERY_BYTE.check(Mpi::Open, 4, &[], &[]);
}

#[test]
fn two_ranks_of_mpich() {
    EVERY_BYTE.check(Mpi::Mpich, 2, &[], &[]);
}

#[test]
fn four_ranks_of_mpich() {
    EVERY_BYTE.check(Mpi::Mpich, 4, &[], &[]);
}

#[test]
fn two_ranks_of_intel_mpi() {
    EVERY_BYTE.check(Mpi::Intel, 2, &[], &[]);
}

#[test]
fn four_ranks_of_intel_mpi() {
    EVERY_BYTE.check(Mpi::Intel, 4, &[], &[]);
}
