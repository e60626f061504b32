'use strict';

// The peer's receiving half: its whole server connection. Each delta that it injects into the Signal K
// server becomes a line {"t":ms,"delta":{...}} of --out; what it publishes about itself does not.
//
//   node receiver.js --listen HOST:PORT --out FILE [--lib DIR] [--mode default|best] [--key KEY]
//
// It says `listening HOST:PORT` and, when it is told to end (SIGTERM), one JSON object.

const dgram = require('node:dgram');
const fs = require('node:fs');
const shared = require('./peer.js');

const given = shared.flags({ listen: '', out: '', lib: '', mode: 'default', key: shared.KEY });
const OWN = /^networking\.(edgeLink|modem)\./;
const FLUSH_MS = 200;

/** The peer listens on all addresses; here only on the one that was asked for. */
function hold(host) {
  const { bind } = dgram.Socket.prototype;
  dgram.Socket.prototype.bind = function bound(port, ...rest) {
    return bind.call(this, port, host, ...rest);
  };
}

function own(delta) {
  return delta.updates.every((update) => (update.values ?? []).every((value) => OWN.test(value.path)));
}

async function main() {
  const loaded = shared.peer(given.lib);
  const { host, port } = shared.address(given.listen);
  hold(host);
  const out = fs.openSync(given.out, 'w');
  let lines = [];
  const flush = () => {
    if (lines.length > 0) fs.writeSync(out, lines.join(''));
    lines = [];
  };
  let delivered = 0;
  const app = shared.server({
    handleMessage(_plugin, delta) {
      if (own(delta)) return;
      delivered += 1;
      lines.push(`{"t":${shared.now()},"delta":${JSON.stringify(delta)}}\n`);
    },
  });
  const link = shared.connection(loaded, app, shared.options(given.mode, {
    serverType: 'server', udpPort: port, secretKey: given.key,
  }));
  await link.start();
  setInterval(flush, FLUSH_MS);
  process.on('SIGTERM', () => {
    flush();
    const { metrics } = link.getMetricsApi();
    const report = {
      stack: 'signalk-edge-link', version: loaded.version, mode: given.mode, delivered,
      data_packets: metrics.dataPacketsReceived, duplicate_packets: metrics.duplicatePackets,
      acks: metrics.acksSent, naks: metrics.naksSent, abandoned_sequences: metrics.abandonedSequences,
      malformed: metrics.malformedPackets, rate_limited: metrics.rateLimitedPackets,
      replayed: metrics.replayedPackets,
    };
    link.stop();
    process.stdout.write(`${JSON.stringify(report)}\n`, () => process.exit(0));
  });
  process.stdout.write(`listening ${given.listen}\n`);
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
