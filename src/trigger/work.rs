//! Work that waits for a counter, as the queue keeps it.

use std::sync::Arc;

use homespun_engine::buffer::Buffer;
use homespun_engine::error::OperationError;

use crate::counter;
use crate::post::{Post, ReceivePost};
use crate::poster::{Poster, Refused};

/// Something that is done when a counter has reached a threshold.
pub(crate) struct Work {
    pub(crate) trigger: CounterUse,
    pub(crate) threshold: u64,
    pub(crate) action: Action,
    pub(crate) kind: Kind,
}

/// What is done.
pub(crate) enum Action {
    /// Carries an operation out through an endpoint.
    Post { pump: Arc<dyn Poster>, post: Deferrable },
    /// Changes a counter.
    Change { counter: CounterUse, change: CounterChange },
}

/// How a counter is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterChange {
    Add(u64),
    Set(u64),
}

/// An operation that can wait. What reads or fills memory of the application does so no sooner than it is posted.
pub(crate) enum Deferrable {
    Transmit(Post),
    Receive(ReceivePost),
}

/// What work is to the application.
pub(crate) enum Kind {
    /// A triggered operation (`FI_TRIGGER`): its endpoint counts, reports and cancels it as any other.
    Triggered,
    /// Deferred work.
    Deferred {
        /// What the application cancels it by.
        context: u64,
        /// Counts its end.
        completion: Option<CounterUse>,
        /// Whether the endpoint counts and reports it besides.
        is_reported: bool,
    },
}

/// A counter that work depends on, which therefore cannot be closed.
pub(crate) struct CounterUse(Arc<counter::Shared>);

impl CounterUse {
    pub(crate) fn new(counter: &Arc<counter::Shared>) -> CounterUse {
        counter.bind();
        CounterUse(counter.clone())
    }

    pub(crate) fn counter(&self) -> &Arc<counter::Shared> {
        &self.0
    }

    /// Lets go of the counter, so that the application may close it as soon as it has seen the change that follows.
    pub(crate) fn release(self) -> Arc<counter::Shared> {
        self.0.clone()
    }
}

impl Drop for CounterUse {
    fn drop(&mut self) {
        self.0.unbind();
    }
}

impl Work {
    /// Whether it posts to this endpoint.
    pub(crate) fn is_for(&self, endpoint: &dyn Poster) -> bool {
        matches!(&self.action, Action::Post { pump, .. } if is_same(pump, endpoint))
    }

    /// Whether it is deferred work that the application knows by this context.
    pub(crate) fn is_deferred_as(&self, name: u64) -> bool {
        matches!(self.kind, Kind::Deferred { context, .. } if context == name)
    }

    /// Whether it is deferred work.
    pub(crate) fn is_deferred(&self) -> bool {
        matches!(self.kind, Kind::Deferred { .. })
    }

    /// Whether it is a triggered operation with this context.
    pub(crate) fn is_triggered_as(&self, context: u64) -> bool {
        match (&self.kind, &self.action) {
            (Kind::Triggered, Action::Post { post, .. }) => post.context() == context,
            _ => false,
        }
    }
}

/// Whether two endpoints are the same, whatever they were seen as.
pub(crate) fn is_same(one: &Arc<dyn Poster>, other: &dyn Poster) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), std::ptr::from_ref(other))
}

impl Action {
    /// The application's memory, to be handed back.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Action::Post { post, .. } => post.into_buffer(),
            Action::Change { .. } => Buffer::None,
        }
    }
}

impl Deferrable {
    pub(crate) fn context(&self) -> u64 {
        match self {
            Deferrable::Transmit(post) => post.context,
            Deferrable::Receive(post) => post.context,
        }
    }

    pub(crate) fn set_context(&mut self, context: u64) {
        match self {
            Deferrable::Transmit(post) => post.context = context,
            Deferrable::Receive(post) => post.context = context,
        }
    }

    /// The application's memory, to be handed back.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Deferrable::Transmit(mut post) => post.op.take_buffer(),
            Deferrable::Receive(mut post) => post.take_buffer(),
        }
    }

    /// What its refusal is reported as.
    pub(crate) fn refused(self, error: OperationError, is_counted: bool) -> Refused {
        let context = self.context();
        let (flags, buffer) = match self {
            Deferrable::Transmit(mut post) => (post.op.completion_flags(), post.op.take_buffer()),
            Deferrable::Receive(mut post) => (post.completion_flags(), post.take_buffer()),
        };
        Refused { context, flags, error, buffer, is_counted }
    }
}
