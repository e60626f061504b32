// A session that comes back.
import { Backoff, pause } from "./backoff.js";
import { words } from "./browser.js";
/**
 * Opens sessions one after another until the signal says stop. `open` makes a session (and may look
 * up fresh pins each time); `use` works with it, and its signal says when the session has ended. When
 * `use` returns or throws, the session is closed.
 */
export async function keepConnected(open, use, options) {
    const { signal, onState } = options;
    const backoff = new Backoff(options);
    while (!signal.aborted) {
        onState?.({ name: "connecting" });
        let why;
        try {
            const session = await open(signal);
            onState?.({ name: "open", session });
            const since = performance.now();
            why = said(await used(session, use, signal));
            if (performance.now() - since >= (options.settled ?? 5_000)) {
                backoff.reset();
            }
        }
        catch (error) {
            why = words(error);
        }
        if (!signal.aborted) {
            const milliseconds = backoff.next();
            onState?.({ name: "waiting", milliseconds, why });
            await pause(milliseconds, signal);
        }
    }
    onState?.({ name: "ended" });
}
/** Runs `use` as long as the session lives, and closes it. */
async function used(session, use, signal) {
    const over = new AbortController();
    const end = () => over.abort();
    signal.addEventListener("abort", end);
    if (signal.aborted) {
        end();
    }
    void session.closed.then(end);
    try {
        const using = use(session, over.signal);
        // What it throws after the session's end is of no interest any more.
        using.catch(() => { });
        await Promise.race([using, session.closed, aborted(over.signal)]);
    }
    finally {
        signal.removeEventListener("abort", end);
        over.abort();
        session.close();
    }
    return session.closed;
}
function aborted(signal) {
    return new Promise((resolve) => {
        if (signal.aborted) {
            resolve();
        }
        signal.addEventListener("abort", () => resolve());
    });
}
function said(end) {
    const code = end.code === 0 ? "" : ` (code ${end.code})`;
    return `${end.reason === "" ? "the session ended" : end.reason}${code}`;
}
