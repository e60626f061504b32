// What a browser sees of a WebTransport server: each case says what it found, and the test that
// started the browser decides what that has to be. Everything is sent back in one POST.
//
// The server of the test answers these paths:
//   /echo               what comes on a stream or as a datagram goes back; codes too
//   /open/B/U/LENGTH    it opens B streams in both directions and U in one, and writes LENGTH bytes
//                       into each, which count up from the stream's number; what comes back it
//                       compares, and closes the session with 0, or with 1 if it differs
//   /codes              it reads a code, eight bytes, and resets and stops the stream with it
//   /close/CODE/REASON  it closes the session with these
//   /drain              it asks for an end soon
//   /protocol           it takes the second subprotocol it is offered
//   /refuse             it answers 403

import { u64 } from "/js/bytes.js";
import { connect, ConnectError, DatagramProbe, features, parsePin, pollStats } from "/js/index.js";

const { url, pins } = await (await fetch("/towline.json", { cache: "no-store" })).json();
const CASE_PATIENCE = 40_000;

const open = (path, options = {}) => connect(new URL(path, url).href, { pins, ...options });

/** Byte `at` of the stream with this number. */
function pattern(number, length) {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 1) {
    bytes[at] = (number * 31 + at) & 0xff;
  }
  return bytes;
}

function same(one, other) {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}

/** Runs `work` with a session and closes it. */
async function within(path, work, options) {
  const session = await open(path, options);
  try {
    return await work(session);
  } finally {
    session.close();
  }
}

async function echoed(session, bytes) {
  const { send, receive } = await session.openStream();
  const writing = send.write(bytes).then(() => send.finish());
  const back = await receive.readToEnd(bytes.length + 1);
  await writing;
  return same(bytes, back);
}

async function code(promise) {
  try {
    await promise;
    return "no error";
  } catch (error) {
    return error.code ?? "no code";
  }
}

/** What comes within two seconds. */
function soon(promise) {
  return Promise.race([promise, new Promise((resolve) => setTimeout(() => resolve("nothing"), 2_000))]);
}

