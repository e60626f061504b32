// What needs no browser: pins, waits, messages, streams, datagram probes.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Backoff,
  bytesCodec,
  DatagramProbe,
  jsonCodec,
  keepConnected,
  MessageStream,
  parsePin,
  ReceiveStream,
  SendStream,
  StreamError,
} from "../dist/index.js";
import { readU64, u32, u64, utf8 } from "../dist/bytes.js";

const carried = () => ({ bytesSent: 0, bytesReceived: 0 });

/** A stream that receives these parts and collects what is sent. */
function loopback(parts) {
  const sent = [];
  const readable = new ReadableStream({
    start(controller) {
      parts.forEach((part) => controller.enqueue(part));
      controller.close();
    },
  });
  const writable = new WritableStream({ write: (chunk) => void sent.push(...chunk) });
  return { sent, stream: { send: new SendStream(writable, carried()), receive: new ReceiveStream(readable, carried()) } };
}

test("a pin is the same in every spelling", () => {
  const hex = "00112233445566778899aabbccddeeff".repeat(2);
  const base64 = Buffer.from(hex, "hex").toString("base64");
  const colons = hex.match(/../g).join(":").toUpperCase();
  const url = base64.replaceAll("+", "-").replaceAll("/", "_").replace("=", "");
  for (const written of [hex, ` ${hex}\n`, colons, base64, url, `sha256:${hex}`, `sha-256:${hex}`, `sha256/${base64}`]) {
    const { algorithm, value } = parsePin(written);
    assert.equal(algorithm, "sha-256");
    assert.equal(Buffer.from(value).toString("hex"), hex, written);
  }
  for (const wrong of ["", hex.slice(2), `${hex}00`, "sha1:00", base64.slice(4)]) {
    assert.throws(() => parsePin(wrong), SyntaxError, wrong);
  }
});

test("waits double up to the longest, are spread, and begin anew", () => {
  const least = new Backoff({ first: 100, most: 1000, random: () => 0 });
  assert.deepEqual(Array.from({ length: 6 }, () => least.next()), [50, 100, 200, 400, 500, 500]);
  const most = new Backoff({ first: 100, most: 1000, random: () => 1 });
  assert.deepEqual(Array.from({ length: 5 }, () => most.next()), [100, 200, 400, 800, 1000]);
  most.reset();
  assert.equal(most.next(), 100);
  const long = new Backoff();
  for (let attempt = 0; attempt < 2_000; attempt += 1) {
    assert.ok(long.next() <= 15_000);
  }
});

