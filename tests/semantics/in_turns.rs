//! Every transport, with one thread that drives all endpoints in turn.

all_tests_over! {
    loopback: crate::networks::choppy_loopback(homespun_suite::Turns::Alternate);
    backend: crate::networks::example_backend(homespun_suite::Turns::Alternate);
    tcp4: crate::networks::tcp4(homespun_suite::Turns::Alternate);
    tcp6: crate::networks::tcp6(homespun_suite::Turns::Alternate);
    shm4: crate::networks::shm4(homespun_suite::Turns::Alternate);
    shm6: crate::networks::shm6(homespun_suite::Turns::Alternate);
    auto4: crate::networks::auto4(homespun_suite::Turns::Alternate);
    mixed4: crate::networks::mixed4(homespun_suite::Turns::Alternate);
}
mod shm4_buffers {
    tests_of_parties! { crate::networks::shm4_buffers(homespun_suite::Turns::Alternate) }
}
mod with_send_buffers {
    tests_over! { tests_of_send_buffers:
        loopback: crate::networks::choppy_loopback(homespun_suite::Turns::Alternate);
        tcp4: crate::networks::tcp4(homespun_suite::Turns::Alternate);
        shm4: crate::networks::shm4(homespun_suite::Turns::Alternate);
        auto4: crate::networks::auto4(homespun_suite::Turns::Alternate);
        mixed4: crate::networks::mixed4(homespun_suite::Turns::Alternate);
    }
}
/// The transports that reach other processes: all but the loopback and the example of a backend.
mod with_other_processes {
    tests_over! { tests_of_peer_processes:
        tcp4: crate::networks::tcp4(homespun_suite::Turns::Alternate);
        tcp6: crate::networks::tcp6(homespun_suite::Turns::Alternate);
        shm4: crate::networks::shm4(homespun_suite::Turns::Alternate);
        shm6: crate::networks::shm6(homespun_suite::Turns::Alternate);
        auto4: crate::networks::auto4(homespun_suite::Turns::Alternate);
        mixed4: crate::networks::mixed4(homespun_suite::Turns::Alternate);
    }
}
mod with_mapped_memory {
    tests_over! { tests_of_mapped_memory:
        loopback: crate::networks::choppy_loopback(homespun_suite::Turns::Alternate);
        shm4: crate::networks::shm4(homespun_suite::Turns::Alternate);
        shm6: crate::networks::shm6(homespun_suite::Turns::Alternate);
        auto4: crate::networks::auto4(homespun_suite::Turns::Alternate);
    }
}
/// The transports whose links take a burst of small frames at once: not the loopback, which refuses frames at
/// random.
mod with_room {
    tests_over! { tests_of_links_with_room:
        tcp4: crate::networks::tcp4(homespun_suite::Turns::Alternate);
        tcp6: crate::networks::tcp6(homespun_suite::Turns::Alternate);
        shm4: crate::networks::shm4(homespun_suite::Turns::Alternate);
        auto4: crate::networks::auto4(homespun_suite::Turns::Alternate);
        mixed4: crate::networks::mixed4(homespun_suite::Turns::Alternate);
    }
}
