// Round trips and losses of datagrams that the server sends back.
import { readU32, u32 } from "./bytes.js";
/**
 * Numbers datagrams and matches their echoes. One that is not back after `patience` milliseconds is
 * lost; if it comes later, nobody counts it again. It keeps what is under way and nothing else.
 */
export class DatagramProbe {
    #patience;
    #underWay = new Map();
    #next = 0;
    constructor(patience = 1_000) {
        this.#patience = patience;
    }
    /** A datagram of `length` bytes to send at `now`, its number first. */
    next(now, length) {
        const sequence = this.#next;
        this.#next = (this.#next + 1) >>> 0;
        this.#underWay.set(sequence, now);
        const datagram = new Uint8Array(Math.max(length, 4));
        datagram.set(u32(sequence));
        return datagram;
    }
    /** An echo that came at `now`; `null` if it is none of ours or counted already. */
    onEcho(datagram, now) {
        if (datagram.byteLength < 4) {
            return null;
        }
        const sequence = readU32(datagram);
        const sentAt = this.#underWay.get(sequence);
        if (sentAt === undefined) {
            return null;
        }
        this.#underWay.delete(sequence);
        return { sequence, sentAt, rtt: now - sentAt };
    }
    /** Those whose time is over at `now`. */
    lost(now) {
        const lost = [];
        // The map keeps the order of sending.
        for (const [sequence, sentAt] of this.#underWay) {
            if (now - sentAt < this.#patience) {
                break;
            }
            this.#underWay.delete(sequence);
            lost.push({ sequence, sentAt, rtt: null });
        }
        return lost;
    }
}
