//! A work as the queue keeps it until its counter reaches the threshold.

use std::sync::Arc;

use homespun_engine::buffer::Buffer;
use homespun_engine::error::OperationError;
use homespun_engine::flags::{CompletionFlags, CounterEvents};
use homespun_engine::operation::Signalled;

use super::waiting::CancellableWork;
use crate::counter;
use crate::post::{Post, ReceivePost};
use crate::poster::{Poster, RefusedPost};

/// An action that waits until a counter reaches a threshold.
pub(crate) struct Work {
    pub(crate) trigger: CounterUse,
    pub(crate) threshold: u64,
    pub(crate) action: WorkAction,
    pub(crate) kind: WorkKind,
}

/// The action of a work.
pub(crate) enum WorkAction {
    /// Posts an operation to an endpoint or a receive context.
    Post { poster: Arc<dyn Poster>, post: DeferredPost },
    /// Changes a counter.
    Change { counter: CounterUse, change: CounterChange },
}

/// A change of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterChange {
    Add(u64),
    Set(u64),
}

/// An operation that waits. The operation uses the application's memory only once it is posted. An injected
/// triggered operation has copied the memory before.
pub(crate) enum DeferredPost {
    Transmit(Post),
    Receive(ReceivePost),
}

/// How the application has requested the work.
pub(crate) enum WorkKind {
    /// A triggered operation (`FI_TRIGGER`). Its endpoint counts, reports and cancels it like any other
    /// operation.
    Triggered,
    /// Deferred work.
    Deferred {
        /// The number by which the application cancels the work.
        context: u64,
        /// The counter that counts the end of the work.
        completion: Option<CounterUse>,
        /// Whether the endpoint counts and reports the end of the work, too.
        is_reported: bool,
    },
}

/// The name by which work is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WorkName {
    /// The context of deferred work, by which the domain cancels it.
    Deferred(u64),
    /// The context of a triggered operation, by which its endpoint cancels it.
    Triggered(u64),
}

/// A use of a counter by work. The counter cannot be closed while this exists.
pub(crate) struct CounterUse(Arc<counter::CounterShared>);

impl CounterUse {
    pub(crate) fn new(counter: &Arc<counter::CounterShared>) -> CounterUse {
        counter.add_binding();
        CounterUse(counter.clone())
    }

    pub(crate) fn counter(&self) -> &Arc<counter::CounterShared> {
        &self.0
    }

    /// Ends this use of the counter, and returns the counter. The caller then changes the counter. As soon
    /// as the application sees the change, it may close the counter.
    pub(crate) fn release(self) -> Arc<counter::CounterShared> {
        self.0.clone()
    }
}

impl Drop for CounterUse {
    fn drop(&mut self) {
        self.0.remove_binding();
    }
}

impl Work {
    /// Whether the work posts to this endpoint.
    pub(crate) fn posts_to(&self, endpoint: &dyn Poster) -> bool {
        matches!(&self.action, WorkAction::Post { poster, .. } if is_same_endpoint(poster, endpoint))
    }

    /// Whether the work is deferred work.
    pub(crate) fn is_deferred(&self) -> bool {
        matches!(self.kind, WorkKind::Deferred { .. })
    }
}

impl CancellableWork for Work {
    type Name = WorkName;

    fn name(&self) -> WorkName {
        match self.kind {
            WorkKind::Deferred { context, .. } => WorkName::Deferred(context),
            WorkKind::Triggered => WorkName::Triggered(self.action.context()),
        }
    }
}

/// Whether both references are to the same endpoint, whatever their traits.
pub(crate) fn is_same_endpoint(one: &Arc<dyn Poster>, other: &dyn Poster) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), std::ptr::from_ref(other))
}

impl WorkAction {
    /// Returns the context of the operation; 0 for a change of a counter.
    fn context(&self) -> u64 {
        match self {
            WorkAction::Post { post, .. } => post.context(),
            WorkAction::Change { .. } => 0,
        }
    }

    /// Returns the application's memory, to hand it back.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            WorkAction::Post { post, .. } => post.into_buffer(),
            WorkAction::Change { .. } => Buffer::None,
        }
    }
}

impl DeferredPost {
    pub(crate) fn context(&self) -> u64 {
        match self {
            DeferredPost::Transmit(post) => post.request.context,
            DeferredPost::Receive(post) => post.context,
        }
    }

    /// Gives the operation the number of the deferred work whose operation it is. The end of the operation
    /// then ends the work.
    pub(crate) fn set_work_number(&mut self, number: u64) {
        match self {
            DeferredPost::Transmit(post) => post.request.context = number,
            DeferredPost::Receive(post) => post.work = Some(number),
        }
    }

    /// Undoes [`set_work_number`](Self::set_work_number). `context` is the application's context.
    pub(crate) fn clear_work_number(&mut self, context: u64) {
        match self {
            DeferredPost::Transmit(post) => post.request.context = context,
            DeferredPost::Receive(post) => post.work = None,
        }
    }

    /// Returns the events by which an endpoint counts the end of the operation.
    pub(crate) fn counter_events(&self, has_succeeded: bool) -> CounterEvents {
        match self {
            DeferredPost::Transmit(post) => CounterEvents::of_completion(post.request.op.completion_flags()),
            DeferredPost::Receive(post) => post.counter_events(has_succeeded),
        }
    }

    fn completion_flags(&self) -> CompletionFlags {
        match self {
            DeferredPost::Transmit(post) => post.request.op.completion_flags(),
            DeferredPost::Receive(post) => post.completion_flags(),
        }
    }

    fn is_deferred_work(&self) -> bool {
        match self {
            DeferredPost::Transmit(post) => post.request.options.signalled == Signalled::Deferred,
            DeferredPost::Receive(post) => post.work.is_some(),
        }
    }

    /// Returns the application's memory, to hand it back.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            DeferredPost::Transmit(mut post) => post.request.op.take_buffer(),
            DeferredPost::Receive(mut post) => post.take_buffer(),
        }
    }

    /// Returns the operation's report that it was refused with this error.
    pub(crate) fn into_refused_post(self, error: OperationError) -> RefusedPost {
        let context = match &self {
            DeferredPost::Receive(ReceivePost { work: Some(number), .. }) => *number,
            _ => self.context(),
        };
        let (flags, events) = (self.completion_flags(), self.counter_events(false));
        let is_work = self.is_deferred_work();
        RefusedPost { context, flags, events, error, buffer: self.into_buffer(), is_work }
    }
}
