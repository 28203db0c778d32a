//! The ten published models as layer tables.
//!
//! In:  a model and a class count. Out: its rows, each with a block, its widths and the rows that it reads.
//!
//! Only the five dual models are written down. A `gelan-*` model is its dual sibling without the auxiliary branch and with the
//! rows numbered anew (`Model::single_rows`); the same map renames weights when a trained network is reduced to what is deployed.
//!
//! Holds no parameters and builds no graph. Source: the published model descriptions as listed in the project's YOLOv9
//! specification, sections 2 and 3.4; every row's parameter count is tested against them.

use std::fmt;
use std::str::FromStr;

/// Width and depth of a published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelSize {
    T,
    S,
    M,
    C,
    E,
}

/// A published model: `yolov9-*` trains with an auxiliary branch, `gelan-*` is the same network without it. Written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Model {
    pub size: ModelSize,
    /// Whether it has the auxiliary branch.
    pub dual: bool,
}

impl Model {
    /// All models, the dual ones first, each group from small to large.
    pub const ALL: [Self; 10] = [
        Self::dual(ModelSize::T),
        Self::dual(ModelSize::S),
        Self::dual(ModelSize::M),
        Self::dual(ModelSize::C),
        Self::dual(ModelSize::E),
        Self::single(ModelSize::T),
        Self::single(ModelSize::S),
        Self::single(ModelSize::M),
        Self::single(ModelSize::C),
        Self::single(ModelSize::E),
    ];

    /// `yolov9-*`.
    pub const fn dual(size: ModelSize) -> Self {
        Self { size, dual: true }
    }

    /// `gelan-*`.
    pub const fn single(size: ModelSize) -> Self {
        Self { size, dual: false }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.dual { "yolov9" } else { "gelan" };
        let size = match self.size {
            ModelSize::T => 't',
            ModelSize::S => 's',
            ModelSize::M => 'm',
            ModelSize::C => 'c',
            ModelSize::E => 'e',
        };
        write!(f, "{family}-{size}")
    }
}

impl From<Model> for String {
    fn from(model: Model) -> Self {
        model.to_string()
    }
}

impl TryFrom<String> for Model {
    type Error = UnknownModel;

    fn try_from(name: String) -> Result<Self, UnknownModel> {
        name.parse()
    }
}

/// A name that is none of the ten models'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{name}`; the models are {}", model_names())]
pub struct UnknownModel {
    pub name: String,
}

fn model_names() -> String {
    Model::ALL.map(|model| model.to_string()).join(", ")
}

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let wanted = name.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|model| model.to_string() == wanted).ok_or_else(|| UnknownModel { name: name.to_owned() })
    }
}

/// What a row computes, with its widths in channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The identity: lets later rows name the input image.
    Silence,
    /// 3x3, stride 2.
    Conv {
        out: usize,
    },
    Elan1 {
        out: usize,
        split: usize,
        inner: usize,
    },
    AConv {
        out: usize,
    },
    ADown {
        out: usize,
    },
    /// `split` is the width that is halved, `inner` that of the two processed paths, `depth` the bottlenecks of each.
    RepNcspElan4 {
        out: usize,
        split: usize,
        inner: usize,
        depth: usize,
    },
    Sppelan {
        out: usize,
        hidden: usize,
    },
    Upsample,
    Concat,
    /// A list of tensors with these widths.
    CbLinear(Vec<usize>),
    /// Which element of each list is taken; the last input is an ordinary tensor.
    CbFuse(Vec<usize>),
    /// Reads P3, P4, P5 of the auxiliary branch (dual models), then of the main branch.
    Detect,
}

/// One row of a layer table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Rows read, in order; empty for the input image.
    pub from: Vec<usize>,
    pub block: Block,
}

impl Model {
    /// The layer table. The class count matters to one row of one size (`rounded`), and to the head.
    pub fn rows(self, n_classes: usize) -> Vec<Row> {
        let mut rows = match self.size {
            ModelSize::T => rows_ts([16, 32, 64, 96, 128], [48, 64]),
            ModelSize::S => rows_ts([32, 64, 128, 192, 256], [96, 128]),
            ModelSize::M => rows_m(rounded(180, n_classes)),
            ModelSize::C => rows_c(),
            ModelSize::E => rows_e(),
        };
        if !self.dual {
            rows = reduced(&rows, &Self::single_rows(self.size));
        }
        rows
    }

