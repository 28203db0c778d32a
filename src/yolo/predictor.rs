//! A network ready to run on a device, for several input shapes.
//!
//! In:  a network of any form, which runs in deploy form; then batches of pictures as RGB bytes.
//! Out: detections of each picture in input pixels; or decoded rows: boxes as cx, cy, w, h in input pixels, then scores.
//!
//! A graph belongs to one input shape. The last few are kept; a new one then replaces the one that was unused for longest. On a
//! GPU, where a shape that was never seen costs seconds of timing convolutions, a batch with fewer pictures than a graph of
//! the same height and width takes is filled up with gray ones, which change nothing for the others.
//!
//! Boxes are suppressed where the network runs, with the same result: rows of a batch take longer to come back from a GPU than the
//! network runs.
//!
//! Never scales a picture.

#[cfg(feature = "cuda")]
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

#[cfg(feature = "cuda")]
use super::joined::joined;
use super::network::Network;
use crate::engine::Device;
use crate::engine::Params;
use crate::engine::Plan;
use crate::engine::TensorId;
use crate::engine::cpu::Executor;
use crate::engine::cuda::Precision;
use crate::engine::cuda::error::CudaError;
#[cfg(feature = "cuda")]
use crate::engine::cuda::inference::{Detections, FrozenParams, Inference};
#[cfg(feature = "cuda")]
use crate::engine::cuda::nms::NmsSettings;
#[cfg(feature = "cuda")]
use crate::engine::cuda::program::Planning;
#[cfg(feature = "cuda")]
use crate::engine::cuda::runtime::Runtime;
#[cfg(feature = "cuda")]
use crate::engine::graph::Shape;
use crate::engine::latency::shorten_chain;
use crate::engine::op::BnMode;
use crate::engine::packed::pack_convolution_inputs;
#[cfg(feature = "cuda")]
use crate::geom::Xyxy;
use crate::geom::nms::Detection;
use crate::geom::nms::NmsOptions;
use crate::geom::nms::nms;

/// So many candidates of a picture are looked at, so none has more detections.
#[cfg(feature = "cuda")]
const MOST_DETECTIONS: usize = 30_000;

/// A batch of pictures of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputShape {
    pub n_images: usize,
    pub height: usize,
    pub width: usize,
}

impl InputShape {
    /// Bytes of the pictures.
    pub fn n_bytes(&self) -> usize {
        self.n_images * self.height * self.width * 3
    }
}

/// Pixels of a batch up to which a GPU takes longer to begin a convolution than to compute it, more or less: two pictures of 640 x 640.
const FEW_PIXELS: usize = 2 * 640 * 640;

/// The plan of a network in deploy form for one input shape.
pub struct PredictorPlan {
    pub plan: Plan,
    /// Where the plan's parameters lie among those of the network; without values.
    pub layout: Params,
    pub input: TensorId,
    /// (B, 1, N, 4 + nc).
    pub decoded: TensorId,
}

impl PredictorPlan {
    /// For the CPU.
    pub fn new(deploy: &Network, shape: InputShape) -> Self {
        let mut graph = deploy.graph(shape.n_images, shape.height, shape.width, BnMode::Running);
        let decoded = graph.append_decode();
        Self { plan: Plan::new(graph.graph, &[decoded]), layout: deploy.params.layout(), input: graph.input, decoded }
    }

    /// For a GPU that computes in `precision`. The network had better be `joined`.
    pub fn for_gpu(deploy: &Network, shape: InputShape, precision: Precision) -> Self {
        let mut graph = deploy.graph(shape.n_images, shape.height, shape.width, BnMode::Running);
        let decoded = graph.append_decode();
        pack_convolution_inputs(&mut graph.graph);
        let (mut layout, bytes) = (deploy.params.layout(), precision.bytes());
        let plan = if shape.n_images * shape.height * shape.width <= FEW_PIXELS {
            shorten_chain(&mut graph.graph, &mut layout);
            Plan::in_lanes(graph.graph, &[decoded], bytes)
        } else {
            Plan::with_element_bytes(graph.graph, &[decoded], bytes)
        };
        Self { plan, layout, input: graph.input, decoded }
    }
}

