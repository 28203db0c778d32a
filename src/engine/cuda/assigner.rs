//! Launches kernels/assigner.cu: which anchor points learn which ground-truth boxes.

use super::gpu::Launch;
use super::kernels::Kernels;
use super::levels::{Levels, MAX_HEADS};
use crate::engine::op::LossSpec;

/// Most points of one box, as in kernels/assigner.cu.
const MAX_TOP_K: usize = 10;
const CANDIDATE_THREADS: usize = 128;
/// Of the other kernels.
const THREADS: usize = 256;

/// Hands out ranges of a workspace, each at a multiple of 256 bytes.
pub struct Placer {
    base: u64,
    pub bytes: usize,
}

impl Placer {
    pub fn new(base: u64) -> Self {
        Self { base, bytes: 0 }
    }

    pub fn place(&mut self, bytes: usize) -> u64 {
        let address = self.base + self.bytes as u64;
        self.bytes += bytes.next_multiple_of(256);
        address
    }
}

/// Workspace and results; `Assignment` in kernels/assigner.cu. Needs no initial values.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Assignment {
    pub corners: u64,
    pub n_claims: u64,
    /// Ground-truth row of each anchor point, -1: background. (H, B, N) i32.
    pub row: u64,
    metric: u64,
    overlap: u64,
    /// What the score of a positive's class should become; of others undefined. (H, B, N) f32.
    pub score: u64,
    largest: u64,
    partials: u64,
    /// Weight of each head over the sum of its scores (at least 1), f64.
    pub share: u64,
    /// One u32 a head, and one more for the loss; 0 after the assignment.
    pub counters: u64,
}

impl Assignment {
    /// Takes what the assignment needs.
    pub fn place(placer: &mut Placer, n_heads: usize, batch: usize, n_anchors: usize, n_rows: usize) -> Self {
        let n_points = n_heads * batch * n_anchors;
        Self {
            corners: placer.place(n_points * 16),
            n_claims: placer.place(n_points * 4),
            row: placer.place(n_points * 4),
            metric: placer.place(n_points * 4),
            overlap: placer.place(n_points * 4),
            score: placer.place(n_points * 4),
            largest: placer.place(n_heads * batch * n_rows * 8),
            partials: placer.place(n_heads * (batch * n_anchors).div_ceil(THREADS) * 8),
            share: placer.place(MAX_HEADS * 8),
            counters: placer.place((MAX_HEADS + 1) * 4),
        }
    }

    /// Address of the loss's counter.
    pub fn loss_counter(&self) -> u64 {
        self.counters + MAX_HEADS as u64 * 4
    }
}

/// `Rule` in kernels/assigner.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Rule {
    n_rows: i32,
    top_k: i32,
    alpha: f32,
    beta: f32,
    eps: f32,
    head_weight: [f32; MAX_HEADS],
    unused: i32,
}

