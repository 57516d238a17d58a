//! Connections from programs that use libfabric's own provider `tcp` and not homespun.
//!
//! A process that uses libfabric's `tcp` may connect to an endpoint of homespun. This side refuses the
//! request in the protocol of libfabric's `tcp`. So the application of that process learns that the
//! connection was refused.

/// The version of the header, and the type of a request.
const REQUEST_PREFIX: [u8; 2] = [3, 0];

/// A header of the same version that refuses, without data.
const REFUSAL: [u8; 32] = {
    let mut bytes = [0; 32];
    bytes[0] = REQUEST_PREFIX[0];
    bytes[1] = 6;
    bytes
};

/// If a stream begins like a connection request of libfabric's `tcp`, returns the bytes that refuse the
/// request.
pub(crate) fn refusal_for(stream: &[u8]) -> Option<&'static [u8]> {
    stream.starts_with(&REQUEST_PREFIX).then_some(&REFUSAL)
}
