//! Weights and inputs that the reference numbers were made with, and how tensors are read and compared.
//!
//! Each value is a function of its tensor's name and position: FNV-1a of the name seeds splitmix64, whose upper 24 bits
//! are a fraction u. Source: the golden numbers' own description.

#![expect(clippy::excessive_precision, reason = "numbers as the reference printed them")]

use std::path::{Path, PathBuf};

use boxwright::engine::params::{ParamId, ParamKind, ParamSpec, Params};
use safetensors::SafeTensors;

/// A file among the golden numbers kept with the tests.
pub(crate) fn kept(name: &str) -> PathBuf {
    // A test program that runs on another machine than it was built on is told where the repository's files are.
    let root = std::env::var_os("BOXWRIGHT_ROOT").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    root.join("tests/golden").join(name)
}

/// A file among all golden numbers, where those are at hand.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    std::env::var_os("BOXWRIGHT_SHARED").map(|shared| Path::new(&shared).join("golden").join(name))
}

pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(key: &str) -> Self {
        Self(key.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)))
    }

    /// The next fraction, in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 24)
    }
}

/// Gives every parameter its value.
pub(crate) fn fill(params: &mut Params) {
    let ids: Vec<ParamId> = params.ids().collect();
    for id in ids {
        let spec = params.spec(id).clone();
        let mut stream = Stream::new(&spec.name);
        let fan_in: usize = spec.dims[1..].iter().product();
        let mut value = || {
            let u = stream.unit();
            let value = match spec.kind {
                ParamKind::ConvWeight => (2.0 * u - 1.0) * (3.0 / fan_in as f64).sqrt(),
                ParamKind::BnGamma | ParamKind::BnVar => 0.8 + 0.4 * u,
                ParamKind::ConvBias | ParamKind::BnBeta | ParamKind::BnMean => (2.0 * u - 1.0) * 0.1,
            };
            value as f32
        };
        let values: Vec<f32> = (0..spec.len()).map(|_| value()).collect();
        params.get_mut(id).copy_from_slice(&ohwi(&spec, &values));
    }
}

/// The input image of the reference, as NHWC.
pub(crate) fn input(n: usize, h: usize, w: usize) -> Vec<f32> {
    let mut stream = Stream::new("input");
    let values = (0..n * 3 * h * w).map(|_| stream.unit() as f32).collect();
    Nchw { shape: [n, 3, h, w], values }.to_nhwc()
}

/// OHWI from the reference's OIHW.
fn ohwi(spec: &ParamSpec, values: &[f32]) -> Vec<f32> {
    match (spec.kind, spec.dims.as_slice()) {
        (ParamKind::ConvWeight, &[o, h, w, i]) => Nchw { shape: [o, i, h, w], values: values.to_vec() }.to_nhwc(),
        _ => values.to_vec(),
    }
}

/// A parameter or gradient in the order of the reference.
pub(crate) fn upstream(params: &Params, name: &str) -> Vec<f32> {
    let id = params.find(name).unwrap_or_else(|| panic!("no parameter {name}"));
    match (params.spec(id).kind, params.spec(id).dims.as_slice()) {
        (ParamKind::ConvWeight, &[o, h, w, i]) => Nchw::from_nhwc([o, i, h, w], params.get(id)).values,
        _ => params.get(id).to_vec(),
    }
}

/// A tensor in the order of the reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nchw {
    pub(crate) shape: [usize; 4],
    pub(crate) values: Vec<f32>,
}

impl Nchw {
    pub(crate) fn from_nhwc(shape: [usize; 4], values: &[f32]) -> Self {
        let [n, c, h, w] = shape;
        assert_eq!(values.len(), n * c * h * w);
        let at = |index: usize| {
            let (image, channel, pixel) = (index / (c * h * w), index / (h * w) % c, index % (h * w));
            values[(image * h * w + pixel) * c + channel]
        };
        Self { shape, values: (0..values.len()).map(at).collect() }
    }

    pub(crate) fn to_nhwc(&self) -> Vec<f32> {
        let [_, c, h, w] = self.shape;
        let at = |index: usize| {
            let (image, pixel, channel) = (index / (c * h * w), index / c % (h * w), index % c);
            self.values[(image * c + channel) * h * w + pixel]
        };
        (0..self.values.len()).map(at).collect()
    }

    /// The first images.
    pub(crate) fn images(&self, n: usize) -> Self {
        let [_, c, h, w] = self.shape;
        Self { shape: [n, c, h, w], values: self.values[..n * c * h * w].to_vec() }
    }

    /// Two tensors, one's channels after the other's.
    pub(crate) fn stacked(&self, other: &Self) -> Self {
        let ([n, a, h, w], b) = (self.shape, other.shape[1]);
        let image = |index: usize| {
            self.values[index * a * h * w..][..a * h * w].iter().chain(&other.values[index * b * h * w..][..b * h * w]).copied()
        };
        Self { shape: [n, a + b, h, w], values: (0..n).flat_map(image).collect() }
    }
}

pub(crate) fn l2(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// A tensor of a safetensors file, f32.
pub(crate) fn tensor(file: &SafeTensors, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap_or_else(|_| panic!("no tensor {name}"));
    tensor.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// The largest difference and where it is.
pub(crate) fn largest_difference(ours: &[f32], theirs: &[f32]) -> (f32, usize) {
    assert_eq!(ours.len(), theirs.len(), "lengths");
    let mut worst = (0.0, 0);
    for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let difference = (a - b).abs();
        // A value that is not a number is the worst, and stays it.
        if difference.is_nan() || difference > worst.0 {
            worst = (difference, index);
        }
    }
    worst
}

/// Panics with the worst place unless all values are close.
pub(crate) fn assert_close(what: &str, ours: &[f32], theirs: &[f32], tolerance: f32) {
    let (worst, index) = largest_difference(ours, theirs);
    assert!(
        worst <= tolerance,
        "{what}[{index}]: {} here, {} in the reference, {worst:e} apart (allowed {tolerance:e})",
        ours[index],
        theirs[index]
    );
}

#[test]
fn the_formula_gives_the_published_first_values() {
    let mut params = Params::default();
    let mut add = |name: &str, kind, dims: &[usize]| params.add(ParamSpec { name: name.into(), kind, dims: dims.to_vec() });
    add("model.0.conv.weight", ParamKind::ConvWeight, &[16, 3, 3, 3]);
    let gamma = add("model.0.bn.weight", ParamKind::BnGamma, &[16]);
    let bias = add("model.29.cv4.0.2.bias", ParamKind::ConvBias, &[64]);
    fill(&mut params);
    assert_eq!(upstream(&params, "model.0.conv.weight")[..4], [-0.235853791, 0.261904001, 0.249202803, -0.195178941]);
    assert_eq!(params.get(gamma)[..4], [1.06912994, 0.843509674, 0.999803603, 0.873705029]);
    assert_eq!(params.get(bias)[..4], [-0.0332158804, 0.0517553464, 0.0191603303, 0.0713474154]);
    let first = input(1, 1, 4);
    assert_eq!([first[0], first[3], first[6], first[9]], [0.097818315, 0.65236038, 0.203624249, 0.27444464]);
}
