//! How does a run of days stay small in memory? Its machine's figures are thinned out as they come.
//!
//! In:  reports, about one a second. Out: a series over the whole run, of at most [`MOST`].
//!
//! When it is full, every second report goes: an hour is kept to the second, a day to half a minute. Never averages: each report is
//! one that was measured.

use crate::train::MachineReport;

/// Reports that are kept.
const MOST: usize = 4096;

/// Adds a report to the series.
///
/// A series that was thinned out takes new ones only as far apart as the others, so that it stays even.
pub(super) fn keep(series: &mut Vec<MachineReport>, report: MachineReport) {
    if let [first, second, .., before, last] = series.as_slice() {
        // The newest is replaced until it is about as far from the one before as the first two are from each other.
        if last.secs - before.secs < 0.7 * (second.secs - first.secs) {
            series.pop();
        }
    }
    series.push(report);
    if series.len() > MOST {
        let mut index = 0;
        series.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_kept_evenly_with_its_newest_report() {
        let mut series = Vec::new();
        for second in 0..50_000 {
            keep(&mut series, MachineReport { secs: f64::from(second), ..MachineReport::default() });
            assert_eq!(series.last().map(|report| report.secs), Some(f64::from(second)));
            assert!(series.len() <= MOST);
        }
        assert_eq!(series[0].secs, 0.0);
        assert!(series.len() > MOST / 2, "{}", series.len());
        let gaps: Vec<f64> = series.windows(2).map(|pair| pair[1].secs - pair[0].secs).collect();
        let (least, most) =
            gaps[..gaps.len() - 1].iter().fold((f64::MAX, 0.0), |(least, most): (f64, f64), gap| (least.min(*gap), most.max(*gap)));
        assert!(most <= 2.0 * least, "{least} to {most} seconds");
    }

    #[test]
    fn a_short_run_keeps_every_report() {
        let mut series = Vec::new();
        for second in 0..1000 {
            keep(&mut series, MachineReport { secs: f64::from(second) + 0.1 * f64::from(second % 3), ..MachineReport::default() });
        }
        assert_eq!(series.len(), 1000);
    }
}
