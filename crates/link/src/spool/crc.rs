//! CRC-32C (RFC 3720 §B.4), eight bytes at a time.

/// Castagnoli's polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][byte]`: what a byte does to the sum when `n` more bytes come after it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut after = 1;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[after - 1][byte];
            tables[after][byte] = (sum >> 8) ^ tables[0][(sum & 0xff) as usize];
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// The sum of `bytes`, where `before` is that of what stands before them; 0 at the beginning.
pub(super) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut sum = !before;
    let (eights, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in eights {
        let [i, j, k, l] = sum.to_le_bytes();
        sum = TABLES[7][usize::from(a ^ i)]
            ^ TABLES[6][usize::from(b ^ j)]
            ^ TABLES[5][usize::from(c ^ k)]
            ^ TABLES[4][usize::from(d ^ l)]
            ^ TABLES[3][usize::from(e)]
            ^ TABLES[2][usize::from(f)]
            ^ TABLES[1][usize::from(g)]
            ^ TABLES[0][usize::from(h)];
    }
    for byte in rest {
        sum = (sum >> 8) ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize];
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn sums_are_those_of_rfc_3720() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(0, &up), 0x46dd_794e);
        assert_eq!(crc32c(0, &down), 0x113f_db5c);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        for at in 0..up.len() {
            let sum = crc32c(crc32c(0, &up[..at]), &up[at..]);
            assert_eq!(sum, 0x46dd_794e, "in two parts at {at}");
        }
    }
}
