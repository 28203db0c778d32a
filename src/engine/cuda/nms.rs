//! Launches kernels/nms.cu: non-maximum suppression of a batch of decoded predictions, with the result of `geom::nms`.

use super::NMS_CANDIDATES as CAPACITY;
use super::gpu::Launch;
use super::kernels::Kernels;

const DETECT_THREADS: usize = 1024;
const COLLECT_THREADS: usize = 256;
/// Scores that a block of `nms_collect` reads, about.
const COLLECT_SCORES: usize = 8192;

/// Settings as those of `geom::nms`, and the size of what it works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NmsSettings {
    pub batch: usize,
    /// Anchor points of an image.
    pub n_rows: usize,
    pub n_classes: usize,
    /// Score above which (strictly) a candidate counts; not negative.
    pub conf: f32,
    /// IoU above which (strictly) the lower score is suppressed.
    pub iou: f32,
    pub max_detections: usize,
    /// One candidate for each class above `conf`, instead of the best class alone.
    pub multi_label: bool,
    /// Boxes of different classes suppress each other.
    pub agnostic: bool,
}

/// Where things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmsBuffers {
    /// Decoded predictions, (B, N, 4 + classes) f32.
    pub rows: u64,
    /// (B, `max_detections`, 6) f32: x1, y1, x2, y2, score, class, best first. What is past the count is left as it was.
    pub detections: u64,
    /// How many there are of each image, i32.
    pub counts: u64,
    /// [`NmsSettings::workspace_bytes`] at a multiple of 16; needs no initial values.
    pub workspace: u64,
}

/// `NmsRule` in kernels/nms.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Rule {
    n_rows: i32,
    n_classes: i32,
    conf: f32,
    iou: f32,
    max_detections: i32,
    multi_label: i32,
    agnostic: i32,
    group: i32,
}

impl NmsSettings {
    /// Lists of candidates, then their lengths.
    pub fn workspace_bytes(&self) -> usize {
        self.batch * (CAPACITY * 8 + 4)
    }

    /// The launches in order.
    pub fn launches(&self, kernels: &Kernels, buffers: NmsBuffers) -> [Launch; 3] {
        assert!(self.conf >= 0.0, "scores above {} are asked for", self.conf);
        assert!(u32::try_from(self.n_rows * self.n_classes).is_ok(), "{} rows of {} classes", self.n_rows, self.n_classes);
        let rule = Rule {
            n_rows: self.n_rows as i32,
            n_classes: self.n_classes as i32,
            conf: self.conf,
            iou: self.iou,
            max_detections: self.max_detections as i32,
            multi_label: i32::from(self.multi_label),
            agnostic: i32::from(self.agnostic),
            group: self.n_classes.next_power_of_two().min(32) as i32,
        };
        let (lists, lengths) = (buffers.workspace, buffers.workspace + (self.batch * CAPACITY * 8) as u64);
        let args = super::gpu::Args::new;
        let clear = Launch::linear(
            kernels.get("nms_clear"),
            self.batch.div_ceil(COLLECT_THREADS),
            COLLECT_THREADS,
            args().with(lengths).with(self.batch as i32),
        );
        let rows_per_block = COLLECT_SCORES.div_ceil(self.n_classes);
        let collect = Launch::linear(
            kernels.get("nms_collect"),
            self.n_rows.div_ceil(rows_per_block),
            COLLECT_THREADS,
            args().with(buffers.rows).with(rule).with(rows_per_block as i32).with(lists).with(lengths),
        );
        let detect = Launch::linear(
            kernels.get("nms_detect"),
            self.batch,
            DETECT_THREADS,
            args().with(buffers.rows).with(rule).with(lists).with(lengths).with(buffers.detections).with(buffers.counts),
        );
        [clear, Launch { grid: [collect.grid[0], self.batch as u32, 1], ..collect }, detect]
    }
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{NmsBuffers, NmsSettings};
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::testing::{Random, TestGpu, test_gpu, test_kernels};
    use crate::engine::golden::Golden;

