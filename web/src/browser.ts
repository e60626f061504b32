// What browsers differ in, so that nothing else here has to ask which one it is.

/** Members that only some browsers have. */
interface Newer {
  readonly draining?: Promise<unknown>;
  readonly protocol?: string;
  getStats?(): Promise<unknown>;
  createSendGroup?(): unknown;
}

/** Ways to write datagrams, the newer one first. */
interface NewerDatagrams {
  createWritable?(): WritableStream<Uint8Array>;
  readonly writable?: WritableStream<Uint8Array>;
}

/** Which parts of WebTransport a browser has that not all of them have. */
export interface Features {
  /** A subprotocol can be agreed on. */
  protocols: boolean;
  /** The server can say that it will go away. */
  draining: boolean;
  /** The browser measures the connection. It may still refuse when asked. */
  stats: boolean;
  /** Streams can share a fair part of the connection. */
  sendGroups: boolean;
}

/** What this browser has; nothing where there is no WebTransport at all. */
export function features(): Features {
  const has = (member: keyof Newer): boolean =>
    typeof WebTransport === "function" && member in WebTransport.prototype;
  return {
    protocols: has("protocol"),
    draining: has("draining"),
    stats: has("getStats"),
    sendGroups: has("createSendGroup"),
  };
}

/** The members of `transport` that may be lacking. */
export function newer(transport: WebTransport): Newer {
  return transport as unknown as Newer;
}

/** Where datagrams are written, in whichever way this browser has it. */
export function datagramWritable(transport: WebTransport): WritableStream<Uint8Array> {
  const datagrams = transport.datagrams as unknown as NewerDatagrams;
  const writable = datagrams.createWritable?.() ?? datagrams.writable;
  if (writable === undefined) {
    throw new Error("this browser offers no way to write datagrams");
  }
  return writable;
}

/**
 * The error that gives a stream its code when it is reset or stopped. Throws a `RangeError` where the
 * browser cannot carry the code: those of 2026 stop at 255.
 */
export function codeError(code: number): WebTransportError {
  // The first form is the standard's, the second that of browsers which have only an older text of it.
  const Older = WebTransportError as unknown as new (options: object) => WebTransportError;
  const forms = [
    () => new WebTransportError("", { source: "stream", streamErrorCode: code }),
    () => new Older({ streamErrorCode: code }),
  ];
  for (const form of forms) {
    try {
      const error = form();
      if (error.streamErrorCode === code) {
        return error;
      }
    } catch {
      // Not this form.
    }
  }
  throw new RangeError(`this browser cannot reset or stop a stream with code ${code}`);
}

/** The peer's code in an error of a stream, if it says one. */
export function codeOf(error: unknown): number | undefined {
  const code = (error as { streamErrorCode?: unknown } | null)?.streamErrorCode;
  return typeof code === "number" ? code : undefined;
}

/** An error's words. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
