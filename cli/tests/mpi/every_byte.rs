//! Runs a program that sends messages of every kind and size, and checks every byte.

use crate::mpi::Mpi;
use crate::programs::EVERY_BYTE;

#[test]
fn messages_between_two_open_mpi_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Open, 2, &[], &[]);
}

#[test]
fn messages_between_four_open_mpi_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Open, 4, &[], &[]);
}

#[test]
fn messages_between_two_mpich_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Mpich, 2, &[], &[]);
}

#[test]
fn messages_between_four_mpich_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Mpich, 4, &[], &[]);
}

#[test]
fn messages_between_two_intel_mpi_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Intel, 2, &[], &[]);
}

#[test]
fn messages_between_four_intel_mpi_ranks_are_intact() {
    EVERY_BYTE.run_and_check(Mpi::Intel, 4, &[], &[]);
}
