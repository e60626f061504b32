use towline_stcp::CipherKeys;

use super::CryptoInfo;

#[test]
fn the_structs_have_the_kernels_layout() {
    let iv = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let aes = CryptoInfo::new(
        &CipherKeys::Aes128Gcm {
            key: [0xaa; 16],
            iv,
        },
        3,
    );
    let bytes = aes.as_bytes();
    assert_eq!(bytes.len(), 40);
    assert_eq!(
        bytes[..4],
        [0x0304u16.to_ne_bytes(), 51u16.to_ne_bytes()].concat()
    );
    assert_eq!(bytes[4..12], iv[4..], "iv without the salt");
    assert_eq!(bytes[12..28], [0xaa; 16]);
    assert_eq!(bytes[28..32], iv[..4], "salt");
    assert_eq!(bytes[32..], [0, 0, 0, 0, 0, 0, 0, 3]);

    let aes = CryptoInfo::new(
        &CipherKeys::Aes256Gcm {
            key: [0xbb; 32],
            iv,
        },
        0,
    );
    assert_eq!(aes.as_bytes().len(), 56);
    assert_eq!(aes.as_bytes()[44..48], iv[..4]);

    let chacha = CryptoInfo::new(
        &CipherKeys::ChaCha20Poly1305 {
            key: [0xcc; 32],
            iv,
        },
        1,
    );
    let bytes = chacha.as_bytes();
    assert_eq!(bytes.len(), 56);
    assert_eq!(bytes[4..16], iv);
    assert_eq!(bytes[16..48], [0xcc; 32]);
    assert_eq!(bytes[48..], [0, 0, 0, 0, 0, 0, 0, 1]);
}