    /// For each row of the single model, the row of the dual model that it is. The last is the head, whose main branch
    /// becomes the only one.
    pub fn single_rows(size: ModelSize) -> Vec<usize> {
        match size {
            ModelSize::T | ModelSize::S => (0..22).chain([29]).collect(),
            ModelSize::M | ModelSize::C => (1..23).chain([38]).collect(),
            ModelSize::E => (0..29).chain(36..50).collect(),
        }
    }
}

/// Widths are multiples of 8; a leftover of anchor-based heads exempts one that equals 3 * (classes + 5).
fn rounded(width: usize, n_classes: usize) -> usize {
    if width == 3 * (n_classes + 5) { width } else { width.next_multiple_of(8) }
}

/// The rows `kept` of a dual table, numbered anew; a reference to a dropped `Silence` becomes the input image.
fn reduced(dual: &[Row], kept: &[usize]) -> Vec<Row> {
    kept.iter()
        .map(|&index| {
            let row = &dual[index];
            let from = if row.block == Block::Detect { &row.from[3..] } else { &row.from[..] };
            let from = from.iter().filter_map(|source| kept.iter().position(|kept| kept == source)).collect();
            Row { from, block: row.block.clone() }
        })
        .collect()
}

fn row(from: &[usize], block: Block) -> Row {
    Row { from: from.to_vec(), block }
}

/// -t and -s: `widths` of strides 2, 4, 8, 16, 32; `down` of the two downsampling rows of the neck.
fn rows_ts(widths: [usize; 5], down: [usize; 2]) -> Vec<Row> {
    use Block::{AConv, Concat, Conv, Detect, Elan1, Sppelan, Upsample};
    let [w2, w4, w8, w16, w32] = widths;
    let elan = |w: usize| Block::RepNcspElan4 { out: w, split: w, inner: w / 2, depth: 3 };
    let spp = || Sppelan { out: w32, hidden: w32 / 2 };
    vec![
        row(&[], Conv { out: w2 }),
        row(&[0], Conv { out: w4 }),
        row(&[1], Elan1 { out: w4, split: w4, inner: w4 / 2 }),
        row(&[2], AConv { out: w8 }),
        row(&[3], elan(w8)),
        row(&[4], AConv { out: w16 }),
        row(&[5], elan(w16)),
        row(&[6], AConv { out: w32 }),
        row(&[7], elan(w32)),
        row(&[8], spp()),
        row(&[9], Upsample),
        row(&[10, 6], Concat),
        row(&[11], elan(w16)),
        row(&[12], Upsample),
        row(&[13, 4], Concat),
        row(&[14], elan(w8)),
        row(&[15], AConv { out: down[0] }),
        row(&[16, 12], Concat),
        row(&[17], elan(w16)),
        row(&[18], AConv { out: down[1] }),
        row(&[19, 9], Concat),
        row(&[20], elan(w32)),
        // The auxiliary branch.
        row(&[8], spp()),
        row(&[22], Upsample),
        row(&[23, 6], Concat),
        row(&[24], elan(w16)),
        row(&[25], Upsample),
        row(&[26, 4], Concat),
        row(&[27], elan(w8)),
        row(&[28, 25, 22, 15, 18, 21], Detect),
    ]
}

/// What differs between -m and -c, which share their topology.
struct MiddleTable {
    stem: [usize; 2],
    /// Strides 4, 8, 16, 32; built a second time in the auxiliary branch.
    backbone: [Block; 4],
    down: fn(usize) -> Block,
    /// Of the backbone, towards strides 8, 16, 32; also the widths that the auxiliary branch receives from the backbone.
    backbone_down: [usize; 3],
    spp: Block,
    /// P4 and P3 on the way up, P4 and P5 on the way down.
    neck: [Block; 4],
    neck_down: [usize; 2],
}

