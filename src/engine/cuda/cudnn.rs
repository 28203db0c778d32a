//! cuDNN's graph API with owned descriptors: tensors, convolutions, engines, execution plans.
//!
//! In:  shapes and what is computed from what. Out: plans that a stream can run.
//!
//! cuDNN describes everything by descriptors with attributes: an operation graph names the tensors by numbers (`uid`), an
//! engine with knobs says which kernel computes it, a finalized execution plan is ready to run, and a variant pack gives
//! the numbers addresses. Numbers that cuDNN returns stay numbers here, because newer versions know more of them than the
//! bindings' enums.
//!
//! cudarc gives the types. Its functions would look for the library by names of their own, and where two versions are installed
//! may find another one than `library` opened: the parts of both in one process do not work. So the functions are taken from
//! that one here.
//!
//! Knows nothing of which plan is a good one: see `conv`.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, OnceLock};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t, cudnnConvolutionMode_t, cudnnDataType_t, cudnnHandle_t,
    cudnnPointwiseMode_t, cudnnStatus_t,
};
use cudarc::driver::sys::CUstream;

use super::Precision;
use super::error::CudaError;
use super::gpu::Gpu;
use super::library;
use super::library::{Library, load_cudnn};

/// The oldest version whose graph API is used here.
const OLDEST_VERSION: usize = 90_000;
/// More than any version has kinds of knobs or notes.
const MAX_KNOBS: usize = 64;
const MAX_NOTES: usize = 64;
/// Bytes to which every tensor is aligned.
const ALIGNMENT: i64 = 16;

/// Functions of cuDNN, with the types of its header.
struct Calls {
    create: unsafe extern "C" fn(*mut cudnnHandle_t) -> cudnnStatus_t,
    destroy: unsafe extern "C" fn(cudnnHandle_t) -> cudnnStatus_t,
    set_stream: unsafe extern "C" fn(cudnnHandle_t, CUstream) -> cudnnStatus_t,
    version: unsafe extern "C" fn() -> usize,
    error_string: unsafe extern "C" fn(cudnnStatus_t) -> *const c_char,
    last_error_string: unsafe extern "C" fn(*mut c_char, usize),
    create_descriptor: unsafe extern "C" fn(Kind, *mut cudnnBackendDescriptor_t) -> cudnnStatus_t,
    destroy_descriptor: unsafe extern "C" fn(cudnnBackendDescriptor_t) -> cudnnStatus_t,
    set_attribute: unsafe extern "C" fn(cudnnBackendDescriptor_t, Name, Type, i64, *const c_void) -> cudnnStatus_t,
    get_attribute: unsafe extern "C" fn(cudnnBackendDescriptor_t, Name, Type, i64, *mut i64, *mut c_void) -> cudnnStatus_t,
    finalize: unsafe extern "C" fn(cudnnBackendDescriptor_t) -> cudnnStatus_t,
    execute: unsafe extern "C" fn(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) -> cudnnStatus_t,
}

