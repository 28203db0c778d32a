//! Which pictures does an epoch show when those of rare and badly found classes are to come more often?
//!
//! In:  the labels of all pictures, and the figures of the last validation.
//! Out: the samples of an epoch, drawn with replacement.
//!
//! A class weighs `(1 / labels) / mean (1 / labels)`, so that all classes together weigh as much as there are of them. With the
//! figures of a validation it weighs `weight * (1 - mAP50-95)^2 / classes`, before the first one as if nothing were found; a
//! picture weighs the sum over its labels. An epoch has as many samples as pictures.
//!
//! What is drawn depends on seed, epoch and figures alone. Never touches pixels. Source: spec 7.9.

use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;

use super::draws::Draws;
use super::draws::Stage;
use super::train_set::TrainSet;
use crate::eval::Metrics;

/// Weights of pictures, and the samples that were drawn by them.
pub struct ImageWeights {
    pub orders: Arc<Orders>,
    /// By class.
    class_weights: Vec<f64>,
    /// By picture: its classes, one for each label.
    labels: Vec<Vec<usize>>,
}

impl ImageWeights {
    pub fn new(set: &TrainSet, n_classes: usize) -> Self {
        let labels = set.images.iter().map(|image| image.labels.iter().map(|label| label.class.0 as usize).collect());
        Self::of_labels(labels.collect(), n_classes)
    }

    fn of_labels(labels: Vec<Vec<usize>>, n_classes: usize) -> Self {
        let mut counts = vec![0usize; n_classes];
        for &class in labels.iter().flatten() {
            counts[class] += 1;
        }
        let inverse: Vec<f64> = counts.iter().map(|&count| 1.0 / count.max(1) as f64).collect();
        let mean = inverse.iter().sum::<f64>() / n_classes as f64;
        Self { orders: Arc::default(), class_weights: inverse.into_iter().map(|inverse| inverse / mean).collect(), labels }
    }

    /// By picture, for the mAP50-95 of each class.
    fn weights(&self, found: &[f64]) -> Vec<f64> {
        let n_classes = self.class_weights.len() as f64;
        let of_class: Vec<f64> =
            self.class_weights.iter().zip(found).map(|(weight, found)| weight * (1.0 - found).powi(2) / n_classes).collect();
        self.labels.iter().map(|labels| labels.iter().map(|&class| of_class[class]).sum()).collect()
    }

    /// The samples of an epoch after a validation. Sample `k * n + i` of `n` pictures is picture `i` for the `k`-th time, so that the
    /// same picture looks different each time.
    pub fn order(&self, seed: u64, epoch: usize, last: Option<&Metrics>) -> Vec<usize> {
        let mut found = vec![0.0; self.class_weights.len()];
        for class in last.iter().flat_map(|metrics| &metrics.classes) {
            found[class.class] = class.ap50_95;
        }
        draw(&self.weights(&found), &mut Draws::new(seed, epoch, 0, Stage::Order))
    }
}

/// As many samples as there are weights, each picture as often as it weighs.
fn draw(weights: &[f64], draws: &mut Draws) -> Vec<usize> {
    let mut total = 0.0;
    let ends: Vec<f64> = weights
        .iter()
        .map(|weight| {
            total += weight;
            total
        })
        .collect();
    let n = weights.len();
    let mut times = vec![0; n];
    (0..n)
        .map(|_| {
            // Where nothing weighs anything, as where all classes are found without a fault, every picture is as good as any other.
            let image = if total > 0.0 {
                let place = draws.unit() * total;
                ends.partition_point(|end| *end <= place).min(n - 1)
            } else {
                draws.below(n)
            };
            times[image] += 1;
            image + n * (times[image] - 1)
        })
        .collect()
}

/// The samples of epochs that are drawn one after the other, while threads wait for them.
#[derive(Debug, Default)]
pub struct Orders {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The epoch that was drawn last, with its samples.
    newest: Option<(usize, Arc<Vec<usize>>)>,
    is_closed: bool,
}

