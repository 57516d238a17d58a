//! The tests of transports whose endpoints map memory of each other.

macro_rules! tests_of_mapped_memory {
    ($net:expr) => {
        tests! { $net;
            flush:
                visibility_flush_of_a_mapped_region_ends_while_its_owner_is_stopped;
            shareable:
                mapped_region_is_accessed_while_its_owner_is_stopped;
        }
    };
}
