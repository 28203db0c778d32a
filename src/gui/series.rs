//! One curve of a run: its values, a running mean, and few points to draw it with.
//!
//! Values come in one by one and are looked at once: the running mean goes on from its last value, and lows and highs of
//! groups of values are kept in levels, each four times coarser than the one below. So drawing costs as much as the plot is
//! wide, however long the run, and no spike is ever left out.
//!
//! Never draws.

use std::ops::Range;

/// Groups of a level that make one of the next.
const FACTOR: usize = 4;

/// A curve over indices; where these lie on the horizontal axis is the caller's.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Values that are no finite number are gaps.
    raw: Vec<f32>,
    mean: Vec<f32>,
    /// Lowest and highest value of groups of `FACTOR`, `FACTOR²`, … values. The last group of a level may be part full.
    levels: Vec<Vec<[f32; 2]>>,
    smoothing: f64,
    /// Sum of the weights so far: without it the first values would be pulled towards zero.
    sum: f64,
    weight: f64,
}

impl Series {
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The newest value of the running mean.
    pub fn last(&self) -> Option<f32> {
        self.mean.last().copied().filter(|mean| mean.is_finite())
    }

    pub fn push(&mut self, value: f32) {
        self.push_mean(value);
        let index = self.raw.len();
        self.raw.push(value);
        let mut size = FACTOR;
        for level in 0.. {
            if level == self.levels.len() {
                // A level of one group says nothing new.
                if index < size {
                    break;
                }
                let below = match level {
                    0 => self.raw[..index].iter().map(|value| [*value; 2]).collect::<Vec<_>>(),
                    _ => self.levels[level - 1].clone(),
                };
                self.levels.push(below.chunks(FACTOR).map(|group| group.iter().copied().fold(NOTHING, joined)).collect());
            }
            let groups = &mut self.levels[level];
            if groups.len() <= index / size {
                groups.push(NOTHING);
            }
            groups[index / size] = joined(groups[index / size], [value; 2]);
            size *= FACTOR;
        }
    }

    /// The weight of the past in the running mean, 0 (none) to below 1. Works the means out again where it changed.
    pub fn set_smoothing(&mut self, smoothing: f64) {
        if smoothing == self.smoothing {
            return;
        }
        (self.smoothing, self.sum, self.weight) = (smoothing, 0.0, 0.0);
        self.mean.clear();
        for index in 0..self.raw.len() {
            self.push_mean(self.raw[index]);
        }
    }

    fn push_mean(&mut self, value: f32) {
        if value.is_finite() {
            self.sum = self.smoothing * self.sum + (1.0 - self.smoothing) * f64::from(value);
            self.weight = self.smoothing * self.weight + (1.0 - self.smoothing);
        }
        self.mean.push(if self.weight > 0.0 { (self.sum / self.weight) as f32 } else { f32::NAN });
    }

    /// The values of a range as at most about `2 * n_groups` points `(index, value)`: of each group its lowest and highest.
    pub fn outline(&self, range: Range<usize>, n_groups: usize) -> Vec<(usize, f32)> {
        let range = range.start..range.end.min(self.raw.len());
        let n_groups = n_groups.max(1);
        if range.len() <= 2 * n_groups {
            return range.map(|index| (index, self.raw[index])).filter(|(_, value)| value.is_finite()).collect();
        }
        let wanted = range.len() / n_groups;
        // The coarsest level whose groups are not larger than wanted, and how many of them make one.
        let level = (0..self.levels.len()).rev().find(|level| group_size(*level) <= wanted);
        let size = level.map_or(1, group_size);
        let step = (wanted / size).max(1);
        let (first, last) = (range.start / size, range.end.div_ceil(size));
        let mut points = Vec::with_capacity(2 * n_groups + 8);
        let mut is_up = false;
        for start in (first..last).step_by(step) {
            let groups = start..(start + step).min(last);
            let [low, high] = match level {
                Some(level) => self.levels[level][groups.clone()].iter().copied().fold(NOTHING, joined),
                None => self.raw[groups.clone()].iter().map(|value| [*value; 2]).fold(NOTHING, joined),
            };
            if low > high {
                continue;
            }
            let index = (usize::midpoint(groups.start * size, groups.end * size)).clamp(range.start, range.end - 1);
            // Up and down in turn, so that the line crosses each group once.
            points.extend(if is_up { [(index, high), (index, low)] } else { [(index, low), (index, high)] });
            is_up = !is_up;
        }
        points
    }

