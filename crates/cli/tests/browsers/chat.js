// Opens the page in two tabs, has them talk to each other as a user would, and posts what each of them
// showed.

import { pause } from "/js/backoff.js";

const PATIENCE = 30_000;
const never = new AbortController().signal;

async function until(what, check) {
  const since = performance.now();
  while (performance.now() - since < PATIENCE) {
    const found = check();
    if (found) {
      return found;
    }
    await pause(50, never);
  }
  throw new Error(`waited for ${what}`);
}

/** A tab of the page, once it is there. */
async function tab(name) {
  const opened = window.open("/", "_blank");
  if (opened === null) {
    throw new Error("the browser opens no tab");
  }
  const element = (id) => opened.document.getElementById(id);
  await until("the page", () => opened.document.readyState === "complete" && element("chat-name")?.value);
  element("chat-name").value = name;
  return {
    members: () => element("chat-members").textContent,
    said: () =>
      [...element("chat-log").children].map((line) => [
        ...[...line.children].map((part) => part.textContent),
        line.className,
      ]),
    say(text) {
      element("chat-text").value = text;
      element("chat-form").querySelector("button").click();
    },
    close: () => opened.close(),
  };
}

async function talk() {
  const [bow, stern] = [await tab("Bow"), await tab("Stern")];
  await until("both to be there", () => bow.members() === "2" && stern.members() === "2");
  bow.say("ahoy");
  await until("the first words", () => bow.said().length === 1 && stern.said().length === 1);
  stern.say("aye");
  await until("the answer", () => bow.said().length === 2 && stern.said().length === 2);
  const found = { bow: bow.said(), stern: stern.said() };
  bow.close();
  await until("one to be left", () => stern.members() === "only you");
  stern.close();
  return found;
}

const found = await talk().catch((error) => ({ error: `${error}` }));
await fetch("/result", { method: "POST", body: JSON.stringify(found) });