const cases = {
  async "open by certificate hash"() {
    const since = performance.now();
    const session = await open("/echo");
    const milliseconds = performance.now() - since;
    session.close();
    return { milliseconds, maxDatagramSize: session.maxDatagramSize };
  },

  async "a wrong hash is refused"() {
    const wrong = "00".repeat(32);
    try {
      await connect(new URL("/echo", url).href, { pins: [wrong] });
      return "accepted";
    } catch (error) {
      return error instanceof ConnectError ? "refused" : String(error);
    }
  },

  async "a refusal by status is an error"() {
    try {
      await open("/refuse");
      return "accepted";
    } catch (error) {
      return error instanceof ConnectError ? "refused" : String(error);
    }
  },

  "1,000 streams of 64 KB": () =>
    within("/echo", async (session) => {
      const since = performance.now();
      let [next, right] = [0, 0];
      const worker = async () => {
        while (next < 1_000) {
          const well = await echoed(session, pattern(next++, 65_536));
          right += Number(well);
        }
      };
      await Promise.all(Array.from({ length: 32 }, worker));
      return { right, seconds: (performance.now() - since) / 1_000 };
    }),

  "one-way streams": () =>
    within("/echo", async (session) => {
      const back = new Map();
      const incoming = session.receiveStreams();
      for (let number = 0; number < 20; number += 1) {
        const stream = await session.openSendStream();
        await stream.write(pattern(number, 1_000 + number));
        await stream.finish();
      }
      for (let count = 0; count < 20; count += 1) {
        const { value } = await incoming.next();
        const bytes = await value.readToEnd(10_000);
        back.set(bytes.length, same(bytes, pattern(bytes.length - 1_000, bytes.length)));
      }
      return [...back.values()].filter(Boolean).length;
    }),

  "streams that the server opens": () =>
    within("/open/10/10/5000", async (session) => {
      let right = 0;
      const check = async (receive) => {
        const bytes = await receive.readToEnd(10_000);
        right += Number(bytes.length === 5_000 && bytes.every((byte, at) => byte === ((bytes[0] + at) & 0xff)));
        return bytes;
      };
      const one = (async () => {
        let count = 0;
        for await (const receive of session.receiveStreams()) {
          await check(receive);
          if (++count === 10) {
            break;
          }
        }
      })();
      await one;
      let count = 0;
      for await (const { send, receive } of session.streams()) {
        await send.write(await check(receive));
        // The server closes the session when it has the last, perhaps before it acknowledges it.
        send.finish().catch(() => {});
        if (++count === 10) {
          break;
        }
      }
      const { code: ended, reason } = await session.closed;
      return { right, ended, reason };
    }),

  "datagrams come back": () =>
    within("/echo", async (session) => {
      const probe = new DatagramProbe(2_000);
      const rtts = [];
      const receiving = (async () => {
        for await (const datagram of session.datagrams()) {
          const echo = probe.onEcho(datagram, performance.now());
          if (echo !== null) {
            rtts.push(echo.rtt);
          }
          if (rtts.length === 500) {
            break;
          }
        }
      })();
      for (let count = 0; count < 500; count += 1) {
        await session.sendDatagram(probe.next(performance.now(), 200));
        if (count % 10 === 9) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
      await Promise.race([receiving, new Promise((resolve) => setTimeout(resolve, 2_000))]);
      rtts.sort((one, other) => one - other);
      return { sent: 500, received: rtts.length, median: rtts[rtts.length >> 1] };
    }),

  "codes that the page sends": () =>
    within("/echo", async (session) => {
      const found = {};
      for (const wanted of [0, 7, 255, 300]) {
        const [reset, stop] = [await session.openStream(), await session.openStream()];
        for (const { send, receive } of [reset, stop]) {
          await send.writeText("x");
          await receive.read();
        }
        try {
          await reset.send.reset(wanted);
          await stop.receive.stop(wanted);
          found[wanted] = {
            reset: await soon(code(reset.receive.readToEnd(10))),
            stop: await soon(stop.send.stopped().then((got) => got ?? "no code")),
          };
        } catch (error) {
          found[wanted] = error.name;
        }
      }
      return found;
    }),

  "codes that the server sends": () =>
    within("/codes", async (session) => {
      const found = {};
      for (const wanted of [0, 7, 255, 256, 300, 65_536, 0xffff_ffff]) {
        const { send, receive } = await session.openStream();
        await send.write(u64(wanted));
        const [reset, stop] = [code(receive.readToEnd(10)), send.stopped()];
        found[wanted] = { reset: await soon(reset), stop: await soon(stop.then((got) => got ?? "no code")) };
      }
      return found;
    }),

  async "the server closes with code and reason"() {
    const session = await open("/close/7/bye%20bye");
    return session.closed;
  },

  async "we close with code and reason"() {
    const session = await open("/echo");
    await echoed(session, pattern(1, 10));
    session.close(300, "that is all");
    return session.closed;
  },

  async "other sessions live on"() {
    const [one, other] = [await open("/echo"), await open("/echo")];
    one.close(1, "one");
    await one.closed;
    const right = await echoed(other, pattern(2, 1_000));
    other.close();
    return right;
  },

  subprotocol: () =>
    within("/protocol", async (session) => session.protocol, { protocols: ["first", "second"] }),

  draining: () =>
    within("/drain", async (session) => {
      if (session.draining === undefined) {
        return "lacking";
      }
      return soon(session.draining.then(() => "heard"));
    }),

  statistics: () =>
    within("/echo", async (session) => {
      await echoed(session, pattern(3, 10_000));
      const { value } = await pollStats(session, { every: 100 }).next();
      return { rtt: value.smoothedRtt ?? value.minRtt ?? null, sent: value.bytesSent, received: value.bytesReceived };
    }),
};

const only = new URLSearchParams(location.search).get("only");
const found = { browser: navigator.userAgent, features: features(), pins: pins.map((pin) => parsePin(pin).value.length), cases: {} };
for (const [name, run] of Object.entries(cases)) {
  if (only !== null && only !== name) {
    continue;
  }
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("out of time")), CASE_PATIENCE));
  try {
    found.cases[name] = await Promise.race([run(), late]);
  } catch (error) {
    found.cases[name] = { failed: String(error) };
  }
}
await fetch("/result", { method: "POST", body: JSON.stringify(found) });
document.title = "done";
