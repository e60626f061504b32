// The card "Echo", and the session that the light at the top speaks of.

import { type ConnectionState, keepConnected, type ReceiveStream, type Session } from "../index.js";
import { text, utf8 } from "../bytes.js";
import { words } from "../browser.js";
import { short } from "./plot.js";
import { addLine, element, open } from "./site.js";

/** The longest echo that is read. */
const LIMIT = 1 << 16;
const PATIENCE = 2_000;

type Way = "bidirectional" | "unidirectional" | "datagram";

/** Stays connected to `/echo` and sends what the form says. */
export function startEcho(signal: AbortSignal): void {
  let echo: Echo | null = null;
  const form = element<HTMLFormElement>("echo-form");
  const log = element("echo-log");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = (event as SubmitEvent).submitter as HTMLButtonElement | null;
    const way = (button?.value ?? "bidirectional") as Way;
    const sent = element<HTMLInputElement>("echo-text").value;
    const since = performance.now();
    try {
      if (echo === null) {
        throw new Error("not connected");
      }
      const back = await echo.send(way, sent, AbortSignal.timeout(PATIENCE));
      const took = `${short(performance.now() - since)} ms`;
      addLine(log, [way, back, took], back === sent ? "" : "wrong");
    } catch (error) {
      addLine(log, [way, words(error)], "wrong");
    }
  });
  let since = 0;
  void keepConnected(
    (stop) => {
      since = performance.now();
      return open("/echo", stop);
    },
    async (session) => {
      echo = new Echo(session);
      await session.closed;
    },
    {
      signal,
      onState: (state) => {
        if (state.name === "open") {
          element("handshake").textContent = short(performance.now() - since);
        } else {
          echo = null;
        }
        showState(state);
      },
    },
  );
}

function showState(state: ConnectionState): void {
  const shown = element("state");
  shown.dataset["state"] = state.name;
  shown.title = state.name === "waiting" ? state.why : "";
  element("state-text").textContent = said(state);
}

function said(state: ConnectionState): string {
  switch (state.name) {
    case "open":
      return "connected";
    case "waiting":
      return `again in ${short(state.milliseconds / 1_000)} s: ${state.why}`;
    default:
      return state.name;
  }
}

/** Three ways there and back. */
class Echo {
  readonly #session: Session;
  readonly #streams: Inbox<ReceiveStream>;
  readonly #datagrams: Inbox<Uint8Array>;

  constructor(session: Session) {
    this.#session = session;
    this.#streams = new Inbox(session.receiveStreams());
    this.#datagrams = new Inbox(session.datagrams());
  }

  async send(way: Way, content: string, signal: AbortSignal): Promise<string> {
    switch (way) {
      case "bidirectional": {
        const stream = await this.#session.openStream();
        await stream.send.writeText(content);
        await stream.send.finish();
        return stream.receive.readText(LIMIT);
      }
      case "unidirectional": {
        const answer = this.#streams.next(signal);
        const stream = await this.#session.openSendStream();
        await stream.writeText(content);
        await stream.finish();
        return (await answer).readText(LIMIT);
      }
      case "datagram": {
        const answer = this.#datagrams.next(signal);
        await this.#session.sendDatagram(utf8(content));
        return text(await answer);
      }
    }
  }
}

/** What comes by itself, for those who wait, in their order. */
class Inbox<T> {
  #waiting: ((item: T) => void)[] = [];

  constructor(items: AsyncIterable<T>) {
    void this.#pass(items);
  }

  /** The next that comes from now on: to be called before what it answers is sent. */
  next(signal: AbortSignal): Promise<T> {
    const next = new Promise<T>((resolve, reject) => {
      this.#waiting.push(resolve);
      signal.addEventListener("abort", () => {
        this.#waiting = this.#waiting.filter((other) => other !== resolve);
        reject(new Error("no echo in two seconds"));
      });
    });
    // Nobody waits for it any more when the sending failed.
    next.catch(() => {});
    return next;
  }

  async #pass(items: AsyncIterable<T>): Promise<void> {
    for await (const item of items) {
      this.#waiting.shift()?.(item);
    }
  }
}
