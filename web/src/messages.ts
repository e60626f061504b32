// Typed streams: whole messages of one type in each direction, over one stream.
//
// A message is its length in four bytes, the highest first, and then its bytes.

import { joined, readU32, text, u32, utf8 } from "./bytes.js";
import { type Stream, StreamError } from "./streams.js";

/** How messages of one type become bytes and come back. */
export interface Codec<T> {
  encode(message: T): Uint8Array;
  /** Throws on bytes that are no such message. */
  decode(bytes: Uint8Array): T;
}

/** Bytes as they are. */
export const bytesCodec: Codec<Uint8Array> = {
  encode: (message) => message,
  decode: (bytes) => bytes,
};

/** Text as UTF-8. */
export const textCodec: Codec<string> = { encode: utf8, decode: text };

/** JSON; `check` turns what came into the type, or throws. */
export function jsonCodec<T>(check: (value: unknown) => T): Codec<T> {
  return {
    encode: (message) => utf8(JSON.stringify(message)),
    decode: (bytes) => check(JSON.parse(text(bytes)) as unknown),
  };
}

/** The longest message if nothing else is said. */
const LIMIT = 1 << 20;

/** Messages over a stream. */
export class MessageStream<Out, In = Out> implements AsyncIterable<In> {
  readonly #stream: Stream;
  readonly #out: Codec<Out>;
  readonly #in: Codec<In>;
  readonly #limit: number;
  /** Messages go out one after the other, whoever sends them. */
  #last: Promise<void> = Promise.resolve();

  /** `limit` is the longest message that is sent or taken, in bytes. */
  constructor(stream: Stream, out: Codec<Out>, incoming: Codec<In>, limit = LIMIT) {
    this.#stream = stream;
    this.#out = out;
    this.#in = incoming;
    this.#limit = limit;
  }

  /** Sends a message; done when there is room for more. */
  send(message: Out): Promise<void> {
    const bytes = this.#out.encode(message);
    if (bytes.byteLength > this.#limit) {
      return Promise.reject(new RangeError(`a message of ${bytes.byteLength} bytes; ${this.#limit} are allowed`));
    }
    const write = (): Promise<void> => this.#stream.send.write(joined([u32(bytes.byteLength), bytes]));
    this.#last = this.#last.then(write, write);
    return this.#last;
  }

  /** The next message; `null` at the end. */
  async receive(): Promise<In | null> {
    const head = await this.#stream.receive.readExactly(4);
    if (head === null) {
      return null;
    }
    const length = readU32(head);
    if (length > this.#limit) {
      await this.#stream.receive.stop();
      throw new RangeError(`the peer announced a message of ${length} bytes; ${this.#limit} are allowed`);
    }
    const bytes = length === 0 ? new Uint8Array() : await this.#stream.receive.readExactly(length);
    if (bytes === null) {
      throw new StreamError("the stream ended", new Error("inside a message"));
    }
    return this.#in.decode(bytes);
  }

  /** Sends no more. */
  finish(): Promise<void> {
    return this.#stream.send.finish();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<In> {
    for (let message = await this.receive(); message !== null; message = await this.receive()) {
      yield message;
    }
  }
}
