// node picture.mjs URL FILE [SECONDS] [dark|light]: opens a page in headless Chromium, waits, and
// keeps a picture of it. The page's own errors go to standard error, and make it fail.
//
// It speaks the DevTools protocol over two pipes: messages are JSON, each ended by a zero byte.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [url, file, seconds = "12", scheme = "dark"] = process.argv.slice(2);
if (file === undefined) {
  console.error("usage: node picture.mjs URL FILE [SECONDS] [dark|light]");
  process.exit(2);
}

const profile = mkdtempSync(join(tmpdir(), "towline-picture-"));
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
const chromium = spawn(
  "chromium",
  [...flags, "--hide-scrollbars", "--window-size=1240,1500", `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
chromium.on("error", (error) => {
  console.error(`chromium: ${error.message}`);
  process.exit(1);
});

const answers = new Map();
let errors = 0;
let unread = "";
chromium.stdio[4].on("data", (data) => {
  const messages = (unread + data).split("\0");
  unread = messages.pop();
  for (const message of messages.map((text) => JSON.parse(text))) {
    if (message.method === "Runtime.exceptionThrown") {
      errors += 1;
      console.error(message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text);
    }
    answers.get(message.id)?.(message.result);
    answers.delete(message.id);
  }
});

let last = 0;
function call(method, params = {}, sessionId = undefined) {
  last += 1;
  chromium.stdio[3].write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
  return new Promise((resolve) => answers.set(last, resolve));
}

const { targetInfos } = await call("Target.getTargets");
const { targetId } = targetInfos.find(({ type }) => type === "page");
const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
await call("Runtime.enable", {}, sessionId);
await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] }, sessionId);
await call("Page.navigate", { url }, sessionId);
await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1_000));
const { data } = await call("Page.captureScreenshot", { format: "png" }, sessionId);
writeFileSync(file, Buffer.from(data, "base64"));
const { result } = await call("Runtime.evaluate", { expression: "document.body.innerText" }, sessionId);
console.log(result.value);
const ended = new Promise((resolve) => chromium.once("exit", resolve));
call("Browser.close");
await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 5_000))]);
chromium.kill("SIGKILL");
try {
  // Processes that Chromium started may write for a moment longer than it lives.
  rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
} catch (error) {
  console.error(`left behind: ${error.message}`);
}
process.exit(errors === 0 ? 0 : 1);
