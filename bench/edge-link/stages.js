'use strict';

// What the peer's stages cost: serialise, compress, encrypt, build, parse, decrypt, decompress, and all
// of them; batches encoded and packets sent and received in a second; its controller and its monitor;
// memory over 100,000 batches. Its own modules, with the header's tag that protocol 3 has by default.
//
//   node stages.js --in FILE.jsonl [--lib DIR] [--from LINE] [--only stages,encode,rates,memory]
//
// One JSON object a line. Payloads: "seed" is the one of the peer's own table, a delta with three random
// values, Brotli 10; "batch" is 20 deltas of the file, at its default quality 6 and at 10. Times are wall
// times; where processor time is given it includes the threads that compress.

const v8 = require('node:v8');
const vm = require('node:vm');
const shared = require('./peer.js');

const given = shared.flags({ in: '', lib: '', from: 3000, only: 'stages,encode,rates,memory' });
const loaded = shared.peer(given.lib);
const { deltaBuffer, compressPayload, brotliDecompressAsync } = loaded.use('codec/compression');
const { encryptBinary, decryptBinary } = loaded.use('codec/crypto');
const { PacketBuilder, PacketParser } = loaded.use('codec/packet-codec');
const { SequenceTracker } = loaded.use('transport/reliability/sequence');
const { RetransmitQueue } = loaded.use('transport/reliability/retransmit-queue');
const { CongestionControl } = loaded.use('transport/congestion');
const { PacketLossTracker, PathLatencyTracker } = loaded.use('domain/monitoring');

const BATCH = 20;
const WARM_UP = 200;
const ROUNDS = 2000;
const FLAGS = { compressed: true, encrypted: true };
const CODEC = { protocolVersion: 3, secretKey: shared.KEY, authenticatedHeaders: true };
const STAGES = ['serialise', 'compress', 'encrypt', 'build', 'parse', 'decrypt', 'decompress', 'whole'];

/** Random numbers that repeat. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function seedPayload() {
  const next = random(1);
  return () => {
    const values = [0, 1, 2].map((number) => ({ path: `navigation.path${number}`, value: next() * 100 }));
    return { 0: { updates: [{ source: { label: 'test' }, timestamp: new Date().toISOString(), values }] } };
  };
}

/** Batches out of the file, one after the other and again. */
function filePayload() {
  const all = shared.deltas(given.in).slice(given.from);
  let at = 0;
  return () => {
    if (at + BATCH > all.length) at = 0;
    at += BATCH;
    return all.slice(at - BATCH, at);
  };
}

const PAYLOADS = [
  { payload: 'seed, 3 values', quality: 10, make: seedPayload },
  ...(given.in === ''
    ? []
    : [6, 10].map((quality) => ({ payload: `batch of ${BATCH}`, quality, make: filePayload }))),
];

function show(row) {
  process.stdout.write(`${JSON.stringify({ stack: 'signalk-edge-link', version: loaded.version, ...row })}\n`);
}

async function seal(builder, payload, quality) {
  const compressed = await compressPayload(deltaBuffer(payload), false, quality);
  return builder.buildDataPacket(encryptBinary(compressed, shared.KEY), FLAGS);
}

async function measureStages({ payload, quality, make }) {
  const next = make();
  const builder = new PacketBuilder(CODEC);
  const parser = new PacketParser(CODEC);
  const samples = Object.fromEntries(STAGES.map((stage) => [stage, []]));
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const one = next();
    const marks = [performance.now()];
    const mark = () => marks.push(performance.now());
    const serialised = deltaBuffer(one);
    mark();
    const compressed = await compressPayload(serialised, false, quality);
    mark();
    const encrypted = encryptBinary(compressed, shared.KEY);
    mark();
    const packet = builder.buildDataPacket(encrypted, FLAGS);
    mark();
    const parsed = parser.parseHeader(packet);
    mark();
    const decrypted = decryptBinary(parsed.payload, shared.KEY);
    mark();
    const decompressed = await brotliDecompressAsync(decrypted);
    mark();
    JSON.parse(decompressed.toString());
    mark();
    if (round < WARM_UP) continue;
    STAGES.slice(0, -1).forEach((stage, at) => samples[stage].push(marks[at + 1] - marks[at]));
    samples.whole.push(marks[marks.length - 1] - marks[0]);
  }
  for (const stage of STAGES) {
    const sorted = samples[stage].sort((one, other) => one - other);
    const [p50, p95, p99] = [50, 95, 99].map((percent) => shared.percentile(sorted, percent));
    const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
    show({ measure: 'stage', payload, quality, stage, p50_ms: p50, p95_ms: p95, p99_ms: p99, mean_ms: mean });
  }
}

/** Microseconds of wall and of processor time for each call, in turn. */
async function timed(rounds, call) {
  for (let round = 0; round < WARM_UP; round += 1) await call(round);
  const usage = process.cpuUsage();
  const start = performance.now();
  for (let round = 0; round < rounds; round += 1) await call(round);
  const wall = performance.now() - start;
  const { user, system } = process.cpuUsage(usage);
  return { wall_us: (wall * 1000) / rounds, cpu_us: (user + system) / rounds, per_s: (rounds * 1000) / wall };
}

/** The same for calls that return no promise. */
function timedSync(rounds, call) {
  for (let round = 0; round < WARM_UP; round += 1) call(round);
  const start = performance.now();
  for (let round = 0; round < rounds; round += 1) call(round);
  const wall = performance.now() - start;
  return { wall_us: (wall * 1000) / rounds, per_s: (rounds * 1000) / wall };
}

