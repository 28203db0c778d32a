//! Where does a first dataset come from? Pictures of machined metal parts with scratches, dents and cracks, drawn from a seed.
//!
//! In:  how many pictures, how large, and a seed.
//! Out: a folder with `images/{train,val}`, `labels/{train,val}` and `data.yaml`; whole, or nothing after an error or a cancel.
//!
//! The same options give the same bytes on every machine and with any number of threads. With `broken`, known faults are planted
//! and listed in `FAULTS.md`, for trying out `check` and `fix`.

mod canvas;
mod clutter;
mod defect;
mod faults;
pub(super) mod random;
mod scene;
mod shape;
mod surface;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use image::ImageFormat;
use rayon::prelude::*;

use self::defect::DefectKind;
use self::random::Random;
use self::scene::Scene;
use super::label::Split;
use super::open::DatasetError;
use crate::media::encode::encode_bytes;

/// Quality of the JPEG files: 160 pictures of 320 pixels stay under 4 MB.
const QUALITY: u8 = 82;
/// Of all pictures go into `val`.
const VAL_PART: f64 = 0.2;
/// Of all pictures show a part without defects.
const BACKGROUND_PART: f64 = 0.08;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    pub n_images: usize,
    /// Side of the square pictures in pixels.
    pub size: u32,
    pub seed: u64,
    /// Plants known label and image faults, listed in `FAULTS.md` beside data.yaml.
    pub broken: bool,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self { n_images: 160, size: 320, seed: 7, broken: false }
    }
}

/// Writes the dataset into `out` (new or empty folder). The same options give the same bytes on every machine.
///
/// `check_in` is told how many of how many pictures are done, and may stop the work; then nothing is left behind.
///
/// # Errors
/// `out` exists and is not empty, options that make no sense, or what the file system says.
pub fn write_sample(
    out: &Path,
    options: &SampleOptions,
    check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
) -> Result<(), DatasetError> {
    let failed = |source: io::Error| DatasetError::Write { path: out.display().to_string(), source };
    validate(options).map_err(|reason| DatasetError::Sample { reason })?;
    if out.exists() && fs::read_dir(out).map_err(failed)?.next().is_some() {
        return Err(DatasetError::OutNotEmpty { path: out.display().to_string() });
    }
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(failed)?;
    let workshop = tempfile::Builder::new().prefix(".boxwright-sample-").tempdir_in(parent).map_err(failed)?;
    let folder = workshop.path().join("sample");

    write_into(&folder, options, check_in).map_err(|stop| match stop {
        Stop::Cancelled => DatasetError::Cancelled,
        Stop::Failed(source) => failed(source),
    })?;
    if out.exists() {
        fs::remove_dir(out).map_err(failed)?;
    }
    fs::rename(&folder, out).map_err(failed)
}

fn validate(options: &SampleOptions) -> Result<(), String> {
    if !(64..=4096).contains(&options.size) {
        return Err(format!("the size of the pictures is {}, expected 64 to 4096 pixels", options.size));
    }
    let least = if options.broken { faults::MIN_IMAGES } else { 5 };
    if options.n_images < least {
        return Err(format!("{} images are too few, expected at least {least}", options.n_images));
    }
    Ok(())
}

