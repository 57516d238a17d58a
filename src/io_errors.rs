//! Converts the errors of reads and of operations into `io::Error`, so `?` works on them in a function that
//! returns `io::Result`.

use std::io;

use homespun_engine::errno::Errno;

use crate::counter::CounterWaitError;
use crate::cq::{CompletionError, ReadError};
use crate::eq::{EqReadError, EventError};
use crate::wait::WaitError;

macro_rules! convert_into_io_error {
    ($($error:ty: $errno:expr;)*) => {
        $(
            /// The `io::Error` has the kind of the error number, and this error as its source.
            impl From<$error> for io::Error {
                fn from(error: $error) -> io::Error {
                    let errno: fn(&$error) -> Errno = $errno;
                    io::Error::new(io::Error::from(errno(&error)).kind(), error)
                }
            }
        )*
    };
}

convert_into_io_error! {
    ReadError: |error| error.errno();
    CompletionError: |error| error.errno();
    EqReadError: |error| error.errno();
    EventError: |error| error.errno;
    CounterWaitError: |error| error.errno();
    WaitError: |error| error.errno();
}

#[cfg(test)]
mod tests {
    use homespun_engine::error::OperationError;
    use homespun_engine::transport::LinkError;

    use super::*;
    use crate::av::FabricAddress;
    use crate::cq::Completion;

    #[test]
    fn io_error_keeps_kind_and_text_of_a_failed_operation() {
        let failed = CompletionError {
            completion: Completion::default(),
            error: OperationError::Link(LinkError::System(Errno::ECONNREFUSED)),
            source: FabricAddress::UNSPECIFIED,
            peer: None,
        };
        let as_io = io::Error::from(failed.clone());
        assert_eq!((as_io.kind(), as_io.to_string()), (io::ErrorKind::ConnectionRefused, failed.to_string()));
    }
}
