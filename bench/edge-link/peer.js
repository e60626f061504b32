'use strict';

// The peer, signalk-edge-link, behind what the scripts here share: where its modules are, the options
// of a connection, a Signal K server that is not there, and one client pipeline without a socket.
// Everything that is measured is the peer's own code; nothing of it is copied here.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

// All its settings at their defaults, or all that make packets smaller switched on.
const MODES = {
  default: {},
  best: {
    useMsgpack: true,
    usePathDictionary: true,
    useCompactDeltas: true,
    useValueDedup: true,
    brotliQuality: 11,
  },
};

const KEY = 'towline-bench-edge-link-key-0001';

/** `--name value` and `--flag` (true), over defaults; an unknown one ends the program. */
function flags(defaults) {
  const given = { ...defaults };
  const words = process.argv.slice(2);
  while (words.length > 0) {
    const word = words.shift();
    const name = word.startsWith('--') ? word.slice(2) : '';
    if (!(name in defaults)) {
      const known = Object.keys(defaults).map((flag) => `--${flag}`).join(' ');
      process.stderr.write(`no flag ${word}; there are ${known}\n`);
      process.exit(2);
    }
    if (typeof defaults[name] === 'boolean') {
      given[name] = true;
    } else if (words.length === 0) {
      process.stderr.write(`${word} wants a value\n`);
      process.exit(2);
    } else {
      const value = words.shift();
      given[name] = typeof defaults[name] === 'number' ? Number(value) : value;
    }
  }
  return given;
}

/** The folder of the peer's compiled modules: as given, or of the package installed beside this file. */
function library(given) {
  if (given) return path.resolve(given);
  try {
    return path.join(path.dirname(require.resolve('signalk-edge-link/package.json')), 'lib');
  } catch {
    process.stderr.write('signalk-edge-link is not installed here, and no --lib names its modules\n');
    process.exit(2);
  }
}

/** What loads the peer's modules by their path in `lib`, and its version. */
function peer(given) {
  const folder = library(given);
  const about = JSON.parse(fs.readFileSync(path.join(folder, '..', 'package.json'), 'utf8'));
  return { use: (name) => require(path.join(folder, name)), version: about.version };
}

/** The options of a connection: protocol 3, a mode, and what a script changes. */
function options(mode, more) {
  if (!(mode in MODES)) {
    process.stderr.write(`no mode ${mode}; there are ${Object.keys(MODES).join(', ')}\n`);
    process.exit(2);
  }
  return { name: 'bench', protocolVersion: 3, ...MODES[mode], ...more };
}

/** The part of a Signal K server that a connection uses. Errors are shown; the rest is still. */
function server(more = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'bench-edge-link-'));
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  return {
    debug() {},
    error: (text) => process.stderr.write(`${text}\n`),
    handleMessage() {},
    reportOutputMessages() {},
    setPluginStatus() {},
    getSelfPath: () => undefined,
    getDataDirPath: () => folder,
    ...more,
  };
}

/** A connection of the peer's, not yet started. */
function connection(loaded, app, settings) {
  const { createConnection } = loaded.use('app/connection');
  return createConnection(app, settings, 'bench', 'signalk-edge-link', () => {});
}

/** One client pipeline whose packets come back from `send(batch)` in place of leaving by a socket. */
function pipeline(loaded, settings) {
  const { createPipelineV2Client } = loaded.use('transport/pipeline/reliable-client');
  const createMetrics = loaded.use('domain/metrics/registry');
  let packets = [];
  const state = {
    options: { ...settings, secretKey: KEY, udpAddress: '127.0.0.1', udpPort: 9 },
    deltaTimerTime: 1000,
    instanceId: 'bench',
    avgBytesPerDelta: 200,
    maxDeltasPerBatch: 5,
    socketUdp: {
      send(packet, port, host, done) {
        packets.push(packet);
        done(null);
      },
    },
  };
  const metrics = (createMetrics.default ?? createMetrics)();
  const client = createPipelineV2Client(server(), state, metrics);
  return {
    client,
    async send(batch) {
      packets = [];
      await client.sendDelta(batch, KEY, '127.0.0.1', 9);
      return packets;
    },
  };
}

/** The deltas of a file, one JSON object a line. */
function deltas(file) {
  return fs
    .readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => JSON.parse(line));
}

/** Unix time in milliseconds with their fractions. */
function now() {
  return performance.timeOrigin + performance.now();
}

/** HOST:PORT */
function address(text) {
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at), port: Number(text.slice(at + 1)) };
}

/** The value that so many percent of the sorted samples do not exceed. */
function percentile(sorted, percent) {
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)];
}

module.exports = {
  KEY, address, connection, deltas, flags, now, options, peer, percentile, pipeline, server,
};