enum Stop {
    Cancelled,
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn write_into(folder: &Path, options: &SampleOptions, check_in: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Result<(), Stop> {
    for split in [Split::Train, Split::Val] {
        fs::create_dir_all(folder.join("images").join(split.name()))?;
        fs::create_dir_all(folder.join("labels").join(split.name()))?;
    }
    let plan = plan(options);
    let done = AtomicU64::new(0);
    plan.par_iter().enumerate().try_for_each(|(index, planned)| -> Result<(), Stop> {
        let (jpeg, labels) = draw_one(options, index, planned)?;
        fs::write(folder.join(planned.image_path()), jpeg)?;
        fs::write(folder.join(planned.label_path()), labels)?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if check_in(done, plan.len() as u64).is_break() { Err(Stop::Cancelled) } else { Ok(()) }
    })?;
    fs::write(folder.join("data.yaml"), data_yaml(options))?;
    if options.broken {
        faults::plant(folder, &plan, options.seed)?;
    }
    Ok(())
}

/// What is fixed about a picture before it is drawn.
#[derive(Clone, Debug)]
struct Planned {
    stem: String,
    split: Split,
    is_background: bool,
}

impl Planned {
    fn image_path(&self) -> String {
        format!("images/{}/{}.jpg", self.split.name(), self.stem)
    }

    fn label_path(&self) -> String {
        format!("labels/{}/{}.txt", self.split.name(), self.stem)
    }
}

/// Which picture goes into which split, and which are without defects: exact parts, drawn from the seed.
fn plan(options: &SampleOptions) -> Vec<Planned> {
    let n = options.n_images;
    let chosen = |purpose: u64, part: f64| {
        let mut order: Vec<usize> = (0..n).collect();
        Random::new(options.seed, purpose, 0).shuffle(&mut order);
        let mut is_chosen = vec![false; n];
        order.iter().take((n as f64 * part).round() as usize).for_each(|&index| is_chosen[index] = true);
        is_chosen
    };
    let (val, background) = (chosen(2, VAL_PART), chosen(3, BACKGROUND_PART));
    (0..n)
        .map(|index| Planned {
            stem: format!("part_{:04}", index + 1),
            split: if val[index] { Split::Val } else { Split::Train },
            is_background: background[index],
        })
        .collect()
}

/// The bytes of the picture and of its label file.
fn draw_one(options: &SampleOptions, index: usize, planned: &Planned) -> io::Result<(Vec<u8>, String)> {
    let Scene { picture, defects } = scene::draw_scene(options.seed, index as u64, options.size, planned.is_background);
    let jpeg = encode_bytes(&picture, ImageFormat::Jpeg, QUALITY).map_err(io::Error::other)?;
    let mut labels = String::new();
    for (kind, b) in defects {
        let class = DefectKind::ALL.iter().position(|known| *known == kind).expect("every kind is in the list");
        writeln!(labels, "{class} {:.6} {:.6} {:.6} {:.6}", b.cx, b.cy, b.w, b.h).expect("a string takes all text");
    }
    Ok((jpeg, labels))
}

fn data_yaml(options: &SampleOptions) -> String {
    let mut text = format!(
        "# Machined metal parts with surface defects, drawn by `boxwright sample --images {} --size {} --seed {}{}`.\n\
         # Paths are relative to this file.\n\
         train: images/train\n\
         val: images/val\n\
         \n\
         names:\n",
        options.n_images,
        options.size,
        options.seed,
        if options.broken { " --broken" } else { "" }
    );
    for (class, kind) in DefectKind::ALL.iter().enumerate() {
        writeln!(text, "  {class}: {}", kind.name()).expect("a string takes all text");
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::dataset::check::check;
    use crate::dataset::open::Dataset;

    fn go_on(_: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn small(n_images: usize, broken: bool) -> SampleOptions {
        SampleOptions { n_images, size: 64, seed: 3, broken }
    }

    /// Every file below a folder with its bytes.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file());
        entries.map(|e| (e.path().strip_prefix(folder).unwrap().to_owned(), fs::read(e.path()).unwrap())).collect()
    }

    #[test]
    fn the_repositorys_dataset_is_what_the_generator_draws() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/parts");
        let options = SampleOptions::default();
        assert_eq!(fs::read_to_string(folder.join("data.yaml")).unwrap(), data_yaml(&options));
        let plan = plan(&options);
        for index in [0, 77, 159] {
            let (jpeg, labels) = draw_one(&options, index, &plan[index]).unwrap();
            assert!(fs::read(folder.join(plan[index].image_path())).unwrap() == jpeg, "{}", plan[index].stem);
            assert_eq!(fs::read_to_string(folder.join(plan[index].label_path())).unwrap(), labels);
        }
        assert_eq!(files(&folder).len(), 2 * 160 + 1);

        let dataset = Dataset::open(&folder).unwrap();
        assert_eq!((dataset.split(Split::Train).count(), dataset.split(Split::Val).count()), (128, 32));
        assert_eq!(dataset.names, ["scratch", "dent", "crack"]);
        assert_eq!(check(&dataset, &go_on).unwrap().n_errors(), 0);
    }

    #[test]
    fn the_number_of_threads_changes_no_byte() {
        let folder = tempfile::tempdir().unwrap();
        for n_threads in [1, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| write_sample(&folder.path().join(n_threads.to_string()), &small(10, false), &go_on)).unwrap();
        }
        let (one, four) = (files(&folder.path().join("1")), files(&folder.path().join("4")));
        assert!(one == four);
        assert_eq!(one.keys().filter(|path| path.starts_with("images/val")).count(), 2);
        assert_eq!(one.len(), 21);
    }

    #[test]
    fn boxes_lie_inside_of_the_picture_and_are_mostly_large_enough_to_see() {
        let boxes: Vec<_> = (0..40).flat_map(|index| scene::draw_scene(5, index, 64, false).defects).collect();
        for (kind, b) in &boxes {
            let edges = [b.cx - b.w / 2.0, b.cy - b.h / 2.0, 1.0 - b.cx - b.w / 2.0, 1.0 - b.cy - b.h / 2.0];
            assert!(edges.iter().all(|edge| *edge >= 0.0), "{kind:?} {b:?}");
        }
        let large = boxes.iter().filter(|(_, b)| b.w.min(b.h) >= 24.0 / 320.0).count();
        assert!(boxes.len() >= 60 && large * 10 >= boxes.len() * 8, "{large} of {} boxes are large", boxes.len());
        for kind in DefectKind::ALL {
            let count = boxes.iter().filter(|(known, _)| *known == kind).count();
            assert!(count * 5 >= boxes.len(), "{count} of {} are {kind:?}", boxes.len());
        }
    }

    #[test]
    fn every_planted_fault_is_listed_and_found_by_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("broken");
        write_sample(&out, &small(28, true), &go_on).unwrap();
        let report = fs::read_to_string(out.join("FAULTS.md")).unwrap();
        let rows: Vec<Vec<&str>> =
            report.lines().filter(|line| line.starts_with("| ")).skip(2).map(|line| line.split(" | ").collect()).collect();
        assert_eq!(rows.len(), 5 + 10 + 1 + 5, "{report}");
        let dataset = Dataset::open(&out).unwrap();
        let found = check(&dataset, &go_on).unwrap();
        for row in rows.iter().filter(|row| !row[2].contains("harmless")) {
            let (file, line) = (Path::new(row[0].trim_start_matches("| ")), row[1].parse::<usize>().ok());
            let is_told = found.findings.iter().any(|finding| finding.file == file && (line.is_none() || finding.line == line));
            assert!(is_told, "{row:?}");
        }
        let stretched = rows.iter().filter(|row| row[2].contains("reaches past the edge"));
        for row in stretched {
            let text = fs::read_to_string(out.join(row[0].trim_start_matches("| "))).unwrap();
            let line = text.lines().nth(row[1].parse::<usize>().unwrap() - 1).unwrap();
            let b: Vec<f64> = line.split(' ').skip(1).map(|field| field.parse().unwrap()).collect();
            let outside = [b[0] - b[2] / 2.0, b[1] - b[3] / 2.0, 1.0 - b[0] - b[2] / 2.0, 1.0 - b[1] - b[3] / 2.0];
            assert!(outside.iter().any(|edge| *edge < -0.01), "{line}");
        }
    }

    #[test]
    fn a_folder_in_use_bad_options_and_a_cancel_leave_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.txt"), "mine").unwrap();
        assert!(matches!(write_sample(folder.path(), &small(6, false), &go_on), Err(DatasetError::OutNotEmpty { .. })));
        let out = folder.path().join("new");
        assert!(matches!(write_sample(&out, &small(6, true), &go_on), Err(DatasetError::Sample { .. })));
        assert!(matches!(write_sample(&out, &SampleOptions { size: 5, ..small(6, false) }, &go_on), Err(DatasetError::Sample { .. })));
        let cancelled = write_sample(&out, &small(6, false), &|done, _| if done >= 2 { ControlFlow::Break(()) } else { go_on(0, 0) });
        assert!(matches!(cancelled, Err(DatasetError::Cancelled)));
        assert_eq!(files(folder.path()).len(), 1);
        fs::create_dir(&out).unwrap();
        write_sample(&out, &small(6, false), &go_on).unwrap();
        assert_eq!(files(&out).len(), 13);
    }
}