impl Calls {
    /// Those of the cuDNN that `library` opens.
    fn open() -> Result<&'static Self, CudaError> {
        static CALLS: OnceLock<Result<Calls, CudaError>> = OnceLock::new();
        load_cudnn()?;
        CALLS
            .get_or_init(|| {
                let cudnn = library::open(Library::Cudnn)?;
                let version = cudnn.found.version.clone();
                // SAFETY: names and types are those of cuDNN's header.
                let calls = unsafe { Self::of(cudnn) };
                calls.map_err(|reason| CudaError::UnusableLibrary { library: "cuDNN", version, reason })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// # Safety
    /// The library is cuDNN.
    unsafe fn of(cudnn: &library::OpenLibrary) -> Result<Self, String> {
        // SAFETY: the caller's promise, and the types of the fields are those of the header.
        unsafe {
            Ok(Self {
                create: cudnn.function(c"cudnnCreate")?,
                destroy: cudnn.function(c"cudnnDestroy")?,
                set_stream: cudnn.function(c"cudnnSetStream")?,
                version: cudnn.function(c"cudnnGetVersion")?,
                error_string: cudnn.function(c"cudnnGetErrorString")?,
                last_error_string: cudnn.function(c"cudnnGetLastErrorString")?,
                create_descriptor: cudnn.function(c"cudnnBackendCreateDescriptor")?,
                destroy_descriptor: cudnn.function(c"cudnnBackendDestroyDescriptor")?,
                set_attribute: cudnn.function(c"cudnnBackendSetAttribute")?,
                get_attribute: cudnn.function(c"cudnnBackendGetAttribute")?,
                finalize: cudnn.function(c"cudnnBackendFinalize")?,
                execute: cudnn.function(c"cudnnBackendExecute")?,
            })
        }
    }

    /// Those that a handle was opened with.
    fn get() -> &'static Self {
        Self::open().expect("a handle was opened before")
    }
}

/// Turns cuDNN's result into ours. The longer text is that of the last failed call in this thread.
fn check(call: &'static str, status: cudnnStatus_t) -> Result<(), CudaError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text = [0; 1024];
    // SAFETY: cuDNN returns a static, terminated string, and writes at most the given length with the ending zero.
    let (short, long) = unsafe {
        (Calls::get().last_error_string)(text.as_mut_ptr(), text.len() - 1);
        (CStr::from_ptr((Calls::get().error_string)(status)), CStr::from_ptr(text.as_ptr()))
    };
    let (short, long) = (short.to_string_lossy(), long.to_string_lossy());
    let message = if long.is_empty() { short.into_owned() } else { format!("{short}: {}", long.trim()) };
    Err(CudaError::Cudnn { call, message })
}

/// cuDNN, tied to a GPU and its stream.
pub struct Handle {
    gpu: Arc<Gpu>,
    raw: cudnnHandle_t,
    /// 91400 for 9.14.0.
    pub version: usize,
}

// SAFETY: a handle may move between threads; without `Sync` no two use it at once.
unsafe impl Send for Handle {}

impl Handle {
    /// # Errors
    /// cuDNN is missing, too old, or does not start.
    pub fn open(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let calls = Calls::open()?;
        gpu.bind()?;
        // SAFETY: the function has no precondition.
        let version = unsafe { (calls.version)() };
        if version < OLDEST_VERSION {
            return Err(CudaError::UnusableLibrary {
                library: "cuDNN",
                version: version_text(version),
                reason: format!("it is older than {}", version_text(OLDEST_VERSION)),
            });
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a live variable, and the GPU's context is current.
        check("cudnnCreate", unsafe { (calls.create)(&raw mut handle) })?;
        let opened = Self { gpu: Arc::clone(gpu), raw: handle, version };
        opened.set_stream(0)?;
        Ok(opened)
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Gives a plan to the stream.
    pub fn execute(&self, plan: &Plan, pack: &VariantPack) -> Result<(), CudaError> {
        self.execute_in_lane(plan, pack, 0)
    }

    /// Gives a plan to a lane. Outside of a recording only lane 0 is in order with everything else.
    pub fn execute_in_lane(&self, plan: &Plan, pack: &VariantPack, lane: usize) -> Result<(), CudaError> {
        self.gpu.bind()?;
        let _door = self.gpu.enter();
        if lane == 0 {
            return self.execute_now(plan, pack);
        }
        self.set_stream(lane)?;
        let done = self.execute_now(plan, pack);
        self.set_stream(0)?;
        done
    }

    fn set_stream(&self, lane: usize) -> Result<(), CudaError> {
        // SAFETY: both live; the stream belongs to the context in which the handle was made.
        check("cudnnSetStream", unsafe { (Calls::get().set_stream)(self.raw, self.gpu.lane(lane)) })
    }

    fn execute_now(&self, plan: &Plan, pack: &VariantPack) -> Result<(), CudaError> {
        // SAFETY: all three live and are finalized; that the addresses are valid is the promise of who made the pack.
        check("cudnnBackendExecute", unsafe { (Calls::get().execute)(self.raw, plan.descriptor.raw, pack.0.raw) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made by `open`.
            unsafe { (Calls::get().destroy)(self.raw) };
        }
    }
}

/// `9.14.0` for 91400.
fn version_text(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// An object of cuDNN's, freed when dropped. What is set as an attribute is copied or counted by cuDNN.
pub struct Descriptor {
    raw: cudnnBackendDescriptor_t,
}

// SAFETY: plain data behind a pointer; without `Sync` no two threads use it at once.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed once.
        unsafe { (Calls::get().destroy_descriptor)(self.raw) };
    }
}

impl Descriptor {
    fn new(kind: Kind) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a live variable.
        check("cudnnBackendCreateDescriptor", unsafe { (Calls::get().create_descriptor)(kind, &raw mut raw) })?;
        Ok(Self { raw })
    }

    /// `T` must be what `kind` stands for.
    fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> Result<(), CudaError> {
        // SAFETY: cuDNN reads as many elements as the slice has, and every caller in this file passes the type of `kind`.
        check("cudnnBackendSetAttribute", unsafe {
            (Calls::get().set_attribute)(self.raw, name, kind, values.len() as i64, values.as_ptr().cast())
        })
    }

    fn set_numbers(&self, name: Name, values: &[i64]) -> Result<(), CudaError> {
        self.set(name, Type::CUDNN_TYPE_INT64, values)
    }

    fn set_descriptors(&self, name: Name, values: &[&Self]) -> Result<(), CudaError> {
        let raw: Vec<cudnnBackendDescriptor_t> = values.iter().map(|value| value.raw).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    fn finalize(&self) -> Result<(), CudaError> {
        // SAFETY: the descriptor lives.
        check("cudnnBackendFinalize", unsafe { (Calls::get().finalize)(self.raw) })
    }

    /// Overwrites the start of `values` and says how many there are, which may be more than fit.
    fn get<T>(&self, name: Name, kind: Type, values: &mut [T]) -> Result<usize, CudaError> {
        let mut count = 0;
        let to = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast::<c_void>() };
        // SAFETY: cuDNN writes at most as many elements as the slice has, of the type of `kind` (every caller in this file
        // passes it); without room it only counts.
        check("cudnnBackendGetAttribute", unsafe {
            (Calls::get().get_attribute)(self.raw, name, kind, values.len() as i64, &raw mut count, to)
        })?;
        Ok(count.max(0) as usize)
    }

    fn get_number(&self, name: Name) -> Result<i64, CudaError> {
        let mut value = [0_i64];
        self.get(name, Type::CUDNN_TYPE_INT64, &mut value)?;
        Ok(value[0])
    }

    /// Values of an enum.
    fn get_codes(&self, name: Name, kind: Type) -> Result<Vec<i32>, CudaError> {
        let mut values = vec![0_i32; MAX_NOTES];
        let count = self.get(name, kind, &mut values)?;
        values.truncate(count);
        Ok(values)
    }

    /// At most `capacity` descriptors of one kind.
    fn get_descriptors(&self, name: Name, kind: Kind, capacity: usize) -> Result<Vec<Self>, CudaError> {
        let mut values = (0..capacity).map(|_| Self::new(kind)).collect::<Result<Vec<_>, _>>()?;
        // cuDNN fills in the descriptors that the pointers stand for.
        let mut raw: Vec<cudnnBackendDescriptor_t> = values.iter().map(|value| value.raw).collect();
        let count = if capacity == 0 { 0 } else { self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)? };
        values.truncate(count);
        Ok(values)
    }
}

fn data_type(precision: Precision) -> cudnnDataType_t {
    match precision {
        Precision::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        Precision::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        Precision::F32 => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// A tensor of an operation graph, packed with its channels last.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// By which a variant pack names it.
    pub uid: i64,
    /// N, C, H, W of an activation; O, I (per group), H, W of weights.
    pub dims: [usize; 4],
    pub precision: Precision,
    /// Exists only between two operations.
    pub is_virtual: bool,
}

impl Tensor {
    fn describe(&self) -> Result<Descriptor, CudaError> {
        let [_, c, h, w] = self.dims;
        let dims = self.dims.map(|n| n as i64);
        let strides = [h * w * c, 1, w * c, c].map(|n| n as i64);
        let tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[data_type(self.precision)])?;
        tensor.set_numbers(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &dims)?;
        tensor.set_numbers(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?;
        tensor.set_numbers(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[self.uid])?;
        tensor.set_numbers(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[self.is_virtual])?;
        tensor.finalize()?;
        Ok(tensor)
    }
}

/// One operation on tensors; sums are in f32.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Convolution {
        x: Tensor,
        w: Tensor,
        y: Tensor,
        stride: usize,
        pad: usize,
    },
    ConvolutionBackwardInput {
        dy: Tensor,
        w: Tensor,
        dx: Tensor,
        stride: usize,
        pad: usize,
    },
    ConvolutionBackwardWeight {
        x: Tensor,
        dy: Tensor,
        dw: Tensor,
        stride: usize,
        pad: usize,
    },
    /// `y = a + b`; a side of 1 in `b` stands for all.
    Add {
        a: Tensor,
        b: Tensor,
        y: Tensor,
    },
    /// `y = x * sigmoid(x)`
    Silu {
        x: Tensor,
        y: Tensor,
    },
}