async function measureEncode({ payload, quality, make }) {
  const next = make();
  const builder = new PacketBuilder(CODEC);
  show({ measure: 'encode', payload, quality, ...(await timed(ROUNDS, () => seal(builder, next(), quality))) });
  const { send } = shared.pipeline(loaded, shared.options('default', { brotliQuality: quality }));
  show({ measure: 'encode, its pipeline', payload, quality, ...(await timed(ROUNDS, () => send(next()))) });
}

async function measureRates({ payload, quality, make }) {
  const next = make();
  const builder = new PacketBuilder(CODEC);
  show({ measure: 'tx_per_s', payload, quality, ...(await timed(ROUNDS, () => seal(builder, next(), quality))) });
  const packets = [];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) packets.push(await seal(builder, next(), quality));
  const parser = new PacketParser(CODEC);
  const tracker = new SequenceTracker();
  let at = 0;
  const receive = async () => {
    const parsed = parser.parseHeader(packets[at]);
    at += 1;
    tracker.processSequence(parsed.sequence);
    await brotliDecompressAsync(decryptBinary(parsed.payload, shared.KEY));
  };
  show({ measure: 'rx_per_s', payload, quality, ...(await timed(ROUNDS, receive)) });
  tracker.reset();
}

function measureSmall() {
  const next = random(2);
  const rounds = 1000000;
  const control = new CongestionControl({ enabled: true, adjustInterval: 0 });
  const update = () => control.updateMetrics({ rtt: 50 + next() * 100, packetLoss: next() * 0.05 });
  show({ measure: 'controller_update', ...timedSync(rounds, update) });
  show({
    measure: 'controller_adjust',
    ...timedSync(rounds, () => {
      control.lastAdjustment = 0;
      control.adjust();
    }),
  });
  const losses = new PacketLossTracker();
  show({ measure: 'monitor_record_loss', ...timedSync(rounds, () => losses.record(next() < 0.05)) });
  const latencies = new PathLatencyTracker();
  const paths = ['a', 'b', 'c', 'd', 'e'].map((name) => `navigation.${name}`);
  const record = (round) => latencies.record(paths[round % paths.length], 50 + next() * 100);
  show({ measure: 'monitor_record_latency', ...timedSync(rounds, record) });
  const builder = new PacketBuilder(CODEC);
  const payload = Buffer.alloc(500, 0xab);
  show({ measure: 'build_500', ...timedSync(100000, () => builder.buildDataPacket(payload, FLAGS)) });
  show({ measure: 'build_ack', ...timedSync(100000, () => builder.buildACKPacket(42)) });
}

function collector() {
  v8.setFlagsFromString('--expose_gc');
  return vm.runInNewContext('gc');
}

/** What is in use after a collection, in MB. */
function used(collect) {
  collect();
  collect();
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap_mb: heapUsed / 1048576, external_mb: external / 1048576, rss_mb: rss / 1048576 };
}

function growth(measure, before, after) {
  const grown = Object.fromEntries(Object.keys(before).map((name) => [name, after[name] - before[name]]));
  show({ measure, ...grown });
}

/** The sustained operation of the peer's own test: no codec, ready packets. */
function measureSustained(collect) {
  const next = random(3);
  const builder = new PacketBuilder(CODEC);
  const parser = new PacketParser(CODEC);
  const tracker = new SequenceTracker();
  const queue = new RetransmitQueue({ maxSize: 5000, maxRetransmits: 3 });
  const losses = new PacketLossTracker();
  const control = new CongestionControl({ enabled: true, adjustInterval: 0 });
  const payload = Buffer.alloc(500, 0xab);
  const before = used(collect);
  for (let round = 0; round < 100000; round += 1) {
    const packet = builder.buildDataPacket(payload, FLAGS);
    queue.add(round, packet);
    tracker.processSequence(parser.parseHeader(packet).sequence);
    losses.record(next() < 0.02);
    if (round % 10 === 0 && round > 0) queue.acknowledge(round - 5);
    if (round % 100 === 0) {
      control.updateMetrics({ rtt: 50 + next() * 100, packetLoss: 0.02 });
      control.lastAdjustment = 0;
      control.adjust();
    }
  }
  growth('memory, its own test, 100,000', before, used(collect));
  tracker.reset();
}

/** 100,000 batches through the whole client pipeline, each acknowledged 50 later. */
async function measurePipelineMemory(collect) {
  const next = filePayload();
  const { client, send } = shared.pipeline(loaded, shared.options('default', {}));
  const queue = client.getRetransmitQueue();
  const one = async () => {
    const sequence = client.getPacketBuilder().getCurrentSequence();
    await send(next());
    queue.acknowledge((sequence - 50) >>> 0);
  };
  for (let round = 0; round < 5000; round += 1) await one();
  const before = used(collect);
  for (let round = 0; round < 100000; round += 1) await one();
  growth('memory, client pipeline, 100,000', before, used(collect));
}

async function main() {
  const wanted = given.only.split(',');
  for (const one of PAYLOADS) {
    if (wanted.includes('stages')) await measureStages(one);
    if (wanted.includes('encode')) await measureEncode(one);
    if (wanted.includes('rates')) await measureRates(one);
  }
  if (wanted.includes('rates')) measureSmall();
  if (wanted.includes('memory')) {
    const collect = collector();
    measureSustained(collect);
    if (given.in !== '') await measurePipelineMemory(collect);
  }
  process.exit(0);
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
