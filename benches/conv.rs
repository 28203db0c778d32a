//! Speed of the CPU's convolutions over the layers of gelan-t (one 640 px image) and yolov9-t (training, 8 images of 320 px).
//!
//! `cargo bench --no-default-features --bench conv [-- filter]` prints for each layer the best time of many, GFLOP/s
//! (2 operations a multiply-add, padding not counted), and the totals of a whole network. The filter selects sections by name.
//! On a shared machine the last column counts: GFLOP a second of CPU time, the mean over all runs (Linux only).

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use boxwright::engine::cpu::conv::{PackedWeights, conv_backward_input, conv_backward_weight, conv_forward};
use boxwright::engine::cpu::view::{View, ViewMut};
use boxwright::engine::{Act, ConvSpec, Shape};
use std::time::Instant;

/// A convolution, how often the network has it, and the shape of its input.
struct Layer {
    spec: ConvSpec,
    x: Shape,
    count: usize,
    has_bias: bool,
}

/// Collects the layers of a network.
struct Network {
    batch: usize,
    /// Sides of the input image.
    image: usize,
    fused: bool,
    layers: Vec<Layer>,
}

impl Network {
    /// `level`: the input's side is the image's divided by this.
    fn conv(&mut self, kernel: usize, stride: usize, groups: usize, channels: [usize; 2], level: usize, count: usize) {
        let [in_channels, out_channels] = channels;
        let spec = ConvSpec { kernel, stride, pad: kernel / 2, groups, in_channels, out_channels };
        // Before a strided convolution of the inner layers is an average pool that takes one row.
        let side = self.image / level - usize::from(stride == 2 && level > 2);
        let x = Shape::new(self.batch, side, side, in_channels);
        if let Some(layer) = self.layers.iter_mut().find(|layer| layer.spec == spec && layer.x == x) {
            layer.count += count;
        } else {
            self.layers.push(Layer { spec, x, count, has_bias: self.fused });
        }
    }

    /// `RepNCSPELAN4` with three repetitions.
    fn rep_ncsp_elan(&mut self, c1: usize, c2: usize, c3: usize, c4: usize, level: usize) {
        self.conv(1, 1, 1, [c1, c3], level, 1);
        for c in [c3 / 2, c4] {
            let half = c4 / 2;
            self.conv(1, 1, 1, [c, half], level, 2);
            self.conv(3, 1, 1, [half, half], level, 6);
            if !self.fused {
                self.conv(1, 1, 1, [half, half], level, 3);
            }
            self.conv(1, 1, 1, [c4, c4], level, 1);
            self.conv(3, 1, 1, [c4, c4], level, 1);
        }
        self.conv(1, 1, 1, [c3 + 2 * c4, c2], level, 1);
    }

    fn sppelan(&mut self) {
        self.conv(1, 1, 1, [128, 64], 32, 1);
        self.conv(1, 1, 1, [256, 128], 32, 1);
    }

    fn head(&mut self, n_classes: usize, class_width: usize) {
        for (c, level) in [(64, 8), (96, 16), (128, 32)] {
            self.conv(3, 1, 1, [c, 64], level, 1);
            self.conv(3, 1, 4, [64, 64], level, 1);
            self.conv(1, 1, 4, [64, 64], level, 1);
            self.conv(3, 1, 1, [c, class_width], level, 1);
            self.conv(3, 1, 1, [class_width, class_width], level, 1);
            self.conv(1, 1, 1, [class_width, n_classes], level, 1);
        }
    }

    /// gelan-t, or yolov9-t, which has an auxiliary branch and the unfused form.
    fn tiny(batch: usize, image: usize, n_classes: usize, dual: bool) -> Self {
        let mut net = Self { batch, image, fused: !dual, layers: Vec::new() };
        let class_width = 64.max((2 * n_classes).min(128));
        net.conv(3, 2, 1, [3, 16], 1, 1);
        net.conv(3, 2, 1, [16, 32], 2, 1);
        net.conv(1, 1, 1, [32, 32], 4, 1);
        net.conv(3, 1, 1, [16, 16], 4, 2);
        net.conv(1, 1, 1, [64, 32], 4, 1);
        net.conv(3, 2, 1, [32, 64], 4, 1);
        net.rep_ncsp_elan(64, 64, 64, 32, 8);
        net.conv(3, 2, 1, [64, 96], 8, 1);
        net.rep_ncsp_elan(96, 96, 96, 48, 16);
        net.conv(3, 2, 1, [96, 128], 16, 1);
        net.rep_ncsp_elan(128, 128, 128, 64, 32);
        for _ in 0..=usize::from(dual) {
            net.sppelan();
            net.rep_ncsp_elan(224, 96, 96, 48, 16);
            net.rep_ncsp_elan(160, 64, 64, 32, 8);
            net.head(n_classes, class_width);
        }
        net.conv(3, 2, 1, [64, 48], 8, 1);
        net.rep_ncsp_elan(144, 96, 96, 48, 16);
        net.conv(3, 2, 1, [96, 64], 16, 1);
        net.rep_ncsp_elan(192, 128, 128, 64, 32);
        net
    }
}

