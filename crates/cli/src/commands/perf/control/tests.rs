use std::net::SocketAddr;

use towline::io::{BufferGrant, SocketInfo};

use super::*;

fn socket() -> SocketInfo {
    let mut socket = SocketInfo::plain(SocketAddr::from(([127, 0, 0, 1], 1)));
    socket.gso_asked = true;
    socket.gro_asked = true;
    socket.gso_segments = 64;
    socket.gro_segments = 64;
    socket
}

#[test]
fn a_host_that_has_everything_gets_no_advice() {
    let host = HostRecord::of(&socket(), 1, "cubic".to_owned());
    assert!(host.advice.is_empty());
    let line = host.to_string();
    assert!(
        !line.contains("advice") && !line.contains("shards"),
        "{line}"
    );
    assert!(line.contains("GSO on (64 segments), GRO on (64 segments)"));
}

#[test]
fn what_was_refused_is_told_in_text_and_record() {
    let mut socket = socket();
    socket.gso_segments = 1;
    socket.gso_refused = true;
    socket.gro_segments = 1;
    socket.too_big = Some(1472);
    socket.recv_buffer = BufferGrant {
        asked: 4 << 20,
        granted: 208 << 10,
    };
    let host = HostRecord::of(&socket, 2, "cubic".to_owned());
    let text = host.to_string();
    assert!(
        text.contains("GSO off, GRO off") && text.contains(", 2 shards"),
        "{text}"
    );
    let record = serde_json::to_value(&host).unwrap();
    let advice = record["advice"].as_array().unwrap();
    for (line, word) in advice.iter().zip(["GSO", "GRO", "1472", "rmem_max"]) {
        let line = line.as_str().unwrap();
        assert!(line.contains(word), "{line}");
        assert!(text.contains(&format!("\n  advice: {line}")), "{text}");
    }
    assert_eq!(advice.len(), 4);
    assert!(advice[0].as_str().unwrap().contains("5 times"));
    assert!(advice[1].as_str().unwrap().contains("5 times"));
}
