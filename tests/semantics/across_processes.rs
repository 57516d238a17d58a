//! The transports between processes, with each endpoint in a process of its own. The loopback and the
//! example of a backend are not here: they connect only endpoints of one process.

mod tcp4 {
    mod parties {
        tests_of_parties! { crate::networks::tcp4(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::tcp4(homespun_suite::Turns::Processes) }
    }
}
mod tcp6 {
    mod parties {
        tests_of_parties! { crate::networks::tcp6(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::tcp6(homespun_suite::Turns::Processes) }
    }
}
mod shm4 {
    mod parties {
        tests_of_parties! { crate::networks::shm4(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::shm4(homespun_suite::Turns::Processes) }
    }
}
mod shm6 {
    mod parties {
        tests_of_parties! { crate::networks::shm6(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::shm6(homespun_suite::Turns::Processes) }
    }
}
mod auto4 {
    mod parties {
        tests_of_parties! { crate::networks::auto4(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::auto4(homespun_suite::Turns::Processes) }
    }
}
mod mixed4 {
    mod parties {
        tests_of_parties! { crate::networks::mixed4(homespun_suite::Turns::Processes) }
    }
    mod sleepers {
        tests_of_sleepers! { crate::networks::mixed4(homespun_suite::Turns::Processes) }
    }
}
mod with_mapped_memory {
    tests_over! { tests_of_mapped_memory:
        shm4: crate::networks::shm4(homespun_suite::Turns::Processes);
        shm6: crate::networks::shm6(homespun_suite::Turns::Processes);
        auto4: crate::networks::auto4(homespun_suite::Turns::Processes);
    }
}