impl Operation {
    fn describe(&self) -> Result<Descriptor, CudaError> {
        match *self {
            Self::Convolution { x, w, y, stride, pad } => convolution(
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y),
                ],
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, stride, pad),
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA),
            ),
            Self::ConvolutionBackwardInput { dy, w, dx, stride, pad } => convolution(
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx),
                ],
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, stride, pad),
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA),
            ),
            Self::ConvolutionBackwardWeight { x, dy, dw, stride, pad } => convolution(
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy),
                    (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw),
                ],
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, stride, pad),
                (Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA),
            ),
            Self::Add { a, b, y } => {
                let operation = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD, &a, &y)?;
                operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[&b.describe()?])?;
                operation.finalize()?;
                Ok(operation)
            }
            Self::Silu { x, y } => {
                let operation = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_SWISH_FWD, &x, &y)?;
                operation.finalize()?;
                Ok(operation)
            }
        }
    }
}

/// One of the three convolutions: its tensors, its stride and padding, and `out = 1 * convolution + 0 * out`.
fn convolution(
    kind: Kind,
    tensors: [(Name, Tensor); 3],
    (geometry_name, stride, pad): (Name, usize, usize),
    (alpha, beta): (Name, Name),
) -> Result<Descriptor, CudaError> {
    let operation = Descriptor::new(kind)?;
    for (name, tensor) in tensors {
        operation.set_descriptors(name, &[&tensor.describe()?])?;
    }
    operation.set_descriptors(geometry_name, &[&geometry(stride, pad)?])?;
    operation.set(alpha, Type::CUDNN_TYPE_FLOAT, &[1.0_f32])?;
    operation.set(beta, Type::CUDNN_TYPE_FLOAT, &[0.0_f32])?;
    operation.finalize()?;
    Ok(operation)
}

