//! The transports between processes, with each endpoint in a process of its own. The loopback and the
//! example of a backend are not here: they connect only endpoints of one process. IPv6 is left out, since it
//! would test nothing more.

/// The lists of tests whose parties may be in other processes, over each transport of this name.
macro_rules! tests_across_processes {
    ($($transport:ident)+) => {
        $(mod $transport {
            mod parties {
                tests_of_parties! { crate::networks::$transport(homespun_suite::Turns::Processes) }
            }
            mod sleepers {
                tests_of_sleepers! { crate::networks::$transport(homespun_suite::Turns::Processes) }
            }
        })+
    };
}

tests_across_processes! { tcp4 shm4 auto4 mixed4 }

mod with_mapped_memory {
    tests_over! { tests_of_mapped_memory:
        shm4: crate::networks::shm4(homespun_suite::Turns::Processes);
        auto4: crate::networks::auto4(homespun_suite::Turns::Processes);
    }
}
