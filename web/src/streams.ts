// Streams of a session: reading and writing with codes, ends and exact lengths.

import { codeError, codeOf, words } from "./browser.js";
import { joined, text, utf8 } from "./bytes.js";

/** Bytes of a session that its streams and datagrams have carried. */
export interface Carried {
  bytesSent: number;
  bytesReceived: number;
}

/** A stream that came to its end in another way than by its end. */
export class StreamError extends Error {
  override readonly name = "StreamError";
  /** The peer's application code, if it gave one and the browser hands it on. */
  readonly code: number | undefined;

  constructor(what: string, cause: unknown) {
    const code = codeOf(cause);
    super(code === undefined ? `${what}: ${words(cause)}` : `${what} with code ${code}`, { cause });
    this.code = code;
  }
}

/** The half that sends. */
export class SendStream {
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #carried: Carried;

  constructor(writable: WritableStream<Uint8Array>, carried: Carried) {
    this.#writer = writable.getWriter();
    this.#carried = carried;
    // The next write reports it.
    this.#writer.closed.catch(() => {});
  }

  /** Writes all of `bytes`; done when there is room for more. */
  async write(bytes: Uint8Array): Promise<void> {
    try {
      await this.#writer.ready;
      await this.#writer.write(bytes);
    } catch (error) {
      throw new StreamError("the peer no longer reads the stream", error);
    }
    this.#carried.bytesSent += bytes.byteLength;
  }

  /** Writes text as UTF-8. */
  writeText(content: string): Promise<void> {
    return this.write(utf8(content));
  }

  /** Ends the stream; done when the peer has all of it. */
  async finish(): Promise<void> {
    try {
      await this.#writer.close();
    } catch (error) {
      throw new StreamError("the peer no longer reads the stream", error);
    }
  }

  /** Gives up what was not delivered yet and tells the peer `code`; a `RangeError` if the browser cannot. */
  async reset(code = 0): Promise<void> {
    await this.#writer.abort(codeError(code));
  }

  /** The code with which the peer stops reading; it never comes if the peer reads to the end. */
  async stopped(): Promise<number | undefined> {
    return this.#writer.closed.then(
      () => new Promise<never>(() => {}),
      (error: unknown) => codeOf(error),
    );
  }
}

/** The half that receives. */
export class ReceiveStream implements AsyncIterable<Uint8Array> {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #carried: Carried;
  /** Read from the browser and not handed on yet. */
  #kept: Uint8Array | null = null;

  constructor(readable: ReadableStream<Uint8Array>, carried: Carried) {
    this.#reader = readable.getReader();
    this.#carried = carried;
    // The next read reports it.
    this.#reader.closed.catch(() => {});
  }

  /** What has come, as much as there is; `null` at the end. */
  async read(): Promise<Uint8Array | null> {
    if (this.#kept !== null) {
      const kept = this.#kept;
      this.#kept = null;
      return kept;
    }
    let result: ReadableStreamReadResult<Uint8Array>;
    try {
      result = await this.#reader.read();
    } catch (error) {
      throw new StreamError("the peer gave the stream up", error);
    }
    if (result.done) {
      return null;
    }
    this.#carried.bytesReceived += result.value.byteLength;
    return result.value;
  }

  /** Exactly `length` bytes; `null` if the stream ends before the first of them. */
  async readExactly(length: number): Promise<Uint8Array | null> {
    const parts: Uint8Array[] = [];
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
  async readToEnd(limit: number): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
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
  async readText(limit: number): Promise<string> {
    return text(await this.readToEnd(limit));
  }

  /** Wants no more of it and tells the peer `code`; a `RangeError` if the browser cannot. */
  async stop(code = 0): Promise<void> {
    await this.#reader.cancel(codeError(code));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (let part = await this.read(); part !== null; part = await this.read()) {
      yield part;
    }
  }
}

/** Both halves. */
export interface Stream {
  readonly send: SendStream;
  readonly receive: ReceiveStream;
}
