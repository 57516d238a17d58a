//! Faults for the tests of the tests: with the feature `mutants`, a process breaks the one clause of the
//! manual pages that `HOMESPUN_MUTANT` names. Without the feature, each `mutated!` is the constant `false`.

/// Whether this process shall break a clause, such as `mutated!("fi_cq/error-hides-later-entries")`.
/// The identifiers are those of `suite/clauses/`. At most one place asks for a clause.
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($clause:literal) => {
        $crate::mutants::is_planted($clause)
    };
}

/// Whether the environment names this clause.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_planted(clause: &str) -> bool {
    use std::env;
    use std::sync::LazyLock;

    static PLANTED: LazyLock<Option<String>> = LazyLock::new(|| env::var("HOMESPUN_MUTANT").ok());
    PLANTED.as_deref() == Some(clause)
}

/// Whether the environment names a clause. A mutant changes the general way only. So no message takes a
/// lane then, and no glance takes the place of a pass.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_any_planted() -> bool {
    use std::sync::LazyLock;

    static PLANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("HOMESPUN_MUTANT").is_some());
    *PLANTED
}

/// Whether the environment names a clause. It can name none.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn is_any_planted() -> bool {
    false
}

/// Whether the environment names this clause. It can name none.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(_clause: &str) -> bool {
    false
}
