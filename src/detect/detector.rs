//! A loaded detector: weights on a device, ready for pictures of any shape.
//!
//! In:  a weight file or a network in memory; then one picture at a time.
//! Out: detections in the picture's own pixels, with the time of each stage.
//!
//! A picture is scaled to fit the input size and padded to the next multiple of 32, as in the published detector, so pictures of
//! one aspect share one graph, of which a few are kept.
//!
//! Never reads or writes pictures. Source: the project's YOLOv9 specification, sections 8.2 and 10.

use std::path::Path;
use std::time::Instant;

use super::error::DetectError;
use crate::engine::Device;
use crate::engine::cuda::error::CudaError;
use crate::geom::Size;
use crate::geom::letterbox::{Letterbox, LetterboxOptions};
use crate::geom::nms::{Detection, NmsOptions};
use crate::media::Picture;
use crate::media::resize::apply_letterbox;
use crate::yolo::Network;
use crate::yolo::predictor::BatchDetections;
use crate::yolo::weights;
use crate::yolo::weights::WeightsInfo;
use crate::yolo::{InputShape, Predictor};

/// Input pixels that a side of the input is a multiple of: one cell of the coarsest level.
const STRIDE: u32 = 32;
/// Largest side of the input: memory and time grow with its square.
const MAX_IMGSZ: u32 = 4096;
/// Graphs that are kept, each with its memory and its own copy of the weights.
const MAX_GRAPHS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectOptions {
    /// Score above which a box counts, 0 to 1.
    pub conf: f32,
    /// Overlap above which the less sure box of the same class is dropped, 0 to 1.
    pub iou: f32,
    pub max_detections: usize,
    /// Longest side of the input in pixels, raised to a multiple of 32. `None`: what the weights were trained with.
    pub imgsz: Option<u32>,
}

impl Default for DetectOptions {
    /// The published values for detection.
    fn default() -> Self {
        let NmsOptions { conf, iou, max_detections, .. } = NmsOptions::detect();
        Self { conf, iou, max_detections, imgsz: None }
    }
}

impl DetectOptions {
    /// Says which option is outside of its range.
    pub fn check(&self) -> Result<(), DetectError> {
        for (what, value) in [("conf", self.conf), ("iou", self.iou)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(DetectError::Option { what, value: value.to_string(), expected: "0 to 1".to_owned() });
            }
        }
        if let Some(imgsz) = self.imgsz.filter(|imgsz| !(STRIDE..=MAX_IMGSZ).contains(imgsz)) {
            let expected = format!("{STRIDE} to {MAX_IMGSZ}");
            return Err(DetectError::Option { what: "imgsz", value: imgsz.to_string(), expected });
        }
        Ok(())
    }
}

/// Detections of one picture in its own pixels, best first, and what each stage took.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureDetections {
    pub size: Size,
    pub detections: Vec<Detection>,
    /// Scaling and padding.
    pub letterbox_ms: f32,
    /// The network with the decoding of its boxes, and the way to a GPU; for the first picture of a shape also its preparation.
    pub network_ms: f32,
    /// Suppression, the way back from a GPU, and the way back to the picture's pixels.
    pub nms_ms: f32,
}

/// A detector ready to run.
pub struct Detector {
    pub class_names: Vec<String>,
    pub imgsz: u32,
    predictor: Predictor,
}

impl Detector {
    /// Reads weights of any model and form that this program wrote.
    ///
    /// # Errors
    /// Weights that cannot be read, or a GPU that cannot be used.
    pub fn load(weights: &Path, device: Device) -> Result<Self, DetectError> {
        let (network, info) = weights::load(weights)?;
        Ok(Self::from_network(&network, &info, device)?)
    }

    /// The detector of a network in memory, which stays as it is.
    pub fn from_network(network: &Network, info: &WeightsInfo, device: Device) -> Result<Self, CudaError> {
        let predictor = Predictor::new(network, device, MAX_GRAPHS)?;
        Ok(Self { class_names: info.class_names.clone(), imgsz: info.imgsz as u32, predictor })
    }

