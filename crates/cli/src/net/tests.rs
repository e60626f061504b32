use super::*;

/// A full manifest stream beside full lanes once used up the connection's credit: the
/// receiver read no manifest before a file was settled, and no file could be settled.
#[test]
fn an_unread_manifest_leaves_credit_for_the_lanes_from_the_start() {
    let transport =
        receiving_options(Duration::from_secs(15), &CongestionArgs::default()).transport;
    assert!(transport.stream_receive_window <= transport.max_stream_receive_window);
    assert!(transport.receive_window >= 2 * transport.max_stream_receive_window);
    assert!(transport.max_receive_window >= transport.receive_window);
}
