// The card "Throughput": as much as goes, for ten seconds, each way or both.
//
// On `/upload` the server writes into each stream how many bytes it has read, in eight bytes, at
// most ten times a second and once at the end. On `/download` a stream's first eight bytes say how
// many bytes the server is to send.
import { readU64, u64 } from "../bytes.js";
import { words } from "../browser.js";
import { LivePlot, short } from "./plot.js";
import { element, open } from "./site.js";
const RUN = 10_000;
const SAMPLE = 100;
const CHUNK = 1 << 16;
/** More than ten seconds can carry. */
const ENDLESS = 2 ** 40;
/** Bytes that have arrived at the other side, of every stream of a run. */
class Meter {
    #perStream = [];
    stream() {
        const index = this.#perStream.push(0) - 1;
        return (total) => {
            this.#perStream[index] = total;
        };
    }
    get total() {
        return this.#perStream.reduce((sum, bytes) => sum + bytes, 0);
    }
}
/** Readies the buttons. */
export function startThroughput() {
    const plot = new LivePlot(element("throughput-plot"), "MB/s", [
        { color: "--up", kind: "area" },
        { color: "--down", kind: "area" },
    ]);
    const buttons = ["run-up", "run-down", "run-both"].map((id) => element(id));
    const directions = [["up"], ["down"], ["up", "down"]];
    buttons.forEach((button, index) => {
        button.addEventListener("click", async () => {
            buttons.forEach((each) => (each.disabled = true));
            const runs = (directions[index] ?? []).map((direction) => run(direction, plot));
            const results = await Promise.allSettled(runs);
            element("throughput-note").textContent = results
                .map((result) => (result.status === "fulfilled" ? result.value : words(result.reason)))
                .join(" · ");
            buttons.forEach((each) => (each.disabled = false));
        });
    });
}
async function run(direction, plot) {
    const session = await open(direction === "up" ? "/upload" : "/download");
    const meter = new Meter();
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), RUN);
    const begun = performance.now();
    const sampler = sample(direction, meter, plot, begun);
    try {
        const count = Number(element("stream-count").value);
        const carry = direction === "up" ? upload : download;
        await Promise.all(Array.from({ length: count }, async () => carry(await session.openStream(), meter.stream(), over.signal)));
        const seconds = (performance.now() - begun) / 1_000;
        const mean = meter.total / seconds / 1e6;
        return `${direction === "up" ? "upload" : "download"}: ${short(meter.total / 1e6)} MB in ${short(seconds)} s, ${short(mean)} MB/s`;
    }
    finally {
        clearTimeout(timer);
        clearInterval(sampler);
        plot.add(direction === "up" ? 0 : 1, performance.now(), 0);
        element(`now-${direction}`).textContent = "–";
        over.abort();
        session.close();
    }
}
/** Puts the meter's rate into plot and legend. */
function sample(direction, meter, plot, begun) {
    const history = [{ at: begun, total: 0 }];
    const best = element(`best-${direction}`);
    plot.add(direction === "up" ? 0 : 1, begun, 0);
    return setInterval(() => {
        const now = { at: performance.now(), total: meter.total };
        // Over the last 300 ms: the server's counts come every 100 ms, and not quite evenly.
        const before = history.at(-3) ?? history[0] ?? now;
        const rate = (now.total - before.total) / (now.at - before.at) / 1e3;
        history.push(now);
        plot.add(direction === "up" ? 0 : 1, now.at, rate);
        element(`now-${direction}`).textContent = `${short(rate)} MB/s`;
        const second = history.findLast(({ at }) => now.at - at >= 1_000);
        if (second !== undefined) {
            const mean = (now.total - second.total) / (now.at - second.at) / 1e3;
            if (mean > (Number.parseFloat(best.textContent ?? "") || 0)) {
                best.textContent = short(mean);
            }
        }
    }, SAMPLE);
}
async function upload({ send, receive }, count, signal) {
    const counting = (async () => {
        for (let total = await receive.readExactly(8); total !== null; total = await receive.readExactly(8)) {
            count(readU64(total));
        }
    })();
    const chunk = new Uint8Array(CHUNK);
    while (!signal.aborted) {
        await send.write(chunk);
    }
    await send.finish();
    await counting;
}
async function download({ send, receive }, count, signal) {
    await send.write(u64(ENDLESS));
    await send.finish();
    let total = 0;
    for (let part = await receive.read(); part !== null && !signal.aborted; part = await receive.read()) {
        total += part.byteLength;
        count(total);
    }
    await receive.stop();
}
