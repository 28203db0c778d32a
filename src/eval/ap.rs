//! Average precision and the operating point, from matched predictions of a whole split.

/// Figures of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassMetrics {
    pub class: usize,
    pub n_labels: usize,
    pub precision: f64,
    pub recall: f64,
    pub ap50: f64,
    pub ap50_95: f64,
}

/// Figures of a split. Means are over the classes that have labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    pub n_images: usize,
    pub n_labels: usize,
    pub precision: f64,
    pub recall: f64,
    pub map50: f64,
    pub map50_95: f64,
    /// Score at which precision and recall are given (largest smoothed F1).
    pub best_conf: f64,
    pub classes: Vec<ClassMetrics>,
}

impl Metrics {
    /// What `best` weights are chosen by: 0.1 mAP50 + 0.9 mAP50-95.
    pub fn fitness(&self) -> f64 {
        0.1 * self.map50 + 0.9 * self.map50_95
    }
}
