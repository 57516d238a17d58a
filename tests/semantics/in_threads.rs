//! Every transport. Each endpoint has a thread that drives it all the time. IPv6 is left out, since it would
//! test nothing more.

all_tests_over! {
    loopback: crate::networks::choppy_loopback(homespun_suite::Turns::Threads);
    backend: crate::networks::example_backend(homespun_suite::Turns::Threads);
    tcp4: crate::networks::tcp4(homespun_suite::Turns::Threads);
    shm4: crate::networks::shm4(homespun_suite::Turns::Threads);
    auto4: crate::networks::auto4(homespun_suite::Turns::Threads);
    mixed4: crate::networks::mixed4(homespun_suite::Turns::Threads);
}
/// The transports that reach other processes: all but the loopback and the example of a backend.
mod with_other_processes {
    tests_over! { tests_of_peer_processes:
        tcp4: crate::networks::tcp4(homespun_suite::Turns::Threads);
        shm4: crate::networks::shm4(homespun_suite::Turns::Threads);
        auto4: crate::networks::auto4(homespun_suite::Turns::Threads);
        mixed4: crate::networks::mixed4(homespun_suite::Turns::Threads);
    }
}
mod with_mapped_memory {
    tests_over! { tests_of_mapped_memory:
        loopback: crate::networks::choppy_loopback(homespun_suite::Turns::Threads);
        shm4: crate::networks::shm4(homespun_suite::Turns::Threads);
        auto4: crate::networks::auto4(homespun_suite::Turns::Threads);
    }
}
