//! Times in RFC 3339 format: `2026-01-31T23:59:59.000000001Z`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Formats a time in UTC.
pub fn format(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days as i64);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let nanos = since.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Parses a time with any offset; `None` if it is malformed or before 1970.
pub fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let split = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(split);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(time, ':')?;
    let fits =
        (1..=12).contains(&month) && (1..=31).contains(&day) && (1970..=9999).contains(&year);
    if !fits || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            sign * minutes * 60
        }
    };
    let digits = fraction.len() <= 9 && fraction.bytes().all(|c| c.is_ascii_digit());
    let nanos = match (digits, fraction.len()) {
        (false, _) => return None,
        (true, 0) => 0,
        (true, n) => fraction.parse::<u32>().ok()? * 10u32.pow(9 - n as u32),
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    let since = Duration::new(u64::try_from(seconds).ok()?, nanos);
    UNIX_EPOCH.checked_add(since)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(|part| {
        let digits = part.bytes().all(|c| c.is_ascii_digit()) && part.len() <= 4;
        part.parse::<i64>().ok().filter(|_| digits)
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Days since 1970 of a Gregorian date. Years are counted from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day since 1970.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_themselves() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_700_000_000, "2023-11-14T22:13:20.000000000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000000000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format(time), text);
            assert_eq!(parse(text), Some(time));
        }
    }

    #[test]
    fn offsets_and_fractions_count() {
        let time = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        assert_eq!(parse("2023-11-14T23:13:20.5+01:00"), Some(time));
        assert_eq!(parse("2023-11-14 17:13:20.50-05:00"), Some(time));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "T",
            "2023-11-14",
            "2023-13-01T00:00:00Z",
            "1969-12-31T00:00:00Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.x1Z",
            "2023-11-14T22:13:20+aa:bb",
            "20235-11-14T22:13:20Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_comes_back(seconds in 0u64..253_402_300_800, nanos in 0u32..1_000_000_000) {
            let time = UNIX_EPOCH + Duration::new(seconds, nanos);
            prop_assert_eq!(parse(&format(time)), Some(time));
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
