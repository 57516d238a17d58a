//! The mode `FI_RX_CQ_DATA`: writes with remote data take receives.

use crate::connections::ConnectionFixture;

const FI_RX_CQ_DATA: u64 = 1 << 56;

#[test]
fn request_has_the_mode_of_its_passive_endpoint() {
    for mode in [0, FI_RX_CQ_DATA] {
        let fixture = ConnectionFixture::open_with_mode(mode);
        let listener = fixture.open_listener();
        let _requester = fixture.open_requester(&listener, b"");
        let request = fixture.await_event().info.expect("a request");
        // SAFETY: the info has all its attributes.
        assert_eq!((request.first().mode, unsafe { (*request.first().rx_attr).mode }), (mode, mode));
    }
}
