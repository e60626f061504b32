// Pins: which certificate a server has to show, as `serverCertificateHashes` of a browser wants it.
/**
 * A SHA-256 pin in any of its usual spellings: 64 hex digits with or without colons, or base64, each
 * perhaps after `sha256:`, `sha-256:` or `sha256/`. Throws a `SyntaxError` on anything else.
 */
export function parsePin(written) {
    const pin = written.trim().replace(/^sha-?256[:/]/i, "");
    const hex = pin.replaceAll(":", "");
    if (/^[0-9a-f]{64}$/i.test(hex)) {
        return hash((at) => Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16));
    }
    // 32 bytes are 43 digits of base64, perhaps filled up to 44.
    if (/^[A-Za-z0-9+/_-]{43}=?$/.test(pin)) {
        const binary = atob(pin.replaceAll("-", "+").replaceAll("_", "/"));
        return hash((at) => binary.charCodeAt(at));
    }
    throw new SyntaxError(`not a SHA-256 pin in hex or base64: ${JSON.stringify(written)}`);
}
function hash(byteAt) {
    return { algorithm: "sha-256", value: Uint8Array.from({ length: 32 }, (_, at) => byteAt(at)) };
}
