//! One opened GPU: its context and stream, memory, launches, captured graphs, events.
//!
//! In:  device indices, bytes, kernel arguments. Out: device memory and work on the one stream of a `Gpu`.
//!
//! Everything is ordered by that stream. Nothing here waits for the GPU but the functions that say so. A [`Launch`] holds
//! pointers as numbers: whoever makes one keeps the memory alive for as long as it is used.
//!
//! Several threads may use one `Gpu`. While one records a graph, the others wait, or their work would be recorded too.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUevent, CUfunction, CUfunction_attribute, CUgraphExec, CUmodule, CUresult, CUstream,
    CUstreamCaptureMode,
};

use super::error::CudaError;
use crate::engine::lanes::MAX_LANES;

/// A device's context and the one stream that all work of this program goes through.
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    /// Compute capability, major * 10 + minor: 90 for Hopper.
    pub sm: u32,
    pub n_multiprocessors: usize,
    pub total_bytes: usize,
    /// Of the driver: 13000 for CUDA 13.0.
    pub driver_version: i32,
    device: CUdevice,
    context: CUcontext,
    stream: CUstream,
    /// For copies that run beside the work of `stream`.
    copy_stream: CUstream,
    /// For work that is recorded beside that of `stream`.
    side_streams: [CUstream; MAX_LANES - 1],
    /// Held while something is given to the stream, and for a whole recording.
    door: Mutex<()>,
    /// Which thread records a graph; 0: none.
    recording: AtomicU64,
}

/// A number for this thread, not 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

// SAFETY: the driver's handles may be used from any thread in which the context is current, which every method sees to.
unsafe impl Send for Gpu {}
// SAFETY: the driver locks its own state; a stream may be fed from several threads.
unsafe impl Sync for Gpu {}

/// Turns a driver's result into ours.
fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver writes a pointer to a static string, or null for a code that it does not know.
    unsafe { sys::cuGetErrorString(result, &raw mut text) };
    let message = if text.is_null() {
        format!("{result:?}")
    } else {
        // SAFETY: a static, terminated string of the driver.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(CudaError::Driver { call, message })
}

