//! Texts for error numbers and events. A program may print them, and they are never null.

use std::ffi::CStr;

use libc::{c_char, c_int};

/// `rpma_err_2str(3)`
pub(crate) extern "C" fn rpma_err_2str(error: c_int) -> *const c_char {
    describe_error(error).as_ptr()
}

/// `rpma_utils_conn_event_2str(3)`
pub(crate) extern "C" fn rpma_utils_conn_event_2str(event: c_int) -> *const c_char {
    describe_event(event).as_ptr()
}

fn describe_error(error: c_int) -> &'static CStr {
    match error {
        0 => c"Success",
        -100_001 => c"The request is not supported",
        -100_002 => c"The provider has failed",
        -100_003 => c"Too little memory",
        -100_004 => c"An argument is invalid",
        -100_005 => c"There is no completion",
        -100_006 => c"There is no event",
        -100_007 => c"A temporary failure: repeat the call",
        -100_008 => c"The completion channel is shared by two queues",
        -100_009 => c"The queues have completion channels of their own",
        _ => c"An unknown error",
    }
}

fn describe_event(event: c_int) -> &'static CStr {
    match event {
        -1 => c"No event of a connection",
        0 => c"The connection is established",
        1 => c"The connection is closed",
        2 => c"The connection is lost",
        3 => c"The connection was rejected",
        4 => c"The peer cannot be reached",
        _ => c"An unknown event of a connection",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_number_has_a_text_of_its_own() {
        let errors: HashSet<_> = (-100_010..=-100_001).chain([0]).map(describe_error).collect();
        assert_eq!(errors.len(), 11);
        assert_eq!(describe_error(-100_000), describe_error(7));
        let events: HashSet<_> = (-1..=5).map(describe_event).collect();
        assert_eq!(events.len(), 7);
        assert_eq!(describe_event(-2), describe_event(5));
    }
}
