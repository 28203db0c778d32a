//! The ten published models as layer tables.

/// Width and depth of a published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelSize {
    T,
    S,
    M,
    C,
    E,
}

/// A published model: `yolov9-*` trains with an auxiliary branch, `gelan-*` is the same network without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    pub size: ModelSize,
    /// Whether it has the auxiliary branch.
    pub dual: bool,
}
