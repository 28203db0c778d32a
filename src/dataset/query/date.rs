//! Days of the calendar as seconds since 1970, in UTC.
//!
//! In:  `2026`, `2026-01` or `2026-01-31`.
//! Out: the first second of that year, month or day, and of the one after it.

const SECS_A_DAY: i64 = 86_400;

/// First second of a period, and first second after it; `None` for what is no date.
pub(super) fn period(text: &str) -> Option<(i64, i64)> {
    let is_digits = |part: &str, n: usize| part.len() == n && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split('-');
    let year: i64 = parts.next().filter(|part| is_digits(part, 4))?.parse().ok()?;
    let (month, day) = (parts.next(), parts.next());
    if parts.next().is_some() || [month, day].into_iter().flatten().any(|part| !is_digits(part, 2)) {
        return None;
    }
    let month: Option<i64> = month.map(str::parse).transpose().ok()?;
    let day: Option<i64> = day.map(str::parse).transpose().ok()?;
    let start = |year: i64, month: i64| days(year + (month - 1) / 12, (month - 1) % 12 + 1) * SECS_A_DAY;
    match (month, day) {
        (None, _) => Some((start(year, 1), start(year + 1, 1))),
        (Some(month), _) if !(1..=12).contains(&month) => None,
        (Some(month), None) => Some((start(year, month), start(year, month + 1))),
        (Some(month), Some(day)) => {
            let first = start(year, month) + (day - 1) * SECS_A_DAY;
            (day >= 1 && first < start(year, month + 1)).then_some((first, first + SECS_A_DAY))
        }
    }
}

/// Days from 1970-01-01 to the first of a month. The year counts from March, so that the leap day is its last.
fn days(year: i64, month: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 153 days are five months from March on.
    365 * year + leap_days + (153 * month + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_and_ends_where_the_calendar_says() {
        assert_eq!(period("1970-01-01"), Some((0, SECS_A_DAY)));
        assert_eq!(period("2000-02-29"), Some((951_782_400, 951_868_800)));
        assert_eq!(period("2026-12"), Some((1_796_083_200, 1_798_761_600)));
        assert_eq!(period("2024"), Some((1_704_067_200, 1_735_689_600)));
        for wrong in ["", "26", "2026-13", "2026-00", "2026-02-29", "2026-1-1", "2026-01-01-01", "yesterday", "2026-04-31"] {
            assert_eq!(period(wrong), None, "{wrong:?}");
        }
    }
}
