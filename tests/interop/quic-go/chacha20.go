package main

import (
	"crypto/tls"
	"unsafe"
)

// crypto/tls has no setting for TLS 1.3 suites. These three variables are kept
// linkable by the Go authors for exactly this use (see the comments beside
// them in crypto/tls); quic-go's own interop client does the same.

//go:linkname cipherSuitesTLS13 crypto/tls.cipherSuitesTLS13
var cipherSuitesTLS13 []unsafe.Pointer

//go:linkname defaultCipherSuitesTLS13 crypto/tls.defaultCipherSuitesTLS13
var defaultCipherSuitesTLS13 []uint16

//go:linkname defaultCipherSuitesTLS13NoAES crypto/tls.defaultCipherSuitesTLS13NoAES
var defaultCipherSuitesTLS13NoAES []uint16

// onlyChaCha20 leaves TLS_CHACHA20_POLY1305_SHA256 as the one TLS 1.3 suite of
// this process. The slice keeps the order AES-128, ChaCha20, AES-256.
func onlyChaCha20() {
	cipherSuitesTLS13 = cipherSuitesTLS13[1:2]
	only := []uint16{tls.TLS_CHACHA20_POLY1305_SHA256}
	defaultCipherSuitesTLS13 = only
	defaultCipherSuitesTLS13NoAES = only
}
