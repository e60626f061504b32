//! Random numbers from a seed, and deltas as boats send them.
#![allow(dead_code, reason = "not every test needs all of it")]

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True with a chance of `percent`.
    pub(crate) fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True so many times in 1,000.
    pub(crate) fn per_mille(&mut self, times: u64) -> bool {
        self.below(1_000) < times
    }
}

/// Some boats with some instruments, whose values wander.
pub(crate) struct Fleet {
    random: Random,
    millis: i64,
    values: Vec<i64>,
}

const PATHS: [(&str, f64); 6] = [
    ("navigation.speedOverGround", 1.0 / 19.43844),
    ("navigation.headingTrue", std::f64::consts::PI / 1800.0),
    ("environment.depth.belowTransducer", 0.1),
    ("environment.water.temperature", 0.01),
    ("electrical.batteries.1.voltage", 0.01),
    ("navigation.position.latitude", 1e-7),
];
const BOATS: usize = 5;

impl Fleet {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let values = (0..BOATS * PATHS.len())
            .map(|_| random.below(5000) as i64)
            .collect();
        Self {
            random,
            millis: 1_408_129_321_302,
            values,
        }
    }

    /// The next delta, as a line of JSON.
    pub(crate) fn delta(&mut self) -> String {
        let boat = self.random.below(BOATS as u64) as usize;
        let path = self.random.below(PATHS.len() as u64) as usize;
        self.millis += self.random.below(40) as i64;
        let value = &mut self.values[boat * PATHS.len() + path];
        *value += self.random.below(7) as i64 - 3;
        let value = *value as f64 * PATHS[path].1;
        let time = timestamp(self.millis);
        if self.random.happens(5) {
            return format!(
                r#"{{"context":"vessels.boat{boat}","updates":[{{"timestamp":"{time}","values":[{{"path":"","value":{{"name":"Boat {boat}","mmsi":{}}}}}]}}]}}"#,
                230_000_000 + boat,
            );
        }
        format!(
            r#"{{"context":"vessels.boat{boat}","updates":[{{"source":{{"label":"can0","pgn":{}}},"timestamp":"{time}","values":[{{"path":"{}","value":{value:?}}}]}}]}}"#,
            127_000 + path,
            PATHS[path].0,
        )
    }
}

/// On one day.
fn timestamp(millis: i64) -> String {
    let of_day = millis % 86_400_000;
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
    format!("2014-08-15T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}
