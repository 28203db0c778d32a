//! Samples that a GPU makes: compositions become the tables that its kernel reads.
//!
//! In:  the fitted pictures, once; then the compositions of each batch. Out: tables for `engine::cuda::samples`.
//!
//! A composition is some kilobytes where its pixels are a megabyte, so neither the CPU nor the way to the GPU limits training.
//!
//! Never decides anything: the arithmetic is told in `composition.rs`.

use std::sync::Arc;

use super::composition::Composition;
use super::composition::Layer;
use super::train_set::TrainSet;
use crate::engine::cuda::error::CudaError;
use crate::engine::cuda::runtime::Runtime;
use crate::engine::cuda::samples::PictureStore;
use crate::engine::cuda::samples::Sample;
use crate::engine::cuda::samples::SampleColors;
use crate::engine::cuda::samples::SampleLayer;
use crate::engine::cuda::samples::SampleSpan;
use crate::engine::cuda::samples::SampleTable;
use crate::engine::cuda::samples::SampleTile;
use crate::media::color::HsvTables;
use crate::media::warp::Map;

/// Share of the first layer where there is no second.
const WHOLE: u32 = 65536;

/// The fitted pictures of a train set on a GPU.
pub struct Pictures {
    store: PictureStore,
    /// By picture.
    widths: Vec<u32>,
}

impl Pictures {
    /// Brings all pictures to the GPU. `None` where not all are in memory, or less than `leave` bytes would be left there.
    pub fn new(set: &TrainSet, runtime: &Arc<Runtime>, leave: usize) -> Result<Option<Self>, CudaError> {
        if set.n_not_kept() > 0 {
            return Ok(None);
        }
        let pictures = set.images.iter().filter_map(|image| image.kept.as_ref());
        let bytes = PictureStore::bytes_for(pictures.clone().map(|picture| picture.rgb.len()));
        if bytes + leave > runtime.gpu.free_bytes()? {
            return Ok(None);
        }
        let store = PictureStore::new(&runtime.gpu, pictures.clone().map(|picture| picture.rgb.as_slice()))?;
        Ok(Some(Self { store, widths: pictures.map(|picture| picture.size.width).collect() }))
    }

    /// Device memory of them.
    pub fn n_bytes(&self) -> usize {
        self.store.n_bytes()
    }
}

/// The tables of a batch.
pub fn table(compositions: &[Composition], pictures: &Pictures) -> SampleTable {
    let mut table = SampleTable::default();
    for composition in compositions {
        let first = layer(&composition.layer, pictures, &mut table.spans);
        let second = composition.mixup.as_ref().map(|second| (layer(&second.layer, pictures, &mut table.spans), second.share));
        let (second, share) = second.unwrap_or((SampleLayer::default(), WHOLE));
        let colors = composition.hsv_gains.map_or(-1, |gains| {
            let HsvTables { sector, fraction, saturation, value } = HsvTables::new(gains.map(f64::from));
            table.colors.push(SampleColors { fraction, saturation, value, sector });
            table.colors.len() as i32 - 1
        });
        table.samples.push(Sample {
            layers: [first, second],
            share,
            flip_horizontal: i32::from(composition.flip_horizontal),
            flip_vertical: i32::from(composition.flip_vertical),
            colors,
        });
    }
    table
}

