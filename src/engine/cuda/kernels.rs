//! The kernels of one precision, compiled for a GPU and loaded.

use std::sync::Arc;

use super::Precision;
use super::error::CudaError;
use super::gpu::{Function, Gpu};

pub struct Kernels {
    gpu: Arc<Gpu>,
    precision: Precision,
}

impl Kernels {
    pub fn load(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, CudaError> {
        Ok(Self { gpu: Arc::clone(gpu), precision })
    }

    pub fn get(&self, name: &'static str) -> Function {
        panic!("no kernel {name}")
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}
