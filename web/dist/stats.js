// Numbers of a session, again and again.
import { pause } from "./backoff.js";
import { newer } from "./browser.js";
/** Looks at the session until it ends or the signal says stop. */
export async function* pollStats(session, options = {}) {
    const over = new AbortController();
    const end = () => over.abort();
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
    }
    finally {
        options.signal?.removeEventListener("abort", end);
    }
}
async function browserStats(session) {
    let stats = {};
    try {
        stats = ((await newer(session.transport).getStats?.()) ?? {});
    }
    catch {
        // Firefox has the method and says that it is not implemented.
    }
    const number = (name) => {
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