fn rows_m(down: usize) -> Vec<Row> {
    let elan = |w: usize| Block::RepNcspElan4 { out: w, split: w, inner: w / 2, depth: 1 };
    rows_mc(&MiddleTable {
        stem: [32, 64],
        backbone: [elan(128), elan(240), elan(360), elan(480)],
        down: |out| Block::AConv { out },
        backbone_down: [240, 360, 480],
        spp: Block::Sppelan { out: 480, hidden: 240 },
        neck: [elan(360), elan(240), elan(360), elan(480)],
        neck_down: [down, 240],
    })
}

fn rows_c() -> Vec<Row> {
    let elan = |out, split, inner| Block::RepNcspElan4 { out, split, inner, depth: 1 };
    let wide = || elan(512, 512, 256);
    rows_mc(&MiddleTable {
        stem: [64, 128],
        backbone: [elan(256, 128, 64), elan(512, 256, 128), wide(), wide()],
        down: |out| Block::ADown { out },
        backbone_down: [256, 512, 512],
        spp: Block::Sppelan { out: 512, hidden: 256 },
        neck: [wide(), elan(256, 256, 128), wide(), wide()],
        neck_down: [256, 512],
    })
}

fn rows_mc(table: &MiddleTable) -> Vec<Row> {
    use Block::{CbFuse, CbLinear, Concat, Conv, Detect, Silence, Upsample};
    let MiddleTable { stem, backbone, down, backbone_down, spp, neck, neck_down } = table;
    let [w8, w16, w32] = *backbone_down;
    vec![
        row(&[], Silence),
        row(&[0], Conv { out: stem[0] }),
        row(&[1], Conv { out: stem[1] }),
        row(&[2], backbone[0].clone()),
        row(&[3], down(w8)),
        row(&[4], backbone[1].clone()),
        row(&[5], down(w16)),
        row(&[6], backbone[2].clone()),
        row(&[7], down(w32)),
        row(&[8], backbone[3].clone()),
        row(&[9], spp.clone()),
        row(&[10], Upsample),
        row(&[11, 7], Concat),
        row(&[12], neck[0].clone()),
        row(&[13], Upsample),
        row(&[14, 5], Concat),
        row(&[15], neck[1].clone()),
        row(&[16], down(neck_down[0])),
        row(&[17, 13], Concat),
        row(&[18], neck[2].clone()),
        row(&[19], down(neck_down[1])),
        row(&[20, 10], Concat),
        row(&[21], neck[3].clone()),
        // The auxiliary branch: a second backbone, fed with the first one's levels.
        row(&[5], CbLinear(vec![w8])),
        row(&[7], CbLinear(vec![w8, w16])),
        row(&[9], CbLinear(vec![w8, w16, w32])),
        row(&[0], Conv { out: stem[0] }),
        row(&[26], Conv { out: stem[1] }),
        row(&[27], backbone[0].clone()),
        row(&[28], down(w8)),
        row(&[23, 24, 25, 29], CbFuse(vec![0, 0, 0])),
        row(&[30], backbone[1].clone()),
        row(&[31], down(w16)),
        row(&[24, 25, 32], CbFuse(vec![1, 1])),
        row(&[33], backbone[2].clone()),
        row(&[34], down(w32)),
        row(&[25, 35], CbFuse(vec![2])),
        row(&[36], backbone[3].clone()),
        row(&[31, 34, 37, 16, 19, 22], Detect),
    ]
}

