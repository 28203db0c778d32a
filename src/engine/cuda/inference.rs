//! Running a network with fixed parameters on a GPU.
//!
//! In:  a plan, parameters, pictures as bytes. Out: what the plan's output tensor holds, or its detections alone.
//!
//! Decoded rows of a batch are hundreds of times the bytes of its detections and take longer to come back than the network
//! runs, so suppression follows the network on the GPU. Its launches are not part of the program: their settings may differ from
//! call to call. What comes back comes through pinned memory.

use std::sync::Arc;

use rayon::prelude::*;

use super::cast::{f32_to_compute, u8_to_compute};
use super::error::CudaError;
use super::gpu::{DeviceBuffer, Event, Pinned};
use super::nms::{NmsBuffers, NmsSettings};
use super::program::{ParamArenas, Planning, Program, Workspace, plan_convolutions, workspace};
use super::runtime::Runtime;
use crate::engine::graph::{Shape, TensorId};
use crate::engine::params::Params;
use crate::engine::plan::Plan;

/// Bytes that are copied at a time, by a thread or through pinned memory.
const CHUNK: usize = 4 << 20;
/// Fills up a batch of fewer pictures; the network treats each picture by itself.
const GRAY: u8 = 114;

/// Parameters on a GPU, for networks of several input shapes.
pub struct FrozenParams {
    values: DeviceBuffer,
    copies: DeviceBuffer,
    runtime: Arc<Runtime>,
}

impl FrozenParams {
    pub fn new(runtime: &Arc<Runtime>, params: &Params) -> Result<Self, CudaError> {
        let values = runtime.gpu.upload(&params.values)?;
        let copies = runtime.gpu.alloc(params.values.len() * runtime.precision().bytes())?;
        runtime.gpu.launch(&f32_to_compute(&runtime.kernels, values.address, params.values.len(), copies.address))?;
        Ok(Self { values, copies, runtime: Arc::clone(runtime) })
    }

    /// Takes other values of the same parameters. Whoever calls it has waited for what ran with those before; other work goes on.
    pub fn update(&self, params: &Params) -> Result<(), CudaError> {
        self.values.write_beside(&params.values)?;
        let n = params.values.len();
        self.runtime.gpu.launch(&f32_to_compute(&self.runtime.kernels, self.values.address, n, self.copies.address))
    }
}

/// A network for one input shape.
pub struct Inference {
    program: Program,
    plan: Plan,
    output: TensorId,
    activations: DeviceBuffer,
    pixels: DeviceBuffer,
    pinned: Pinned,
    workspace: Workspace,
    /// Through which the output comes back.
    chunks: Option<[(Pinned, Event); 2]>,
    suppression: Option<Suppression>,
    /// Its memory is read by the program.
    _params: Arc<FrozenParams>,
    runtime: Arc<Runtime>,
}

/// What suppression works with, for some number of detections.
struct Suppression {
    workspace: DeviceBuffer,
    /// How many detections each image has, then the detections.
    table: DeviceBuffer,
    arrived: Pinned,
    /// Before suppression, and when `arrived` is filled.
    times: [Event; 2],
}

/// Detections of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Detections {
    /// x1, y1, x2, y2, score, class of those of each image, best first.
    pub images: Vec<Vec<[f32; 6]>>,
    /// What suppression and the way back took.
    pub nms_ms: f32,
}

impl Inference {
    /// `layout` says where the plan's parameters lie; `input` is (B, H, W, 3); `output` is a tensor of f32 that the plan keeps.
    pub fn new(
        params: &Arc<FrozenParams>,
        plan: Plan,
        layout: &Params,
        [input, output]: [TensorId; 2],
        planning: Planning,
    ) -> Result<Self, CudaError> {
        let runtime = &params.runtime;
        let (gpu, kernels) = (&runtime.gpu, &runtime.kernels);
        assert!(plan.is_kept(output), "the output must be kept");
        let ids = plan_convolutions(runtime, &plan, planning, &mut |_, _| {})?;
        let workspace = workspace(runtime, &[(&plan, ids.as_slice())])?;
        let activations = gpu.alloc(plan.arena_bytes)?;
        let n_pixels = plan.graph.shape(input).n_pixels();
        let pixels = gpu.alloc(3 * n_pixels)?;
        let arenas = ParamArenas { values: params.values.address, copies: params.copies.address, ..ParamArenas::default() };
        let mut program = Program::new(runtime, &plan, &ids, layout, arenas, activations.address, &workspace)?;
        let to = activations.address + plan.placement(input).offset as u64;
        program.prepend("input", u8_to_compute(kernels, pixels.address, n_pixels, 3, to));
        let pinned = gpu.pinned(3 * n_pixels)?;
        Ok(Self {
            program,
            plan,
            output,
            activations,
            pixels,
            pinned,
            workspace,
            chunks: None,
            suppression: None,
            _params: Arc::clone(params),
            runtime: Arc::clone(runtime),
        })
    }

    /// Device memory of this shape, without parameters.
    pub fn bytes(&self) -> usize {
        let suppression = self.suppression.as_ref().map_or(0, |buffers| buffers.workspace.bytes + buffers.table.bytes);
        self.activations.bytes + self.pixels.bytes + self.workspace.bytes() + suppression
    }

