//! Launches of batch norm, activation and residual: `kernels/bn_act.cu`.
//!
//! In:  addresses of convolution outputs, statistics, parameters and pieces. Out: launches; nothing runs here.
//!
//! Statistics, sums, parameters and their gradients are f32, one row of C a vector; all else is in the compute type.

use super::Precision;
use super::gpu::{Args, Launch};
use super::kernels::Kernels;
use super::pieces::{Piece, Pieces};
use super::tiling::{Access, Extent, Runs, Strided, Target, Tiling};
use crate::engine::op::{Act, BN_EPS, BN_MOMENTUM};

/// One batch norm and what it is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    pub y: Strided,
    /// `[2, C]`: mean of each channel, then 1 / sqrt(var + eps) of each.
    pub stats: u64,
    pub gamma: u64,
    pub beta: u64,
}

/// Running mean and variance of one batch norm.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub mean: u64,
    pub var: u64,
}

/// Where the gradients of one batch norm's parameters are added.
#[derive(Clone, Copy, Debug)]
pub struct BnGradients {
    pub gamma: u64,
    pub beta: u64,
}

/// Memory for sums over blocks, shared by all launches of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    /// [`scratch_bytes`].
    pub workspace: u64,
    /// [`N_COUNTERS`] numbers (u32) that were zero at the start; each launch leaves them so.
    pub counters: u64,
}

/// Counters that [`Scratch`] holds: one for each chunk of channels.
pub const N_COUNTERS: usize = 64;

/// As in `kernels/bn_act.cu`.
const MAX_CHANNELS: usize = 256;
const MAX_SUM_CHANNELS: usize = 64;
const APPLY_THREADS: usize = 256;
const SUM_THREADS: usize = 1024;
const FEW_SUM_THREADS: usize = 512;
/// Packets of four elements: with more channels a thread, their factors would take the registers that loads in flight need.
const LANES: usize = 4;

/// A kernel, and what `kernels/bn_act.cu` says of it.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    n_threads: usize,
    /// Pixels for which a thread loads at once, with elements of two bytes.
    in_flight: usize,
    /// Blocks that a multiprocessor holds at once, by registers. Sums are made by one.
    n_resident: usize,
}

impl Variant {
    fn of_sums(name: &'static str, n_threads: usize, in_flight: usize) -> Self {
        Self { name, n_threads, in_flight, n_resident: 1 }
    }

    fn without_sums(name: &'static str, in_flight: usize, n_resident: usize) -> Self {
        Self { name, n_threads: APPLY_THREADS, in_flight, n_resident }
    }

    fn runs(self, kernels: &Kernels, tiling: Tiling, n_pixels: usize) -> Runs {
        let in_flight = match kernels.precision() {
            Precision::F32 => (self.in_flight / 2).max(1),
            Precision::F16 | Precision::Bf16 => self.in_flight,
        };
        tiling.runs(n_pixels, in_flight, self.n_resident * kernels.gpu().n_multiprocessors)
    }
}

/// Bytes of workspace for launches with up to `n_channels` channels.
pub fn scratch_bytes(kernels: &Kernels, n_channels: usize) -> usize {
    // Three sums of each channel of each block. There is a block for each multiprocessor, or one for each chunk of channels.
    let n_blocks = kernels.gpu().n_multiprocessors.max(n_channels.div_ceil(MAX_SUM_CHANNELS));
    3 * size_of::<f32>() * n_blocks * MAX_SUM_CHANNELS
}

/// The most pieces that hold the same channel.
fn overlap(pieces: &[Piece]) -> usize {
    // Where the number is greatest, a piece begins.
    let holding = |channel: i32| pieces.iter().filter(|piece| (piece.first..piece.first + piece.count).contains(&channel)).count();
    pieces.iter().map(|piece| holding(piece.first)).max().unwrap_or(0)
}

/// `Branch` in `kernels/bn_act.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct BranchArg {
    y: u64,
    stats: u64,
    gamma: u64,
    beta: u64,
    pixel_stride: i32,
    unused: i32,
}

/// `BranchGradient` in `kernels/bn_act.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct BranchGradientArg {
    d_y: u64,
    pixel_stride: i32,
    unused: i32,
}