/// -e: two backbones joined by lists, both of which are deployed.
fn rows_e() -> Vec<Row> {
    use Block::{ADown, CbFuse, CbLinear, Concat, Conv, Detect, Silence, Sppelan, Upsample};
    let elan = |out, split, inner| Block::RepNcspElan4 { out, split, inner, depth: 2 };
    let spp = || Sppelan { out: 512, hidden: 256 };
    vec![
        row(&[], Silence),
        row(&[0], Conv { out: 64 }),
        row(&[1], Conv { out: 128 }),
        row(&[2], elan(256, 128, 64)),
        row(&[3], ADown { out: 256 }),
        row(&[4], elan(512, 256, 128)),
        row(&[5], ADown { out: 512 }),
        row(&[6], elan(1024, 512, 256)),
        row(&[7], ADown { out: 1024 }),
        row(&[8], elan(1024, 512, 256)),
        row(&[1], CbLinear(vec![64])),
        row(&[3], CbLinear(vec![64, 128])),
        row(&[5], CbLinear(vec![64, 128, 256])),
        row(&[7], CbLinear(vec![64, 128, 256, 512])),
        row(&[9], CbLinear(vec![64, 128, 256, 512, 1024])),
        row(&[0], Conv { out: 64 }),
        row(&[10, 11, 12, 13, 14, 15], CbFuse(vec![0; 5])),
        row(&[16], Conv { out: 128 }),
        row(&[11, 12, 13, 14, 17], CbFuse(vec![1; 4])),
        row(&[18], elan(256, 128, 64)),
        row(&[19], ADown { out: 256 }),
        row(&[12, 13, 14, 20], CbFuse(vec![2; 3])),
        row(&[21], elan(512, 256, 128)),
        row(&[22], ADown { out: 512 }),
        row(&[13, 14, 23], CbFuse(vec![3; 2])),
        row(&[24], elan(1024, 512, 256)),
        row(&[25], ADown { out: 1024 }),
        row(&[14, 26], CbFuse(vec![4])),
        row(&[27], elan(1024, 512, 256)),
        // The auxiliary neck, on the first backbone.
        row(&[9], spp()),
        row(&[29], Upsample),
        row(&[30, 7], Concat),
        row(&[31], elan(512, 512, 256)),
        row(&[32], Upsample),
        row(&[33, 5], Concat),
        row(&[34], elan(256, 256, 128)),
        // The main neck.
        row(&[28], spp()),
        row(&[36], Upsample),
        row(&[37, 25], Concat),
        row(&[38], elan(512, 512, 256)),
        row(&[39], Upsample),
        row(&[40, 22], Concat),
        row(&[41], elan(256, 256, 128)),
        row(&[42], ADown { out: 256 }),
        row(&[43, 39], Concat),
        row(&[44], elan(512, 512, 256)),
        row(&[45], ADown { out: 512 }),
        row(&[46, 36], Concat),
        row(&[47], elan(512, 1024, 512)),
        row(&[35, 32, 29, 42, 45, 48], Detect),
    ]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_model_reads_back_from_its_name() {
        for model in Model::ALL {
            assert_eq!(model.to_string().parse::<Model>().unwrap(), model);
        }
        assert_eq!("YOLOv9-C".parse::<Model>().unwrap(), Model::dual(ModelSize::C));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let message = "yolov8-n".parse::<Model>().unwrap_err().to_string();
        assert!(message.contains("yolov8-n") && message.contains("yolov9-t, ") && message.contains("gelan-e"), "{message}");
    }

    #[test]
    fn rows_read_only_earlier_rows() {
        for model in Model::ALL {
            let rows = model.rows(80);
            for (index, row) in rows.iter().enumerate() {
                assert!(row.from.iter().all(|&source| source < index), "{model} row {index}");
            }
            assert_eq!(rows.last().unwrap().from.len(), if model.dual { 6 } else { 3 }, "{model}");
        }
    }

    #[test]
    fn the_odd_width_of_m_is_rounded_unless_the_class_count_exempts_it() {
        let width = |n_classes| Model::dual(ModelSize::M).rows(n_classes)[17].block.clone();
        assert_eq!(width(80), Block::AConv { out: 184 });
        assert_eq!(width(55), Block::AConv { out: 180 });
    }

    #[test]
    fn gelan_c_is_yolov9_c_shifted_by_one() {
        let rows = Model::single(ModelSize::C).rows(80);
        assert_eq!(rows.len(), 23);
        assert_eq!(rows[0], row(&[], Block::Conv { out: 64 }));
        assert_eq!(rows[17], row(&[16, 12], Block::Concat));
        assert_eq!(rows[22], row(&[15, 18, 21], Block::Detect));
    }
}