    /// x1, y1, x2, y2, score, class of the detections of each image.
    type Detections = Vec<Vec<[f32; 6]>>;

    fn on_gpu(test: &TestGpu, settings: &NmsSettings, rows: &[f32]) -> Detections {
        assert_eq!(rows.len(), settings.batch * settings.n_rows * (4 + settings.n_classes));
        let rows = test.gpu.upload(rows).unwrap();
        let detections = test.gpu.alloc(settings.batch * settings.max_detections.max(1) * 24).unwrap();
        let counts = test.gpu.alloc(settings.batch * 4).unwrap();
        let workspace = test.gpu.alloc(settings.workspace_bytes()).unwrap();
        for buffer in [&detections, &counts, &workspace] {
            buffer.fill(0xff).unwrap();
        }
        let buffers =
            NmsBuffers { rows: rows.address, detections: detections.address, counts: counts.address, workspace: workspace.address };
        for launch in &settings.launches(test_kernels(Precision::F32), buffers) {
            test.gpu.launch(launch).unwrap();
        }
        let all: Vec<[f32; 6]> = detections.read(0, settings.batch * settings.max_detections.max(1)).unwrap();
        let counts: Vec<i32> = counts.read(0, settings.batch).unwrap();
        counts.iter().enumerate().map(|(image, &n)| all[image * settings.max_detections..][..n as usize].to_vec()).collect()
    }