/// Seconds of a run: the fastest of several, and the mean of CPU time over all threads.
struct Seconds {
    best: f64,
    cpu: f64,
}

fn measure(mut work: impl FnMut()) -> Seconds {
    work();
    let (begin, cpu_begin) = (Instant::now(), cpu_seconds());
    let mut best = f64::INFINITY;
    let mut n_runs = 0;
    while n_runs < 5 || (begin.elapsed().as_secs_f64() < 0.15 && n_runs < 1000) {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        n_runs += 1;
    }
    Seconds { best, cpu: (cpu_seconds() - cpu_begin) / f64::from(n_runs) }
}

/// What the threads of this process have used so far; NaN where the system does not say.
fn cpu_seconds() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return f64::NAN };
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() * 1e-9
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    Forward,
    BackwardInput,
    BackwardWeight,
}

fn section(name: &str, network: &Network, pass: Pass) {
    let (mut total_seconds, mut total_cpu, mut total_flop, mut total_count) = (0.0, 0.0, 0.0, 0);
    for &Layer { spec, x: shape, count, has_bias } in &network.layers {
        if pass == Pass::BackwardInput && spec.in_channels == 3 {
            continue; // nobody asks for the gradient of the image
        }
        let out = Shape { h: spec.out_side(shape.h), w: spec.out_side(shape.w), c: spec.out_channels, ..shape };
        let mut x = vec![0.5; shape.len()];
        let mut y = vec![0.5; out.len()];
        let weight = vec![0.01; spec.macs_per_pixel()];
        let bias = vec![0.1; spec.out_channels];
        let Seconds { best, cpu } = match pass {
            Pass::Forward => {
                let packed = PackedWeights::pack(spec, &weight);
                let (bias, act) = if has_bias { (Some(bias.as_slice()), Act::Silu) } else { (None, Act::None) };
                measure(|| conv_forward(View::packed(&x, shape), &packed, bias, act, None, ViewMut::packed(&mut y, out)))
            }
            Pass::BackwardInput => {
                measure(|| conv_backward_input(spec, View::packed(&y, out), &weight, ViewMut::packed(&mut x, shape), false))
            }
            Pass::BackwardWeight => {
                let mut d_weight = vec![0.0; weight.len()];
                measure(|| conv_backward_weight(spec, View::packed(&x, shape), View::packed(&y, out), &mut d_weight, None))
            }
        };
        let flop = 2.0 * (spec.macs_per_pixel() * out.n_pixels()) as f64;
        println!(
            "{name} {pass:?} {}x{} s{} g{} {:>3} -> {:>3} at {:>3}: {:>8.1} us x {count:>2}, {:>6.1} GFLOP/s, {:>6.1} a CPU second",
            spec.kernel,
            spec.kernel,
            spec.stride,
            spec.groups,
            spec.in_channels,
            spec.out_channels,
            shape.w,
            best * 1e6,
            flop / best * 1e-9,
            flop / cpu * 1e-9,
        );
        total_seconds += best * count as f64;
        total_cpu += cpu * count as f64;
        total_flop += flop * count as f64;
        total_count += count;
    }
    println!(
        "{name} {pass:?} TOTAL: {total_count} convolutions, {:.2} GFLOP, {:.1} ms, {:.1} GFLOP/s, {:.1} a CPU second",
        total_flop * 1e-9,
        total_seconds * 1e3,
        total_flop / total_seconds * 1e-9,
        total_flop / total_cpu * 1e-9,
    );
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let inference = Network::tiny(1, 640, 80, false);
    let training = Network::tiny(8, 320, 3, true);
    for (name, network, pass) in [
        ("infer", &inference, Pass::Forward),
        ("train", &training, Pass::Forward),
        ("train", &training, Pass::BackwardInput),
        ("train", &training, Pass::BackwardWeight),
    ] {
        if format!("{name} {pass:?}").contains(&filter) {
            section(name, network, pass);
        }
    }
}
