use core::net::SocketAddr;

use super::{
    AGENT_ANSWER_LEN, AGENT_REQUEST_LEN, AgentAnswer, AgentRequest, AgentRequestError, AgentStatus,
    Carrier, Operation, listening_address, listening_name,
};
use crate::ids::Side;

fn request(local: &str, peer: &str) -> AgentRequest {
    AgentRequest {
        id: 7,
        fd: -1,
        side: Side::Server,
        carrier: Carrier::Preload,
        operation: Operation::Listen,
        uid: 1000,
        pid: 4711,
        netns: 4_026_531_840,
        local: local.parse::<SocketAddr>().unwrap(),
        peer: peer.parse::<SocketAddr>().unwrap(),
        token: 0x0123_4567_89ab_cdef,
    }
}

#[test]
fn a_request_is_read_as_it_was_written() {
    for (local, peer) in [
        ("10.0.0.1:6379", "192.0.2.9:40000"),
        ("[fe80::1%3]:80", "[2001:db8::2]:65535"),
    ] {
        let request = request(local, peer);
        assert_eq!(AgentRequest::parse(&request.emit()), Ok(request));
    }
}

#[test]
fn the_bytes_lie_where_the_c_header_has_them() {
    let bytes = request("10.0.0.1:6379", "[2001:db8::2]:443").emit();
    assert_eq!(
        bytes[..4],
        [1u16.to_ne_bytes(), 96u16.to_ne_bytes()].concat()
    );
    assert_eq!(bytes[4..8], 7u32.to_ne_bytes());
    assert_eq!(bytes[8..12], (-1i32).to_ne_bytes());
    assert_eq!(bytes[12..16], [1, 1, 3, 0]);
    assert_eq!(bytes[16..20], 1000u32.to_ne_bytes());
    assert_eq!(bytes[20..24], 4711u32.to_ne_bytes());
    assert_eq!(bytes[24..32], 4_026_531_840u64.to_ne_bytes());
    // sockaddr_in: family, port, address.
    assert_eq!(bytes[32..34], 2u16.to_ne_bytes());
    assert_eq!(bytes[34..40], [0x18, 0xeb, 10, 0, 0, 1]);
    // sockaddr_in6: family, port, flow, address, scope.
    assert_eq!(bytes[60..62], 10u16.to_ne_bytes());
    assert_eq!(bytes[62..64], [0x01, 0xbb]);
    assert_eq!(bytes[68..72], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!(bytes[88..], 0x0123_4567_89ab_cdef_u64.to_ne_bytes());
}

#[test]
fn what_is_no_request_is_refused_by_name() {
    let good = request("10.0.0.1:1", "10.0.0.2:2").emit();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        AgentRequest::parse(&bytes)
    };
    assert!(AgentRequest::parse(&good).is_ok());
    assert!(with(15, 9).is_ok(), "reserved bytes may hold anything");
    for len in (0..AGENT_REQUEST_LEN).chain([AGENT_REQUEST_LEN + 1]) {
        assert_eq!(
            AgentRequest::parse(&vec![1; len]),
            Err(AgentRequestError::WrongSize)
        );
    }
    let other = u16::from_ne_bytes([9, good[1]]);
    assert_eq!(with(0, 9), Err(AgentRequestError::UnknownVersion(other)));
    assert_eq!(with(2, 95), Err(AgentRequestError::WrongSize));
    assert_eq!(with(12, 2), Err(AgentRequestError::UnknownSide(2)));
    assert_eq!(with(13, 3), Err(AgentRequestError::UnknownCarrier(3)));
    assert_eq!(with(14, 7), Err(AgentRequestError::UnknownOperation(7)));
    let family = u16::from_ne_bytes([1, good[61]]);
    assert_eq!(with(60, 1), Err(AgentRequestError::UnknownFamily(family)));
}

#[test]
fn an_answer_is_read_as_it_was_written() {
    let addresses = ["10.0.0.1:6379", "[2001:db8::2]:65535"];
    let [local, peer] = addresses.map(|text| text.parse().unwrap());
    for status in [
        AgentStatus::Done,
        AgentStatus::StaysHere,
        AgentStatus::Failed(111),
    ] {
        let answer = AgentAnswer {
            status,
            local,
            peer,
        };
        assert_eq!(AgentAnswer::parse(&answer.emit()), Ok(answer));
    }
    for len in [0, AGENT_ANSWER_LEN - 1, AGENT_ANSWER_LEN + 1] {
        let cut = AgentAnswer::parse(&vec![0; len]);
        assert_eq!(cut, Err(AgentRequestError::WrongSize));
    }
}

#[test]
fn a_listening_name_holds_its_address_and_others_hold_none() {
    for text in ["10.0.0.1:6379", "[fe80::1%3]:80"] {
        let address = text.parse().unwrap();
        let name = listening_name(7, address);
        assert_ne!(name, listening_name(8, address));
        assert_eq!(listening_address(&name), Some(address));
        for len in 0..name.len() {
            assert_eq!(listening_address(&name[..len]), None);
        }
    }
    assert_eq!(listening_address(b"/run/towline/stcpd.sock"), None);
}
