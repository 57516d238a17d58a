//! Connections from programs that are not over homespun.
//!
//! Where homespun is offered in place of libfabric's provider `tcp`, a peer may still be over that provider.
//! Its request for a connection is refused in its own protocol: the peer's application then learns that the
//! connection was refused, and not only that a header was missing.

/// The version of the header, and the type of a request.
const REQUEST_PREFIX: [u8; 2] = [3, 0];

/// A header of the same version that refuses, without data.
const REFUSAL: [u8; 32] = {
    let mut bytes = [0; 32];
    bytes[0] = REQUEST_PREFIX[0];
    bytes[1] = 6;
    bytes
};

/// Returns the bytes that refuse the request of a peer over libfabric's `tcp`, whose stream begins like this.
pub(crate) fn refusal_for(stream: &[u8]) -> Option<&'static [u8]> {
    stream.starts_with(&REQUEST_PREFIX).then_some(&REFUSAL)
}
