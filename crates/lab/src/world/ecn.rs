//! ECN between the engine's codepoints and the two bits a simulated datagram carries.

use towline_quic::Ecn;

/// The codepoint behind the two bits of an IP header (RFC 3168 §5).
pub(crate) fn codepoint(bits: u8) -> Option<Ecn> {
    match bits & 0b11 {
        0b10 => Some(Ecn::Ect0),
        0b01 => Some(Ecn::Ect1),
        0b11 => Some(Ecn::Ce),
        _ => None,
    }
}

/// The two bits of a codepoint.
pub(crate) fn bits(codepoint: Ecn) -> u8 {
    match codepoint {
        Ecn::Ect0 => 0b10,
        Ecn::Ect1 => 0b01,
        Ecn::Ce => 0b11,
    }
}
