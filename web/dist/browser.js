// What browsers differ in, so that nothing else here has to ask which one it is.
/** What this browser has; nothing where there is no WebTransport at all. */
export function features() {
    const has = (member) => typeof WebTransport === "function" && member in WebTransport.prototype;
    return {
        protocols: has("protocol"),
        draining: has("draining"),
        stats: has("getStats"),
        sendGroups: has("createSendGroup"),
    };
}
/** The members of `transport` that may be lacking. */
export function newer(transport) {
    return transport;
}
/** Where datagrams are written, in whichever way this browser has it. */
export function datagramWritable(transport) {
    const datagrams = transport.datagrams;
    const writable = datagrams.createWritable?.() ?? datagrams.writable;
    if (writable === undefined) {
        throw new Error("this browser offers no way to write datagrams");
    }
    return writable;
}
/** The error that gives a stream its code when it is reset or stopped. */
export function codeError(code) {
    const options = { source: "stream", streamErrorCode: code };
    const error = new WebTransportError("", options);
    if (error.streamErrorCode === code) {
        return error;
    }
    // Browsers before 2024 took one argument, with the code in it.
    const Older = WebTransportError;
    return new Older({ streamErrorCode: code });
}
/** The peer's code in an error of a stream, if it says one. */
export function codeOf(error) {
    const code = error?.streamErrorCode;
    return typeof code === "number" ? code : undefined;
}
/** An error's words. */
export function words(error) {
    return error instanceof Error ? error.message : String(error);
}