/// What is in a batch of pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchDetections {
    /// Of each picture in input pixels, best first, as `geom::nms` gives them.
    pub images: Vec<Vec<Detection>>,
    /// What suppression took, on a GPU with the way back.
    pub nms_ms: f32,
}

/// A network on a device.
pub struct Predictor {
    network: Network,
    max_shapes: usize,
    on: On,
}

enum On {
    Cpu(Vec<CpuShape>),
    #[cfg(feature = "cuda")]
    Cuda(Box<OnGpu>),
}

/// The network for one shape on the CPU, with its own copy of the weights in the kernels' order.
struct CpuShape {
    shape: InputShape,
    executor: Executor,
    input: TensorId,
    decoded: TensorId,
}

#[cfg(feature = "cuda")]
struct OnGpu {
    runtime: Arc<Runtime>,
    params: Arc<FrozenParams>,
    shapes: Vec<(InputShape, Inference)>,
    /// A shape was planned before.
    has_shape: bool,
    rows: Vec<f32>,
}

impl Predictor {
    /// Brings a network of any form, which stays as it is, to a device. Up to `max_shapes` graphs are kept.
    ///
    /// # Errors
    /// A GPU that cannot be opened or has no room. Never for the CPU.
    pub fn new(network: &Network, device: Device, max_shapes: usize) -> Result<Self, CudaError> {
        assert!(max_shapes > 0, "there must be room for one shape");
        match device {
            Device::Cpu => Ok(Self { network: network.to_deploy(), max_shapes, on: On::Cpu(Vec::new()) }),
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => Self::on_gpu(network, &Runtime::open_default(ordinal)?, max_shapes),
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) => Err(crate::engine::cuda::CudaUnavailable::NotBuilt.into()),
        }
    }

    /// As [`new`](Self::new), on a GPU that was opened for a chosen precision.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(network: &Network, runtime: &Arc<Runtime>, max_shapes: usize) -> Result<Self, CudaError> {
        let network = joined(&network.to_deploy());
        let params = Arc::new(FrozenParams::new(runtime, &network.params)?);
        let on = OnGpu { runtime: Arc::clone(runtime), params, shapes: Vec::new(), has_shape: false, rows: Vec::new() };
        Ok(Self { network, max_shapes, on: On::Cuda(Box::new(on)) })
    }

    pub fn n_classes(&self) -> usize {
        self.network.n_classes
    }

    /// Takes the parameters of another network in any form. Graphs stay on a GPU; on the CPU, where each holds its own copy of the
    /// weights, they are made again. False, and nothing is changed, where the deploy forms do not have the same parameters.
    ///
    /// # Errors
    /// What the GPU says. Never on the CPU.
    pub fn set_network(&mut self, network: &Network) -> Result<bool, CudaError> {
        let deploy = match &self.on {
            On::Cpu(_) => network.to_deploy(),
            #[cfg(feature = "cuda")]
            On::Cuda(_) => joined(&network.to_deploy()),
        };
        if deploy.params.specs != self.network.params.specs {
            return Ok(false);
        }
        self.network = deploy;
        match &mut self.on {
            On::Cpu(shapes) => shapes.clear(),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.params.update(&self.network.params)?,
        }
        Ok(true)
    }

    /// Makes the graph of a shape on a GPU, if there is none; the CPU makes its own when it needs one.
    ///
    /// # Errors
    /// What the GPU says.
    pub fn prepare(&mut self, shape: InputShape) -> Result<(), CudaError> {
        match &mut self.on {
            On::Cpu(_) => {
                let _ = shape;
                Ok(())
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.ready(&self.network, self.max_shapes, shape).map(|_| ()),
        }
    }

    /// Shapes with a graph; the one used last is at the end.
    pub fn shapes(&self) -> Vec<InputShape> {
        match &self.on {
            On::Cpu(shapes) => shapes.iter().map(|ready| ready.shape).collect(),
            #[cfg(feature = "cuda")]
            On::Cuda(on) => on.shapes.iter().map(|(shape, _)| *shape).collect(),
        }
    }

    /// What is in pictures (B, H, W, 3), sides multiples of 32.
    ///
    /// # Errors
    /// What the GPU says. Never on the CPU.
    pub fn detect(&mut self, shape: InputShape, rgb: &[u8], options: &NmsOptions) -> Result<BatchDetections, CudaError> {
        #[cfg(feature = "cuda")]
        if let On::Cuda(on) = &mut self.on {
            return on.detect(&self.network, self.max_shapes, shape, rgb, options);
        }
        let n_classes = self.n_classes();
        let rows = self.run(shape, rgb)?;
        let start = Instant::now();
        let images = rows.par_chunks(rows.len() / shape.n_images).map(|rows| nms(rows, n_classes, options)).collect();
        Ok(BatchDetections { images, nms_ms: start.elapsed().as_secs_f32() * 1e3 })
    }

    /// The decoded rows (B, N, 4 + nc) of pictures (B, H, W, 3), sides multiples of 32.
    ///
    /// # Errors
    /// What the GPU says. Never on the CPU.
    pub fn run(&mut self, shape: InputShape, rgb: &[u8]) -> Result<&[f32], CudaError> {
        assert_eq!(rgb.len(), shape.n_bytes(), "bytes of {shape:?}");
        let Self { network, max_shapes, on } = self;
        match on {
            On::Cpu(shapes) => {
                let is_this = |ready: &CpuShape| ready.shape == shape;
                let ready = used_last(shapes, *max_shapes, is_this, || Ok(CpuShape::new(network, shape)))?;
                ready.executor.write_bytes(ready.input, rgb);
                ready.executor.run_inference(&network.params);
                let decoded = ready.executor.view(ready.decoded);
                Ok(&decoded.data[..decoded.shape.len()])
            }
            #[cfg(feature = "cuda")]
            On::Cuda(on) => {
                let (ready, inference) = on.ready(network, *max_shapes, shape)?;
                let rows = inference.run(rgb)?;
                on.rows = rows;
                Ok(&on.rows[..on.rows.len() / ready.n_images * shape.n_images])
            }
        }
    }
}

