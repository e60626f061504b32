'use strict';

// How many bytes a delta takes in batches of 1, 5, 10, 20 and 50: whole UDP payload of the peer's own
// client pipeline, divided by the deltas in it. Cold are the first 1,000 deltas of a file, warm the rest.
//
//   node bytes.js --in FILE.jsonl [--lib DIR] [--mode default|best] [--brotli QUALITY]
//   node bytes.js --seed [--lib DIR] ...       the payload of the peer's own benchmarks
//
// One JSON object a line: {"case","mode","batch","cold","warm","deltas_cold","deltas_warm","refused"};
// of the seed's payload {"case","mode","batch","bytes_per_delta","packet"}, both with the 16 bytes of
// the header's tag that the published tables do not count, and "published_form" without.
// Deltas that the peer's sanitizer takes out ("refused") count nowhere.

const shared = require('./peer.js');
const payload = require('./payload.js');

const SIZES = [1, 5, 10, 20, 50];
const COLD = 1000;
const SEED_PACKETS = 200;
const HEADER_TAG = 16;
// A fixed time, so that the digits of the clock change no result.
const EPOCH = Date.UTC(2026, 0, 1);

const given = shared.flags({ in: '', lib: '', mode: 'default', brotli: -1, seed: false });
const loaded = shared.peer(given.lib);
const settings = shared.options(given.mode, given.brotli < 0 ? {} : { brotliQuality: given.brotli });

function show(row) {
  process.stdout.write(`${JSON.stringify({ stack: 'signalk-edge-link', version: loaded.version, ...row })}\n`);
}

function total(packets) {
  return packets.reduce((sum, packet) => sum + packet.length, 0);
}

async function measureFile() {
  const { sanitizeDeltaForSignalK } = loaded.use('codec/delta-sanitizer');
  const all = shared.deltas(given.in);
  for (const size of SIZES) {
    const { send } = shared.pipeline(loaded, settings);
    const bytes = { cold: 0, warm: 0 };
    const count = { cold: 0, warm: 0 };
    let refused = 0;
    let batch = [];
    const flush = async (part) => {
      bytes[part] += total(await send(batch));
      count[part] += batch.length;
      batch = [];
    };
    for (const [index, delta] of all.entries()) {
      const part = index < COLD ? 'cold' : 'warm';
      if (index === COLD && batch.length > 0) await flush('cold');
      if (sanitizeDeltaForSignalK(delta) === null) refused += 1;
      else batch.push(delta);
      if (batch.length === size) await flush(part);
    }
    // What is left is less than a batch and counts nowhere.
    show({
      case: given.in.split('/').pop(), mode: given.mode, quality: settings.brotliQuality ?? 6, batch: size,
      cold: bytes.cold / count.cold, warm: bytes.warm / count.warm,
      deltas_cold: count.cold, deltas_warm: count.warm, refused,
    });
  }
}

async function measureSeed() {
  for (const [name, step] of [['seed, self-contained', 0], ['seed, continuing index', 1]]) {
    for (const size of SIZES) {
      const { send } = shared.pipeline(loaded, settings);
      let bytes = 0;
      for (let number = 0; number < SEED_PACKETS; number += 1) {
        const first = step * number * size;
        bytes += total(await send(payload.batch(size, first, EPOCH + number * 137)));
      }
      const packet = bytes / SEED_PACKETS;
      show({
        case: name, mode: given.mode, quality: settings.brotliQuality ?? 6, batch: size,
        bytes_per_delta: packet / size, packet, published_form: (packet - HEADER_TAG) / size,
      });
    }
  }
}

(given.seed ? measureSeed() : measureFile()).then(() => process.exit(0));
