//! Doubles as what an instrument said: a few decimal digits in some unit, and what rounding did to them.
//!
//! A speed of 5.5 knots reaches us as 2.829445161237219 m/s. In knots it is 55 × 10^-1, and the double
//! follows from that: the same conversion, and a correction of a few units in the last place where the
//! program that converted did so by other operations.

/// How a double comes from a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Unit {
    /// As it is.
    Plain,
    /// Degrees to radians, by π / 180.
    Degrees,
    /// Degrees to radians, by 57.2957795.
    RoughDegrees,
    /// Knots to metres a second, by 1.943844.
    Knots,
    /// Knots to metres a second, by 0.514444.
    RoughKnots,
    /// Minutes to degrees and the like.
    Sixtieths,
    /// Kilometres an hour to metres a second.
    KilometresAnHour,
    /// Feet to metres.
    Feet,
    /// Fathoms to metres.
    Fathoms,
    /// Degrees Celsius to kelvins.
    Celsius,
    /// Per cent to a share.
    Percent,
}

const UNITS: [Unit; 11] = [
    Unit::Plain,
    Unit::Degrees,
    Unit::RoughDegrees,
    Unit::Knots,
    Unit::RoughKnots,
    Unit::Sixtieths,
    Unit::KilometresAnHour,
    Unit::Feet,
    Unit::Fathoms,
    Unit::Celsius,
    Unit::Percent,
];

impl Unit {
    fn to_double(self, decimal: f64) -> f64 {
        match self {
            Self::Plain => decimal,
            Self::Degrees => decimal * (std::f64::consts::PI / 180.0),
            Self::RoughDegrees => decimal / 57.295_779_5,
            Self::Knots => decimal / 1.943_844,
            Self::RoughKnots => decimal * 0.514_444,
            Self::Sixtieths => decimal / 60.0,
            Self::KilometresAnHour => decimal / 3.6,
            Self::Feet => decimal * 0.3048,
            Self::Fathoms => decimal * 1.8288,
            Self::Celsius => decimal + 273.15,
            Self::Percent => decimal / 100.0,
        }
    }

    fn to_decimal(self, double: f64) -> f64 {
        match self {
            Self::Plain => double,
            Self::Degrees => double / (std::f64::consts::PI / 180.0),
            Self::RoughDegrees => double * 57.295_779_5,
            Self::Knots => double * 1.943_844,
            Self::RoughKnots => double / 0.514_444,
            Self::Sixtieths => double * 60.0,
            Self::KilometresAnHour => double * 3.6,
            Self::Feet => double / 0.3048,
            Self::Fathoms => double / 1.8288,
            Self::Celsius => double - 273.15,
            Self::Percent => double * 100.0,
        }
    }
}

/// A unit and how many digits stand after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    unit: Unit,
    digits: u8,
}

/// Digits after the point at most.
pub(super) const MAX_DIGITS: u8 = 15;
/// Digits of a scale stand behind its unit.
pub(super) const SCALE_BITS: u32 = 8;
const DIGIT_BITS: u32 = 4;
/// A number of more bits is no longer a short one.
const MOST: f64 = (1u64 << 50) as f64;
/// The correction, in units in the last place, is at most so large, either way.
pub(super) const MAX_CORRECTION: i64 = 3;

/// A double as a decimal number of some scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) mantissa: i64,
    pub(super) correction: i64,
}

impl Scale {
    pub(super) fn index(self) -> u32 {
        (self.unit as u32) << DIGIT_BITS | u32::from(self.digits)
    }

    pub(super) fn of_index(index: u32) -> Option<Self> {
        let unit = *UNITS.get((index >> DIGIT_BITS) as usize)?;
        let digits = (index & ((1 << DIGIT_BITS) - 1)) as u8;
        Some(Self { unit, digits })
    }

    /// The double that a number of this scale is.
    pub(super) fn double(self, decimal: Decimal) -> f64 {
        let plain = decimal.mantissa as f64 / power(self.digits);
        let near = self.unit.to_double(plain);
        f64::from_bits(near.to_bits().wrapping_add_signed(decimal.correction))
    }

    /// The number of this scale that a double is, if it is one.
    pub(super) fn decimal(self, double: f64) -> Option<Decimal> {
        let mantissa = self.nearest(double)?;
        let near = Decimal {
            mantissa,
            correction: 0,
        };
        let correction = (double.to_bits() as i64).wrapping_sub(self.double(near).to_bits() as i64);
        (correction.unsigned_abs() <= MAX_CORRECTION as u64).then_some(Decimal {
            mantissa,
            correction,
        })
    }

    /// The mantissa that comes nearest to a double.
    pub(super) fn nearest(self, double: f64) -> Option<i64> {
        let scaled = (self.unit.to_decimal(double) * power(self.digits)).round();
        (scaled.abs() < MOST).then_some(scaled as i64)
    }

    /// The scale in which a double has the fewest digits.
    pub(super) fn find(double: f64) -> Option<Self> {
        let mut best: Option<(u64, Self)> = None;
        for unit in UNITS {
            for digits in 0..=MAX_DIGITS {
                let scale = Self { unit, digits };
                let Some(decimal) = scale.decimal(double) else {
                    continue;
                };
                // A number so long fits by chance.
                let wide = decimal.mantissa.unsigned_abs() + decimal.correction.unsigned_abs();
                let is_chance = wide >= 1 << 40 && unit != Unit::Plain;
                let cost = wide.saturating_mul(if unit == Unit::Plain { 1 } else { 30 });
                if !is_chance && best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, scale));
                }
                break;
            }
        }
        best.map(|(_, scale)| scale)
    }
}

/// 10 to the power of a number of digits, exactly.
fn power(digits: u8) -> f64 {
    const POWERS: [f64; MAX_DIGITS as usize + 1] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    ];
    POWERS[usize::from(digits.min(MAX_DIGITS))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_of(double: f64) -> (Unit, u8, i64) {
        let scale = Scale::find(double).unwrap();
        let decimal = scale.decimal(double).unwrap();
        assert_eq!(scale.double(decimal).to_bits(), double.to_bits());
        assert_eq!(Scale::of_index(scale.index()), Some(scale));
        (scale.unit, scale.digits, decimal.mantissa)
    }

    #[test]
    fn a_double_is_what_the_instrument_said() {
        assert_eq!(scale_of(14.52), (Unit::Plain, 2, 1452));
        assert_eq!(scale_of(-0.38397243552642474), (Unit::RoughDegrees, 0, -22));
        assert_eq!(
            scale_of(22.0 * std::f64::consts::PI / 180.0),
            (Unit::Degrees, 0, 22)
        );
        assert_eq!(scale_of(2.829445161237219), (Unit::Knots, 1, 55));
        assert_eq!(scale_of(60.101_000_000_000_006), (Unit::Plain, 3, 60_101));
        assert_eq!(scale_of(0.0), (Unit::Plain, 0, 0));
    }

    #[test]
    fn what_no_instrument_said_has_no_scale() {
        assert_eq!(Scale::find(0.123_456_789_012_345_67), None);
        assert_eq!(Scale::find(-0.0), None);
        assert_eq!(Scale::find(1e300), None);
        assert_eq!(Scale::find(f64::MIN_POSITIVE), None);
    }
}