fn branch_args(branches: &[Branch]) -> [BranchArg; 2] {
    assert!(matches!(branches.len(), 1 | 2), "{} branches, 1 or 2 are possible", branches.len());
    let mut args = [BranchArg::default(); 2];
    for (arg, &Branch { y, stats, gamma, beta }) in args.iter_mut().zip(branches) {
        *arg = BranchArg { y: y.address, stats, gamma, beta, pixel_stride: y.pixel_stride as i32, unused: 0 };
    }
    args
}

fn act_arg(act: Act) -> i32 {
    match act {
        Act::None => 0,
        Act::Silu => 1,
    }
}

fn ys(branches: &[Branch]) -> impl Iterator<Item = Strided> {
    branches.iter().map(|branch| branch.y)
}

/// How channels are shared by blocks that sum over pixels.
fn sum_tiling(access: Access, n_channels: usize, n_threads: usize) -> Tiling {
    let tiling = Tiling::new(access, n_channels, MAX_SUM_CHANNELS, n_threads);
    assert!(tiling.n_chunks <= N_COUNTERS, "more than {} channels", N_COUNTERS * MAX_SUM_CHANNELS);
    tiling
}

/// Statistics of the batch into `stats`, and the running ones moved towards them: `bn_stats_batch` of the CPU.
pub fn bn_stats_batch(kernels: &Kernels, y: Strided, extent: Extent, stats: u64, running: Option<Running>, scratch: Scratch) -> Launch {
    let Extent { n_pixels, n_channels } = extent;
    assert!(n_pixels > 0, "statistics of nothing");
    let access = Access::of(kernels.precision(), LANES, n_channels, &[y], &[]);
    let variant = Variant::of_sums(access.pick("bn_stats_batch_vec", "bn_stats_batch_scalar"), SUM_THREADS, 8);
    let tiling = sum_tiling(access, n_channels, variant.n_threads);
    let Runs { n_blocks, run_pixels } = variant.runs(kernels, tiling, n_pixels);
    let args = Args::new()
        .with(y.address)
        .with(y.pixel_stride as i32)
        .with(n_pixels as i32)
        .with(n_channels as i32)
        .with(run_pixels as i32)
        .with(1.0 / n_pixels as f64)
        .with(BN_EPS)
        .with(BN_MOMENTUM)
        .with(scratch.workspace)
        .with(scratch.counters)
        .with(stats)
        .with(running.map_or(0, |running| running.mean))
        .with(running.map_or(0, |running| running.var));
    tiling.launch(kernels.get(variant.name), n_blocks, args)
}

/// Statistics from the running ones into `stats`.
pub fn bn_stats_running(kernels: &Kernels, running: Running, n_channels: usize, stats: u64) -> Launch {
    let args = Args::new().with(running.mean).with(running.var).with(n_channels as i32).with(BN_EPS).with(stats);
    Launch::linear(kernels.get("bn_stats_running"), n_channels.div_ceil(128), 128, args)
}

/// `out = act(sum of bn_i(y_i)) + residual`, the same value to each of `outs`.
pub fn bn_act_forward(
    kernels: &Kernels,
    branches: &[Branch],
    act: Act,
    residual: Option<Strided>,
    outs: &[Piece],
    extent: Extent,
) -> Launch {
    let Extent { n_pixels, n_channels } = extent;
    let tensors: Vec<Strided> = ys(branches).chain(residual).collect();
    let access = Access::of(kernels.precision(), LANES, n_channels, &tensors, outs);
    let variant = match (branches.len(), residual) {
        (1, None) => Variant::without_sums(access.pick("bn_act_forward_1_vec", "bn_act_forward_1_scalar"), 8, 4),
        (1, Some(_)) => Variant::without_sums(access.pick("bn_act_forward_1_residual_vec", "bn_act_forward_1_residual_scalar"), 4, 4),
        (_, None) => Variant::without_sums(access.pick("bn_act_forward_2_vec", "bn_act_forward_2_scalar"), 4, 4),
        (_, Some(_)) => Variant::without_sums(access.pick("bn_act_forward_2_residual_vec", "bn_act_forward_2_residual_scalar"), 4, 4),
    };
    let tiling = Tiling::new(access, n_channels, MAX_CHANNELS, variant.n_threads);
    let Runs { n_blocks, run_pixels } = variant.runs(kernels, tiling, n_pixels);
    let args = Args::new()
        .with(branch_args(branches))
        .with(act_arg(act))
        .with(residual.map_or(0, |residual| residual.address))
        .with(residual.map_or(0, |residual| residual.pixel_stride as i32))
        .with(Pieces::new(outs))
        .with(n_pixels as i32)
        .with(n_channels as i32)
        .with(run_pixels as i32);
    tiling.launch(kernels.get(variant.name), n_blocks, args)
}

