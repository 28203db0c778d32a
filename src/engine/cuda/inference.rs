//! Running a network with fixed parameters on a GPU.
//!
//! In:  a plan, parameters, pictures as bytes. Out: what the plan's output tensor holds.

use std::sync::Arc;

use super::cast::{f32_to_compute, u8_to_compute};
use super::error::CudaError;
use super::gpu::{DeviceBuffer, Pinned};
use super::program::{ParamArenas, Program, Workspace, plan_convolutions, workspace};
use super::runtime::Runtime;
use crate::engine::graph::TensorId;
use crate::engine::params::Params;
use crate::engine::plan::Plan;

/// Parameters on a GPU, for networks of several input shapes.
pub struct FrozenParams {
    table: Params,
    values: DeviceBuffer,
    copies: DeviceBuffer,
    runtime: Arc<Runtime>,
}

impl FrozenParams {
    pub fn new(runtime: &Arc<Runtime>, params: &Params) -> Result<Self, CudaError> {
        let values = runtime.gpu.upload(&params.values)?;
        let copies = runtime.gpu.alloc(params.values.len() * runtime.precision().bytes())?;
        runtime.gpu.launch(&f32_to_compute(&runtime.kernels, values.address, params.values.len(), copies.address))?;
        Ok(Self { table: params.zeros_like(), values, copies, runtime: Arc::clone(runtime) })
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
    /// Its memory is read by the program.
    _params: Arc<FrozenParams>,
    runtime: Arc<Runtime>,
}

impl Inference {
    /// `input` is (B, H, W, 3); `output` is a tensor of f32 that the plan keeps.
    pub fn new(params: &Arc<FrozenParams>, plan: Plan, input: TensorId, output: TensorId) -> Result<Self, CudaError> {
        let runtime = &params.runtime;
        let (gpu, kernels) = (&runtime.gpu, &runtime.kernels);
        assert!(plan.is_kept(output), "the output must be kept");
        let ids = plan_convolutions(runtime, &plan, &mut |_, _| {})?;
        let workspace = workspace(runtime, &[(&plan, ids.as_slice())])?;
        let activations = gpu.alloc(plan.arena_bytes)?;
        let n_pixels = plan.graph.shape(input).n_pixels();
        let pixels = gpu.alloc(3 * n_pixels)?;
        let arenas = ParamArenas { values: params.values.address, copies: params.copies.address, ..ParamArenas::default() };
        let mut program = Program::new(runtime, &plan, &ids, &params.table, arenas, activations.address, &workspace)?;
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
            _params: Arc::clone(params),
            runtime: Arc::clone(runtime),
        })
    }

    /// Device memory of this shape, without parameters.
    pub fn bytes(&self) -> usize {
        self.activations.bytes + self.pixels.bytes + self.workspace.bytes()
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs on pictures (B, H, W, 3) and waits for the output, packed.
    pub fn run(&mut self, pixels: &[u8]) -> Result<Vec<f32>, CudaError> {
        self.pinned.as_mut_slice::<u8>().copy_from_slice(pixels);
        self.runtime.gpu.bind()?;
        self.runtime.gpu.copy_in(self.pixels.address, &self.pinned, pixels.len())?;
        self.program.run()?;
        self.read(self.output)
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
