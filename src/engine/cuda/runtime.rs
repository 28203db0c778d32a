//! A GPU made ready for one compute type: its kernels, and the plans of its convolutions. Opened once, shared by all that use it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Precision;
use super::conv::Convolutions;
use super::error::CudaError;
use super::gpu::Gpu;
use super::kernels::Kernels;

pub struct Runtime {
    pub gpu: Arc<Gpu>,
    /// Before the kernels, whose code it launches.
    convolutions: Mutex<Convolutions>,
    pub kernels: Kernels,
}

type Opened = HashMap<(usize, Precision), Arc<Runtime>>;

static OPENED: Mutex<Option<Opened>> = Mutex::new(None);

impl Runtime {
    /// The runtime of device `ordinal`, opened on first use.
    ///
    /// # Errors
    /// No such device, a missing library, a kernel that does not compile.
    pub fn open(ordinal: usize, precision: Precision) -> Result<Arc<Self>, CudaError> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.get_or_insert_default();
        if let Some(runtime) = opened.get(&(ordinal, precision)) {
            return Ok(Arc::clone(runtime));
        }
        let gpu = gpu(opened, ordinal)?;
        let kernels = Kernels::load(&gpu, precision)?;
        let convolutions = Mutex::new(Convolutions::open(&kernels)?);
        let runtime = Arc::new(Self { gpu, convolutions, kernels });
        opened.insert((ordinal, precision), Arc::clone(&runtime));
        Ok(runtime)
    }

    /// What a person gets who asks for no precision: bf16 where the card has it, else fp16.
    pub fn open_default(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let sm = {
            let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
            gpu(opened.get_or_insert_default(), ordinal)?.sm
        };
        Self::open(ordinal, Precision::default_for(sm))
    }

    pub fn precision(&self) -> Precision {
        self.kernels.precision()
    }

    pub fn convolutions(&self) -> MutexGuard<'_, Convolutions> {
        self.convolutions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Device `ordinal`: one context and stream for all compute types.
fn gpu(opened: &Opened, ordinal: usize) -> Result<Arc<Gpu>, CudaError> {
    match opened.iter().find(|((other, _), _)| *other == ordinal) {
        Some((_, runtime)) => Ok(Arc::clone(&runtime.gpu)),
        None => Gpu::open(ordinal),
    }
}
