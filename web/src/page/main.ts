// The page: says who serves it and starts the cards.
//
// With `#show` in its address it runs everything by itself, for pictures.

import { pause } from "../backoff.js";
import { startChat } from "./chat.js";
import { startDatagrams } from "./datagrams.js";
import { startEcho } from "./echo.js";
import { element, site } from "./site.js";
import { startThroughput } from "./throughput.js";

async function introduce(): Promise<void> {
  const { url, pins, version } = await site();
  element("server").textContent = new URL(url).host;
  element("pins").textContent = pins.join(", ");
  element("version").textContent = version;
}

async function show(): Promise<void> {
  const click = (selector: string): void => document.querySelector<HTMLElement>(selector)?.click();
  await pause(1_500);
  for (const way of ["bidirectional", "unidirectional", "datagram"]) {
    click(`#echo-form button[value=${way}]`);
    await pause(300);
  }
  for (const words of ["Is anybody here?", "Only us, and a very short line."]) {
    element<HTMLInputElement>("chat-text").value = words;
    click("#chat-form button");
    await pause(300);
  }
  click("#run-both");
}

const never = new AbortController().signal;
void introduce().catch(() => {});
startEcho(never);
startThroughput();
startDatagrams(never);
startChat(never);
if (location.hash === "#show") {
  void show();
}
