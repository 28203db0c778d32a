//! The parameters of a network: names, shapes, and one arena of values for each kind of use.

/// Index of a parameter in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u32);

/// What a parameter is, which decides layout, initial value and optimizer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Convolution weight; `dims` are O, H, W, I (OIHW only in files). Optimizer group 1, decays.
    ConvWeight,
    /// Bias of a convolution. Optimizer group 0.
    ConvBias,
    /// Batch norm's factor. Optimizer group 2.
    BnGamma,
    /// Batch norm's offset. Optimizer group 0.
    BnBeta,
    /// Running statistics: not trained, but averaged by the EMA and stored.
    BnMean,
    BnVar,
}

impl ParamKind {
    /// Whether the optimizer changes it.
    pub fn is_trained(self) -> bool {
        !matches!(self, Self::BnMean | Self::BnVar)
    }

    /// The optimizer group of the published trainer: 0 biases, 1 weights with decay, 2 batch-norm factors.
    pub fn group(self) -> Option<usize> {
        match self {
            Self::ConvBias | Self::BnBeta => Some(0),
            Self::ConvWeight => Some(1),
            Self::BnGamma => Some(2),
            Self::BnMean | Self::BnVar => None,
        }
    }
}

/// One row of a network's parameter table.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name in weight files, such as `model.4.cv2.0.m.0.cv1.conv1.conv.weight`.
    pub name: String,
    pub kind: ParamKind,
    /// O, H, W, I for convolution weights (I per group); one number for vectors.
    pub dims: Vec<usize>,
}

impl ParamSpec {
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Elements that offsets of parameters are multiples of, so that kernels may read 16 bytes at once in any number format. What
/// lies between parameters is zero.
pub const PARAM_ALIGN: usize = 64;

/// A parameter table with one arena of f32 values, in table order.
///
/// Gradients, momentum and EMA are arenas of the same layout: `Params::zeros_like`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    pub specs: Vec<ParamSpec>,
    /// `offsets[i]..offsets[i] + specs[i].len()` is the range of parameter `i`.
    pub offsets: Vec<usize>,
    /// By parameter: the optimizer leaves it as it is.
    pub frozen: Vec<bool>,
    pub values: Vec<f32>,
}

impl Params {
    /// Appends a parameter, filled with zeros.
    pub fn add(&mut self, spec: ParamSpec) -> ParamId {
        let id = ParamId(self.specs.len() as u32);
        self.offsets.push(self.values.len());
        self.frozen.push(false);
        self.values.resize(self.values.len() + spec.len().next_multiple_of(PARAM_ALIGN), 0.0);
        self.specs.push(spec);
        id
    }

    /// Appends a name for values from `offset` on that belong to another parameter.
    pub fn add_alias(&mut self, spec: ParamSpec, offset: usize) -> ParamId {
        let id = ParamId(self.specs.len() as u32);
        self.offsets.push(offset);
        self.frozen.push(false);
        self.specs.push(spec);
        id
    }

    /// The table without values.
    #[must_use]
    pub fn layout(&self) -> Self {
        Self { specs: self.specs.clone(), offsets: self.offsets.clone(), frozen: self.frozen.clone(), values: Vec::new() }
    }

    pub fn spec(&self, id: ParamId) -> &ParamSpec {
        &self.specs[id.0 as usize]
    }

    pub fn range(&self, id: ParamId) -> std::ops::Range<usize> {
        let start = self.offsets[id.0 as usize];
        start..start + self.specs[id.0 as usize].len()
    }

    pub fn get(&self, id: ParamId) -> &[f32] {
        &self.values[self.range(id)]
    }

    pub fn get_mut(&mut self, id: ParamId) -> &mut [f32] {
        let range = self.range(id);
        &mut self.values[range]
    }

    pub fn ids(&self) -> impl Iterator<Item = ParamId> + use<> {
        (0..self.specs.len() as u32).map(ParamId)
    }

    pub fn frozen_ids(&self) -> Vec<ParamId> {
        self.ids().filter(|id| self.frozen[id.0 as usize]).collect()
    }

    /// Whether the optimizer changes it.
    pub fn is_trained(&self, id: ParamId) -> bool {
        self.group(id).is_some()
    }

    /// The optimizer group of a parameter that is trained.
    pub fn group(&self, id: ParamId) -> Option<usize> {
        self.spec(id).kind.group().filter(|_| !self.frozen[id.0 as usize])
    }

    pub fn find(&self, name: &str) -> Option<ParamId> {
        self.specs.iter().position(|spec| spec.name == name).map(|index| ParamId(index as u32))
    }

    /// The same table with all values zero.
    #[must_use]
    pub fn zeros_like(&self) -> Self {
        Self { values: vec![0.0; self.values.len()], ..self.layout() }
    }
}
