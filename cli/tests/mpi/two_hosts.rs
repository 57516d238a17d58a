//! Two ranks on each of two hosts, over the domain `auto`. Each rank has near and far peers.

use crate::chosen_links::ChosenLinks;
use crate::hosts::{ADDRESSES, Hosts};
use crate::launch::Launch;
use crate::mpi::Mpi;
use crate::programs::EVERY_BYTE;

/// The number of ranks on each host.
const RANKS_PER_HOST: usize = 2;

#[test]
fn open_mpi_ranks_on_two_hosts_use_shared_memory_and_tcp() {
    run_on_two_hosts(Mpi::Open);
}

#[test]
fn mpich_ranks_on_two_hosts_use_shared_memory_and_tcp() {
    run_on_two_hosts(Mpi::Mpich);
}

#[test]
fn intel_mpi_ranks_on_two_hosts_use_shared_memory_and_tcp() {
    run_on_two_hosts(Mpi::Intel);
}

/// Runs the program that checks every byte. Checks which transport each pair of ranks used.
#[track_caller]
fn run_on_two_hosts(mpi: Mpi) {
    let Some(program) = EVERY_BYTE.compile_once(mpi) else { return };
    let Some(hosts) = Hosts::make_or_skip() else { return };
    let ranks = RANKS_PER_HOST * ADDRESSES.len();
    let options = Hosts::options(mpi, RANKS_PER_HOST);
    let launch = Launch { hosts: Some(&hosts), options, ..Launch::new(mpi, ranks) };
    let (outcome, logs) = launch.run_with_logs(&program);
    EVERY_BYTE.assert_success(&outcome, ranks);
    let links = ChosenLinks::parse(&logs);
    links.assert_near_if_same_host(&ADDRESSES.map(|address| (address, RANKS_PER_HOST)));
}
