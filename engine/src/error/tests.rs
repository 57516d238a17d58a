use std::error::Error as _;

use super::*;

#[test]
fn misuse_has_the_errno_of_its_kind() {
    let of = |misuse: Misuse| Error::from(misuse).errno();
    assert_eq!(of(Misuse::State(ObjectState::EndpointEnabled)), Errno::EOPBADSTATE);
    assert_eq!(of(Misuse::Busy(InUse::CounterBound)), Errno::EBUSY);
    assert_eq!(of(Misuse::NotFound(Missing::Operation)), Errno::ENOENT);
    assert_eq!(of(Misuse::NotSupported(Unsupported::PollFd)), Errno::ENOSYS);
    assert_eq!(of(Misuse::Unmet(Unmet::Route)), Errno::ENODATA);
    assert_eq!(of(Misuse::Invalid(Argument::NotOffered(Unmet::Route))), Errno::EINVAL);
    assert_eq!(of(Misuse::Memory(BadMemory::EmptyRegion)), Errno::EINVAL);
    assert_eq!(of(Misuse::NoCapability(Caps::RMA)), Errno::EOPNOTSUPP);
    assert_eq!(of(Misuse::NoCompletionQueue(Direction::Receive)), Errno::ENOCQ);
}

#[test]
fn io_error_of_a_failed_call_keeps_its_kind_and_text() {
    let error = SystemRequest::Socket.refused(io::Error::from_raw_os_error(13));
    let as_io = io::Error::from(error.clone());
    assert_eq!((as_io.kind(), as_io.to_string()), (io::ErrorKind::PermissionDenied, error.to_string()));
    assert_eq!(as_io.get_ref().and_then(|source| source.downcast_ref()), Some(&error));
}

#[test]
fn error_text_names_the_mistake_and_the_accepted_values() {
    let text = |misuse: Misuse| Error::from(misuse).to_string();
    assert_eq!(
        text(Misuse::State(ObjectState::EndpointNotEnabled)),
        "not permitted in this state: the endpoint is not enabled"
    );
    assert_eq!(
        text(Misuse::Invalid(Argument::NotOffered(Unmet::InjectSize { max_bytes: 4096 }))),
        "invalid argument: an info that asks for an inject size above 4096 bytes"
    );
    let accepted = crate::address::AddressFormat::SockaddrIn;
    assert_eq!(
        text(Misuse::Invalid(Argument::AddressFormat { accepted })),
        "invalid argument: an address of another format than FI_SOCKADDR_IN"
    );
    assert_eq!(
        text(Misuse::Invalid(Argument::ConnectionData { len_bytes: 257 })),
        "invalid argument: 257 bytes of data with a connection, which may have 256"
    );
    assert_eq!(
        text(Misuse::NoCapability(Caps::ATOMIC | Caps::WRITE)),
        "the endpoint lacks the capabilities FI_ATOMIC and FI_WRITE"
    );
    assert_eq!(
        text(Misuse::NoCompletionQueue(Direction::Transmit)),
        "no completion queue is bound for transmit operations"
    );
}

#[test]
fn unresolved_name_is_quoted_with_the_resolvers_reason() {
    let unresolved = |node: Option<&str>, service: Option<&str>| {
        let (node, service) = (node.map(str::to_owned), service.map(str::to_owned));
        let misuse = Misuse::Unresolved(Box::new(Unresolved { node, service, reason: "no".into() }));
        assert_eq!(misuse.errno(), Errno::ENODATA);
        Error::from(misuse).to_string()
    };
    assert_eq!(unresolved(Some("a"), Some("b")), "host \"a\" with port \"b\" does not resolve: no");
    assert_eq!(unresolved(Some("a\n"), None), "host \"a\\n\" does not resolve: no");
    assert_eq!(unresolved(None, Some("b")), "port \"b\" does not resolve: no");
}

#[test]
fn source_does_not_repeat_the_text() {
    let misuse = Error::from(Misuse::Busy(InUse::AddressVector));
    assert!(misuse.source().is_none());
    assert!(Error::from(Again::QueueFull).source().is_none());
    assert!(OperationError::from(LinkError::Closed).source().is_none());
    assert!(OperationError::Refused(Refusal::Key).source().is_none());
}
