// Numbers of a session, again and again.

import { pause } from "./backoff.js";
import { newer } from "./browser.js";
import type { Session } from "./session.js";

/** One look at a session. What a browser does not tell is `undefined`. */
export interface Snapshot {
  /** Milliseconds, as `performance.now()` counts. */
  at: number;
  /** Payload this page wrote and read. */
  bytesSent: number;
  bytesReceived: number;
  /** Payload a second since the look before. */
  sendRate: number;
  receiveRate: number;
  /** Milliseconds, as the browser's own QUIC measures. */
  smoothedRtt: number | undefined;
  minRtt: number | undefined;
  /** Bits a second the browser believes it can send. */
  estimatedSendRate: number | undefined;
  packetsLost: number | undefined;
}

/** How to poll. */
export interface PollOptions {
  /** Milliseconds between two looks; 1,000 if not said. */
  every?: number;
  signal?: AbortSignal;
}

/** Looks at the session until it ends or the signal says stop. */
export async function* pollStats(session: Session, options: PollOptions = {}): AsyncGenerator<Snapshot> {
  const over = new AbortController();
  const end = (): void => over.abort();
  options.signal?.addEventListener("abort", end);
  void session.closed.then(end);
  let before = { at: performance.now(), ...session.carried };
  try {
    while (!over.signal.aborted && options.signal?.aborted !== true) {
      await pause(options.every ?? 1_000, over.signal);
      const measured = await browserStats(session);
      const now = { at: performance.now(), ...session.carried };
      const seconds = Math.max(now.at - before.at, 1) / 1_000;
      yield {
        ...now,
        sendRate: (now.bytesSent - before.bytesSent) / seconds,
        receiveRate: (now.bytesReceived - before.bytesReceived) / seconds,
        ...measured,
      };
      before = now;
    }
  } finally {
    options.signal?.removeEventListener("abort", end);
  }
}

type Measured = Pick<Snapshot, "smoothedRtt" | "minRtt" | "estimatedSendRate" | "packetsLost">;

async function browserStats(session: Session): Promise<Measured> {
  let stats: Record<string, unknown> = {};
  try {
    stats = ((await newer(session.transport).getStats?.()) ?? {}) as Record<string, unknown>;
  } catch {
    // Firefox has the method and says that it is not implemented.
  }
  const number = (name: string): number | undefined => {
    const value = stats[name];
    return typeof value === "number" ? value : undefined;
  };
  return {
    smoothedRtt: number("smoothedRtt"),
    minRtt: number("minRtt"),
    estimatedSendRate: number("estimatedSendRate"),
    packetsLost: number("packetsLost"),
  };
}
