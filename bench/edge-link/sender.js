'use strict';

// The peer's sending half: its whole client connection (subscription, duplicate check, batcher,
// pipeline, HELLO, heartbeat), given deltas as a Signal K server gives them to a subscriber.
//
//   node sender.js --in FILE.jsonl --to HOST:PORT --sent FILE [--lib DIR] [--mode default|best] [--key KEY]
//     [--from LINE] [--seconds S]      which deltas: from this line on, as many as come in S seconds
//     [--rate N]                       N a second, in place of the recorded pace
//     [--batch N --every MS]           N at once each so many milliseconds, in place of either
//     [--whole]                        each such N past its batcher, which would split them: a packet each
//     [--linger S]                     how long it stays after the last delta, to repeat what was lost
//     [--delta-timer MS] [--brotli Q]  its own settings
//     [--no-telemetry]                 without the packet about the link that it sends each second
//
// FILE of --sent takes {"i":line,"t":ms} for each delta as it is handed over. Standard output has one
// JSON object at the end.

const fs = require('node:fs');
const path = require('node:path');
const shared = require('./peer.js');

const given = shared.flags({
  in: '', to: '', sent: '', lib: '', mode: 'default', key: shared.KEY, from: 0, seconds: 0, rate: 0,
  batch: 0, every: 0, linger: 3, 'delta-timer': 0, brotli: -1, 'no-telemetry': false, whole: false,
});

/** When each delta is due, in milliseconds from the start; they are in order. */
function schedule(deltas) {
  if (given.batch > 0) return deltas.map((_, index) => Math.floor(index / given.batch) * given.every);
  if (given.rate > 0) return deltas.map((_, index) => (index * 1000) / given.rate);
  const first = Date.parse(deltas[0].updates[0].timestamp);
  let latest = 0;
  return deltas.map((delta) => {
    latest = Math.max(latest, Date.parse(delta.updates[0].timestamp) - first);
    return latest;
  });
}

/** Hands each delta over when it is due; `rest` is called when none is due for now. */
function offer(deltas, due, hand, rest) {
  const limit = given.seconds > 0 ? given.seconds * 1000 : Infinity;
  const log = [];
  const start = shared.now();
  let next = 0;
  return new Promise((resolve) => {
    const turn = () => {
      const past = shared.now() - start;
      while (next < deltas.length && due[next] < limit && due[next] <= past) {
        log.push(`{"i":${given.from + next},"t":${shared.now()}}\n`);
        hand(deltas[next]);
        next += 1;
      }
      rest();
      if (next < deltas.length && due[next] < limit) {
        setTimeout(turn, Math.max(0, due[next] - past));
      } else {
        fs.writeFileSync(given.sent, log.join(''));
        resolve(next);
      }
    };
    turn();
  });
}

async function main() {
  const loaded = shared.peer(given.lib);
  const { host, port } = shared.address(given.to);
  let hand = null;
  const app = shared.server({
    subscriptionmanager: {
      subscribe(_what, unsubscribes, _failed, delivered) {
        hand = delivered;
        unsubscribes.push(() => {});
      },
    },
  });
  if (given['delta-timer'] > 0) {
    const folder = path.join(app.getDataDirPath(), 'instances', 'bench');
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(
      path.join(folder, 'delta_timer.json'), JSON.stringify({ deltaTimer: given['delta-timer'] }),
    );
  }
  const settings = shared.options(given.mode, {
    serverType: 'client', udpAddress: host, udpPort: port, secretKey: given.key,
    ...(given.brotli < 0 ? {} : { brotliQuality: given.brotli }),
  });
  const link = shared.connection(loaded, app, settings);
  await link.start();
  const state = link.getState();
  if (given['no-telemetry']) state.pipeline.stopMetricsPublishing();

  const deltas = shared.deltas(given.in).slice(given.from);
  let gathered = [];
  const send = () => {
    for (; gathered.length > 0; gathered = gathered.slice(given.batch)) {
      state.pipeline.sendDelta(gathered.slice(0, given.batch), given.key, host, port);
    }
  };
  const offered = given.whole
    ? await offer(deltas, schedule(deltas), (delta) => gathered.push(delta), send)
    : await offer(deltas, schedule(deltas), (delta) => hand(delta), () => {});
  await new Promise((resolve) => setTimeout(resolve, given.linger * 1000));

  const { metrics } = link.getMetricsApi();
  const report = {
    stack: 'signalk-edge-link', version: loaded.version, mode: given.mode, offered,
    sent_packets: metrics.bandwidth.packetsOut, sent_bytes: metrics.bandwidth.bytesOut,
    retransmissions: metrics.retransmissions, abandoned_packets: metrics.packetsAbandoned,
    suppressed_duplicates: metrics.suppressedOutboundDuplicates, dropped_deltas: metrics.droppedDeltaCount,
    rtt_ms: metrics.rtt, waiting_deltas: state.deltas.length,
  };
  link.stop();
  process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