test("numbers keep their value up to the largest safe one", () => {
  for (const value of [0, 1, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
    assert.equal(readU64(u64(value)), value);
  }
  assert.throws(() => u64(2 ** 53), RangeError);
  assert.throws(() => u64(-1), RangeError);
});

test("exact reads do not depend on how the bytes were cut", async () => {
  const bytes = Uint8Array.from({ length: 100 }, (_, at) => at);
  for (const cut of [1, 3, 7, 99, 100]) {
    const parts = [];
    for (let at = 0; at < bytes.length; at += cut) {
      parts.push(bytes.subarray(at, at + cut));
    }
    const { receive } = loopback(parts).stream;
    assert.deepEqual([...(await receive.readExactly(8))], [...bytes.subarray(0, 8)]);
    assert.deepEqual([...(await receive.readExactly(90))], [...bytes.subarray(8, 98)]);
    await assert.rejects(receive.readExactly(3), StreamError);
  }
  assert.equal(await loopback([]).stream.receive.readExactly(1), null);
});

test("a stream longer than allowed is refused", async () => {
  const parts = [new Uint8Array(60), new Uint8Array(60)];
  assert.equal((await loopback(parts).stream.receive.readToEnd(120)).length, 120);
  globalThis.WebTransportError ??= class extends Error {
    constructor(message, { streamErrorCode }) {
      super(message);
      this.streamErrorCode = streamErrorCode;
    }
  };
  await assert.rejects(loopback(parts).stream.receive.readToEnd(119), RangeError);
});

test("a peer's code arrives with the error", async () => {
  const error = Object.assign(new Error("reset"), { streamErrorCode: 7 });
  const readable = new ReadableStream({ start: (controller) => controller.error(error) });
  const receive = new ReceiveStream(readable, carried());
  await assert.rejects(receive.read(), (thrown) => thrown instanceof StreamError && thrown.code === 7);
  const writable = new WritableStream({ start: (controller) => controller.error(error) });
  const send = new SendStream(writable, carried());
  assert.equal(await send.stopped(), 7);
  await assert.rejects(send.write(utf8("x")), (thrown) => thrown instanceof StreamError && thrown.code === 7);
});

test("messages come back whole and in order", async () => {
  const { sent, stream } = loopback([]);
  const out = new MessageStream(stream, jsonCodec(String), jsonCodec(String));
  await Promise.all(["one", "", "drei €"].map((message) => out.send(message)));
  const parts = sent.map((byte) => Uint8Array.of(byte));
  const back = new MessageStream(loopback(parts).stream, bytesCodec, jsonCodec(String));
  const received = [];
  for await (const message of back) {
    received.push(message);
  }
  assert.deepEqual(received, ["one", "", "drei €"]);
});

test("a message longer than allowed is neither sent nor taken", async () => {
  const { sent, stream } = loopback([u32(11)]);
  const messages = new MessageStream(stream, bytesCodec, bytesCodec, 10);
  await assert.rejects(messages.send(new Uint8Array(11)), RangeError);
  assert.equal(sent.length, 0);
  await assert.rejects(messages.receive(), RangeError);
});

test("a message that breaks off is an error", async () => {
  for (const parts of [[Uint8Array.of(0, 0)], [u32(4)], [u32(4), Uint8Array.of(1)]]) {
    await assert.rejects(new MessageStream(loopback(parts).stream, bytesCodec, bytesCodec).receive(), StreamError);
  }
});

test("a probe counts each echo once and what is late as lost", () => {
  const probe = new DatagramProbe(1_000);
  const [first, second, third] = [0, 10, 20].map((now) => probe.next(now, 100));
  assert.equal(first.length, 100);
  assert.deepEqual(probe.onEcho(second, 15), { sequence: 1, sentAt: 10, rtt: 5 });
  assert.equal(probe.onEcho(second, 16), null, "a second time");
  assert.equal(probe.onEcho(utf8("?"), 16), null, "too short");
  assert.deepEqual(probe.lost(999), []);
  assert.deepEqual(probe.lost(1_010), [{ sequence: 0, sentAt: 0, rtt: null }]);
  assert.equal(probe.onEcho(first, 1_011), null, "lost already");
  assert.equal(probe.onEcho(third, 1_019).rtt, 999);
});

/** A session that ends when it is closed, or after some milliseconds. */
function session(lives) {
  let end;
  const closed = new Promise((resolve) => (end = resolve));
  if (lives !== undefined) {
    setTimeout(() => end({ clean: false, code: 0, reason: "gone" }), lives);
  }
  return { closed, close: () => end({ clean: true, code: 0, reason: "" }) };
}

test("a lost session is opened again until nobody wants it any more", async () => {
  const stop = new AbortController();
  const states = [];
  let opened = 0;
  await keepConnected(
    async () => {
      opened += 1;
      if (opened === 2) {
        throw new Error("refused");
      }
      if (opened === 4) {
        setTimeout(() => stop.abort(), 5);
      }
      return session(opened < 4 ? 5 : undefined);
    },
    (_, over) => new Promise((resolve) => over.addEventListener("abort", resolve)),
    { signal: stop.signal, first: 2, onState: ({ name, why }) => states.push(why ?? name) },
  );
  const once = ["connecting", "open", "gone"];
  assert.deepEqual(states, [...once, "connecting", "refused", ...once, "connecting", "open", "ended"]);
});

test("work that fails closes its session", async () => {
  const stop = new AbortController();
  const only = session();
  await keepConnected(
    async () => only,
    async () => {
      stop.abort();
      throw new Error("of no use");
    },
    { signal: stop.signal },
  );
  assert.equal((await only.closed).clean, true);
});
