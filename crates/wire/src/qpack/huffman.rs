//! Coding strings with the Huffman code of RFC 7541 §5.2.
//!
//! The code is canonical: codes of one length are successive numbers, in the order of their
//! symbols, and shorter codes are smaller when both are padded with zeros. So a few small tables
//! are enough, which the compiler computes.

use super::codes::CODES;
use super::integer::QpackError;

/// The longest code, in bits.
const MAX_BITS: usize = 30;

/// The end of a string among the symbols.
const END: u16 = 256;

/// By length in bits: where the codes of this length begin among `SYMBOLS`, and behind the last of them.
struct Length {
    first_code: u32,
    first_symbol: u16,
    count: u16,
}

const SYMBOLS: [u16; 257] = sorted().0;
static LENGTHS: [Length; MAX_BITS + 1] = sorted().1;

/// For each first byte the symbol whose code it begins with and the code's bits; 0 bits where the
/// code is longer.
static SHORT: [(u8, u8); 256] = short();

const fn sorted() -> ([u16; 257], [Length; MAX_BITS + 1]) {
    let mut symbols = [0; 257];
    let mut lengths = [const {
        Length {
            first_code: 0,
            first_symbol: 0,
            count: 0,
        }
    }; MAX_BITS + 1];
    let (mut bits, mut next) = (0, 0);
    while bits <= MAX_BITS {
        lengths[bits].first_symbol = next;
        let mut symbol = 0;
        while symbol < CODES.len() {
            if CODES[symbol].1 as usize == bits {
                if lengths[bits].count == 0 {
                    lengths[bits].first_code = CODES[symbol].0;
                }
                lengths[bits].count += 1;
                symbols[next as usize] = symbol as u16;
                next += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    (symbols, lengths)
}

const fn short() -> [(u8, u8); 256] {
    let mut table = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, bits) = CODES[symbol];
        if bits <= 8 {
            let first = (code as usize) << (8 - bits);
            let mut at = first;
            while at < first + (1 << (8 - bits)) {
                table[at] = (symbol as u8, bits);
                at += 1;
            }
        }
        symbol += 1;
    }
    table
}

/// Bytes of `text` in the code.
pub fn huffman_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| bits_of(*byte)).sum();
    bits.div_ceil(8)
}

fn bits_of(byte: u8) -> usize {
    usize::from(CODES[usize::from(byte)].1)
}

/// Appends `text` in the code, padded with ones to whole bytes.
pub fn huffman_encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut held) = (0u64, 0u32);
    for byte in text {
        let (code, bits) = CODES[usize::from(*byte)];
        window = window << bits | u64::from(code);
        held += u32::from(bits);
        while held >= 8 {
            held -= 8;
            out.push((window >> held) as u8);
        }
    }
    if held > 0 {
        let padding = 8 - held;
        out.push((window << padding) as u8 | (0xff >> held));
    }
}

/// Appends what `code` stands for: at most 8 bytes for each 5 of `code`.
///
/// # Errors
/// When it is no code, or its padding is wrong. What was decoded before is then in `out`.
pub fn huffman_decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), QpackError> {
    let (mut window, mut held) = (0u64, 0u32);
    let mut input = code.iter();
    loop {
        while held <= 56 {
            let Some(byte) = input.next() else {
                break;
            };
            window |= u64::from(*byte) << (56 - held);
            held += 8;
        }
        if held < 8 && is_padding(window, held) {
            return Ok(());
        }
        let (symbol, bits) = next_symbol(window).ok_or(QpackError::Huffman)?;
        if bits > held {
            return Err(QpackError::Huffman);
        }
        out.push(symbol);
        window <<= bits;
        held -= bits;
    }
}

/// Whether the `held` bits that are left, fewer than 8, are all ones.
const fn is_padding(window: u64, held: u32) -> bool {
    held == 0 || window >> (64 - held) == (1 << held) - 1
}

/// The symbol at the top of `window`, and the bits of its code. `None` for the end of a string.
fn next_symbol(window: u64) -> Option<(u8, u32)> {
    let (symbol, bits) = SHORT[(window >> 56) as usize];
    if bits > 0 {
        return Some((symbol, u32::from(bits)));
    }
    for (bits, length) in LENGTHS.iter().enumerate().skip(9) {
        let code = (window >> (64 - bits)) as u32;
        let Some(offset) = code.checked_sub(length.first_code) else {
            continue;
        };
        if offset < u32::from(length.count) {
            let symbol = SYMBOLS[usize::from(length.first_symbol) + offset as usize];
            return (symbol != END).then_some((symbol as u8, bits as u32));
        }
    }
    None
}
