//! The fast convolutions against the plain loops of `reference`, over strided tensors in poisoned buffers.

use super::reference::{self, out_shape};
use super::{PackedWeights, conv_backward_input, conv_backward_weight, conv_forward};
use crate::engine::cpu::view::{View, ViewMut};
use crate::engine::graph::Shape;
use crate::engine::op::{Act, ConvSpec};

/// Evenly spread over -1..1 (the upper bits of a multiplicative congruence).
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A tensor that is a slice of channels: between its pixels lies another tensor, filled with NaN.
#[derive(Clone)]
struct Strided {
    buffer: Vec<f32>,
    shape: Shape,
    pixel_stride: usize,
    offset: usize,
}

impl Strided {
    /// `before` and `after` foreign channels a pixel.
    fn new(shape: Shape, values: &[f32], before: usize, after: usize) -> Self {
        let pixel_stride = before + shape.c + after;
        let mut buffer = vec![f32::NAN; shape.n_pixels() * pixel_stride];
        for (to, from) in buffer.chunks_exact_mut(pixel_stride).zip(values.chunks_exact(shape.c)) {
            to[before..before + shape.c].copy_from_slice(from);
        }
        Self { buffer, shape, pixel_stride, offset: before }
    }

    fn poisoned(shape: Shape, before: usize, after: usize) -> Self {
        Self::new(shape, &vec![f32::NAN; shape.len()], before, after)
    }

    /// Begins at the first and ends at the last element of the tensor.
    fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + (self.shape.n_pixels() - 1) * self.pixel_stride + self.shape.c
    }

    fn view(&self) -> View<'_> {
        View { data: &self.buffer[self.range()], shape: self.shape, pixel_stride: self.pixel_stride }
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        let range = self.range();
        ViewMut { data: &mut self.buffer[range], shape: self.shape, pixel_stride: self.pixel_stride }
    }

    fn values(&self) -> Vec<f32> {
        let view = self.view();
        (0..self.shape.n_pixels()).flat_map(|pixel| view.pixel(pixel).to_vec()).collect()
    }

    /// All that lies between the pixels is NaN still.
    fn neighbours_are_untouched(&self) -> bool {
        let own = self.offset..self.offset + self.shape.c;
        self.buffer.iter().enumerate().all(|(i, value)| own.contains(&(i % self.pixel_stride)) || value.is_nan())
    }
}

/// Rounding grows with the number of products in a sum.
fn assert_close(got: &[f32], want: &[f64], n_products: usize, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let tolerance = 2e-6 * (8.0 + (n_products as f64).sqrt());
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= tolerance, "{what}: element {i} is {got}, expected {want}: error {error:e}, tolerance {tolerance:e}");
    }
}

/// Kernels, strides, paddings, groups and channels that the network has, and odd ones.
fn specs() -> Vec<ConvSpec> {
    let mut specs = Vec::new();
    for (kernel, stride, pad) in
        [(1, 1, 0), (1, 2, 0), (1, 1, 1), (3, 1, 1), (3, 1, 0), (3, 2, 1), (3, 2, 0), (2, 2, 0), (5, 1, 2), (5, 3, 1)]
    {
        for (groups, in_channels, out_channels) in
            [(1, 1, 1), (1, 3, 16), (1, 5, 3), (1, 16, 17), (1, 17, 5), (1, 20, 40), (4, 4, 8), (4, 20, 12), (4, 64, 64)]
        {
            specs.push(ConvSpec { kernel, stride, pad, groups, in_channels, out_channels });
        }
    }
    specs.push(ConvSpec { kernel: 3, stride: 1, pad: 1, groups: 1, in_channels: 64, out_channels: 64 });
    specs.push(ConvSpec { kernel: 1, stride: 1, pad: 0, groups: 1, in_channels: 160, out_channels: 112 });
    specs
}

/// Every spec with every map that it fits, the smallest first.
fn cases() -> impl Iterator<Item = (ConvSpec, Shape)> {
    specs().into_iter().flat_map(|spec| {
        let sides = [(1, 1, 1), (2, 2, 1), (2, 3, 5), (1, 7, 4), (1, 13, 11)];
        let shapes = sides.map(|(n, h, w)| Shape::new(n, h, w, spec.in_channels));
        shapes.into_iter().filter(move |shape| shape.h.min(shape.w) + 2 * spec.pad >= spec.kernel).map(move |shape| (spec, shape))
    })
}

/// Maps that are split into several blocks of work.
fn large_cases() -> Vec<(ConvSpec, Shape)> {
    let conv =
        |kernel, stride, groups, in_channels, out_channels| ConvSpec { kernel, stride, pad: kernel / 2, groups, in_channels, out_channels };
    vec![
        (conv(3, 1, 1, 16, 24), Shape::new(2, 40, 33, 16)),
        (conv(1, 1, 1, 32, 16), Shape::new(3, 50, 41, 32)),
        (conv(3, 2, 1, 3, 16), Shape::new(2, 96, 83, 3)),
        (conv(3, 2, 1, 16, 32), Shape::new(1, 71, 64, 16)),
        (conv(3, 1, 4, 64, 64), Shape::new(1, 24, 30, 64)),
    ]
}