/// `out = act(y + bias) + residual`, for networks whose batch norms are folded into their convolutions.
pub fn bias_act_forward(
    kernels: &Kernels,
    y: Strided,
    bias: Option<u64>,
    act: Act,
    residual: Option<Strided>,
    outs: &[Piece],
    extent: Extent,
) -> Launch {
    // Without statistics the kernel takes a scale of 1 and beta as the shift.
    let branch = Branch { y, stats: 0, gamma: 0, beta: bias.unwrap_or(0) };
    bn_act_forward(kernels, &[branch], act, residual, outs, extent)
}

/// For each branch a row of the sums of g and one of g * xhat into `sums`; adds them to the gradients of beta and gamma.
pub fn bn_act_backward_reduce(
    kernels: &Kernels,
    d_outs: &[Piece],
    branches: &[Branch],
    act: Act,
    sums: u64,
    gradients: &[BnGradients],
    extent: Extent,
    scratch: Scratch,
) -> Launch {
    let Extent { n_pixels, n_channels } = extent;
    assert_eq!(branches.len(), gradients.len(), "gradients for each branch");
    let tensors: Vec<Strided> = ys(branches).collect();
    let access = Access::of(kernels.precision(), LANES, n_channels, &tensors, d_outs);
    let variant = reduce_variant(access, branches.len(), act, overlap(d_outs));
    let tiling = sum_tiling(access, n_channels, variant.n_threads);
    let Runs { n_blocks, run_pixels } = variant.runs(kernels, tiling, n_pixels);
    let second = gradients.get(1).copied().unwrap_or(BnGradients { gamma: 0, beta: 0 });
    let args = Args::new()
        .with(Pieces::new(d_outs))
        .with(branch_args(branches))
        .with(act_arg(act))
        .with(n_pixels as i32)
        .with(n_channels as i32)
        .with(run_pixels as i32)
        .with(scratch.workspace)
        .with(scratch.counters)
        .with(sums)
        .with([gradients[0].gamma, second.gamma, gradients[0].beta, second.beta]);
    tiling.launch(kernels.get(variant.name), n_blocks, args)
}

/// The kernel for so many pieces that hold the same channel.
fn reduce_variant(access: Access, n_branches: usize, act: Act, n_pieces: usize) -> Variant {
    match (access, n_branches, act, n_pieces) {
        (Access::Packets(_), 1, Act::Silu, 0..=1) => Variant::of_sums("bn_act_backward_reduce_1_vec_1", SUM_THREADS, 4),
        (Access::Packets(_), 1, Act::Silu, 2) => Variant::of_sums("bn_act_backward_reduce_1_vec_2", FEW_SUM_THREADS, 5),
        (Access::Packets(_), 1, Act::Silu, 3) => Variant::of_sums("bn_act_backward_reduce_1_vec_3", FEW_SUM_THREADS, 4),
        (Access::Packets(_), 1, Act::Silu, 4..=5) => Variant::of_sums("bn_act_backward_reduce_1_vec_5", FEW_SUM_THREADS, 3),
        (Access::Packets(_), 1, ..) => Variant::of_sums("bn_act_backward_reduce_1_vec", FEW_SUM_THREADS, 2),
        (Access::Packets(_), 2, Act::Silu, 0..=1) => Variant::of_sums("bn_act_backward_reduce_2_vec_1", FEW_SUM_THREADS, 4),
        (Access::Packets(_), ..) => Variant::of_sums("bn_act_backward_reduce_2_vec", FEW_SUM_THREADS, 1),
        (Access::Elements, 1, ..) => Variant::of_sums("bn_act_backward_reduce_1_scalar", FEW_SUM_THREADS, 1),
        (Access::Elements, ..) => Variant::of_sums("bn_act_backward_reduce_2_scalar", FEW_SUM_THREADS, 1),
    }
}