fn layer(layer: &Layer, pictures: &Pictures, spans: &mut Vec<SampleSpan>) -> SampleLayer {
    let (map, is_projective) = match layer.map {
        Map::Identity => ([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], false),
        Map::Affine([a, b, c, d, e, f]) => ([a, b, c, d, e, f, 0.0, 0.0, 1.0], false),
        Map::Projective(map) => (map, true),
    };
    let mut made = SampleLayer {
        map,
        is_projective: i32::from(is_projective),
        canvas: [layer.canvas.width as i32, layer.canvas.height as i32],
        n_tiles: layer.tiles.len() as i32,
        first_span: spans.len() as i32,
        n_spans: layer.pastes.len() as i32,
        ..SampleLayer::default()
    };
    for (tile, to) in layer.tiles.iter().zip(&mut made.tiles) {
        *to = SampleTile {
            picture: pictures.store.address(tile.image),
            picture_width: pictures.widths[tile.image] as i32,
            source: tile.source.map(|at| at as i32),
            place: tile.place.map(|at| at as i32),
            size: [tile.size.width as i32, tile.size.height as i32],
            unused: 0,
        };
    }
    spans.extend(layer.pastes.iter().map(|span| SampleSpan {
        y: span.y as i32,
        start: span.start as i32,
        end: span.end as i32,
        unused: 0,
    }));
    made
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::dataset::ClassId;
    use crate::dataset::Label;
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::testing::test_gpu;
    use crate::geom::Size;
    use crate::geom::Xyxy;
    use crate::media::Picture;
    use crate::train::config::Hyp;
    use crate::train::paint::Painter;
    use crate::train::recipe::Recipe;
    use crate::train::recipe::Stream;
    use crate::train::train_set::TrainImage;

    const SIDE: u32 = 96;

    /// Noise in pictures of several sizes; each has two objects with outlines.
    fn train_set() -> TrainSet {
        let sizes = [Size::new(96, 64), Size::new(50, 96), Size::square(96), Size::new(96, 95), Size::new(96, 17)];
        let image = |(index, &size): (usize, &Size)| {
            let n_bytes = (size.width * size.height * 3) as usize;
            let noise = |at: usize| ((at + index * 7919).wrapping_mul(2_654_435_761) >> 13) as u8;
            // Half of it smooth, so that hues of all kinds come up.
            let rgb = (0..n_bytes).map(|at| if (at / 300) % 2 == 0 { noise(at) } else { (at / 5 + index * 40) as u8 }).collect();
            let bboxes = [Xyxy::new(3.0, 4.0, 20.0, 15.0), Xyxy::new(25.0, 2.0, 45.0, 14.0)].map(|bbox| bbox.to_xywhn(size));
            let (w, h) = (size.width as f32, size.height as f32);
            let polygon = |[x, y]: [f32; 2]| vec![[x / w, y / h], [(x + 17.0) / w, (y + 3.0) / h], [(x + 8.0) / w, (y + 11.0) / h]];
            TrainImage {
                path: "drawn".into(),
                fitted: size,
                labels: bboxes.map(|bbox| Label { class: ClassId(0), bbox }).to_vec(),
                polygons: vec![polygon([3.0, 4.0]), polygon([25.0, 2.0])],
                kept: Some(Picture { size, rgb }),
            }
        };
        let images: Vec<TrainImage> = sizes.iter().enumerate().map(image).collect();
        TrainSet { images, imgsz: SIDE, has_polygons: true, n_polygons: 10, dropped: vec![], dropped_rows: vec![] }
    }

    #[test]
    fn gpu_samples_are_those_of_the_cpu_byte_by_byte() {
        let _turn = test_gpu();
        let runtime = Runtime::open(0, Precision::F32).unwrap();
        let gpu = &runtime.gpu;
        let set = train_set();
        let pictures = Pictures::new(&set, &runtime, 0).unwrap().unwrap();
        assert!(Pictures::new(&set, &runtime, gpu.free_bytes().unwrap()).unwrap().is_none());
        let plain = Hyp { mosaic: 0.0, ..Hyp::small_data() };
        let turning = Hyp { degrees: 20.0, shear: 5.0, flipud: 0.5, mixup: 0.5, copy_paste: 0.9, ..Hyp::scratch_high() };
        let tilted = Hyp { perspective: 0.001, ..turning.clone() };
        for hyp in [plain, Hyp::scratch_high(), Hyp { copy_paste: 0.9, mixup: 0.5, ..Hyp::scratch_high() }, turning, tilted] {
            let stream = Stream { hyp: hyp.clone(), seed: 5, n_images: set.images.len(), mosaic_ends: usize::MAX };
            let compositions: Vec<Composition> = (0..8)
                .flat_map(|epoch| (0..5).map(move |image| (epoch, image)))
                .map(|(epoch, image)| set.compose(&Recipe::draw(&stream, epoch, image)))
                .collect();
            if hyp.copy_paste > 0.5 {
                assert!(compositions.iter().any(|composition| !composition.layer.pastes.is_empty()), "no paste in {hyp:?}");
            }
            let table = table(&compositions, &pictures);
            let mut bytes = vec![0; table.n_bytes()];
            table.write_to(&mut bytes);
            let tables = gpu.upload(&bytes).unwrap();
            let n_bytes = compositions.len() * set.sample_len();
            let out = gpu.alloc(n_bytes).unwrap();
            out.fill(0xaa).unwrap();
            gpu.launch(&table.launch(&runtime.kernels, tables.address, out.address, SIDE as usize)).unwrap();
            let made: Vec<u8> = out.read(0, n_bytes).unwrap();
            let mut painter = Painter::default();
            let mut expected = vec![0; set.sample_len()];
            for (index, composition) in compositions.iter().enumerate() {
                painter.paint(composition, &|image| set.images[image].kept.as_ref().unwrap(), &mut expected);
                let made = &made[index * set.sample_len()..][..set.sample_len()];
                let n_other = made.iter().zip(&expected).filter(|(a, b)| a != b).count();
                assert_eq!(n_other, 0, "bytes of {} in {composition:?}", set.sample_len());
            }
        }
    }
}
