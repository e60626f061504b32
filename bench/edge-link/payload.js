'use strict';

// The payload of the peer's own benchmarks: two values a delta, all of a batch in one object with the
// keys "0" to "n-1", no context and no $source, timestamps of now. `index` starts again in each batch
// there; with one that goes on, batches differ as positions of a boat do.

/** The delta with this index. */
function delta(index, time) {
  return {
    updates: [
      {
        source: { label: 'gps', type: 'NMEA2000' },
        timestamp: new Date(time).toISOString(),
        values: [
          { path: 'navigation.position.latitude', value: 60.1 + index * 0.001 },
          { path: 'navigation.position.longitude', value: 24.9 + index * 0.001 },
        ],
      },
    ],
  };
}

/** A batch of so many from this index on. */
function batch(size, first, time) {
  return Object.fromEntries(
    Array.from({ length: size }, (_, number) => [String(number), delta(first + number, time)]),
  );
}

module.exports = { batch, delta };