/// Stride and padding of a convolution in two dimensions.
fn geometry(stride: usize, pad: usize) -> Result<Descriptor, CudaError> {
    let [strides, pads] = [stride, pad].map(|n| [n as i64; 2]);
    let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let convolution = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
    convolution.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?;
    convolution.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?;
    convolution.set_numbers(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?;
    convolution.set_numbers(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1, 1])?;
    convolution.set_numbers(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &strides)?;
    convolution.set_numbers(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pads)?;
    convolution.set_numbers(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pads)?;
    convolution.finalize()?;
    Ok(convolution)
}

/// An operation on single elements, not finalized yet.
fn pointwise(mode: cudnnPointwiseMode_t, x: &Tensor, y: &Tensor) -> Result<Descriptor, CudaError> {
    let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
    function.set(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?;
    function.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?;
    if mode == cudnnPointwiseMode_t::CUDNN_POINTWISE_SWISH_FWD {
        function.set(Name::CUDNN_ATTR_POINTWISE_SWISH_BETA, Type::CUDNN_TYPE_DOUBLE, &[1.0_f64])?;
    }
    function.finalize()?;
    let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
    operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&function])?;
    operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[&x.describe()?])?;
    operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&y.describe()?])?;
    Ok(operation)
}

/// What is to be computed, for one handle.
pub struct OperationGraph(Descriptor);

