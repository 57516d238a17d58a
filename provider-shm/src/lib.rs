//! The shared-memory backend.