    /// The running mean over a range as at most about `n` points.
    pub fn smooth(&self, range: Range<usize>, n: usize) -> Vec<(usize, f32)> {
        let range = range.start..range.end.min(self.mean.len());
        let step = (range.len() / n.max(1)).max(1);
        let last = range.end.checked_sub(1).filter(|last| range.contains(last));
        let inner = range.step_by(step).filter(|index| Some(*index) != last);
        inner.chain(last).map(|index| (index, self.mean[index])).filter(|(_, value)| value.is_finite()).collect()
    }

    /// Every value, for a file.
    pub fn values(&self) -> &[f32] {
        &self.raw
    }
}

/// Low above high: no value yet.
const NOTHING: [f32; 2] = [f32::INFINITY, f32::NEG_INFINITY];

fn joined([low, high]: [f32; 2], [other_low, other_high]: [f32; 2]) -> [f32; 2] {
    let finite = |value: f32, instead: f32| if value.is_finite() { value } else { instead };
    [low.min(finite(other_low, f32::INFINITY)), high.max(finite(other_high, f32::NEG_INFINITY))]
}

fn group_size(level: usize) -> usize {
    FACTOR.pow(level as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = f32>) -> Series {
        let mut series = Series::default();
        series.set_smoothing(0.9);
        values.into_iter().for_each(|value| series.push(value));
        series
    }

    #[test]
    fn a_constant_stays_itself_from_the_first_value() {
        let series = series([3.0; 50]);
        assert!(series.smooth(0..50, 100).iter().all(|(_, mean)| (mean - 3.0).abs() < 1e-6));
        assert_eq!(series.smooth(0..50, 100).len(), 50);
    }

    #[test]
    fn changing_the_smoothing_gives_the_same_as_having_had_it() {
        let values = |index: i32| (index * 37 % 11) as f32;
        let mut late = series((0..100).map(values));
        late.set_smoothing(0.5);
        let mut early = Series::default();
        early.set_smoothing(0.5);
        (0..100).map(values).for_each(|value| early.push(value));
        assert_eq!(late.smooth(0..100, 100), early.smooth(0..100, 100));
        late.set_smoothing(0.0);
        assert_eq!(late.smooth(0..100, 100), (0..100).map(|index| (index as usize, values(index))).collect::<Vec<_>>());
    }

    #[test]
    fn few_points_show_every_spike_of_a_long_run() {
        for (length, spike) in [(100_000, 77_777), (4097, 4096), (1000, 0)] {
            let series = series((0..length).map(|index| if index == spike { 100.0 } else { (index % 7) as f32 }));
            let points = series.outline(0..length, 200);
            assert!(points.len() <= 1000, "{} points", points.len());
            let highest = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
            assert_eq!(highest.1, 100.0);
            assert!(highest.0.abs_diff(spike) <= length / 200 + 16, "{highest:?}");
            assert!(points.is_sorted_by_key(|point| point.0));
        }
    }

    #[test]
    fn a_part_of_a_run_is_drawn_with_its_own_values() {
        let series = series((0..100_000).map(|index| index as f32));
        let part = series.outline(50_000..60_000, 100);
        assert!(part.iter().all(|(index, _)| (50_000..60_000).contains(index)));
        assert!(part.iter().all(|(index, value)| (value - *index as f32).abs() < 200.0));
        assert_eq!(series.outline(10..14, 100), [(10, 10.0), (11, 11.0), (12, 12.0), (13, 13.0)]);
        assert_eq!(series.smooth(99_999..200_000, 5).len(), 1);
    }

    #[test]
    fn what_is_no_number_is_a_gap() {
        let series = series([1.0, f32::NAN, 3.0, f32::INFINITY]);
        assert_eq!(series.outline(0..4, 10), [(0, 1.0), (2, 3.0)]);
        assert!(series.last().is_some_and(|mean| (1.0..=3.0).contains(&mean)));
        assert_eq!(Series::default().outline(0..9, 10), []);
        assert_eq!(Series::default().last(), None);
    }
}