impl Gpu {
    /// Opens device `ordinal` with a stream of its own.
    ///
    /// # Errors
    /// No driver, no such device, or a driver that refuses.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let n_devices = super::device_names()?.len();
        if ordinal >= n_devices {
            return Err(CudaError::NoSuchDevice { ordinal, n_devices });
        }
        let mut device = 0;
        let mut context = std::ptr::null_mut();
        let mut stream = std::ptr::null_mut();
        let mut copy_stream = std::ptr::null_mut();
        let mut side_streams = [std::ptr::null_mut(); MAX_LANES - 1];
        let mut driver_version = 0;
        let mut total_bytes = 0;
        let mut name = [0; 128];
        // SAFETY: the driver is there and initialised (`device_names`); all pointers are to live variables of the right type.
        unsafe {
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&raw mut driver_version))?;
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, ordinal as i32))?;
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, device))?;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut total_bytes, device))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            for stream in [&mut stream, &mut copy_stream].into_iter().chain(&mut side_streams) {
                check("cuStreamCreate", sys::cuStreamCreate(stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
            }
        }
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: `value` and the device are valid.
            check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) }).map(|()| value as u32)
        };
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let n_multiprocessors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        // SAFETY: the driver ends the name with zero, and the last byte was left at zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Arc::new(Self {
            ordinal,
            name,
            sm: major * 10 + minor,
            n_multiprocessors,
            total_bytes,
            driver_version,
            device,
            context,
            stream,
            copy_stream,
            side_streams,
            door: Mutex::new(()),
            recording: AtomicU64::new(0),
        }))
    }

    /// To be held while something is given to the stream: waits while another thread records a graph.
    pub fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        // Only this thread itself can have stored its number.
        let is_recording = self.recording.load(Ordering::Relaxed) == this_thread();
        (!is_recording).then(|| self.door.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the context current in this thread. Methods that talk to the driver do it themselves.
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as `self`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// The stream's handle, for libraries that are told which stream to use.
    pub fn stream(&self) -> CUstream {
        self.stream
    }

    /// Bytes that are free now.
    pub fn free_bytes(&self) -> Result<usize, CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are live variables.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    /// Waits until all work that was given to the stream is done.
    pub fn synchronize(self: &Arc<Self>) -> Result<(), CudaError> {
        // Not by the stream, which another thread may begin to record meanwhile.
        let now = self.event()?;
        now.record()?;
        now.wait()
    }

    /// Memory with undefined content; `bytes` may be 0.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer, CudaError> {
        self.bind()?;
        let mut address = 0;
        // SAFETY: `address` is a live variable; the driver refuses a size of 0.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(256)) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(CudaError::OutOfMemory { bytes, free: self.free_bytes()?, total: self.total_bytes });
        }
        check("cuMemAlloc", result)?;
        Ok(DeviceBuffer { gpu: Arc::clone(self), address, bytes })
    }

    /// Memory with these values.
    pub fn upload<T: bytemuck::NoUninit>(self: &Arc<Self>, values: &[T]) -> Result<DeviceBuffer, CudaError> {
        let buffer = self.alloc(size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// Zeros `bytes` from `address` on, in the stream.
    pub fn zero(&self, address: u64, bytes: usize) -> Result<(), CudaError> {
        let _door = self.enter();
        // SAFETY: as for launches, the caller keeps the memory alive and inside its buffer.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.stream) })
    }

    /// Copies from pinned host memory in the stream; the caller leaves `from` alone until the copy is done.
    pub fn copy_in(&self, to: u64, from: &Pinned, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= from.bytes);
        let _door = self.enter();
        // SAFETY: `from` is pinned and long enough; `to` is the caller's promise.
        check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.pointer.cast_const(), bytes, self.stream) })
    }

    /// Copies from pinned host memory beside the work of the stream: begins once `free` has passed (the last reader of `to`), and what
    /// is given to the stream afterwards waits for it. The caller leaves `from` alone until `ready` has passed.
    pub fn copy_in_beside(&self, to: u64, from: &Pinned, bytes: usize, free: &Event, ready: &Event) -> Result<(), CudaError> {
        assert!(bytes <= from.bytes);
        let _door = self.enter();
        // SAFETY: streams and events live; `from` is pinned and long enough; `to` is the caller's promise. Waiting for an event that was
        // never recorded is no wait.
        unsafe {
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.copy_stream, free.event, 0))?;
            check("cuMemcpyHtoDAsync", sys::cuMemcpyHtoDAsync_v2(to, from.pointer.cast_const(), bytes, self.copy_stream))?;
            check("cuEventRecord", sys::cuEventRecord(ready.event, self.copy_stream))?;
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.stream, ready.event, 0))
        }
    }

    /// Copies to pinned host memory in the stream; the content is there once an event recorded after it is done.
    pub fn copy_out(&self, to: &Pinned, from: u64, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= to.bytes);
        let _door = self.enter();
        // SAFETY: `to` is pinned and long enough; `from` is the caller's promise.
        check("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer, from, bytes, self.stream) })
    }

    /// Copies inside the device's memory, in the stream.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        let _door = self.enter();
        // SAFETY: both ranges are the caller's promise.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) })
    }

    /// The stream of a lane; lane 0 is [`stream`](Self::stream).
    pub fn lane(&self, lane: usize) -> CUstream {
        lane.checked_sub(1).map_or(self.stream, |side| self.side_streams[side])
    }

    /// Makes what is given to a lane from now on wait for an event.
    pub fn wait_in_lane(&self, lane: usize, event: &Event) -> Result<(), CudaError> {
        let _door = self.enter();
        // SAFETY: both live.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.lane(lane), event.event, 0) })
    }

    /// Gives a launch to the stream.
    pub fn launch(&self, launch: &Launch) -> Result<(), CudaError> {
        self.launch_in_lane(launch, 0)
    }

    /// Gives a launch to a lane. Outside of a recording only lane 0 is in order with everything else.
    pub fn launch_in_lane(&self, launch: &Launch, lane: usize) -> Result<(), CudaError> {
        let mut parameters: Vec<*mut c_void> =
            launch.args.starts.iter().map(|&start| launch.args.words[start..].as_ptr().cast_mut().cast()).collect();
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        let _door = self.enter();
        // SAFETY: the parameters point to as many values as the launcher pushed for this kernel, in the kernel's order and types
        // (the launcher's promise); the driver copies them before it returns.
        let result = unsafe {
            sys::cuLaunchKernel(
                launch.function.handle,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared_bytes,
                self.lane(lane),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check(launch.function.name, result)
    }

    /// Records what `issue` gives to the stream as a graph instead of running it.
    pub fn capture(self: &Arc<Self>, issue: impl FnOnce() -> Result<(), CudaError>) -> Result<CapturedGraph, CudaError> {
        self.bind()?;
        let _door = self.enter();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self` and is not the null stream.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) })?;
        self.recording.store(this_thread(), Ordering::Relaxed);
        let issued = issue();
        self.recording.store(0, Ordering::Relaxed);
        let mut graph = std::ptr::null_mut();
        // SAFETY: `graph` is a live variable; ends the capture also after an error.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) });
        issued?;
        ended?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph was just made; it may go once it is instantiated.
        let instantiated = check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) });
        // SAFETY: as above.
        unsafe { sys::cuGraphDestroy(graph) };
        instantiated?;
        Ok(CapturedGraph { gpu: Arc::clone(self), exec })
    }

    /// A new event.
    pub fn event(self: &Arc<Self>) -> Result<Event, CudaError> {
        self.bind()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is a live variable.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
        Ok(Event { gpu: Arc::clone(self), event })
    }

    /// Pinned host memory, zeroed.
    pub fn pinned(self: &Arc<Self>, bytes: usize) -> Result<Pinned, CudaError> {
        self.bind()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: `pointer` is a live variable. No flag: write-combined memory is terrible to read.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut pointer, bytes.max(16), 0) })?;
        // SAFETY: the memory has at least that many bytes.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes.max(16)) };
        Ok(Pinned { gpu: Arc::clone(self), pointer, bytes })
    }

    /// Loads machine code (a cubin).
    pub fn load_module(self: &Arc<Self>, cubin: &[u8]) -> Result<Module, CudaError> {
        self.bind()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the driver checks the image's header and reads no further than that says.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, cubin.as_ptr().cast()) })?;
        Ok(Module { gpu: Arc::clone(self), module })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: nothing that needs the stream is left, because everything that does holds this `Gpu`.
        unsafe {
            sys::cuCtxSetCurrent(self.context);
            for stream in [self.stream, self.copy_stream].into_iter().chain(self.side_streams) {
                sys::cuStreamDestroy_v2(stream);
            }
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// A range of device memory of its own; freed when dropped.
pub struct DeviceBuffer {
    gpu: Arc<Gpu>,
    pub address: u64,
    pub bytes: usize,
}

impl DeviceBuffer {
    /// Copies values to `offset` bytes from the start, in the stream, and waits.
    pub fn write<T: bytemuck::NoUninit>(&self, offset: usize, values: &[T]) -> Result<(), CudaError> {
        let bytes = size_of_val(values);
        assert!(offset + bytes <= self.bytes, "{bytes} bytes at {offset} of {}", self.bytes);
        self.gpu.bind()?;
        let door = self.gpu.enter();
        // SAFETY: both ranges are valid, and the host's is not let go before the copy is done.
        unsafe {
            check("cuMemcpyHtoD", sys::cuMemcpyHtoDAsync_v2(self.address + offset as u64, values.as_ptr().cast(), bytes, self.gpu.stream))?;
        }
        drop(door);
        self.gpu.synchronize()
    }

    /// Copies `n` values from `offset` bytes after the start, when all earlier work is done.
    pub fn read<T: bytemuck::Pod>(&self, offset: usize, n: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); n];
        let bytes = size_of_val(values.as_slice());
        assert!(offset + bytes <= self.bytes, "{bytes} bytes at {offset} of {}", self.bytes);
        self.gpu.bind()?;
        let door = self.gpu.enter();
        // SAFETY: both ranges are valid, and the host's is not let go before the copy is done.
        unsafe {
            check(
                "cuMemcpyDtoH",
                sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), self.address + offset as u64, bytes, self.gpu.stream),
            )?;
        }
        drop(door);
        self.gpu.synchronize()?;
        Ok(values)
    }

    /// Copies `n` values from the start once `ready` has passed, beside the work of the stream. The caller leaves the buffer alone
    /// meanwhile.
    pub fn read_beside<T: bytemuck::Pod>(&self, n: usize, ready: &Event) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); n];
        let bytes = size_of_val(values.as_slice());
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.gpu.bind()?;
        let there = self.gpu.event()?;
        // SAFETY: both ranges are valid, and the host's is not let go before the copy is done; nothing records the copy stream.
        unsafe {
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.gpu.copy_stream, ready.event, 0))?;
            check("cuMemcpyDtoH", sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), self.address, bytes, self.gpu.copy_stream))?;
            check("cuEventRecord", sys::cuEventRecord(there.event, self.gpu.copy_stream))?;
        }
        there.wait()?;
        Ok(values)
    }

    /// Copies values to the start beside the work of the stream, and waits for the copy. No work that was given to the stream may use
    /// the buffer.
    pub fn write_beside<T: bytemuck::NoUninit>(&self, values: &[T]) -> Result<(), CudaError> {
        let bytes = size_of_val(values);
        assert!(bytes <= self.bytes, "{bytes} bytes of {}", self.bytes);
        self.gpu.bind()?;
        let there = self.gpu.event()?;
        // SAFETY: both ranges are valid, and the host's is not let go before the copy is done; nothing records the copy stream.
        unsafe {
            check("cuMemcpyHtoD", sys::cuMemcpyHtoDAsync_v2(self.address, values.as_ptr().cast(), bytes, self.gpu.copy_stream))?;
            check("cuEventRecord", sys::cuEventRecord(there.event, self.gpu.copy_stream))?;
        }
        there.wait()
    }

    /// Sets every byte, in the stream.
    pub fn fill(&self, byte: u8) -> Result<(), CudaError> {
        self.gpu.bind()?;
        let _door = self.gpu.enter();
        // SAFETY: the range is this buffer's.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(self.address, byte, self.bytes, self.gpu.stream) })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated by `alloc`. Waits for work that still uses it.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Host memory that the GPU copies from and to without the driver's help.
pub struct Pinned {
    gpu: Arc<Gpu>,
    pointer: *mut c_void,
    pub bytes: usize,
}

// SAFETY: plain memory.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub fn as_slice<T: bytemuck::Pod>(&self) -> &[T] {
        // SAFETY: the memory has `bytes` bytes, was zeroed, and is aligned to pages.
        bytemuck::cast_slice(unsafe { std::slice::from_raw_parts(self.pointer.cast::<u8>(), self.bytes) })
    }

    pub fn as_mut_slice<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        bytemuck::cast_slice_mut(unsafe { std::slice::from_raw_parts_mut(self.pointer.cast::<u8>(), self.bytes) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated by `pinned`.
            unsafe { sys::cuMemFreeHost(self.pointer) };
        }
    }
}

/// Loaded machine code.
pub struct Module {
    gpu: Arc<Gpu>,
    module: CUmodule,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// A kernel by its name (`extern "C"`), which must be in the module.
    pub fn function(&self, name: &'static str) -> Result<Function, CudaError> {
        self.gpu.bind()?;
        let c_name = CString::new(name).expect("names of kernels have no zero byte");
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name is terminated.
        check(name, unsafe { sys::cuModuleGetFunction(&raw mut handle, self.module, c_name.as_ptr()) })?;
        Ok(Function { handle, name })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: loaded by `load_module`.
            unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// A kernel of a module that stays loaded for as long as the function is used.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    handle: CUfunction,
    pub name: &'static str,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Lets launches ask for this much dynamic shared memory; needed above 48 KiB.
    pub fn allow_shared_bytes(&self, bytes: usize) -> Result<(), CudaError> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.handle, attribute, bytes as i32) })
    }
}

/// Arguments of a kernel, in its order.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// In units of 8 bytes, so that every argument is aligned.
    words: Vec<u64>,
    starts: Vec<usize>,
}

impl Args {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a pointer (`u64`), a number (`i32`, `f32`), or a `repr(C)` struct that the kernel takes by value.
    #[must_use]
    pub fn with<T: bytemuck::NoUninit>(mut self, value: T) -> Self {
        self.starts.push(self.words.len());
        let bytes = bytemuck::bytes_of(&value);
        self.words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        }));
        self
    }
}

/// A kernel with grid and arguments, to be given to the stream any number of times.
#[derive(Clone, Debug)]
pub struct Launch {
    pub function: Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub args: Args,
}

impl Launch {
    /// `n_blocks` blocks of `n_threads` threads, without dynamic shared memory.
    pub fn linear(function: Function, n_blocks: usize, n_threads: usize, args: Args) -> Self {
        Self { function, grid: [n_blocks.max(1) as u32, 1, 1], block: [n_threads as u32, 1, 1], shared_bytes: 0, args }
    }
}

/// Recorded work that is given to the stream with one call.
pub struct CapturedGraph {
    gpu: Arc<Gpu>,
    exec: CUgraphExec,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for CapturedGraph {}

impl CapturedGraph {
    pub fn launch(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        let _door = self.gpu.enter();
        // SAFETY: both live.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.exec, self.gpu.stream) })
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: instantiated by `capture`.
            unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}

/// A point in the stream.
pub struct Event {
    gpu: Arc<Gpu>,
    event: CUevent,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Moves the event to the present end of the stream.
    pub fn record(&self) -> Result<(), CudaError> {
        self.record_in_lane(0)
    }

    /// Moves the event to the present end of a lane.
    pub fn record_in_lane(&self, lane: usize) -> Result<(), CudaError> {
        self.gpu.bind()?;
        let _door = self.gpu.enter();
        // SAFETY: both live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, self.gpu.lane(lane)) })
    }

    /// Waits for it.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: lives.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Whether it has passed. Never waits.
    pub fn has_passed(&self) -> Result<bool, CudaError> {
        self.gpu.bind()?;
        // SAFETY: lives.
        match unsafe { sys::cuEventQuery(self.event) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Milliseconds from `earlier` to this one; both must have passed.
    pub fn ms_since(&self, earlier: &Self) -> Result<f32, CudaError> {
        self.gpu.bind()?;
        let mut ms = 0.0;
        // SAFETY: both live; the old form of the call is there in every driver.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime(&raw mut ms, earlier.event, self.event) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made by `event`.
            unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}