impl CpuShape {
    fn new(network: &Network, shape: InputShape) -> Self {
        let PredictorPlan { plan, input, decoded, .. } = PredictorPlan::new(network, shape);
        Self { shape, executor: Executor::frozen(plan, &network.params), input, decoded }
    }
}

#[cfg(feature = "cuda")]
impl OnGpu {
    fn detect(
        &mut self,
        network: &Network,
        max_shapes: usize,
        shape: InputShape,
        rgb: &[u8],
        options: &NmsOptions,
    ) -> Result<BatchDetections, CudaError> {
        assert_eq!(rgb.len(), shape.n_bytes(), "bytes of {shape:?}");
        let (_, inference) = self.ready(network, max_shapes, shape)?;
        let settings = nms_settings(inference.output_shape(), options);
        let Detections { images, nms_ms } = inference.detect(rgb, &settings)?;
        let detection =
            |[x1, y1, x2, y2, score, class]: [f32; 6]| Detection { bbox: Xyxy::new(x1, y1, x2, y2), class: class as usize, score };
        let images = images.into_iter().take(shape.n_images).map(|rows| rows.into_iter().map(detection).collect()).collect();
        Ok(BatchDetections { images, nms_ms })
    }

    /// The graph for a shape, perhaps of a larger batch, with its own shape.
    fn ready(&mut self, network: &Network, max_shapes: usize, shape: InputShape) -> Result<(InputShape, &mut Inference), CudaError> {
        let Self { runtime, params, shapes, has_shape, .. } = self;
        let fits = |(ready, _): &(InputShape, Inference)| {
            ready.n_images >= shape.n_images && (ready.height, ready.width) == (shape.height, shape.width)
        };
        let make = || {
            let PredictorPlan { plan, layout, input, decoded } = PredictorPlan::for_gpu(network, shape, runtime.precision());
            // Timing the plans of a shape takes seconds: for one of many it does not pay.
            let planning = if std::mem::replace(has_shape, true) { Planning::LikeOthers } else { Planning::Timed };
            Ok((shape, Inference::new(params, plan, &layout, [input, decoded], planning)?))
        };
        let (ready, inference) = used_last(shapes, max_shapes, fits, make)?;
        Ok((*ready, inference))
    }
}