/// The gradients of the branches (overwritten) and of the residual, which is the sum of `d_outs`. `sums` is what
/// [`bn_act_backward_reduce`] gave.
pub fn bn_act_backward(
    kernels: &Kernels,
    d_outs: &[Piece],
    branches: &[Branch],
    act: Act,
    sums: u64,
    d_ys: &[Strided],
    d_residual: Option<Target>,
    extent: Extent,
) -> Launch {
    let Extent { n_pixels, n_channels } = extent;
    assert_eq!(branches.len(), d_ys.len(), "a gradient for each branch");
    let tensors: Vec<Strided> = ys(branches).chain(d_ys.iter().copied()).chain(d_residual.map(|target| target.tensor)).collect();
    let access = Access::of(kernels.precision(), LANES, n_channels, &tensors, d_outs);
    let variant = backward_variant(access, branches.len(), act, overlap(d_outs), d_residual.is_some());
    let tiling = Tiling::new(access, n_channels, MAX_CHANNELS, variant.n_threads);
    let Runs { n_blocks, run_pixels } = variant.runs(kernels, tiling, n_pixels);
    let mut gradients = [BranchGradientArg::default(); 2];
    for (gradient, d_y) in gradients.iter_mut().zip(d_ys) {
        *gradient = BranchGradientArg { d_y: d_y.address, pixel_stride: d_y.pixel_stride as i32, unused: 0 };
    }
    let args = Args::new()
        .with(Pieces::new(d_outs))
        .with(branch_args(branches))
        .with(act_arg(act))
        .with(sums)
        .with(gradients)
        .with(d_residual.map_or(0, |target| target.tensor.address))
        .with(d_residual.map_or(0, |target| target.tensor.pixel_stride as i32))
        .with(i32::from(d_residual.is_some_and(|target| target.accumulate)))
        .with(n_pixels as i32)
        .with(n_channels as i32)
        .with(run_pixels as i32);
    tiling.launch(kernels.get(variant.name), n_blocks, args)
}

