//! Timestamps as milliseconds: the one spelling of RFC 3339 that Signal K uses, `2014-08-15T19:02:01.302Z`.

const DAY: i64 = 86_400_000;
const SHAPE: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// Milliseconds since 1970; `None` for every text that [`format`] does not write.
pub(super) fn parse(text: &str) -> Option<i64> {
    let bytes: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        _ => byte == shape,
    };
    if !bytes.iter().zip(SHAPE).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digits = bytes[from..to].iter();
        digits.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let days = days_from_date(number(0, 4), number(5, 7), number(8, 10));
    let clock = (number(11, 13) * 60 + number(14, 16)) * 60 + number(17, 19);
    let millis = days * DAY + clock * 1000 + number(20, 23);
    // The 31st of April, an hour of 25, a leap second: other spellings of another moment.
    (format(millis).as_deref() == Some(text)).then_some(millis)
}

/// The timestamp of so many milliseconds since 1970; `None` outside the years 0 to 9999.
pub(super) fn format(millis: i64) -> Option<String> {
    if !is_written(millis) {
        return None;
    }
    let (year, month, day) = date_from_days(millis.div_euclid(DAY));
    let clock = millis.rem_euclid(DAY);
    let (seconds, millis) = (clock / 1000, clock % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
    ))
}

/// Whether it is one of those that have a timestamp.
pub(super) fn is_written(millis: i64) -> bool {
    (0..=9999).contains(&date_from_days(millis.div_euclid(DAY)).0)
}

// The civil calendar by eras of 400 years that begin in March.

fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_its_milliseconds() {
        assert_eq!(parse("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(parse("2014-08-15T19:02:01.302Z"), Some(1_408_129_321_302));
        for day in (-719_528..2_932_896).step_by(97) {
            let text = format(day * DAY + 86_399_999).unwrap();
            assert_eq!(parse(&text), Some(day * DAY + 86_399_999), "{text}");
        }
        assert_eq!(format(i64::MIN / 2), None);
    }

    #[test]
    fn another_spelling_is_another_text() {
        for text in [
            "2014-08-15T19:02:01Z",
            "2014-08-15T19:02:01.302+00:00",
            "2014-04-31T00:00:00.000Z",
            "2014-13-01T00:00:00.000Z",
            "2014-00-10T00:00:00.000Z",
            "2014-08-15T24:00:00.000Z",
            "2016-12-31T23:59:60.000Z",
            "2014-08-15t19:02:01.302Z",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
