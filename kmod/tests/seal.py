"""Records of TLS 1.3 as a peer with known keys may make them, kTLS would not: empty ones, padded ones,
wrong types. AES-128-GCM by libcrypto, which the guest has for its openssl.
"""

import ctypes
import struct

CRYPTO = ctypes.CDLL("libcrypto.so.3")
CRYPTO.EVP_CIPHER_CTX_new.restype = CRYPTO.EVP_aes_128_gcm.restype = ctypes.c_void_p
GET_TAG = 0x10
POINTER = ctypes.c_void_p


class Sealer:
    """What `side` (0 client, 1 server) sends, with the keys of `harness.crypto_info`."""

    def __init__(self, side):
        seed = 1 if side == 0 else 2
        self.iv, self.next = bytes([seed] * 12), 0
        self.context = POINTER(CRYPTO.EVP_CIPHER_CTX_new())
        cipher = POINTER(CRYPTO.EVP_aes_128_gcm())
        assert CRYPTO.EVP_EncryptInit_ex(self.context, cipher, None, bytes([seed + 9] * 16), self.iv) == 1

    def record(self, kind, content=b"", padding=0):
        """One record; without a kind its inside is padding alone."""
        inside = content + (b"" if kind is None else bytes([kind])) + bytes(padding)
        nonce = self.iv[:4] + struct.pack(">Q", int.from_bytes(self.iv[4:], "big") ^ self.next)
        self.next += 1
        head = b"\x17\x03\x03" + struct.pack(">H", len(inside) + 16)
        out, tag, length = ctypes.create_string_buffer(len(inside) + 16), ctypes.create_string_buffer(16), ctypes.c_int()
        CRYPTO.EVP_EncryptInit_ex(self.context, None, None, None, nonce)
        CRYPTO.EVP_EncryptUpdate(self.context, None, ctypes.byref(length), head, 5)
        CRYPTO.EVP_EncryptUpdate(self.context, out, ctypes.byref(length), inside, len(inside))
        CRYPTO.EVP_EncryptFinal_ex(self.context, out, ctypes.byref(length))
        assert CRYPTO.EVP_CIPHER_CTX_ctrl(self.context, GET_TAG, 16, tag) == 1
        return head + out.raw[:len(inside)] + tag.raw