/// Where engine configurations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Best guess first.
    Heuristic,
    /// Engines that work nearly everywhere.
    Fallback,
    /// Each engine that supports the graph, with its default knobs.
    EveryEngine,
}

impl OperationGraph {
    pub fn new(handle: &Handle, operations: &[Operation]) -> Result<Self, CudaError> {
        let operations = operations.iter().map(Operation::describe).collect::<Result<Vec<_>, _>>()?;
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.set_descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations.iter().collect::<Vec<_>>())?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw])?;
        graph.finalize()?;
        Ok(Self(graph))
    }

    /// Configurations that may compute the graph; empty where cuDNN knows none.
    pub fn configs(&self, source: Source) -> Result<Vec<EngineConfig>, CudaError> {
        match source {
            Source::Heuristic => self.ask(cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A),
            Source::Fallback => self.ask(cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK),
            Source::EveryEngine => {
                let count = self.0.get_number(Name::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)?;
                let config = |engine| self.config(&Recipe { engine, knobs: Vec::new() }).ok();
                Ok((0..count).filter_map(config).collect())
            }
        }
    }

    fn ask(&self, mode: cudnnBackendHeurMode_t) -> Result<Vec<EngineConfig>, CudaError> {
        let heuristic = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristic.set_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&self.0])?;
        heuristic.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
        if heuristic.finalize().is_err() {
            return Ok(Vec::new()); // Knows nothing about such a graph.
        }
        let name = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
        let count = heuristic.get::<cudnnBackendDescriptor_t>(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [])?;
        let configs = heuristic.get_descriptors(name, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)?;
        Ok(configs.into_iter().map(EngineConfig).collect())
    }

    /// The configuration of a recipe.
    ///
    /// # Errors
    /// The engine does not support the graph, or does not know the knobs.
    pub fn config(&self, recipe: &Recipe) -> Result<EngineConfig, CudaError> {
        let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        engine.set_descriptors(Name::CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[&self.0])?;
        engine.set_numbers(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[recipe.engine])?;
        engine.finalize()?;
        let config = Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
        config.set_descriptors(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &[&engine])?;
        let mut choices = Vec::with_capacity(recipe.knobs.len());
        for &(knob, value) in &recipe.knobs {
            let choice = Descriptor::new(Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?;
            choice.set(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE, &[knob])?;
            choice.set_numbers(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?;
            choice.finalize()?;
            choices.push(choice);
        }
        if !choices.is_empty() {
            config.set_descriptors(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &choices.iter().collect::<Vec<_>>())?;
        }
        config.finalize()?;
        Ok(EngineConfig(config))
    }
}

/// Names an engine configuration of a known graph, for a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recipe {
    pub engine: i64,
    /// Kind and value of each knob that is not left to the engine.
    pub knobs: Vec<(i32, i64)>,
}

