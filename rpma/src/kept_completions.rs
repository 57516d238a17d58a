//! Completions that were read from a native queue, but not by the application.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::completion::Completion;

/// The number of completions that are kept for the receives of one shared receive queue, by all channels.
#[derive(Debug, Default)]
pub(crate) struct KeptReceives(AtomicUsize);

impl KeptReceives {
    /// Whether the completions take less than this number of bytes.
    pub(crate) fn take_less_than(&self, max_bytes: usize) -> bool {
        self.0.load(Ordering::SeqCst) < max_bytes / size_of::<Completion>()
    }
}

/// The completions that a channel keeps.
#[derive(Debug)]
pub(crate) struct KeptCompletions {
    oldest_first: VecDeque<Completion>,
    /// Counts receives, if they are those of a shared receive queue.
    receives: Option<Arc<KeptReceives>>,
}

impl KeptCompletions {
    pub(crate) fn new(receives: Option<Arc<KeptReceives>>) -> KeptCompletions {
        KeptCompletions { oldest_first: VecDeque::new(), receives }
    }

    pub(crate) fn push(&mut self, completion: Completion) {
        if let Some(receives) = self.receives.as_ref().filter(|_| completion.op.is_receive()) {
            receives.0.fetch_add(1, Ordering::SeqCst);
        }
        self.oldest_first.push_back(completion);
    }

    /// Removes the oldest completion that is wanted.
    pub(crate) fn pop(&mut self, is_wanted: impl Fn(&Completion) -> bool) -> Option<Completion> {
        let index = self.oldest_first.iter().position(is_wanted)?;
        let completion = self.oldest_first.remove(index)?;
        if let Some(receives) = self.receives.as_ref().filter(|_| completion.op.is_receive()) {
            receives.0.fetch_sub(1, Ordering::SeqCst);
        }
        Some(completion)
    }

    pub(crate) fn oldest(&self) -> Option<&Completion> {
        self.oldest_first.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Completion> {
        self.oldest_first.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.oldest_first.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_first.is_empty()
    }
}

impl Drop for KeptCompletions {
    fn drop(&mut self) {
        while self.pop(|_| true).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use crate::completion::{CompletionFlags, Operation, Status};

    use super::*;

    fn completion(op: Operation, op_context: u64) -> Completion {
        let (status, flags) = (Status::Success, CompletionFlags::empty());
        Completion { op_context, op, byte_len: 0, status, flags, imm: 0, qp_number: 1 }
    }

    #[test]
    fn receives_of_all_channels_are_counted_until_they_are_read_or_dropped() {
        let receives = Arc::new(KeptReceives::default());
        let mut kept = [(); 2].map(|()| KeptCompletions::new(Some(receives.clone())));
        let max_bytes = 3 * size_of::<Completion>();
        for (context, op) in (0..).zip([Operation::Recv, Operation::Send, Operation::RecvRdmaWithImm]) {
            kept[0].push(completion(op, context));
        }
        assert!(receives.take_less_than(max_bytes));
        kept[1].push(completion(Operation::Recv, 4));
        assert!(!receives.take_less_than(max_bytes));
        let is_read = |context| move |completion: &Completion| completion.op_context == context;
        assert_eq!(kept[0].pop(is_read(1)), Some(completion(Operation::Send, 1)));
        assert!(!receives.take_less_than(max_bytes));
        assert_eq!(kept[0].pop(is_read(2)), Some(completion(Operation::RecvRdmaWithImm, 2)));
        assert!(receives.take_less_than(max_bytes));
        drop(kept);
        assert!(receives.take_less_than(size_of::<Completion>()));
    }
}
