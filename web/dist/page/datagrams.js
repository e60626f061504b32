// The card "Datagrams": round trips and losses, as they come.
import { DatagramProbe, keepConnected } from "../index.js";
import { pause } from "../backoff.js";
import { LivePlot, short } from "./plot.js";
import { element, open } from "./site.js";
/** Bytes of a datagram; every path carries them. */
const LENGTH = 200;
/** Round trips that median and percentile are of. */
const WINDOW = 500;
/** Keeps datagrams going. */
export function startDatagrams(signal) {
    const meter = new DatagramCard();
    void keepConnected((stop) => open("/datagrams", stop), (session, over) => meter.run(session, over), { signal });
}
class DatagramCard {
    #plot = new LivePlot(element("datagram-plot"), "ms", [{ color: "--rtt", kind: "dots" }]);
    #rate = element("datagram-rate");
    #rtts = [];
    #sent = 0;
    #lost = 0;
    #paused = false;
    constructor() {
        const button = element("datagrams-run");
        button.addEventListener("click", () => {
            this.#paused = !this.#paused;
            button.textContent = this.#paused ? "Go on" : "Pause";
            button.ariaPressed = String(!this.#paused);
        });
    }
    async run(session, over) {
        const probe = new DatagramProbe();
        const show = setInterval(() => this.#show(probe), 250);
        try {
            await Promise.race([this.#send(session, probe, over), this.#receive(session, probe)]);
        }
        finally {
            clearInterval(show);
        }
    }
    async #send(session, probe, over) {
        let due = performance.now();
        while (!over.aborted) {
            const now = performance.now();
            // A page in the background sleeps: what it missed is not made up for.
            due = Math.max(due + 1_000 / Number(this.#rate.value), now - 100);
            if (!this.#paused) {
                await session.sendDatagram(probe.next(now, LENGTH));
                this.#sent += 1;
            }
            await pause(Math.max(due - performance.now(), 0), over);
        }
    }
    async #receive(session, probe) {
        for await (const datagram of session.datagrams()) {
            const echo = probe.onEcho(datagram, performance.now());
            if (echo !== null && echo.rtt !== null) {
                this.#plot.add(0, echo.sentAt, echo.rtt);
                this.#rtts.push(echo.rtt);
                this.#rtts.splice(0, this.#rtts.length - WINDOW);
            }
        }
    }
    #show(probe) {
        for (const { sentAt } of probe.lost(performance.now())) {
            this.#lost += 1;
            this.#plot.mark(sentAt);
        }
        const sorted = [...this.#rtts].sort((one, other) => one - other);
        const at = (share) => {
            const rtt = sorted[Math.floor(share * sorted.length)];
            return rtt === undefined ? "–" : short(rtt);
        };
        element("rtt").textContent = at(0.5);
        element("rtt-now").textContent = `${short(this.#rtts.at(-1) ?? 0)} ms`;
        element("rtt-p99").textContent = `${at(0.99)} ms`;
        element("loss").textContent = this.#sent === 0 ? "–" : short((100 * this.#lost) / this.#sent);
        element("datagrams-sent").textContent = this.#sent.toLocaleString("en");
        element("datagrams-lost").textContent = this.#lost.toLocaleString("en");
    }
}