/// Which kernel computes a graph.
pub struct EngineConfig(Descriptor);

/// Numerical notes (`cudnnBackendNumericalNote_t`) by number.
pub mod note {
    pub const TENSOR_CORE: i32 = 0;
    pub const DOWN_CONVERT_INPUTS: i32 = 1;
    pub const REDUCED_PRECISION_REDUCTION: i32 = 2;
    pub const FFT: i32 = 3;
    pub const NONDETERMINISTIC: i32 = 4;
    pub const WINOGRAD: i32 = 5;
}

/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`
const RUNTIME_COMPILATION: i32 = 0;

impl EngineConfig {
    fn engine(&self) -> Result<Descriptor, CudaError> {
        let engines = self.0.get_descriptors(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
        let missing = || CudaError::Cudnn { call: "cudnnBackendGetAttribute", message: "a configuration has no engine".to_owned() };
        engines.into_iter().next().ok_or_else(missing)
    }

    /// What the engine does to numbers; see [`note`].
    pub fn notes(&self) -> Result<Vec<i32>, CudaError> {
        self.engine()?.get_codes(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE)
    }

    /// Whether building a plan means to compile, which takes up to a second.
    pub fn is_compiled_late(&self) -> Result<bool, CudaError> {
        let notes = self.engine()?.get_codes(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE)?;
        Ok(notes.contains(&RUNTIME_COMPILATION))
    }

    pub fn recipe(&self) -> Result<Recipe, CudaError> {
        let engine = self.engine()?.get_number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
        let kind = Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
        let choices = self.0.get_descriptors(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kind, MAX_KNOBS)?;
        let mut knobs = Vec::with_capacity(choices.len());
        for choice in &choices {
            let mut knob = [0_i32];
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE, &mut knob)?;
            knobs.push((knob[0], choice.get_number(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?));
        }
        Ok(Recipe { engine, knobs })
    }
}

/// A configuration that is ready to run.
pub struct Plan {
    descriptor: Descriptor,
    pub workspace_bytes: usize,
}

impl Plan {
    /// # Errors
    /// The configuration cannot compute its graph after all, which is usual.
    pub fn new(handle: &Handle, config: &EngineConfig) -> Result<Self, CudaError> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw])?;
        plan.set_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config.0])?;
        Self::finished(plan)
    }

    /// From the text that [`Self::to_json`] gave under the same versions of cuDNN and of the driver.
    pub fn from_json(handle: &Handle, json: &str) -> Result<Self, CudaError> {
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Type::CUDNN_TYPE_CHAR, json.as_bytes())?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle.raw])?;
        Self::finished(plan)
    }

    fn finished(plan: Descriptor) -> Result<Self, CudaError> {
        plan.finalize()?;
        let workspace_bytes = plan.get_number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?.max(0) as usize;
        Ok(Self { descriptor: plan, workspace_bytes })
    }

    /// With the compiled kernel, where there is one.
    pub fn to_json(&self) -> Result<String, CudaError> {
        let name = Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
        let count = self.descriptor.get::<u8>(name, Type::CUDNN_TYPE_CHAR, &mut [])?;
        let mut text = vec![0_u8; count];
        self.descriptor.get(name, Type::CUDNN_TYPE_CHAR, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.trim_end_matches('\0').to_owned())
    }
}

/// Addresses for the tensors of a graph.
pub struct VariantPack(Descriptor);

impl VariantPack {
    /// `tensors` are uids with addresses. The memory must be valid whenever the pack is executed.
    pub fn new(tensors: &[(i64, u64)], workspace: u64) -> Result<Self, CudaError> {
        let uids: Vec<i64> = tensors.iter().map(|&(uid, _)| uid).collect();
        let addresses: Vec<u64> = tensors.iter().map(|&(_, address)| address).collect();
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set_numbers(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &uids)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &addresses)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &[workspace])?;
        pack.finalize()?;
        Ok(Self(pack))
    }
}
