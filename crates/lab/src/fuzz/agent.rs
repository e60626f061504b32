//! A request to the agent of secure TCP: parsed, written again and read back the same.

use std::net::SocketAddr;

use towline_wire::{AgentAnswer, AgentRequest, Carrier, Operation, Side, listening_address};

/// Parses `input` as one request.
///
/// # Panics
/// When a request does not survive being written and read back.
pub fn agent(input: &[u8]) {
    run(input);
}

/// As [`agent`]; returns what it saw, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    if let Ok(answer) = AgentAnswer::parse(input) {
        assert_eq!(
            AgentAnswer::parse(&answer.emit()),
            Ok(answer),
            "{input:02x?}"
        );
    }
    let _ = listening_address(input);
    match AgentRequest::parse(input) {
        Ok(request) => {
            assert_eq!(
                AgentRequest::parse(&request.emit()).as_ref(),
                Ok(&request),
                "{input:02x?}"
            );
            let family = |address: SocketAddr| u64::from(address.is_ipv6());
            1 << 32
                | (request.side as u64) << 3
                | (request.carrier as u64) << 4
                | family(request.local) << 1
                | family(request.peer)
        }
        Err(error) => error.to_string().bytes().map(u64::from).sum(),
    }
}

/// One request to start from.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    let request = AgentRequest {
        id: 1,
        fd: 5,
        side: Side::Client,
        carrier: Carrier::Module,
        operation: Operation::Handshake,
        uid: 1000,
        pid: 4711,
        netns: 1,
        local: SocketAddr::from(([10, 0, 0, 1], 6379)),
        peer: SocketAddr::from(([192, 0, 2, 9], 40_000)),
        token: 0,
    };
    vec![("request".to_owned(), request.emit().to_vec())]
}
