//! Dates and times of sentences, as milliseconds since 1970 and as ISO 8601.

const DAY: i64 = 86_400_000;

/// `hhmmss.sss` of a day, in milliseconds.
pub(super) fn of_day(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes, seconds) = three(whole)?;
    let digits = fraction.bytes().chain([b'0'; 3]).take(3);
    let millis = digits.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    // A leap second is the next minute's first.
    let is_time = hours < 24 && minutes < 60 && seconds < 61;
    is_time.then_some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}

/// `ddmmyy`, as the milliseconds at which that day begins; years before 80 are of this century.
pub(super) fn date(text: &str) -> Option<i64> {
    let (day, month, year) = (text.len() == 6).then(|| three(text))??;
    let year = year + if year < 80 { 2000 } else { 1900 };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=days)
        .contains(&day)
        .then(|| days_since_1970(year, month, day) * DAY)
}

/// A time of day, on the day that brings it nearest to a clock.
pub(super) fn near(clock: i64, of_day: i64) -> i64 {
    let same_day = clock - clock.rem_euclid(DAY) + of_day;
    let days = (clock - same_day + DAY / 2).div_euclid(DAY);
    same_day + days * DAY
}

/// Two digits, three times.
fn three(text: &str) -> Option<(i64, i64, i64)> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let two = |at: usize| text.get(at..at + 2)?.parse().ok();
    Some((two(0)?, two(2)?, two(4)?))
}

/// Days from 1970 to a date of the Gregorian calendar; years are counted from March, so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `2014-06-01T10:48:30.000Z`; `None` outside the years 0 to 9999.
pub(super) fn format(millis: i64) -> Option<String> {
    let (days, of_day) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = years + era * 400 + i64::from(month <= 2);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let (seconds, millis) = (of_day / 1000, of_day % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_become_milliseconds_and_text() {
        let at = date("010614").unwrap() + of_day("104830.25").unwrap();
        assert_eq!(at, 1_401_619_710_250);
        assert_eq!(format(at).unwrap(), "2014-06-01T10:48:30.250Z");
        assert_eq!(
            format(date("290200").unwrap()).unwrap(),
            "2000-02-29T00:00:00.000Z"
        );
        assert_eq!(
            format(date("230394").unwrap()).unwrap(),
            "1994-03-23T00:00:00.000Z"
        );
        assert_eq!(format(-1).unwrap(), "1969-12-31T23:59:59.999Z");
        assert_eq!(format(i64::MAX), None);
        for text in ["290201", "320101", "001301", "0101", "+10101"] {
            assert_eq!(date(text), None, "{text}");
        }
        for text in ["240000", "1200", "126000", "120000.x", "-10000"] {
            assert_eq!(of_day(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_alone_is_on_the_day_nearest_to_the_clock() {
        let midnight = date("010614").unwrap();
        let late = of_day("235959").unwrap();
        assert_eq!(near(midnight + 1000, late), midnight - 1000);
        assert_eq!(near(midnight - 1000, 1000), midnight + 1000);
        assert_eq!(near(midnight + DAY / 2, late), midnight + late);
    }
}
