// What a user of the package sees.

export { Backoff, type BackoffOptions } from "./backoff.js";
export { type Features, features } from "./browser.js";
export { bytesCodec, type Codec, jsonCodec, MessageStream, textCodec } from "./messages.js";
export { type CertificateHash, parsePin } from "./pins.js";
export { DatagramProbe, type Echo } from "./probe.js";
export { type ConnectionState, keepConnected, type KeepOptions } from "./reconnect.js";
export { connect, ConnectError, type ConnectOptions, Session, type SessionEnd } from "./session.js";
export { pollStats, type PollOptions, type Snapshot } from "./stats.js";
export { type Carried, ReceiveStream, SendStream, type Stream, StreamError } from "./streams.js";
