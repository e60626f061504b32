// Bytes and nothing else: joining, numbers of fixed width, text.

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Text as UTF-8. */
export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** UTF-8 as text; throws a `TypeError` on anything else. */
export function text(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** The parts, one after the other. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.byteLength;
  }
  return whole;
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** `value` in four bytes, the highest first. */
export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  view(bytes).setUint32(0, value);
  return bytes;
}

/** The first four bytes as a number. */
export function readU32(bytes: Uint8Array): number {
  return view(bytes).getUint32(0);
}

/** `value` in eight bytes, the highest first; throws a `RangeError` unless it is a safe whole number. */
export function u64(value: number): Uint8Array {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`${value} does not fit into eight bytes without loss`);
  }
  const bytes = new Uint8Array(8);
  view(bytes).setBigUint64(0, BigInt(value));
  return bytes;
}

/** The first eight bytes as a number; exact below 2^53. */
export function readU64(bytes: Uint8Array): number {
  return Number(view(bytes).getBigUint64(0));
}
