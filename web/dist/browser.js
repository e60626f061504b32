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
/**
 * The error that gives a stream its code when it is reset or stopped. Throws a `RangeError` where the
 * browser cannot carry the code: those of 2026 stop at 255.
 */
export function codeError(code) {
    // The first form is the standard's, the second that of browsers which have only an older text of it.
    const Older = WebTransportError;
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
        }
        catch {
            // Not this form.
        }
    }
    throw new RangeError(`this browser cannot reset or stop a stream with code ${code}`);
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