    /// What `geom::nms`, which this room does not know, does: its golden cases hold both to the same result.
    fn on_cpu(settings: &NmsSettings, rows: &[f32]) -> Detections {
        let row_length = 4 + settings.n_classes;
        rows.chunks(settings.n_rows * row_length)
            .map(|rows| {
                let mut candidates: Vec<(f32, usize, usize)> = Vec::new();
                for (row, numbers) in rows.chunks(row_length).enumerate() {
                    let above = numbers[4..].iter().enumerate().filter(|(_, score)| **score > settings.conf);
                    let of_row: Vec<_> = above.map(|(class, &score)| (score, row, class)).collect();
                    if settings.multi_label {
                        candidates.extend(of_row);
                    } else {
                        candidates.extend(of_row.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best }));
                    }
                }
                candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
                candidates.truncate(30_000);
                let mut kept: Vec<[f32; 6]> = Vec::new();
                for (score, row, class) in candidates {
                    let [cx, cy, w, h] = rows[row * row_length..].first_chunk::<4>().copied().unwrap();
                    let bbox = [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0, score, class as f32];
                    let strikes = |rival: &&[f32; 6]| (settings.agnostic || rival[5] == bbox[5]) && iou(rival, &bbox) > settings.iou;
                    if kept.len() < settings.max_detections && kept.iter().find(strikes).is_none() {
                        kept.push(bbox);
                    }
                }
                kept
            })
            .collect()
    }

    fn iou(a: &[f32; 6], b: &[f32; 6]) -> f32 {
        let inter = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0) * (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
        let area = |x: &[f32; 6]| (x[2] - x[0]) * (x[3] - x[1]);
        if inter > 0.0 { inter / (area(a) + area(b) - inter) } else { 0.0 }
    }

    /// Boxes around few centres, so that many overlap; scores have few different values if `steps` is small.
    fn random_rows(settings: &NmsSettings, steps: usize) -> Vec<f32> {
        let mut random = Random::new(11 + settings.n_rows as u64);
        let mut rows = Vec::new();
        for _ in 0..settings.batch * settings.n_rows {
            let centre = random.below(40) as f32 * 15.0;
            let (x, y) = (centre + random.unit() * 8.0, 600.0 - centre + random.unit() * 8.0);
            rows.extend([x, y, 20.0 + random.unit() * 30.0, 20.0 + random.unit() * 30.0]);
            rows.extend((0..settings.n_classes).map(|_| (random.below(steps) as f32 / steps as f32).powi(3)));
        }
        rows
    }

    const VALIDATE: NmsSettings =
        NmsSettings { batch: 1, n_rows: 1, n_classes: 1, conf: 0.001, iou: 0.7, max_detections: 300, multi_label: true, agnostic: false };

    #[test]
    fn detections_agree_with_the_cpu() {
        let test = test_gpu();
        let detect = NmsSettings { conf: 0.25, iou: 0.45, max_detections: 1000, multi_label: false, ..VALIDATE };
        for (settings, steps) in [
            (VALIDATE, 1 << 20),
            (NmsSettings { batch: 3, n_rows: 1000, n_classes: 3, ..VALIDATE }, 1 << 20),
            (NmsSettings { batch: 2, n_rows: 8400, n_classes: 3, ..detect }, 1 << 20),
            (NmsSettings { batch: 2, n_rows: 2100, n_classes: 33, agnostic: true, ..detect }, 64),
            // More candidates than are looked at, without and with many equal scores at the limit.
            (NmsSettings { batch: 2, n_rows: 8400, n_classes: 80, ..VALIDATE }, 1 << 20),
            (NmsSettings { batch: 2, n_rows: 8400, n_classes: 8, ..VALIDATE }, 3),
            (NmsSettings { n_rows: 40_000, n_classes: 2, ..detect }, 1 << 20),
            (NmsSettings { n_rows: 100, max_detections: 0, ..detect }, 64),
            (NmsSettings { n_rows: 100, conf: 1.0, ..detect }, 64),
        ] {
            let rows = random_rows(&settings, steps);
            let (ours, expected) = (on_gpu(&test, &settings, &rows), on_cpu(&settings, &rows));
            for (image, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
                assert_eq!(ours.len(), expected.len(), "image {image} of {settings:?}");
                let first = ours.iter().zip(expected).position(|(ours, expected)| ours != expected);
                assert_eq!(first.map(|i| (i, ours[i], expected[i])), None, "image {image} of {settings:?}");
            }
        }
    }

    #[test]
    fn detections_are_those_of_the_published_detector() {
        let test = test_gpu();
        let golden = Golden::open("nms.safetensors");
        let detect = NmsSettings { conf: 0.25, iou: 0.45, multi_label: false, ..VALIDATE };
        let mut n_checked = 0;
        for name in golden.names() {
            let Some((case, rest)) = name.split_once('.') else { continue };
            let Some((config, image)) = rest.split_once(".out") else { continue };
            let settings = match config {
                "val" => VALIDATE,
                "val_agnostic" => NmsSettings { agnostic: true, ..VALIDATE },
                "detect" | "detect_classes_0_2" => detect,
                "detect_agnostic" => NmsSettings { agnostic: true, ..detect },
                "max_det_20" => NmsSettings { max_detections: 20, ..detect },
                other => panic!("unknown configuration {other}"),
            };
            let shape = golden.shape(&format!("{case}.in"));
            let (length, n_rows) = (shape[1], shape[2]);
            let all = golden.f32s(&format!("{case}.in"));
            let planes = &all[image.parse::<usize>().unwrap() * length * n_rows..][..length * n_rows];
            let rows: Vec<f32> = (0..n_rows).flat_map(|i| (0..length).map(move |c| planes[c * n_rows + i])).collect();
            let mut found = on_gpu(&test, &NmsSettings { n_rows, n_classes: length - 4, ..settings }, &rows).remove(0);
            if config == "detect_classes_0_2" {
                // Classes do not meet, so that a filter may come afterwards as well.
                found.retain(|detection| detection[5] != 1.0);
            }
            assert_eq!(found.concat(), golden.f32s(&name), "{name}");
            n_checked += 1;
        }
        assert_eq!(n_checked, 19);
    }
}
