//! Programs of others, replayed: how each asks for an interface, and what it calls in which order until it
//! closes everything. `driver.c` runs them, with a row for each.

use std::sync::OnceLock;

use crate::Program;

fn driver() -> Option<&'static Program> {
    static DRIVER: OnceLock<Option<Program>> = OnceLock::new();
    let sources = ["driver", "crates", "hinted", "nixl", "openshmem", "rpc"];
    DRIVER.get_or_init(|| Program::compile("driver", &sources)).as_ref()
}

fn run(program: &str, domain: &str) {
    let Some(driver) = driver() else { return };
    let output = driver.command(&[program, domain]).output().expect("the compiled driver");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a test of each program on each domain.
macro_rules! programs {
    ($($name:ident)*) => {
        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];

        $(mod $name {
            #[test]
            fn program_over_shm_ends_well() {
                super::run(stringify!($name), "shm");
            }

            #[test]
            fn program_over_tcp_ends_well() {
                super::run(stringify!($name), "tcp");
            }

            #[test]
            fn program_over_auto_ends_well() {
                super::run(stringify!($name), "auto");
            }
        })*
    };
}

programs! {
    openshmem
    openshmem_manual
    openshmem_polled
    openshmem_contexts
    mercury
    mercury_interface
    mercury_rxm
    mercury_sockets
    cart
    cart_rxm
    cart_sockets
    gasnet
    lci
    rofi
    charm
    libfabric_efa_rs
    nccl
    nccl_tcp
    ompi_mtl
    ompi_btl
    nixl
    nixl_sockets
    dma_libfabric
    dma_libfabric_bound
}

#[test]
fn program_that_knows_its_provider_fails_without_the_offered_name() {
    let Some(driver) = driver() else { return };
    let mut command = driver.command(&["mercury", "tcp"]);
    let output = command.env("FI_HOMESPUN_AS", "homespun").env("FI_PROVIDER", "homespun").output();
    assert!(!output.expect("the compiled driver").status.success());
}

#[test]
fn every_row_of_the_driver_is_a_test() {
    let Some(driver) = driver() else { return };
    let output = driver.command(&["list"]).output().expect("the compiled driver");
    let rows = String::from_utf8(output.stdout).expect("text");
    assert_eq!(rows.lines().collect::<Vec<_>>(), PROGRAMS);
}