fn check_forward(spec: ConvSpec, shape: Shape) {
    let what = format!("{spec:?} {shape:?}");
    let out = out_shape(spec, shape);
    let x = random(shape.len(), 1);
    let weight = random(spec.macs_per_pixel(), 2);
    let bias = random(spec.out_channels, 3);
    let residual = random(out.len(), 4);
    let packed = PackedWeights::pack(spec, &weight);
    let n_products = spec.macs_per_pixel() / spec.out_channels;
    for (with_bias, act, with_residual) in [(false, Act::None, false), (true, Act::Silu, false), (true, Act::Silu, true)] {
        let bias = with_bias.then_some(bias.as_slice());
        let want = reference::forward(spec, shape, &x, &weight, bias, act, with_residual.then_some(&residual));

        let strided_x = Strided::new(shape, &x, 2, 1);
        let strided_residual = Strided::new(out, &residual, 0, 5);
        let mut y = Strided::poisoned(out, 3, 2);
        let residual_view = with_residual.then(|| strided_residual.view());
        conv_forward(strided_x.view(), &packed, bias, act, residual_view, y.view_mut());
        assert_close(&y.values(), &want, n_products, &what);
        assert!(y.neighbours_are_untouched(), "{what}");

        let mut y = vec![f32::NAN; out.len()];
        let residual_view = with_residual.then(|| View::packed(&residual, out));
        conv_forward(View::packed(&x, shape), &packed, bias, act, residual_view, ViewMut::packed(&mut y, out));
        assert_close(&y, &want, n_products, &what);
    }
}

fn check_backward_input(spec: ConvSpec, shape: Shape) {
    let what = format!("{spec:?} {shape:?}");
    let out = out_shape(spec, shape);
    let dy = random(out.len(), 5);
    let weight = random(spec.macs_per_pixel(), 6);
    let before = random(shape.len(), 7);
    let n_products = spec.kernel * spec.kernel * spec.out_channels / spec.groups;

    let strided_dy = Strided::new(out, &dy, 1, 3);
    let want = reference::backward_input(spec, shape, &dy, &weight, &vec![0.0; shape.len()]);
    let mut dx = Strided::poisoned(shape, 2, 2);
    conv_backward_input(spec, strided_dy.view(), &weight, dx.view_mut(), false);
    assert_close(&dx.values(), &want, n_products, &what);
    assert!(dx.neighbours_are_untouched(), "{what}");

    let want = reference::backward_input(spec, shape, &dy, &weight, &before);
    let mut dx = Strided::new(shape, &before, 0, 1);
    conv_backward_input(spec, strided_dy.view(), &weight, dx.view_mut(), true);
    assert_close(&dx.values(), &want, n_products, &what);
    assert!(dx.neighbours_are_untouched(), "{what}");
}

fn check_backward_weight(spec: ConvSpec, shape: Shape) {
    let what = format!("{spec:?} {shape:?}");
    let out = out_shape(spec, shape);
    let x = random(shape.len(), 8);
    let dy = random(out.len(), 9);
    let (want_weight, want_bias) = reference::backward_weight(spec, shape, &x, &dy);
    let (x, dy) = (Strided::new(shape, &x, 3, 0), Strided::new(out, &dy, 1, 4));

    // What was there before stays, for gradients add up over accumulated batches.
    let (mut d_weight, mut d_bias) = (vec![0.5; spec.macs_per_pixel()], vec![0.25; spec.out_channels]);
    conv_backward_weight(spec, x.view(), dy.view(), &mut d_weight, Some(&mut d_bias));
    let want_weight: Vec<f64> = want_weight.iter().map(|value| value + 0.5).collect();
    let want_bias: Vec<f64> = want_bias.iter().map(|value| value + 0.25).collect();
    assert_close(&d_weight, &want_weight, out.n_pixels(), &what);
    assert_close(&d_bias, &want_bias, out.n_pixels(), &what);
}

#[test]
fn forward_matches_the_plain_loops() {
    for (spec, shape) in cases().chain(large_cases()) {
        check_forward(spec, shape);
    }
}

#[test]
fn gradient_of_the_input_matches_the_plain_loops() {
    for (spec, shape) in cases().chain(large_cases()) {
        check_backward_input(spec, shape);
    }
}

#[test]
fn gradient_of_the_weights_matches_the_plain_loops() {
    for (spec, shape) in cases().chain(large_cases()) {
        check_backward_weight(spec, shape);
    }
}

#[test]
fn one_thread_and_three_give_the_same_bits() {
    let run = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().expect("a pool of a few threads starts");
        pool.install(|| {
            large_cases()
                .into_iter()
                .flat_map(|(spec, shape)| {
                    let out = out_shape(spec, shape);
                    let (x, dy, weight) = (random(shape.len(), 1), random(out.len(), 2), random(spec.macs_per_pixel(), 3));
                    let (mut y, mut dx) = (vec![0.0; out.len()], vec![0.0; shape.len()]);
                    let (mut d_weight, mut d_bias) = (vec![0.0; weight.len()], vec![0.0; spec.out_channels]);
                    let (x, dy) = (View::packed(&x, shape), View::packed(&dy, out));
                    conv_forward(x, &PackedWeights::pack(spec, &weight), None, Act::Silu, None, ViewMut::packed(&mut y, out));
                    conv_backward_input(spec, dy, &weight, ViewMut::packed(&mut dx, shape), false);
                    conv_backward_weight(spec, x, dy, &mut d_weight, Some(&mut d_bias));
                    [y, dx, d_weight, d_bias].concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        })
    };
    assert!(run(1) == run(3));
}
