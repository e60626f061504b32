//! Hexadecimal, base64 (RFC 4648) and PEM (RFC 7468) of short byte strings.
//!
//! `pin` and `identity` call it. Decoders are strict: what they accept has one meaning.

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Base64 characters in a full line of PEM (RFC 7468 §2).
const PEM_LINE: usize = 64;

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out
}

/// 64 hexadecimal digits of either case; `None` for anything else.
pub(crate) fn unhex_32(digits: &[u8]) -> Option<[u8; 32]> {
    if digits.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
    }
    Some(out)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for index in 0..4 {
            if index <= group.len() {
                let value = word >> (18 - 6 * index) & 63;
                out.push(char::from(BASE64[value as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// The base64 (either alphabet, padding optional) of exactly 32 bytes; `None` for anything else.
pub(crate) fn unbase64_32(text: &[u8]) -> Option<[u8; 32]> {
    let text = match text.len() {
        43 => text,
        44 => text.strip_suffix(b"=")?,
        _ => return None,
    };
    let mut out = [0; 32];
    for (index, &character) in text.iter().enumerate() {
        let value = base64_value(character)?;
        // Each character carries 6 bits; they straddle at most two bytes.
        let bit = index * 6;
        let word = u16::from(value) << (10 - bit % 8);
        let [high, low] = word.to_be_bytes();
        out[bit / 8] |= high;
        match out.get_mut(bit / 8 + 1) {
            Some(next) => *next |= low,
            // 43 characters have 258 bits; the two beyond 32 bytes must be zero.
            None if low != 0 => return None,
            None => {}
        }
    }
    Some(out)
}

fn base64_value(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// One PEM section named `label`, ending in a newline.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let body = base64(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(PEM_LINE));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out.push_str("-----END ");
    out.push_str(label);
    out.push_str("-----\n");
    out
}

#[cfg(test)]
mod tests;
