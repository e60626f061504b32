// Streams of a session: reading and writing with codes, ends and exact lengths.
import { codeError, codeOf, words } from "./browser.js";
import { joined, text, utf8 } from "./bytes.js";
/** A stream that came to its end in another way than by its end. */
export class StreamError extends Error {
    name = "StreamError";
    /** The peer's application code, if it gave one and the browser hands it on. */
    code;
    constructor(what, cause) {
        const code = codeOf(cause);
        super(code === undefined ? `${what}: ${words(cause)}` : `${what} with code ${code}`, { cause });
        this.code = code;
    }
}
/** The half that sends. */
export class SendStream {
    #writer;
    #carried;
    constructor(writable, carried) {
        this.#writer = writable.getWriter();
        this.#carried = carried;
        // The next write reports it.
        this.#writer.closed.catch(() => { });
    }
    /** Writes all of `bytes`; done when there is room for more. */
    async write(bytes) {
        try {
            await this.#writer.ready;
            await this.#writer.write(bytes);
        }
        catch (error) {
            throw new StreamError("the peer no longer reads the stream", error);
        }
        this.#carried.bytesSent += bytes.byteLength;
    }
    /** Writes text as UTF-8. */
    writeText(content) {
        return this.write(utf8(content));
    }
    /** Ends the stream; done when the peer has all of it. */
    async finish() {
        try {
            await this.#writer.close();
        }
        catch (error) {
            throw new StreamError("the peer no longer reads the stream", error);
        }
    }
    /** Gives up what was not delivered yet and tells the peer `code`; a `RangeError` if the browser cannot. */
    async reset(code = 0) {
        await this.#writer.abort(codeError(code));
    }
    /** The code with which the peer stops reading; it never comes if the peer reads to the end. */
    async stopped() {
        return this.#writer.closed.then(() => new Promise(() => { }), (error) => codeOf(error));
    }
}
/** The half that receives. */
export class ReceiveStream {
    #reader;
    #carried;
    /** Read from the browser and not handed on yet. */
    #kept = null;
    constructor(readable, carried) {
        this.#reader = readable.getReader();
        this.#carried = carried;
        // The next read reports it.
        this.#reader.closed.catch(() => { });
    }
    /** What has come, as much as there is; `null` at the end. */
    async read() {
        if (this.#kept !== null) {
            const kept = this.#kept;
            this.#kept = null;
            return kept;
        }
        let result;
        try {
            result = await this.#reader.read();
        }
        catch (error) {
            throw new StreamError("the peer gave the stream up", error);
        }
        if (result.done) {
            return null;
        }
        this.#carried.bytesReceived += result.value.byteLength;
        return result.value;
    }
    /** Exactly `length` bytes; `null` if the stream ends before the first of them. */
    async readExactly(length) {
        const parts = [];
        let missing = length;
        while (missing > 0) {
            const part = await this.read();
            if (part === null) {
                if (parts.length === 0) {
                    return null;
                }
                throw new StreamError("the stream ended", new Error(`${missing} bytes too early`));
            }
            const taken = part.subarray(0, missing);
            if (part.byteLength > taken.byteLength) {
                this.#kept = part.subarray(taken.byteLength);
            }
            parts.push(taken);
            missing -= taken.byteLength;
        }
        return parts.length === 1 && parts[0] !== undefined ? parts[0] : joined(parts);
    }
    /** Everything up to the end; more than `limit` bytes are refused. */
    async readToEnd(limit) {
        const parts = [];
        let length = 0;
        for (let part = await this.read(); part !== null; part = await this.read()) {
            length += part.byteLength;
            if (length > limit) {
                await this.stop();
                throw new RangeError(`the stream is longer than ${limit} bytes`);
            }
            parts.push(part);
        }
        return joined(parts);
    }
    /** The same as text. */
    async readText(limit) {
        return text(await this.readToEnd(limit));
    }
    /** Wants no more of it and tells the peer `code`; a `RangeError` if the browser cannot. */
    async stop(code = 0) {
        await this.#reader.cancel(codeError(code));
    }
    async *[Symbol.asyncIterator]() {
        for (let part = await this.read(); part !== null; part = await this.read()) {
            yield part;
        }
    }
}
