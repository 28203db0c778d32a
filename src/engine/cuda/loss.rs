//! Launches kernels/assigner.cu and kernels/loss.cu: the detection loss of one or two heads with its gradients.

use super::assigner::{Assignment, Placer, assign};
use super::gpu::Launch;
use super::kernels::Kernels;
use super::levels::{BINS, LevelTensors, Levels, MAX_LEVELS};
use crate::engine::op::LossSpec;

/// Pixels and threads of a block of `box_loss`, as in kernels/loss.cu.
const BOX_TILE: usize = 256;
/// Threads of a block of `class_loss`.
const THREADS: usize = 256;
/// Logits that a block of `class_loss` takes, about: four 16-byte accesses a thread in half precision.
const CLASS_TILE_LOGITS: usize = 8192;

/// What `Op::DetectionLoss` means for one batch, and where everything is.
#[derive(Clone, Debug)]
pub struct DetectionLoss<'a> {
    pub spec: &'a LossSpec,
    pub batch: usize,
    /// Rows of ground truth an image.
    pub n_rows: usize,
    /// (B, 1, `n_rows`, 5) f32.
    pub truth: u64,
    /// Of every head in order. Gradients are overwritten.
    pub levels: Vec<LevelTensors>,
    /// [`LOSS_ITEMS`](crate::engine::LOSS_ITEMS) f32 to write, as `Op::DetectionLoss` says.
    pub items: u64,
    /// An f32 that multiplies the gradients.
    pub loss_scale: u64,
    /// [`DetectionLoss::workspace_bytes`] at a multiple of 256; needs no initial values, keeps nothing between steps.
    pub workspace: u64,
}

/// `LossRule` in kernels/loss.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Rule {
    n_rows: i32,
    box_gain: f32,
    cls_gain: f32,
    dfl_gain: f32,
    positive_weight: f32,
    class_share: f32,
    other_share: f32,
    class_tile: i32,
    first_class_tile: [i32; MAX_LEVELS],
    first_box_tile: [i32; MAX_LEVELS],
}

/// `LossData` in kernels/loss.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Data {
    truth: u64,
    row: u64,
    score: u64,
    share: u64,
    loss_scale: u64,
    class_partials: u64,
    box_partials: u64,
    counter: u64,
    items: u64,
}

/// The parts of the workspace.
struct Workspace {
    assignment: Assignment,
    class_partials: u64,
    box_partials: u64,
}

impl DetectionLoss<'_> {
    fn levels(&self) -> Levels {
        Levels::new(self.batch, self.spec.n_classes, &self.spec.strides, &self.levels)
    }

    /// Bytes of workspace; the same for every address.
    pub fn workspace_bytes(&self) -> usize {
        let mut placer = Placer::new(0);
        self.place(&self.levels(), &mut placer);
        placer.bytes
    }

    fn place(&self, levels: &Levels, placer: &mut Placer) -> Workspace {
        let partials = |tile| levels.n_heads * levels.tiles(tile).1 * 8;
        Workspace {
            assignment: Assignment::place(placer, levels.n_heads, self.batch, levels.n_anchors, self.n_rows),
            class_partials: placer.place(partials(class_tile(self.spec.n_classes))),
            box_partials: placer.place(2 * partials(BOX_TILE)),
        }
    }

    /// The launches of one step, in order: assignment, class loss, box loss.
    ///
    /// # Panics
    /// If shapes do not belong together, or the network has another number of bins.
    pub fn launches(&self, kernels: &Kernels) -> Vec<Launch> {
        let spec = self.spec;
        assert_eq!(spec.reg_max, BINS, "bins a side");
        assert_eq!(self.workspace % 256, 0, "alignment of the workspace");
        let levels = self.levels();
        let workspace = self.place(&levels, &mut Placer::new(self.workspace));
        let assignment = workspace.assignment;
        let mut launches = assign(kernels, &levels, spec, self.truth, self.n_rows, assignment).to_vec();

        let class_tile = class_tile(spec.n_classes);
        let ((first_class_tile, n_class_tiles), (first_box_tile, n_box_tiles)) = (levels.tiles(class_tile), levels.tiles(BOX_TILE));
        let [class_share, other_share] = spec.class_shares();
        let rule = Rule {
            n_rows: self.n_rows as i32,
            box_gain: spec.box_gain,
            cls_gain: spec.cls_gain,
            dfl_gain: spec.dfl_gain,
            positive_weight: spec.cls_pw,
            class_share,
            other_share,
            class_tile: class_tile as i32,
            first_class_tile,
            first_box_tile,
        };
        let data = Data {
            truth: self.truth,
            row: assignment.row,
            score: assignment.score,
            share: assignment.share,
            loss_scale: self.loss_scale,
            class_partials: workspace.class_partials,
            box_partials: workspace.box_partials,
            counter: assignment.loss_counter(),
            items: self.items,
        };
        let args = levels.args().with(rule).with(data);
        let of_tiles = |name, n_tiles: usize, n_threads: usize, args| {
            let launch = Launch::linear(kernels.get(name), n_tiles, n_threads, args);
            Launch { grid: [launch.grid[0], levels.n_heads as u32, 1], ..launch }
        };
        launches.push(of_tiles("class_loss", n_class_tiles, THREADS, args.clone()));
        launches.push(of_tiles("box_loss", n_box_tiles, BOX_TILE, args.with(n_class_tiles as i32)));
        launches
    }
}

