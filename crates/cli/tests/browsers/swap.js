// Opens one session after another with the pins that it was given at its start, for as many milliseconds as
// its address says, and posts when that went well and when not.

import { pause } from "/js/backoff.js";
import { connect } from "/js/index.js";

const { url, pins } = await (await fetch("/towline.json", { cache: "no-store" })).json();
const end = Date.now() + Number(new URLSearchParams(location.search).get("for"));
const found = { sessions: [], failures: [] };
while (Date.now() < end) {
  const at = Date.now();
  try {
    const session = await connect(new URL("/echo", url).href, { pins });
    const { send, receive } = await session.openStream();
    await send.writeText("ahoy");
    await send.finish();
    if ((await receive.readText(10)) !== "ahoy") {
      throw new Error("something else came back");
    }
    session.close();
    found.sessions.push(at);
  } catch (error) {
    found.failures.push(`${at}: ${error}`);
  }
  await pause(200, new AbortController().signal);
}
await fetch("/result", { method: "POST", body: JSON.stringify(found) });