/// Settings of a GPU's suppression for decoded rows (B, 1, N, 4 + nc).
#[cfg(feature = "cuda")]
pub fn nms_settings(decoded: Shape, options: &NmsOptions) -> NmsSettings {
    let NmsOptions { conf, iou, max_detections, multi_label, agnostic } = *options;
    NmsSettings {
        batch: decoded.n,
        n_rows: decoded.w,
        n_classes: decoded.c - 4,
        // No score is negative.
        conf: conf.max(0.0),
        iou,
        max_detections: max_detections.min(MOST_DETECTIONS),
        multi_label,
        agnostic,
    }
}

/// The item that fits, or a new one, as the last of `items`; the first makes room for a new one.
fn used_last<T>(
    items: &mut Vec<T>,
    max_items: usize,
    fits: impl Fn(&T) -> bool,
    make: impl FnOnce() -> Result<T, CudaError>,
) -> Result<&mut T, CudaError> {
    let item = if let Some(index) = items.iter().position(fits) {
        items.remove(index)
    } else {
        if items.len() == max_items {
            // Before the new one takes memory.
            items.remove(0);
        }
        make()?
    };
    items.push(item);
    Ok(items.last_mut().expect("one was pushed"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::engine::lanes::assert_no_races;
    use crate::yolo::joined::joined;
    use crate::yolo::{Model, ModelSize};

    fn network() -> Network {
        Network::new(Model::single(ModelSize::T), 3, 7)
    }

    fn shape(n_images: usize, height: usize, width: usize) -> InputShape {
        InputShape { n_images, height, width }
    }

    /// Bytes without a pattern.
    fn pictures(shape: InputShape) -> Vec<u8> {
        (0..shape.n_bytes() as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn bytes_give_what_their_numbers_give() {
        let shape = shape(2, 32, 64);
        let bytes = pictures(shape);
        let mut predictor = Predictor::new(&network(), Device::Cpu, 1).unwrap();
        let rows = predictor.run(shape, &bytes).unwrap().to_vec();

        let deploy = network().to_deploy();
        let PredictorPlan { plan, input, decoded, .. } = PredictorPlan::new(&deploy, shape);
        let mut executor = Executor::new(plan);
        let numbers: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
        executor.write(input, &numbers);
        executor.run_inference(&deploy.params);
        assert_eq!(rows, executor.read(decoded));
        assert_eq!(rows.len(), 2 * (8 * 4 + 4 * 2 + 2) * 7);
    }

    #[test]
    fn other_parameters_give_what_a_new_predictor_gives() {
        let shape = shape(1, 64, 64);
        let mut predictor = Predictor::new(&network(), Device::Cpu, 1).unwrap();
        let before = predictor.run(shape, &pictures(shape)).unwrap().to_vec();
        let other = Network::new(Model::single(ModelSize::T), 3, 8);
        assert!(predictor.set_network(&other).unwrap());
        assert!(!predictor.set_network(&Network::new(Model::single(ModelSize::T), 2, 8)).unwrap());
        let after = predictor.run(shape, &pictures(shape)).unwrap().to_vec();
        assert_ne!(before, after);
        assert_eq!(after, Predictor::new(&other, Device::Cpu, 1).unwrap().run(shape, &pictures(shape)).unwrap());
    }

    #[test]
    fn detections_are_those_of_the_rows() {
        let shape = shape(2, 64, 96);
        let mut predictor = Predictor::new(&network(), Device::Cpu, 1).unwrap();
        let rows = predictor.run(shape, &pictures(shape)).unwrap().to_vec();
        let options = NmsOptions { conf: 1e-4, ..NmsOptions::validate() };
        let expected: Vec<Vec<Detection>> = rows.chunks(rows.len() / 2).map(|rows| nms(rows, 3, &options)).collect();
        assert!(expected.iter().all(|detections| !detections.is_empty()));
        assert_eq!(predictor.detect(shape, &pictures(shape), &options).unwrap().images, expected);
    }

    /// Of one small picture, as a GPU would run it.
    #[test]
    fn a_shorter_chain_in_lanes_gives_the_same_rows() {
        for model in [ModelSize::T, ModelSize::C].map(Model::single) {
            let deploy = joined(&Network::new(model, 3, 7).to_deploy());
            let shape = shape(1, 64, 96);
            let run = |PredictorPlan { plan, layout, input, decoded }: PredictorPlan| {
                let mut executor = Executor::new(plan);
                executor.write_bytes(input, &pictures(shape));
                executor.run_inference(&Params { values: deploy.params.values.clone(), ..layout });
                executor.read(decoded)
            };
            let shortened = PredictorPlan::for_gpu(&deploy, shape, Precision::F32);
            assert_no_races(&shortened.plan);
            let lanes = shortened.plan.lanes.as_ref().unwrap();
            let n_beside = lanes.lane.iter().filter(|&&lane| lane > 0).count();
            assert!(lanes.n_lanes() > 3 && n_beside * 5 > lanes.lane.len(), "{n_beside} of {} nodes", lanes.lane.len());
            assert_eq!(run(shortened), run(PredictorPlan::new(&deploy, shape)));
        }
    }

    #[test]
    fn few_graphs_are_kept_and_the_one_used_last_stays() {
        let mut predictor = Predictor::new(&network(), Device::Cpu, 4).unwrap();
        for height in [32, 64, 96, 32, 128, 160] {
            let shape = shape(1, height, 32);
            predictor.run(shape, &pictures(shape)).unwrap();
        }
        assert_eq!(predictor.shapes(), [96, 32, 128, 160].map(|height| shape(1, height, 32)));
    }

    #[test]
    fn a_gpu_that_is_not_there_says_what_to_do() {
        let error = Predictor::new(&network(), Device::Cuda(99), 1).err().unwrap();
        assert!(error.hint().is_some(), "{error}");
    }
}

#[cfg(all(test, feature = "gpu-tests"))]
mod gpu_tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::engine::cuda::testing::test_gpu;
    use crate::yolo::{Model, ModelSize};

    /// Largest difference of rows, of boxes in pixels and of scores.
    fn differences(ours: &[f32], reference: &[f32], n_classes: usize) -> [f32; 2] {
        assert_eq!(ours.len(), reference.len());
        let mut most = [0.0f32; 2];
        for (ours, reference) in ours.chunks(4 + n_classes).zip(reference.chunks(4 + n_classes)) {
            for (index, (a, b)) in ours.iter().zip(reference).enumerate() {
                assert!(a.is_finite());
                let most = &mut most[usize::from(index >= 4)];
                *most = most.max((a - b).abs());
            }
        }
        most
    }

    #[test]
    fn rows_agree_with_the_cpu_also_of_a_batch_that_is_filled_up() {
        let _turn = test_gpu();
        let network = Network::new(Model::single(ModelSize::T), 3, 7);
        let large = InputShape { n_images: 3, height: 96, width: 160 };
        let small = InputShape { n_images: 2, ..large };
        let bytes: Vec<u8> = (0..large.n_bytes() as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut cpu = Predictor::new(&network, Device::Cpu, 2).unwrap();
        let expected = cpu.run(large, &bytes).unwrap().to_vec();
        // Boxes are up to 16 strides of 32 pixels wide, so bf16's eight bits are off by pixels.
        for (precision, tolerances) in [(Precision::F32, [0.05, 1e-4]), (Precision::Bf16, [12.0, 0.05])] {
            let mut gpu = Predictor::on_gpu(&network, &Runtime::open(0, precision).unwrap(), 2).unwrap();
            let of_large = differences(gpu.run(large, &bytes).unwrap(), &expected, 3);
            let of_small = differences(gpu.run(small, &bytes[..small.n_bytes()]).unwrap(), &expected[..expected.len() / 3 * 2], 3);
            assert_eq!(gpu.shapes(), [large], "no graph for the smaller batch");
            for found in [of_large, of_small] {
                assert!(found[0] <= tolerances[0] && found[1] <= tolerances[1], "{precision:?}: {found:?}");
            }
        }
    }

    #[test]
    fn plans_of_another_shape_and_other_parameters_agree_with_the_cpu() {
        let _turn = test_gpu();
        let bytes = |shape: InputShape| -> Vec<u8> {
            (0..shape.n_bytes() as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
        };
        let networks = [7, 8].map(|seed| Network::new(Model::single(ModelSize::T), 3, seed));
        for precision in [Precision::F32, Precision::Bf16] {
            let tolerances = if precision == Precision::F32 { [0.05, 1e-4] } else { [12.0, 0.05] };
            let mut gpu = Predictor::on_gpu(&networks[0], &Runtime::open(0, precision).unwrap(), 3).unwrap();
            for network in &networks {
                assert!(gpu.set_network(network).unwrap());
                let mut cpu = Predictor::new(network, Device::Cpu, 1).unwrap();
                for (height, width) in [(96, 160), (160, 96), (224, 64)] {
                    let shape = InputShape { n_images: 2, height, width };
                    let expected = cpu.run(shape, &bytes(shape)).unwrap().to_vec();
                    let found = differences(gpu.run(shape, &bytes(shape)).unwrap(), &expected, 3);
                    assert!(found[0] <= tolerances[0] && found[1] <= tolerances[1], "{precision:?} {shape:?}: {found:?}");
                }
            }
            assert_eq!(gpu.shapes().len(), 3);
        }
    }

    #[test]
    fn detections_are_those_that_the_cpu_finds_in_the_rows() {
        let _turn = test_gpu();
        let network = Network::new(Model::single(ModelSize::T), 3, 7);
        let large = InputShape { n_images: 3, height: 96, width: 160 };
        let small = InputShape { n_images: 2, ..large };
        let bytes: Vec<u8> = (0..large.n_bytes() as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut gpu = Predictor::on_gpu(&network, &Runtime::open(0, Precision::F32).unwrap(), 1).unwrap();
        let few = NmsOptions { conf: 1e-4, max_detections: 5, ..NmsOptions::validate() };
        // The table grows, and is then larger than it need be.
        for options in [few, NmsOptions { conf: 1e-4, ..NmsOptions::validate() }, NmsOptions { agnostic: true, multi_label: false, ..few }]
        {
            for shape in [large, small] {
                let bytes = &bytes[..shape.n_bytes()];
                let rows = gpu.run(shape, bytes).unwrap();
                let expected: Vec<Vec<Detection>> = rows.chunks(rows.len() / shape.n_images).map(|rows| nms(rows, 3, &options)).collect();
                assert!(expected.iter().all(|detections| !detections.is_empty()));
                assert_eq!(gpu.detect(shape, bytes, &options).unwrap().images, expected, "{shape:?} with {options:?}");
            }
        }
        assert_eq!(gpu.shapes(), [large]);
    }
}
