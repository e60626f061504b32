// The card "Chat": typed messages over one stream.
import { jsonCodec, keepConnected, MessageStream } from "../index.js";
import { addLine, element, open } from "./site.js";
/** The longest message of the server. */
const LIMIT = 8192;
const NAMES = ["Bollard", "Cleat", "Fairlead", "Halyard", "Hawser", "Marlin", "Painter", "Windlass"];
/** Stays in the chat. */
export function startChat(signal) {
    const name = element("chat-name");
    const input = element("chat-text");
    name.value = `${NAMES[Math.floor(Math.random() * NAMES.length)] ?? "Guest"} ${Math.floor(Math.random() * 90) + 10}`;
    let messages = null;
    element("chat-form").addEventListener("submit", (event) => {
        event.preventDefault();
        const said = { name: name.value.trim() || "Guest", text: input.value.trim() };
        if (messages !== null && said.text !== "") {
            messages.send(said).catch(() => { });
            input.value = "";
        }
    });
    const use = async (session) => {
        messages = new MessageStream(await session.openStream(), jsonCodec(said), jsonCodec(heard), LIMIT);
        try {
            for await (const message of messages) {
                show(message, name.value.trim());
            }
        }
        finally {
            messages = null;
            element("chat-members").textContent = "nobody";
        }
    };
    void keepConnected((stop) => open("/chat", stop), use, { signal });
}
function show(message, me) {
    if (message.type === "said") {
        addLine(element("chat-log"), [message.name, message.text], message.name === me ? "mine" : "");
    }
    else {
        element("chat-members").textContent = message.members === 1 ? "only you" : `${message.members}`;
    }
}
function said(value) {
    const { name, text } = value;
    if (typeof name !== "string" || typeof text !== "string") {
        throw new TypeError("not words of the chat");
    }
    return { name, text };
}
function heard(value) {
    const { type, members } = value;
    if (type === "here" && typeof members === "number") {
        return { type, members };
    }
    if (type === "said") {
        return { type, ...said(value) };
    }
    throw new TypeError("not a message of the chat");
}