    /// Detects on one picture; the letterbox is the smallest rectangle of the stride.
    ///
    /// # Errors
    /// What the GPU says. Never on the CPU.
    pub fn detect(&mut self, picture: &Picture, options: &DetectOptions) -> Result<PictureDetections, CudaError> {
        let start = Instant::now();
        let side = options.imgsz.unwrap_or(self.imgsz).clamp(STRIDE, MAX_IMGSZ).next_multiple_of(STRIDE);
        let letterbox = Letterbox::new(picture.size, Size::square(side), LetterboxOptions { auto: Some(STRIDE), scale_up: true });
        let boxed = apply_letterbox(picture, &letterbox);
        let letterboxed = Instant::now();

        let Size { width, height } = letterbox.input;
        let shape = InputShape { n_images: 1, height: height as usize, width: width as usize };
        let DetectOptions { conf, iou, max_detections, .. } = *options;
        let options = NmsOptions { conf, iou, max_detections, ..NmsOptions::detect() };
        let BatchDetections { images, nms_ms } = self.predictor.detect(shape, &boxed.rgb, &options)?;
        let detected = Instant::now();

        let mut detections: Vec<Detection> = images.into_iter().flatten().collect();
        for detection in &mut detections {
            detection.bbox = letterbox.image_from_input(detection.bbox);
        }
        let ms = |from: Instant, to: Instant| (to - from).as_secs_f32() * 1000.0;
        Ok(PictureDetections {
            size: picture.size,
            detections,
            letterbox_ms: ms(start, letterboxed),
            network_ms: ms(letterboxed, detected) - nms_ms,
            nms_ms: nms_ms + ms(detected, Instant::now()),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::{DetectError, DetectOptions, Detector, MAX_GRAPHS};
    use crate::engine::Device;
    use crate::engine::params::ParamId;
    use crate::geom::{Size, Xyxy};
    use crate::media::Picture;
    use crate::yolo::weights::WeightsInfo;
    use crate::yolo::{Model, ModelSize, Network};

    /// A network that sees the same in every picture: at each cell of stride 32, and nowhere else, class 1 with score 0.75, as
    /// a box of half a cell around its centre.
    pub(crate) fn cell_network() -> Network {
        let mut network = Network::new(Model::single(ModelSize::T), 3, 7).to_deploy();
        let ids: Vec<ParamId> = network.params.ids().collect();
        for id in ids {
            let name = network.params.spec(id).name.clone();
            let values = network.params.get_mut(id);
            for level in 0..3 {
                let part_of = |branch: &str| name.split_once(&format!(".{branch}.{level}.2.")).map(|(_, part)| part);
                match (part_of("cv2"), part_of("cv3")) {
                    (Some("bias"), _) => {
                        // Three quarters on bin 0, one on bin 1: a quarter of a stride to each side.
                        values.fill(-40.0);
                        for side in values.chunks_mut(16) {
                            side[..2].copy_from_slice(&[3.0f32.ln(), 0.0]);
                        }
                    }
                    (_, Some("bias")) => {
                        values.fill(-20.0);
                        if level == 2 {
                            values[1] = 3.0f32.ln();
                        }
                    }
                    (Some(_), _) | (_, Some(_)) => values.fill(0.0),
                    (None, None) => {}
                }
            }
        }
        network
    }

    fn cell_detector() -> Detector {
        let network = cell_network();
        let info = WeightsInfo { class_names: ["a", "b", "c"].map(str::to_owned).to_vec(), imgsz: 64 };
        Detector::from_network(&network, &info, Device::Cpu).unwrap()
    }

    fn gray(width: u32, height: u32) -> Picture {
        Picture { size: Size::new(width, height), rgb: vec![90; (width * height * 3) as usize] }
    }

    #[test]
    fn boxes_come_back_in_the_pixels_of_the_picture() {
        let mut detector = cell_detector();
        // Scaled by 0.64 to 64 x 26, padded by 3 above and below: one row of two cells of 32 input pixels.
        let found = detector.detect(&gray(100, 40), &DetectOptions::default()).unwrap();
        assert_eq!(found.size, Size::new(100, 40));
        let near = |a: Xyxy, b: [f32; 4]| [a.x1 - b[0], a.y1 - b[1], a.x2 - b[2], a.y2 - b[3]].iter().all(|error| error.abs() < 0.01);
        assert_eq!(found.detections.len(), 2);
        for (detection, expected) in found.detections.iter().zip([[12.5, 7.8125, 37.5, 32.8125], [62.5, 7.8125, 87.5, 32.8125]]) {
            assert!(near(detection.bbox, expected), "{detection:?}");
            assert_eq!(detection.class, 1);
            assert!((detection.score - 0.75).abs() < 1e-4, "{detection:?}");
        }

        // A small picture is enlarged: 4 times, to 64 x 64, which are 2 x 2 cells.
        let found = detector.detect(&gray(16, 16), &DetectOptions::default()).unwrap();
        assert_eq!(found.detections.len(), 4);
        assert!(near(found.detections[3].bbox, [10.0, 10.0, 14.0, 14.0]), "{:?}", found.detections);
    }

    #[test]
    fn the_input_size_can_be_chosen_and_is_raised_to_a_multiple_of_32() {
        let mut detector = cell_detector();
        let options = DetectOptions { imgsz: Some(70), ..DetectOptions::default() };
        assert_eq!(detector.detect(&gray(50, 50), &options).unwrap().detections.len(), 9);
    }

    #[test]
    fn few_graphs_are_kept_and_the_one_used_last_stays() {
        let mut detector = cell_detector();
        for height in [32, 64, 96, 32, 128, 160] {
            let options = DetectOptions { imgsz: Some(160), ..DetectOptions::default() };
            detector.detect(&gray(160, height), &options).unwrap();
        }
        let heights: Vec<usize> = detector.predictor.shapes().iter().map(|shape| shape.height).collect();
        assert_eq!(heights, [96, 32, 128, 160]);
        assert_eq!(heights.len(), MAX_GRAPHS);
    }

    #[test]
    fn options_outside_of_their_range_are_refused() {
        let wrong = |options: DetectOptions| matches!(options.check(), Err(DetectError::Option { .. }));
        assert!(wrong(DetectOptions { conf: 1.5, ..DetectOptions::default() }));
        assert!(wrong(DetectOptions { iou: f32::NAN, ..DetectOptions::default() }));
        assert!(wrong(DetectOptions { imgsz: Some(8), ..DetectOptions::default() }));
        assert!(wrong(DetectOptions { imgsz: Some(100_000), ..DetectOptions::default() }));
        assert!(!wrong(DetectOptions::default()));
    }
}
