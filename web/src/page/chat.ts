// The card "Chat": typed messages over one stream.

import { jsonCodec, keepConnected, MessageStream, type Session } from "../index.js";
import { addLine, element, open } from "./site.js";

/** What this page says. */
interface Said {
  name: string;
  text: string;
}

/** What the server says: somebody's words, or how many are here. */
type Heard = ({ type: "said" } & Said) | { type: "here"; members: number };

/** The longest message of the server. */
const LIMIT = 8192;
const NAMES = ["Bollard", "Cleat", "Fairlead", "Halyard", "Hawser", "Marlin", "Painter", "Windlass"];

/** Stays in the chat. */
export function startChat(signal: AbortSignal): void {
  const name = element<HTMLInputElement>("chat-name");
  const input = element<HTMLInputElement>("chat-text");
  name.value = `${NAMES[Math.floor(Math.random() * NAMES.length)] ?? "Guest"} ${Math.floor(Math.random() * 90) + 10}`;
  let messages: MessageStream<Said, Heard> | null = null;
  element<HTMLFormElement>("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const said = { name: name.value.trim() || "Guest", text: input.value.trim() };
    if (messages !== null && said.text !== "") {
      messages.send(said).catch(() => {});
      input.value = "";
    }
  });
  const use = async (session: Session): Promise<void> => {
    messages = new MessageStream<Said, Heard>(await session.openStream(), jsonCodec(said), jsonCodec(heard), LIMIT);
    try {
      for await (const message of messages) {
        show(message, name.value.trim());
      }
    } finally {
      messages = null;
      element("chat-members").textContent = "nobody";
    }
  };
  void keepConnected((stop) => open("/chat", stop), use, { signal });
}

function show(message: Heard, me: string): void {
  if (message.type === "said") {
    addLine(element("chat-log"), [message.name, message.text], message.name === me ? "mine" : "");
  } else {
    element("chat-members").textContent = message.members === 1 ? "only you" : `${message.members}`;
  }
}

function said(value: unknown): Said {
  const { name, text } = value as Partial<Said>;
  if (typeof name !== "string" || typeof text !== "string") {
    throw new TypeError("not words of the chat");
  }
  return { name, text };
}

function heard(value: unknown): Heard {
  const { type, members } = value as { type?: unknown; members?: unknown };
  if (type === "here" && typeof members === "number") {
    return { type, members };
  }
  if (type === "said") {
    return { type, ...said(value) };
  }
  throw new TypeError("not a message of the chat");
}