/// Assigns all images of all heads. `truth` is (B, 1, `n_rows`, 5) f32 as in `Op::DetectionLoss`.
pub fn assign(kernels: &Kernels, levels: &Levels, spec: &LossSpec, truth: u64, n_rows: usize, to: Assignment) -> [Launch; 4] {
    assert!(spec.top_k <= MAX_TOP_K, "{} points a box, at most {MAX_TOP_K}", spec.top_k);
    assert_eq!(spec.head_weights.len(), levels.n_heads, "weights of heads");
    let mut head_weight = [0.0; MAX_HEADS];
    head_weight[..levels.n_heads].copy_from_slice(&spec.head_weights);
    let rule = Rule {
        n_rows: n_rows as i32,
        top_k: spec.top_k as i32,
        alpha: spec.alpha,
        beta: spec.beta,
        eps: spec.score_eps,
        head_weight,
        unused: 0,
    };
    let (batch, n_heads, n_points) = (levels.batch, levels.n_heads, levels.batch * levels.n_anchors);
    let of_points = |name, per_point: usize, args| {
        let launch = Launch::linear(kernels.get(name), (n_points * per_point).div_ceil(THREADS), THREADS, args);
        Launch { grid: [launch.grid[0], n_heads as u32, 1], ..launch }
    };
    let candidates =
        Launch::linear(kernels.get("assign_candidates"), n_rows, CANDIDATE_THREADS, levels.args().with(rule).with(truth).with(to));
    [
        of_points("assign_corners", 4, levels.args().with(to)),
        Launch { grid: [candidates.grid[0], batch as u32, n_heads as u32], ..candidates },
        of_points("assign_resolve", 1, levels.args().with(rule).with(truth).with(to)),
        of_points("assign_scores", 1, levels.args().with(rule).with(to)),
    ]
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{Assignment, Placer, assign};
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::levels::{LevelTensors, Levels};
    use crate::engine::cuda::testing::{Tolerance, assert_close, test_gpu, test_kernels};
    use crate::engine::cuda::tiling::Strided;
    use crate::engine::golden::Golden;
    use crate::engine::op::LossSpec;

    #[test]
    fn assignments_agree_with_the_reference() {
        let test = test_gpu();
        let golden = Golden::open("tal.safetensors");
        for (case, side) in [("case0", 8), ("case1", 8), ("case2", 12)] {
            let batch = 2;
            let n_classes = golden.shape(&format!("{case}.in.pd_scores"))[2];
            let n_rows = golden.shape(&format!("{case}.in.gt_bboxes"))[1];
            let (scores, corners) = (golden.f32s(&format!("{case}.in.pd_scores")), golden.f32s(&format!("{case}.in.pd_bboxes")));
            let (boxes, labels) = (golden.f32s(&format!("{case}.in.gt_bboxes")), golden.f32s(&format!("{case}.in.gt_labels")));
            let valid = golden.f32s(&format!("{case}.in.mask_gt"));
            let truth: Vec<f32> = (0..batch * n_rows)
                .flat_map(|row| {
                    let class = if valid[row] > 0.0 { labels[row] } else { -1.0 };
                    std::iter::once(class).chain(boxes[row * 4..row * 4 + 4].to_vec())
                })
                .collect();

            // The reference gives scores of all anchor points of an image; our logits are a tensor a level.
            let sizes = [side, side / 2, side / 4];
            let n_anchors: usize = sizes.iter().map(|side| side * side).sum();
            assert_eq!(scores.len(), batch * n_anchors * n_classes);
            let mut first = 0;
            let logits: Vec<_> = sizes
                .iter()
                .map(|side| {
                    let n = side * side * n_classes;
                    let of_level: Vec<f32> = (0..batch)
                        .flat_map(|image| scores[image * n_anchors * n_classes + first..][..n].to_vec())
                        .map(|score| (f64::from(score) / (1.0 - f64::from(score))).ln() as f32)
                        .collect();
                    first += n;
                    test.upload(&of_level, Precision::F32)
                })
                .collect();
            let tensors: Vec<LevelTensors> = sizes
                .iter()
                .zip(&logits)
                .map(|(&side, logits)| LevelTensors {
                    height: side,
                    width: side,
                    cls: Strided { address: logits.address, pixel_stride: n_classes },
                    ..LevelTensors::default()
                })
                .collect();
            let levels = Levels::new(batch, n_classes, &[8, 16, 32], &tensors);
            let n_bytes = {
                let mut placer = Placer::new(0);
                Assignment::place(&mut placer, 1, batch, n_anchors, n_rows);
                placer.bytes
            };
            let workspace = test.gpu.alloc(n_bytes).unwrap();
            let to = Assignment::place(&mut Placer::new(workspace.address), 1, batch, n_anchors, n_rows);
            workspace.fill(0).unwrap();
            workspace.write((to.corners - workspace.address) as usize, &corners).unwrap();
            // One number more, so that there is something to upload.
            let truth = test.gpu.upload(&[truth.as_slice(), &[-1.0]].concat()).unwrap();
            let spec = LossSpec::published(n_classes, false);
            // Boxes are given, so the first kernel, which decodes them, does not run.
            for launch in &assign(test_kernels(Precision::F32), &levels, &spec, truth.address, n_rows, to)[1..] {
                test.gpu.launch(launch).unwrap();
            }
            let row: Vec<i32> = workspace.read((to.row - workspace.address) as usize, batch * n_anchors).unwrap();
            let score: Vec<f32> = workspace.read((to.score - workspace.address) as usize, batch * n_anchors).unwrap();
            let share: Vec<f64> = workspace.read((to.share - workspace.address) as usize, 1).unwrap();

            let foreground = golden.u8s(&format!("{case}.out.fg_mask"));
            assert_eq!(row.iter().map(|&row| u8::from(row >= 0)).collect::<Vec<_>>(), foreground, "{case}");
            let mut ours = vec![0.0; scores.len()];
            for point in (0..row.len()).filter(|&point| row[point] >= 0) {
                assert_eq!(row[point], golden.i32s(&format!("{case}.out.target_gt_idx"))[point], "{case}, point {point}");
                let class = labels[point / n_anchors * n_rows + row[point] as usize] as usize;
                ours[point * n_classes + class] = score[point];
            }
            let expected = golden.f32s(&format!("{case}.out.target_scores"));
            assert_close(case, &ours, &expected, Tolerance { abs: 2e-6, rel: 0.0 });
            let sum: f64 = expected.iter().map(|&score| f64::from(score)).sum();
            assert!((share[0] - 1.0 / sum.max(1.0)).abs() < 1e-6, "{case}: {}", share[0]);
        }
    }
}