/// As [`reduce_variant`]; only the kernels for many pieces write the gradient of a residual.
fn backward_variant(access: Access, n_branches: usize, act: Act, n_pieces: usize, has_residual: bool) -> Variant {
    match (access, n_branches, act, if has_residual { n_pieces.max(4) } else { n_pieces }) {
        (Access::Packets(_), 1, Act::Silu, 0..=1) => Variant::without_sums("bn_act_backward_1_vec_1", 4, 4),
        (Access::Packets(_), 1, Act::Silu, 2) => Variant::without_sums("bn_act_backward_1_vec_2", 3, 4),
        (Access::Packets(_), 1, Act::Silu, 3) => Variant::without_sums("bn_act_backward_1_vec_3", 2, 3),
        (Access::Packets(_), 1, Act::Silu, 4..=5) => Variant::without_sums("bn_act_backward_1_vec_5", 2, 2),
        (Access::Packets(_), 1, ..) => Variant::without_sums("bn_act_backward_1_vec", 1, 2),
        (Access::Packets(_), 2, Act::Silu, 0..=1) => Variant::without_sums("bn_act_backward_2_vec_1", 3, 3),
        (Access::Packets(_), ..) => Variant::without_sums("bn_act_backward_2_vec", 1, 2),
        (Access::Elements, 1, ..) => Variant::without_sums("bn_act_backward_1_scalar", 1, 2),
        (Access::Elements, ..) => Variant::without_sums("bn_act_backward_2_scalar", 1, 2),
    }
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::Precision;
    use super::super::gpu::DeviceBuffer;
    use super::super::test_tensors::{ALIGNED, InPieces, Layout, ODD, PACKED, Spread, Tensor, launch_all};
    use super::super::testing::{PRECISIONS, Random, TestGpu, Tolerance, assert_close, test_gpu, test_kernels};
    use super::*;
    use crate::engine::cpu::bn_act as cpu;
    use crate::engine::cpu::view::{View, ViewMut};
    use crate::engine::graph::Shape;

    /// Shapes from the smallest over odd ones to those of networks, and how their tensors lie.
    fn cases() -> Vec<(Shape, Layout, Spread)> {
        vec![
            (Shape::new(1, 1, 1, 1), PACKED, Spread::Whole),
            (Shape::new(2, 3, 5, 19), ODD, Spread::Many),
            (Shape::new(1, 9, 9, 24), ALIGNED, Spread::Many),
            (Shape::new(1, 9, 9, 24), PACKED, Spread::Gap),
            (Shape::new(2, 20, 20, 80), ALIGNED, Spread::Halves),
            (Shape::new(2, 20, 20, 80), ODD, Spread::Whole),
            (Shape::new(1, 3, 2, 1030), PACKED, Spread::Halves),
            (Shape::new(16, 20, 20, 512), PACKED, Spread::Whole),
            (Shape::new(1, 40, 40, 48), ALIGNED, Spread::Copies(3)),
            (Shape::new(3, 7, 11, 32), PACKED, Spread::Copies(5)),
            // Whole runs of pixels for each of 132 multiprocessors.
            (Shape::new(2, 176, 192, 64), PACKED, Spread::Whole),
            (Shape::new(1, 320, 320, 16), ALIGNED, Spread::Halves),
        ]
    }

    struct Memory {
        workspace: DeviceBuffer,
        counters: DeviceBuffer,
    }

    impl Memory {
        fn new(gpu: &TestGpu, kernels: &Kernels, c: usize) -> Self {
            let workspace = gpu.gpu.alloc(scratch_bytes(kernels, c)).unwrap();
            workspace.fill(0xff).unwrap();
            Self { workspace, counters: gpu.gpu.upload(&[0u32; N_COUNTERS]).unwrap() }
        }

        fn scratch(&self) -> Scratch {
            Scratch { workspace: self.workspace.address, counters: self.counters.address }
        }

        fn assert_counters_are_zero(&self) {
            assert_eq!(self.counters.read::<u32>(0, N_COUNTERS).unwrap(), [0; N_COUNTERS]);
        }
    }

    /// Branches on both sides, with the statistics that the CPU gives.
    struct Fixture {
        ys: Vec<Tensor>,
        /// Statistics, gamma, beta of each branch.
        vectors: Vec<[Vec<f32>; 3]>,
        buffers: Vec<[DeviceBuffer; 3]>,
    }

    impl Fixture {
        fn new(gpu: &TestGpu, random: &mut Random, shape: Shape, layout: Layout, n_branches: usize, precision: Precision) -> Self {
            let ys: Vec<Tensor> = (0..n_branches).map(|_| Tensor::random(gpu, random, shape, layout, [-1.5, 2.5], precision)).collect();
            let vectors: Vec<[Vec<f32>; 3]> = ys
                .iter()
                .map(|y| {
                    let mut stats = vec![f32::NAN; 2 * shape.c];
                    cpu::bn_stats_batch(y.view(), &mut stats, None);
                    let mut vector = |low| random.values(shape.c, low, 1.5, Precision::F32);
                    [stats, vector(0.5), vector(-1.0)]
                })
                .collect();
            let upload = |vectors: &[Vec<f32>; 3]| [0, 1, 2].map(|index| gpu.gpu.upload(&vectors[index]).unwrap());
            let buffers = vectors.iter().map(upload).collect();
            Self { ys, vectors, buffers }
        }

        fn on_cpu(&self) -> Vec<cpu::Branch<'_>> {
            let mut branches = Vec::new();
            for (y, [stats, gamma, beta]) in self.ys.iter().zip(&self.vectors) {
                branches.push(cpu::Branch { y: y.view(), stats, gamma, beta });
            }
            branches
        }

        fn on_gpu(&self) -> Vec<Branch> {
            let branch = |(y, [stats, gamma, beta]): (&Tensor, &[DeviceBuffer; 3])| Branch {
                y: y.strided(),
                stats: stats.address,
                gamma: gamma.address,
                beta: beta.address,
            };
            self.ys.iter().zip(&self.buffers).map(branch).collect()
        }
    }

    fn extent(shape: Shape) -> Extent {
        Extent { n_pixels: shape.n_pixels(), n_channels: shape.c }
    }

    /// Rounding of the output, where values have been added before that are up to ten times as large. The variance of a single
    /// pixel, 0, makes 1 / sqrt(var + eps) 32 times as large as that of real values, and rounding with it.
    fn after_sums(precision: Precision, shape: Shape) -> Tolerance {
        let Tolerance { abs, rel } = Tolerance::rounding(precision);
        Tolerance { abs: abs.max(if shape.n_pixels() == 1 { 3e-4 } else { 1e-5 }), rel: rel.max(1e-5) }
    }

    #[test]
    fn statistics_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(1);
        for precision in PRECISIONS {
            let kernels = test_kernels(precision);
            for (shape, layout, _) in cases() {
                let c = shape.c;
                let y = Tensor::random(&gpu, random, shape, layout, [-1.5, 2.5], precision);
                let [mut mean, mut var] = [(); 2].map(|()| random.values(c, 0.5, 1.5, Precision::F32));
                let buffers = [&mean, &var].map(|values| gpu.gpu.upload(values).unwrap());
                let mut want = vec![f32::NAN; 2 * c];
                cpu::bn_stats_batch(y.view(), &mut want, Some(cpu::Running { mean: &mut mean, var: &mut var }));

                let memory = Memory::new(&gpu, kernels, c);
                let stats = gpu.poisoned(2 * c, Precision::F32);
                let running = Running { mean: buffers[0].address, var: buffers[1].address };
                let launch = bn_stats_batch(kernels, y.strided(), extent(shape), stats.address, Some(running), memory.scratch());
                launch_all(&gpu, &[launch]);
                let tolerance = Tolerance { abs: 2e-6, rel: 1e-5 };
                let read = |buffer: &DeviceBuffer, n: usize| buffer.read::<f32>(0, n).unwrap();
                let what = format!("{precision:?} {shape:?} {layout:?}");
                assert_close(&what, &read(&stats, 2 * c), &want, tolerance);
                assert_close(&format!("running mean, {what}"), &read(&buffers[0], c), &mean, tolerance);
                assert_close(&format!("running variance, {what}"), &read(&buffers[1], c), &var, tolerance);
                memory.assert_counters_are_zero();
            }
        }
    }

    #[test]
    fn a_small_deviation_from_a_large_mean_keeps_its_variance() {
        let gpu = test_gpu();
        let kernels = test_kernels(Precision::F32);
        let shape = Shape::new(4, 100, 100, 8);
        // The first pixel is far off: nothing may be counted from it.
        let value = |i: usize| if i < 8 { 0.0 } else { 1000.0 + if (i / 8).is_multiple_of(2) { 0.25 } else { -0.25 } };
        let y = Tensor::packed(&gpu, (0..shape.len()).map(value).collect(), shape, Precision::F32);
        let mut want = vec![f32::NAN; 16];
        cpu::bn_stats_batch(y.view(), &mut want, None);
        let stats = gpu.poisoned(16, Precision::F32);
        let memory = Memory::new(&gpu, kernels, 8);
        launch_all(&gpu, &[bn_stats_batch(kernels, y.strided(), extent(shape), stats.address, None, memory.scratch())]);
        assert_close("statistics", &stats.read::<f32>(0, 16).unwrap(), &want, Tolerance { abs: 0.0, rel: 1e-5 });
    }

    #[test]
    fn statistics_from_running_ones_match_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(2);
        for c in [1, 19, 512] {
            let (mean, var) = (random.values(c, -1.0, 1.0, Precision::F32), random.values(c, 0.0, 2.0, Precision::F32));
            let mut want = vec![f32::NAN; 2 * c];
            cpu::bn_stats_running(&mean, &var, &mut want);
            let (mean, var) = (gpu.gpu.upload(&mean).unwrap(), gpu.gpu.upload(&var).unwrap());
            let stats = gpu.poisoned(2 * c, Precision::F32);
            let running = Running { mean: mean.address, var: var.address };
            launch_all(&gpu, &[bn_stats_running(test_kernels(Precision::Bf16), running, c, stats.address)]);
            assert_close("statistics", &stats.read::<f32>(0, 2 * c).unwrap(), &want, Tolerance { abs: 0.0, rel: 1e-6 });
        }
    }

    #[test]
    fn the_forward_matches_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(3);
        for precision in PRECISIONS {
            for (shape, layout, spread) in cases() {
                for (n_branches, act, with_residual) in [(1, Act::Silu, false), (1, Act::None, true), (2, Act::Silu, true)] {
                    let fixture = Fixture::new(&gpu, random, shape, layout, n_branches, precision);
                    let residual = with_residual.then(|| Tensor::random(&gpu, random, shape, layout, [-1.0, 1.0], precision));
                    let mut want = vec![f32::NAN; shape.len()];
                    let residual_view = residual.as_ref().map(Tensor::view);
                    cpu::bn_act(&fixture.on_cpu(), act, residual_view, &mut [ViewMut::packed(&mut want, shape)]);

                    let outs = InPieces::new(shape, spread, |shape| Tensor::poisoned(&gpu, shape, layout, precision));
                    let residual = residual.as_ref().map(Tensor::strided);
                    let launch = bn_act_forward(test_kernels(precision), &fixture.on_gpu(), act, residual, &outs.pieces(), extent(shape));
                    launch_all(&gpu, &[launch]);
                    for [out, want] in outs.with_expected(&gpu, &want) {
                        let what = format!("{precision:?} {shape:?} {layout:?} {spread:?} {n_branches} {act:?}");
                        assert_close(&what, &out, &want, after_sums(precision, shape));
                    }
                }
            }
        }
    }

    #[test]
    fn a_bias_takes_the_place_of_a_batch_norm() {
        let gpu = test_gpu();
        let random = &mut Random::new(4);
        for (shape, layout, spread) in cases() {
            let c = shape.c;
            let y = Tensor::random(&gpu, random, shape, layout, [-2.0, 2.0], Precision::F32);
            let bias = random.values(c, -1.0, 1.0, Precision::F32);
            let stats: Vec<f32> = (0..2 * c).map(|i| if i < c { 0.0 } else { 1.0 }).collect();
            let branch = cpu::Branch { y: y.view(), stats: &stats, gamma: &vec![1.0; c], beta: &bias };
            let mut want = vec![f32::NAN; shape.len()];
            cpu::bn_act(&[branch], Act::Silu, None, &mut [ViewMut::packed(&mut want, shape)]);

            let outs = InPieces::new(shape, spread, |shape| Tensor::poisoned(&gpu, shape, layout, Precision::F32));
            let bias = gpu.gpu.upload(&bias).unwrap();
            let kernels = test_kernels(Precision::F32);
            let launch = bias_act_forward(kernels, y.strided(), Some(bias.address), Act::Silu, None, &outs.pieces(), extent(shape));
            launch_all(&gpu, &[launch]);
            for [out, want] in outs.with_expected(&gpu, &want) {
                assert_close(&format!("{shape:?}"), &out, &want, Tolerance::rounding(Precision::F32));
            }
            let launch = bias_act_forward(kernels, y.strided(), None, Act::None, None, &outs.pieces(), extent(shape));
            launch_all(&gpu, &[launch]);
            for [out, want] in outs.with_expected(&gpu, &y.view().to_vec()) {
                assert_eq!(out, want);
            }
        }
    }

    #[test]
    fn the_backward_matches_the_cpu() {
        let gpu = test_gpu();
        let random = &mut Random::new(5);
        for precision in PRECISIONS {
            for (shape, layout, spread) in cases() {
                for (n_branches, act, accumulate) in [
                    (1, Act::Silu, None),
                    (1, Act::Silu, Some(true)),
                    (1, Act::None, Some(true)),
                    (2, Act::Silu, None),
                    (2, Act::Silu, Some(false)),
                ] {
                    check_backward(&gpu, random, shape, layout, spread, precision, n_branches, act, accumulate);
                }
            }
        }
    }

    fn check_backward(
        gpu: &TestGpu,
        random: &mut Random,
        shape: Shape,
        layout: Layout,
        spread: Spread,
        precision: Precision,
        n_branches: usize,
        act: Act,
        accumulate: Option<bool>,
    ) {
        let what = format!("{precision:?} {shape:?} {layout:?} {spread:?} {n_branches} {act:?}");
        let kernels = test_kernels(precision);
        let c = shape.c;
        let fixture = Fixture::new(gpu, random, shape, layout, n_branches, precision);
        let d_outs = InPieces::new(shape, spread, |shape| Tensor::random(gpu, random, shape, layout, [-1.0, 1.0], precision));
        let d_residual = accumulate.map(|_| Tensor::random(gpu, random, shape, layout, [-1.0, 1.0], precision));
        let before = random.values(2 * n_branches * c, -1.0, 1.0, Precision::F32);

        let widened = d_outs.widened();
        let d_views: Vec<View> = widened.iter().map(|data| View::packed(data, shape)).collect();
        let mut want_sums = vec![f32::NAN; 2 * n_branches * c];
        cpu::bn_act_backward_reduce(&d_views, &fixture.on_cpu(), act, &mut want_sums);
        let mut want: Vec<Vec<f32>> = vec![vec![f32::NAN; shape.len()]; n_branches];
        want.extend(d_residual.as_ref().map(|tensor| tensor.view().to_vec()));
        let mut outs: Vec<ViewMut> = want.iter_mut().map(|data| ViewMut::packed(data, shape)).collect();
        cpu::bn_act_backward(&d_views, &fixture.on_cpu(), act, &want_sums, accumulate, &mut outs);

        let memory = Memory::new(gpu, kernels, c);
        let sums = gpu.poisoned(2 * n_branches * c, Precision::F32);
        let d_params = gpu.gpu.upload(&before).unwrap();
        // Gradients lie as the sums do: beta, then gamma, of each branch.
        let row = |index: usize| d_params.address + (index * c * size_of::<f32>()) as u64;
        let gradients: Vec<BnGradients> =
            (0..n_branches).map(|branch| BnGradients { gamma: row(2 * branch + 1), beta: row(2 * branch) }).collect();
        let branches = fixture.on_gpu();
        let reduce =
            bn_act_backward_reduce(kernels, &d_outs.pieces(), &branches, act, sums.address, &gradients, extent(shape), memory.scratch());
        launch_all(gpu, std::slice::from_ref(&reduce));
        // Sums over the batch: their error grows with the values summed, not with the sum.
        let of_sums = Tolerance { abs: 1e-5 * (shape.n_pixels() as f32).sqrt(), rel: 1e-5 };
        let got_sums = sums.read::<f32>(0, want_sums.len()).unwrap();
        assert_close(&format!("sums, {what}"), &got_sums, &want_sums, of_sums);
        let added: Vec<f32> = before.iter().zip(&got_sums).map(|(before, sum)| before + sum).collect();
        assert_eq!(d_params.read::<f32>(0, before.len()).unwrap(), added, "{what}");
        memory.assert_counters_are_zero();
        launch_all(gpu, &[reduce]);
        assert_eq!(sums.read::<f32>(0, want_sums.len()).unwrap(), got_sums, "a second run, {what}");

        sums.write(0, &want_sums).unwrap();
        let d_ys: Vec<Tensor> = (0..n_branches).map(|_| Tensor::poisoned(gpu, shape, layout, precision)).collect();
        let places: Vec<Strided> = d_ys.iter().map(Tensor::strided).collect();
        let target = d_residual.as_ref().zip(accumulate).map(|(tensor, accumulate)| Target { tensor: tensor.strided(), accumulate });
        let backward = bn_act_backward(kernels, &d_outs.pieces(), &branches, act, sums.address, &places, target, extent(shape));
        launch_all(gpu, &[backward]);
        for (index, (got, want)) in d_ys.iter().chain(d_residual.as_ref()).zip(&want).enumerate() {
            assert_close(&format!("gradient {index}, {what}"), &got.read(gpu), want, after_sums(precision, shape));
        }
    }
}
