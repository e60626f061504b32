// What a user of the package sees.
export { Backoff } from "./backoff.js";
export { features } from "./browser.js";
export { bytesCodec, jsonCodec, MessageStream, textCodec } from "./messages.js";
export { parsePin } from "./pins.js";
export { DatagramProbe } from "./probe.js";
export { keepConnected } from "./reconnect.js";
export { connect, ConnectError, Session } from "./session.js";
export { pollStats } from "./stats.js";
export { ReceiveStream, SendStream, StreamError } from "./streams.js";
