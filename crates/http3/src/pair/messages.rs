//! Messages for both ends, and the frames and field sections that a peer of bare bytes sends.

use http::{Request, Response, StatusCode, request, response};
use towline_wire::emit_varint;

/// The head of a GET.
pub fn get(path: &str) -> request::Parts {
    let mut request = Request::new(());
    let uri = format!("https://example.org{path}");
    *request.uri_mut() = uri.parse().unwrap_or_default();
    request.into_parts().0
}

/// The head of an answer with this status.
pub fn response(status: u16) -> response::Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.into_parts().0
}

/// The fields of a request.
pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.org"),
    (":path", "/"),
];

/// A frame (RFC 9114 §7.1).
pub fn frame_bytes(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_varint(&mut bytes, kind);
    emit_varint(&mut bytes, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// A field section of literals alone (RFC 9204 §4.5.6).
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    for (name, value) in fields {
        prefixed(&mut bytes, 0x20, 3, name.len());
        bytes.extend_from_slice(name.as_bytes());
        prefixed(&mut bytes, 0x00, 7, value.len());
        bytes.extend_from_slice(value.as_bytes());
    }
    bytes
}

fn prefixed(bytes: &mut Vec<u8>, first: u8, bits: u32, value: usize) {
    let max = (1 << bits) - 1;
    if value < max {
        return bytes.push(first | value as u8);
    }
    bytes.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 128 {
        bytes.push(rest as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}