impl Orders {
    /// Makes the samples of an epoch known.
    pub fn publish(&self, epoch: usize, samples: Vec<usize>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).newest = Some((epoch, Arc::new(samples)));
        self.changed.notify_all();
    }

    /// Nobody need wait any longer.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for the samples of an epoch; `None` when there will be none.
    pub fn wait(&self, epoch: usize) -> Option<Arc<Vec<usize>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.is_closed {
                return None;
            }
            if let Some((_, samples)) = state.newest.as_ref().filter(|(newest, _)| *newest == epoch) {
                return Some(Arc::clone(samples));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::eval::ClassMetrics;

    fn metrics(found: &[f64]) -> Metrics {
        let class = |(class, &ap50_95)| ClassMetrics { class, n_labels: 1, precision: 0.0, recall: 0.0, ap50: 1.0, ap50_95 };
        Metrics { classes: found.iter().enumerate().map(class).collect(), ..Metrics::default() }
    }

    #[test]
    fn weights_are_as_published() {
        // Labels: 4 of class 0, 1 of class 1, none of class 2.
        let weights = ImageWeights::of_labels(vec![vec![0, 0, 0], vec![0, 1], vec![]], 3);
        let sum = 0.25 + 1.0 + 1.0;
        let expected = [0.25 / sum * 3.0, 1.0 / sum * 3.0, 1.0 / sum * 3.0];
        assert!(weights.class_weights.iter().zip(expected).all(|(ours, expected)| (ours - expected).abs() < 1e-12));
        let of_images = weights.weights(&[0.5, 0.0, 0.0]);
        let class = [expected[0] * 0.25 / 3.0, expected[1] / 3.0];
        let expected = [3.0 * class[0], class[0] + class[1], 0.0];
        assert!(of_images.iter().zip(expected).all(|(ours, expected)| (ours - expected).abs() < 1e-12), "{of_images:?}");
    }

    #[test]
    fn pictures_come_as_often_as_they_weigh() {
        let n = 1000;
        // Every tenth picture has the rare class, and one in two has nothing.
        let labels = (0..n)
            .map(|image| {
                if image % 10 == 0 {
                    vec![1]
                } else if image % 2 == 1 {
                    vec![0]
                } else {
                    vec![]
                }
            })
            .collect();
        let weights = ImageWeights::of_labels(labels, 2);
        let share = |last: Option<&Metrics>| {
            let samples: Vec<usize> = (0..20).flat_map(|epoch| weights.order(3, epoch, last)).collect();
            assert!(samples.iter().all(|sample| sample % n % 10 == 0 || sample % n % 2 == 1), "without labels");
            samples.iter().filter(|sample| *sample % n % 10 == 0).count() as f64 / samples.len() as f64
        };
        // Each class has the same weight in all: half of the samples. Four standard deviations of 20,000 draws.
        assert!((share(None) - 0.5).abs() < 0.0142);
        // A class that is found is wanted less: 0.25 against 1.
        assert!((share(Some(&metrics(&[0.0, 0.5]))) - 0.2).abs() < 0.0114);
        let all_found = weights.order(3, 0, Some(&metrics(&[1.0, 1.0])));
        assert_eq!(all_found.len(), n);
        assert!(all_found.iter().any(|sample| sample % n % 2 == 0 && sample % n % 10 != 0), "all alike");
    }

    #[test]
    fn a_repeated_picture_is_another_sample_and_the_draw_is_repeatable() {
        let weights = ImageWeights::of_labels(vec![vec![0]; 50], 1);
        let samples = weights.order(1, 4, None);
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((samples.len(), sorted.len()), (50, 50));
        assert!(samples.iter().any(|sample| *sample >= 50));
        assert_eq!(samples, weights.order(1, 4, None));
        assert_ne!(samples, weights.order(1, 5, None));
        assert_ne!(samples, weights.order(2, 4, None));
    }

    #[test]
    fn threads_wait_for_an_epoch_until_it_is_known_or_never_will_be() {
        let orders = Arc::new(Orders::default());
        let waits = |epoch| {
            let orders = Arc::clone(&orders);
            std::thread::Builder::new().spawn(move || orders.wait(epoch)).unwrap()
        };
        let (first, never) = (waits(0), waits(1));
        orders.publish(0, vec![2, 1]);
        assert_eq!(first.join().unwrap().unwrap().as_slice(), [2, 1]);
        orders.close();
        assert_eq!(never.join().unwrap(), None);
        assert_eq!(orders.wait(0), None);
    }
}