    pub fn output_shape(&self) -> Shape {
        self.plan.graph.shape(self.output)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs on pictures (up to B, H, W, 3) and waits for the output of the whole batch, packed.
    pub fn run(&mut self, pixels: &[u8]) -> Result<Vec<f32>, CudaError> {
        self.submit(pixels)?;
        self.read_output()
    }

    /// Runs on pictures (up to B, H, W, 3), suppresses, and waits for the detections of the whole batch. The output holds decoded
    /// rows (B, 1, N, 4 + classes), as many as `settings` says.
    pub fn detect(&mut self, pixels: &[u8], settings: &NmsSettings) -> Result<Detections, CudaError> {
        let NmsSettings { batch, n_rows, n_classes, max_detections, .. } = *settings;
        assert_eq!(self.output_shape(), Shape::new(batch, 1, n_rows, 4 + n_classes), "rows of {settings:?}");
        self.submit(pixels)?;
        let rows = self.activations.address + self.plan.placement(self.output).offset as u64;
        let gpu = &self.runtime.gpu;
        let bytes = batch * (size_of::<i32>() + max_detections * size_of::<[f32; 6]>());
        let suppression = match &mut self.suppression {
            Some(ready) if ready.table.bytes >= bytes => ready,
            none => none.insert(Suppression {
                workspace: gpu.alloc(settings.workspace_bytes())?,
                table: gpu.alloc(bytes)?,
                arrived: gpu.pinned(bytes)?,
                times: [gpu.event()?, gpu.event()?],
            }),
        };
        let Suppression { workspace, table, arrived, times: [before, after] } = suppression;
        let (counts, detections) = (table.address, table.address + (batch * size_of::<i32>()) as u64);
        before.record()?;
        for launch in &settings.launches(&self.runtime.kernels, NmsBuffers { rows, detections, counts, workspace: workspace.address }) {
            gpu.launch(launch)?;
        }
        gpu.copy_out(arrived, table.address, bytes)?;
        after.record()?;
        after.wait()?;
        let counts = &arrived.as_slice::<i32>()[..batch];
        let (detections, _) = arrived.as_slice::<f32>()[batch..].as_chunks::<6>();
        let of_image = |(image, &n): (usize, &i32)| detections[image * max_detections..][..n as usize].to_vec();
        Ok(Detections { images: counts.iter().enumerate().map(of_image).collect(), nms_ms: after.ms_since(before)? })
    }

    /// Gives pictures and program to the stream. Whoever calls it waits before the next call.
    fn submit(&mut self, pixels: &[u8]) -> Result<(), CudaError> {
        let (own, rest) = self.pinned.as_mut_slice::<u8>().split_at_mut(pixels.len());
        // One thread copies more slowly than the GPU fetches.
        own.par_chunks_mut(CHUNK).zip(pixels.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
        rest.fill(GRAY);
        self.runtime.gpu.bind()?;
        self.runtime.gpu.copy_in(self.pixels.address, &self.pinned, self.pinned.bytes)?;
        self.program.run()
    }

    /// The output, in chunks: while the one is copied from pinned memory, the next one comes.
    fn read_output(&mut self) -> Result<Vec<f32>, CudaError> {
        let gpu = &self.runtime.gpu;
        let from = self.activations.address + self.plan.placement(self.output).offset as u64;
        let len = self.plan.graph.shape(self.output).len();
        let bytes = len * size_of::<f32>();
        let chunks = match &mut self.chunks {
            Some(ready) => ready,
            none => none.insert([(gpu.pinned(CHUNK)?, gpu.event()?), (gpu.pinned(CHUNK)?, gpu.event()?)]),
        };
        let size_of_chunk = |index: usize| CHUNK.min(bytes - index * CHUNK);
        let mut values = Vec::with_capacity(len);
        let n_chunks = bytes.div_ceil(CHUNK);
        for index in 0..=n_chunks {
            if index < n_chunks {
                let (pinned, there) = &chunks[index % 2];
                gpu.copy_out(pinned, from + (index * CHUNK) as u64, size_of_chunk(index))?;
                there.record()?;
            }
            if let Some(last) = index.checked_sub(1) {
                let (pinned, there) = &chunks[last % 2];
                there.wait()?;
                values.extend_from_slice(&pinned.as_slice::<f32>()[..size_of_chunk(last) / size_of::<f32>()]);
            }
        }
        Ok(values)
    }

    /// Runs on what was copied last, without waiting.
    pub fn repeat(&mut self) -> Result<(), CudaError> {
        self.program.run()
    }

    /// The f32 value of a tensor that the plan keeps. Waits.
    pub fn read(&self, id: TensorId) -> Result<Vec<f32>, CudaError> {
        assert!(self.plan.is_kept(id), "{} is not kept by the plan", self.plan.graph.tensor(id).name);
        self.activations.read(self.plan.placement(id).offset, self.plan.graph.shape(id).len())
    }

    /// Milliseconds of each piece, with the node and the family of each.
    pub fn profile(&mut self) -> Result<Vec<(usize, &'static str, f32)>, CudaError> {
        let times = self.program.run_timed()?;
        Ok(self.program.works.iter().zip(times).map(|(work, ms)| (work.node, work.family, ms)).collect())
    }
}