/// Pixels of a block of `class_loss`: a multiple of 8, so that tiles of packed tensors begin at 16 bytes.
fn class_tile(n_classes: usize) -> usize {
    (CLASS_TILE_LOGITS / n_classes).max(8).next_multiple_of(8)
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::DetectionLoss;
    use crate::engine::cpu;
    use crate::engine::cpu::view::{View, ViewMut};
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::gpu::DeviceBuffer;
    use crate::engine::cuda::levels::LevelTensors;
    use crate::engine::cuda::testing::{PRECISIONS, Random, TestGpu, Tolerance, assert_close, test_gpu, test_kernels};
    use crate::engine::cuda::tiling::Strided;
    use crate::engine::golden::Golden;
    use crate::engine::graph::Shape;
    use crate::engine::op::{LOSS_ITEMS, LossSpec};

    /// Loss, and (reg, cls) gradients of every level of every head, packed.
    type Outcome = ([f32; LOSS_ITEMS], Vec<(Vec<f32>, Vec<f32>)>);

    /// Logits of all levels of all heads: pixels have `stride` numbers, box distributions first, class logits at `cls_at`;
    /// or two packed tensors if `stride` is 0.
    struct Case {
        spec: LossSpec,
        batch: usize,
        stride: usize,
        cls_at: usize,
        /// Height, width, distributions, class logits, both packed.
        levels: Vec<(usize, usize, Vec<f32>, Vec<f32>)>,
        truth: Vec<f32>,
    }

    impl Case {
        fn random(batch: usize, (height, width): (usize, usize), n_classes: usize, n_rows: usize, precision: Precision) -> Self {
            let mut random = Random::new(3 + n_rows as u64);
            let spec = LossSpec::published(n_classes, true);
            let mut levels = Vec::new();
            for _ in &spec.head_weights {
                for stride in &spec.strides {
                    let (h, w) = (height / stride, width / stride);
                    let mut reg = random.values(batch * h * w * 64, -2.0, 2.0, precision);
                    for (i, logit) in reg.iter_mut().enumerate() {
                        // Boxes of a few strides; a multiple of 1/4 keeps the sum exact in few bits.
                        *logit = crate::engine::cuda::testing::rounded(*logit - (i % 16) as f32 * 0.25, precision);
                    }
                    levels.push((h, w, reg, random.values(batch * h * w * n_classes, -4.0, 1.0, precision)));
                }
            }
            let mut truth = Vec::new();
            for row in 0..batch * n_rows {
                let (cx, cy) = (random.unit() * width as f32, random.unit() * height as f32);
                let (w, h) = (4.0 + random.unit() * width as f32 * 0.6, 4.0 + random.unit() * height as f32 * 0.6);
                // The last row of every image is padding, and so is each fifth.
                let is_padding = row % n_rows == n_rows - 1 || row % 5 == 4;
                let class = if is_padding { -1.0 } else { random.below(n_classes) as f32 };
                let corners = [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0];
                truth.push(class);
                truth.extend(corners.map(|corner| if is_padding { 0.0 } else { corner }));
            }
            Self { spec, batch, stride: 0, cls_at: 0, levels, truth }
        }

        fn n_rows(&self) -> usize {
            self.truth.len() / 5 / self.batch
        }

        fn on_cpu(&self) -> Outcome {
            let shape = |h: usize, w: usize, c: usize| Shape::new(self.batch, h, w, c);
            let n_classes = self.spec.n_classes;
            let views: Vec<(View, View)> = self
                .levels
                .iter()
                .map(|(h, w, reg, cls)| (View::packed(reg, shape(*h, *w, 64)), View::packed(cls, shape(*h, *w, n_classes))))
                .collect();
            let mut grads: Vec<(Vec<f32>, Vec<f32>)> =
                self.levels.iter().map(|(_, _, reg, cls)| (vec![f32::NAN; reg.len()], vec![f32::NAN; cls.len()])).collect();
            let mut grad_views: Vec<(ViewMut, ViewMut)> = grads
                .iter_mut()
                .zip(&self.levels)
                .map(|((reg, cls), (h, w, ..))| (ViewMut::packed(reg, shape(*h, *w, 64)), ViewMut::packed(cls, shape(*h, *w, n_classes))))
                .collect();
            let truth = View::packed(&self.truth, Shape::new(self.batch, 1, self.n_rows(), 5));
            let loss = cpu::loss::detection_loss(&self.spec, truth, &views, &mut grad_views);
            (loss, grads)
        }

        /// Uploads logits; poisons gradients. Returns (logits, gradients) buffers of each level.
        fn upload(&self, test: &TestGpu, precision: Precision) -> (Vec<DeviceBuffer>, Vec<LevelTensors>) {
            let n_classes = self.spec.n_classes;
            let (mut buffers, mut tensors) = (Vec::new(), Vec::new());
            for (h, w, reg, cls) in &self.levels {
                let (height, width, n) = (*h, *w, self.batch * h * w);
                let at = |address: u64, pixel_stride: usize| Strided { address, pixel_stride };
                if self.stride == 0 {
                    let of_level = [
                        test.upload(reg, precision),
                        test.upload(cls, precision),
                        test.poisoned(n * 64, precision),
                        test.poisoned(n * n_classes, precision),
                    ];
                    let [reg, cls, d_reg, d_cls] = of_level.each_ref().map(|buffer| buffer.address);
                    let (reg, cls) = (at(reg, 64), at(cls, n_classes));
                    tensors.push(LevelTensors { height, width, reg, cls, d_reg: at(d_reg, 64), d_cls: at(d_cls, n_classes) });
                    buffers.extend(of_level);
                } else {
                    let mut both = vec![9.0; n * self.stride];
                    for (pixel, (reg, cls)) in both.chunks_mut(self.stride).zip(reg.chunks(64).zip(cls.chunks(n_classes))) {
                        pixel[..64].copy_from_slice(reg);
                        pixel[self.cls_at..][..n_classes].copy_from_slice(cls);
                    }
                    let of_level = [test.upload(&both, precision), test.upload(&vec![7.0; both.len()], precision)];
                    let [both, grads] = of_level.each_ref().map(|buffer| buffer.address);
                    let cls_at = (self.cls_at * precision.bytes()) as u64;
                    tensors.push(LevelTensors {
                        height,
                        width,
                        reg: at(both, self.stride),
                        cls: at(both + cls_at, self.stride),
                        d_reg: at(grads, self.stride),
                        d_cls: at(grads + cls_at, self.stride),
                    });
                    buffers.extend(of_level);
                }
            }
            (buffers, tensors)
        }

        fn on_gpu(&self, test: &TestGpu, precision: Precision, scale: f32) -> Outcome {
            let n_classes = self.spec.n_classes;
            let (buffers, tensors) = self.upload(test, precision);
            // One number more, so that there is something to upload.
            let truth = test.gpu.upload(&[self.truth.as_slice(), &[-1.0]].concat()).unwrap();
            let (items, loss_scale) = (test.gpu.alloc(LOSS_ITEMS * 4).unwrap(), test.gpu.upload(&[scale]).unwrap());
            let mut loss = DetectionLoss {
                spec: &self.spec,
                batch: self.batch,
                n_rows: self.n_rows(),
                truth: truth.address,
                levels: tensors,
                items: items.address,
                loss_scale: loss_scale.address,
                workspace: 0,
            };
            let workspace = test.gpu.alloc(loss.workspace_bytes()).unwrap();
            loss.workspace = workspace.address;
            items.fill(0xff).unwrap();
            workspace.fill(0xff).unwrap();
            for launch in &loss.launches(test_kernels(precision)) {
                test.gpu.launch(launch).unwrap();
            }
            let items: Vec<f32> = items.read(0, LOSS_ITEMS).unwrap();
            let per_level = buffers.len() / self.levels.len();
            let grads = self.levels.iter().zip(buffers.chunks(per_level)).map(|((_, _, reg, cls), buffers)| {
                if self.stride == 0 {
                    return (test.download(&buffers[2], reg.len(), precision), test.download(&buffers[3], cls.len(), precision));
                }
                let both = test.download(&buffers[1], reg.len() / 64 * self.stride, precision);
                for pixel in both.chunks(self.stride) {
                    let others = pixel[64..self.cls_at].iter().chain(&pixel[self.cls_at + n_classes..]);
                    assert!(others.into_iter().all(|&other| other == 7.0), "wrote beside its channels");
                }
                let slice = |from: usize, n: usize| both.chunks(self.stride).flat_map(|pixel| pixel[from..from + n].to_vec()).collect();
                (slice(0, 64), slice(self.cls_at, n_classes))
            });
            let grads = grads.collect();
            (items.try_into().unwrap(), grads)
        }
    }

    fn assert_same(what: &str, ours: &Outcome, expected: &Outcome, tolerance: Tolerance) {
        assert_close(&format!("{what}: loss"), &ours.0, &expected.0, Tolerance { abs: 0.0, rel: 1e-5 });
        for (level, ((d_reg, d_cls), (reg, cls))) in ours.1.iter().zip(&expected.1).enumerate() {
            assert_close(&format!("{what}: d_reg {level}"), d_reg, reg, tolerance);
            assert_close(&format!("{what}: d_cls {level}"), d_cls, cls, tolerance);
        }
    }

    /// Of gradients of about 1 and less: the golden tolerance, and one rounding of the output.
    fn tolerance(precision: Precision) -> Tolerance {
        Tolerance { abs: 5e-6, ..Tolerance::rounding(precision) }
    }

    #[test]
    fn loss_and_gradients_agree_with_the_cpu() {
        let test = test_gpu();
        for precision in PRECISIONS {
            for (batch, size, n_classes, n_rows) in
                [(1, (32, 32), 1, 1), (2, (96, 160), 3, 6), (3, (160, 96), 80, 12), (2, (320, 320), 5, 40), (4, (640, 640), 80, 30)]
            {
                let case = Case::random(batch, size, n_classes, n_rows, precision);
                let expected = case.on_cpu();
                assert!(n_rows == 1 || expected.0[0] > 0.01, "no positives: {:?}", expected.0);
                let what = format!("{precision:?}, {batch} of {size:?}, {n_classes} classes");
                assert_same(&what, &case.on_gpu(&test, precision, 1.0), &expected, tolerance(precision));
            }
        }
    }

    #[test]
    fn smoothed_labels_agree_with_the_cpu() {
        let test = test_gpu();
        for precision in PRECISIONS {
            for n_classes in [1, 5] {
                let mut case = Case::random(2, (320, 320), n_classes, 20, precision);
                let sharp = case.on_cpu();
                case.spec.label_smoothing = 0.1;
                let expected = case.on_cpu();
                assert_ne!(sharp.0[1], expected.0[1]);
                assert_same(&format!("{precision:?}, {n_classes}"), &case.on_gpu(&test, precision, 1.0), &expected, tolerance(precision));
            }
        }
    }

    #[test]
    fn slices_of_wider_tensors_give_the_same_and_nothing_else_is_written() {
        let test = test_gpu();
        for precision in PRECISIONS {
            // Channels whose tensors begin at no multiple of 16 bytes, and such that do.
            for (n_classes, stride, cls_at) in [(3, 69, 65), (80, 160, 72)] {
                let case = Case { stride, cls_at, ..Case::random(2, (160, 96), n_classes, 7, precision) };
                assert_same(&format!("{precision:?}"), &case.on_gpu(&test, precision, 1.0), &case.on_cpu(), tolerance(precision));
            }
        }
    }

    #[test]
    fn the_loss_scale_multiplies_gradients_alone_and_two_runs_are_equal() {
        let test = test_gpu();
        let case = Case::random(3, (160, 160), 3, 20, Precision::F32);
        let (plain, again, scaled) =
            (case.on_gpu(&test, Precision::F32, 1.0), case.on_gpu(&test, Precision::F32, 1.0), case.on_gpu(&test, Precision::F32, 8.0));
        assert_eq!(plain, again);
        assert_eq!(plain.0, scaled.0);
        for ((d_reg, d_cls), (scaled_reg, scaled_cls)) in plain.1.iter().zip(&scaled.1) {
            assert_eq!(d_reg.iter().map(|d| d * 8.0).collect::<Vec<_>>(), *scaled_reg);
            assert_eq!(d_cls.iter().map(|d| d * 8.0).collect::<Vec<_>>(), *scaled_cls);
        }
    }

    #[test]
    fn without_truth_only_the_class_loss_is_left() {
        let test = test_gpu();
        let mut case = Case::random(2, (96, 96), 4, 1, Precision::F32);
        case.truth.clear();
        let ours = case.on_gpu(&test, Precision::F32, 1.0);
        assert_same("no rows", &ours, &case.on_cpu(), tolerance(Precision::F32));
        assert_eq!((ours.0[0], ours.0[2]), (0.0, 0.0));
    }

    #[test]
    fn loss_and_gradients_agree_with_the_reference() {
        let Some(golden) = Golden::open_shared("components/loss_dual.safetensors") else { return };
        let test = test_gpu();
        for name in ["mixed", "no_targets", "only_unmatched"] {
            let tensors = ["aux.p3", "aux.p4", "aux.p5", "main.p3", "main.p4", "main.p5"];
            let levels: Vec<_> = tensors
                .iter()
                .map(|tensor| {
                    let tensor = format!("{name}.{tensor}");
                    let shape = golden.shape(&tensor);
                    let (reg, cls) = split_nhwc(&golden.f32s(&tensor), &shape);
                    (shape[2], shape[3], reg, cls)
                })
                .collect();
            let (height, width) = (levels[0].0 as f32 * 8.0, levels[0].1 as f32 * 8.0);
            let targets = golden.f32s(&format!("{name}.targets"));
            let n_rows = targets.len() / 6;
            let mut truth = vec![-1.0; 3 * n_rows * 5];
            for (row, target) in targets.chunks(6).enumerate() {
                let (cx, cy, w, h) = (target[2] * width, target[3] * height, target[4] * width, target[5] * height);
                let corners = [target[1], cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0];
                truth[(target[0] as usize * n_rows + row) * 5..][..5].copy_from_slice(&corners);
            }
            let case = Case { spec: LossSpec::published(3, true), batch: 3, stride: 0, cls_at: 0, levels, truth };
            let (loss, grads) = case.on_gpu(&test, Precision::F32, 1.0);

            let close = Tolerance { abs: 0.0, rel: 1e-5 };
            assert_close(name, &loss[..3], &golden.f32s(&format!("{name}.loss_items")), close);
            assert_close(name, &loss[3..4], &golden.f32s(&format!("{name}.loss_total")), close);
            for (tensor, (d_reg, d_cls)) in tensors.iter().zip(&grads) {
                let tensor = format!("{name}.grad.{tensor}");
                let (reg, cls) = split_nhwc(&golden.f32s(&tensor), &golden.shape(&tensor));
                assert_close(&tensor, d_reg, &reg, Tolerance { abs: 5e-6, rel: 0.0 });
                assert_close(&tensor, d_cls, &cls, Tolerance { abs: 5e-6, rel: 0.0 });
            }
        }
    }

    /// (B, 64 + nc, H, W) into distributions and class logits, both NHWC.
    fn split_nhwc(nchw: &[f32], shape: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let (channels, n_cells) = (shape[1], shape[2] * shape[3]);
        let (mut reg, mut cls) = (Vec::new(), Vec::new());
        for image in 0..shape[0] {
            for cell in 0..n_cells {
                let value = |channel: usize| nchw[(image * channels + channel) * n_cells + cell];
                reg.extend((0..64).map(value));
                cls.extend((64..channels).map(value));
            }
        }
        (reg, cls)
    }
}
