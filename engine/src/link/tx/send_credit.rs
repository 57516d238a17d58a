//! The sender's side of [credit](crate::receiver) on a link.

use crate::limits::CREDIT_INITIAL_BYTES;

/// The credit that the peer has granted, and the part of it that is spent.
#[derive(Debug)]
pub(super) struct SendCredit {
    granted_bytes: u64,
    spent_bytes: u64,
}

impl Default for SendCredit {
    fn default() -> SendCredit {
        SendCredit { granted_bytes: CREDIT_INITIAL_BYTES, spent_bytes: 0 }
    }
}

impl SendCredit {
    #[inline(always)]
    pub(super) fn left_bytes(&self) -> u64 {
        self.granted_bytes - self.spent_bytes
    }

    /// Spends credit. Enough of it must be left.
    #[inline(always)]
    pub(super) fn spend(&mut self, cost_bytes: u64) {
        debug_assert!(cost_bytes <= self.left_bytes(), "more is spent than there is");
        self.spent_bytes += cost_bytes;
    }

    /// Raises the total of granted credit. Returns false if the peer names less than before, which
    /// is a violation.
    pub(super) fn try_raise(&mut self, granted_bytes: u64) -> bool {
        let is_more = granted_bytes >= self.granted_bytes;
        self.granted_bytes = self.granted_bytes.max(granted_bytes);
        is_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_credit_never_shrinks() {
        let mut credit = SendCredit::default();
        assert!(credit.try_raise(CREDIT_INITIAL_BYTES));
        assert!(!credit.try_raise(CREDIT_INITIAL_BYTES - 1));
        assert_eq!(credit.left_bytes(), CREDIT_INITIAL_BYTES);
        assert!(credit.try_raise(u64::MAX));
    }
}
