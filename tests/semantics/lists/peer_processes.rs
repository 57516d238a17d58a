//! The tests of an endpoint of this process and peers in others.

macro_rules! tests_of_peer_processes {
    ($net:expr) => {
        tests! { $net;
            waiting:
                killed_peer_wakes_a_blocked_reader;
        }
    };
}
