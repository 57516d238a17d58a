//! The end of an operation, as a completion queue reports it.

use homespun::{Completion, CompletionError, CompletionQueue, Errno, FabricAddress, ReadError};

/// The end of an operation, with the source of a received message.
pub type Ended = Result<(Completion, FabricAddress), CompletionError>;

/// Reads a completion or an error entry, if there is one. Panics if the queue announces an error entry but
/// has none, or if the queue was overrun.
pub fn poll_completion(cq: &CompletionQueue) -> Option<Ended> {
    match cq.read_from() {
        Ok(completed) => completed.map(Ok),
        Err(ReadError::ErrorAvailable) => {
            let error = cq.read_error().expect("it is not overrun").expect("an error was announced");
            assert_ne!(error.errno(), Errno::new(0), "an error without a number: {error:?}");
            Some(Err(error))
        }
        Err(error) => panic!("{error}"),
    }
}
