// A session: opening one to a pinned server, its streams, its datagrams and its end.
import { datagramWritable, newer, words } from "./browser.js";
import { parsePin } from "./pins.js";
import { ReceiveStream, SendStream } from "./streams.js";
/** A session could not be opened. The message says what to look at. */
export class ConnectError extends Error {
    name = "ConnectError";
}
const TIMEOUT = 10_000;
/** Opens a session. Rejects with a `ConnectError`, or with the signal's reason. */
export async function connect(url, options = {}) {
    if (typeof WebTransport !== "function") {
        throw new ConnectError(globalThis.isSecureContext
            ? "this browser has no WebTransport"
            : "WebTransport needs a secure context: open the page by https or from 127.0.0.1");
    }
    options.signal?.throwIfAborted();
    let transport;
    try {
        transport = new WebTransport(url, transportOptions(options));
    }
    catch (error) {
        throw new ConnectError(`${url}: ${words(error)}`, { cause: error });
    }
    const session = new Session(transport);
    try {
        await opened(transport, options);
    }
    catch (error) {
        transport.close();
        throw options.signal?.aborted === true ? error : refused(url, options, error);
    }
    return session;
}
function transportOptions(options) {
    const wanted = {};
    if (options.pins !== undefined && options.pins.length > 0) {
        wanted.serverCertificateHashes = options.pins.map(parsePin);
    }
    if (options.protocols !== undefined && options.protocols.length > 0) {
        wanted.protocols = [...options.protocols];
    }
    if (options.congestionControl !== undefined) {
        wanted.congestionControl = options.congestionControl;
    }
    return wanted;
}
async function opened(transport, options) {
    const patience = options.timeout ?? TIMEOUT;
    let timer;
    let onAbort;
    const givenUp = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no answer in ${patience} ms`)), patience);
        onAbort = () => reject(options.signal?.reason);
        options.signal?.addEventListener("abort", onAbort);
    });
    try {
        await Promise.race([transport.ready, givenUp]);
    }
    finally {
        clearTimeout(timer);
        if (onAbort !== undefined) {
            options.signal?.removeEventListener("abort", onAbort);
        }
    }
}
/** Browsers say little more than "handshake failed", so that a page cannot explore a network. */
function refused(url, options, cause) {
    const pinned = (options.pins?.length ?? 0) > 0;
    const look = [
        "is the server running, and is its UDP port open",
        pinned
            ? "is the pin the hash of the certificate that it shows now (P-256, at most 14 days)"
            : "is its certificate signed by a root that this browser knows",
        "does the server accept this path and this origin",
    ];
    return new ConnectError(`${url}: ${words(cause)}. Look at: ${look.join("; ")}?`, { cause });
}
/** A session that is open, or was. */
export class Session {
    /** The browser's object, for what this class leaves out. */
    transport;
    /** How the session ended; never rejects. */
    closed;
    #carried = { bytesSent: 0, bytesReceived: 0 };
    #datagrams;
    constructor(transport) {
        this.transport = transport;
        // Whoever waits for `ready` hears of it there.
        transport.ready.catch(() => { });
        newer(transport).draining?.catch(() => { });
        this.closed = transport.closed.then((info) => ({ clean: true, code: info?.closeCode ?? 0, reason: info?.reason ?? "" }), (error) => ({ clean: false, code: 0, reason: words(error) }));
    }
    /** The subprotocol both sides agreed on; empty if none, or if this browser knows none. */
    get protocol() {
        return newer(this.transport).protocol ?? "";
    }
    /** Comes when the server asks for an end soon; `undefined` in browsers that do not hear it. */
    get draining() {
        return newer(this.transport).draining;
    }
    /** What this session has carried. */
    get carried() {
        return this.#carried;
    }
    /** Opens a stream in both directions; waits while the peer permits no more of them. */
    async openStream() {
        return this.#both(await this.transport.createBidirectionalStream());
    }
    /** Opens a stream that only sends. */
    async openSendStream() {
        const writable = await this.transport.createUnidirectionalStream();
        return new SendStream(writable, this.#carried);
    }
    /** Streams in both directions that the server opens, until the session ends. */
    async *streams() {
        for await (const stream of items(this.transport.incomingBidirectionalStreams)) {
            yield this.#both(stream);
        }
    }
    /** Streams from the server that only receive, until the session ends. */
    async *receiveStreams() {
        for await (const readable of items(this.transport.incomingUnidirectionalStreams)) {
            yield new ReceiveStream(readable, this.#carried);
        }
    }
    /** The longest datagram that can be sent now. */
    get maxDatagramSize() {
        return this.transport.datagrams.maxDatagramSize;
    }
    /** Sends a datagram. One that is too long is not sent, and no error says so: look at `maxDatagramSize`. */
    async sendDatagram(bytes) {
        this.#datagrams ??= datagramWritable(this.transport).getWriter();
        await this.#datagrams.write(bytes);
        this.#carried.bytesSent += bytes.byteLength;
    }
    /** Datagrams from the server, until the session ends. */
    async *datagrams() {
        for await (const datagram of items(this.transport.datagrams.readable)) {
            this.#carried.bytesReceived += datagram.byteLength;
            yield datagram;
        }
    }
    /** Ends the session. */
    close(code = 0, reason = "") {
        try {
            this.transport.close({ closeCode: code, reason });
        }
        catch {
            // It has ended already, and `closed` says how.
        }
    }
    #both(stream) {
        return {
            send: new SendStream(stream.writable, this.#carried),
            receive: new ReceiveStream(stream.readable, this.#carried),
        };
    }
}
/** What a stream of things holds. The end of the session ends it too: `closed` says how that came. */
async function* items(readable) {
    const reader = readable.getReader();
    try {
        for (;;) {
            let result;
            try {
                result = await reader.read();
            }
            catch {
                return;
            }
            if (result.done) {
                return;
            }
            yield result.value;
        }
    }
    finally {
        reader.releaseLock();
    }
}
