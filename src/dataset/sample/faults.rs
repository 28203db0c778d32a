//! Which faults are planted into a broken sample? The kinds that real datasets have, each told by file and line.
//!
//! In:  a whole dataset on disk.
//! Out: the same with faults, and `FAULTS.md`, which says what was done, so that a check can be held against it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::Planned;
use super::random::Random;
use crate::dataset::label::Split;

/// Fewer pictures have no room for all faults.
pub(super) const MIN_IMAGES: usize = 28;

/// A line of `FAULTS.md`.
struct Fault {
    file: String,
    /// From 1; `None` when the whole file is meant.
    line: Option<usize>,
    what: &'static str,
}

/// Plants all faults into the dataset at `folder`.
pub(super) fn plant(folder: &Path, plan: &[Planned], seed: u64) -> io::Result<()> {
    let mut planter = Planter::new(folder, plan, seed)?;
    planter.stretch_over_the_edge()?;
    planter.append_bad_rows()?;
    planter.change_files()?;
    fs::write(folder.join("FAULTS.md"), report(&planter.faults))
}

struct Planter<'a> {
    folder: &'a Path,
    /// Training pictures with labels that have no fault yet, and their rows.
    clean: Vec<(Planned, Vec<String>)>,
    faults: Vec<Fault>,
}

impl<'a> Planter<'a> {
    fn new(folder: &'a Path, plan: &[Planned], seed: u64) -> io::Result<Self> {
        let mut clean = Vec::new();
        for planned in plan.iter().filter(|planned| planned.split == Split::Train) {
            let text = fs::read_to_string(folder.join(planned.label_path()))?;
            if !text.is_empty() {
                clean.push((planned.clone(), text.lines().map(str::to_owned).collect()));
            }
        }
        Random::new(seed, 4, 0).shuffle(&mut clean);
        Ok(Self { folder, clean, faults: Vec::new() })
    }

    /// The next untouched picture. Of [`MIN_IMAGES`] pictures at least 20 are labelled and in train, and 17 are needed.
    fn next(&mut self) -> io::Result<(Planned, Vec<String>)> {
        self.clean.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too few pictures with defects for all faults"))
    }

    fn write(&self, planned: &Planned, rows: &[String]) -> io::Result<()> {
        fs::write(self.folder.join(planned.label_path()), rows.join("\n") + "\n")
    }

    fn note(&mut self, file: String, line: Option<usize>, what: &'static str) {
        self.faults.push(Fault { file, line, what });
    }

    /// Real defects near the border, whose boxes were drawn carelessly across it.
    fn stretch_over_the_edge(&mut self) -> io::Result<()> {
        const N_STRETCHED: usize = 5;
        // (distance of the nearest edge, position in `clean`, row)
        let mut near: Vec<(f64, usize, usize)> = Vec::new();
        for (position, (_, rows)) in self.clean.iter().enumerate() {
            let distances = rows.iter().enumerate().filter_map(|(row, text)| Some((edge_distance(&numbers(text)?), position, row)));
            near.extend(distances.min_by(|a, b| a.0.total_cmp(&b.0)));
        }
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.truncate(N_STRETCHED);
        near.sort_by_key(|(_, position, _)| std::cmp::Reverse(*position));
        for (i, (_, position, row)) in near.into_iter().enumerate() {
            let (planned, mut rows) = self.clean.remove(position);
            let Some(b) = numbers(&rows[row]) else { continue };
            rows[row] = stretched(&rows[row], b, 0.012 + 0.011 * i as f64);
            self.write(&planned, &rows)?;
            self.note(planned.label_path(), Some(row + 1), "box reaches past the edge of the picture (real defect inside, can be cut)");
        }
        Ok(())
    }

    fn append_bad_rows(&mut self) -> io::Result<()> {
        let bad: [(&[&str], &'static str); 8] = [
            (&["1 0.985000 0.430000 0.190000 0.150000"], "box lies 42 % outside of the picture"),
            (&["0 0.310000 1.045000 0.240000 0.160000"], "box lies mostly outside of the picture"),
            (&["2 -0.062000 0.580000 0.180000 0.220000", "0 0.700000 -0.240000 0.150000 0.100000"], "box lies mostly or wholly outside"),
            (&["3 0.412000 0.337000 0.120000 0.095000", "7 0.655000 0.702000 0.080000 0.110000"], "class is not in the names"),
            (&["1 0.524000 0.471000 0.133000"], "four fields instead of five"),
            (&["0 nan 0.500000 0.200000 0.100000"], "coordinate is not a number"),
            (&["1 0.450000 0.550000 0.000000 0.120000"], "width is zero"),
            (&["2 0.600000 0.400000 -0.140000 0.110000"], "width is negative"),
        ];
        for (extra, what) in bad {
            let (planned, mut rows) = self.next()?;
            for row in extra {
                rows.push((*row).to_owned());
                self.note(planned.label_path(), Some(rows.len()), what);
            }
            self.write(&planned, &rows)?;
        }
        let (planned, mut rows) = self.next()?;
        rows.push(rows[0].clone());
        self.write(&planned, &rows)?;
        self.note(planned.label_path(), Some(rows.len()), "same row as line 1");
        Ok(())
    }

    fn change_files(&mut self) -> io::Result<()> {
        // Not wrong, but a careless reader stumbles over it.
        let (planned, mut rows) = self.next()?;
        rows.insert(1, String::new());
        fs::write(self.folder.join(planned.label_path()), rows.join("\r\n") + "\r\n")?;
        self.note(planned.label_path(), Some(2), "blank line, and Windows line ends in the whole file (both harmless)");

        let (planned, _) = self.next()?;
        let path = self.folder.join(planned.image_path());
        let bytes = fs::read(&path)?;
        fs::write(&path, &bytes[..bytes.len() * 6 / 10])?;
        self.note(planned.image_path(), None, "JPEG is cut off after 60 % of its bytes");

        let (planned, _) = self.next()?;
        fs::write(self.folder.join(planned.image_path()), b"")?;
        self.note(planned.image_path(), None, "file is empty");

        fs::write(self.folder.join("labels/train/part_9001.txt"), "0 0.500000 0.500000 0.200000 0.200000\n")?;
        self.note("labels/train/part_9001.txt".to_owned(), None, "label without a picture");

        fs::write(self.folder.join("images/train/part_9002.jpg"), "this is a text and no picture\n")?;
        self.note("images/train/part_9002.jpg".to_owned(), None, "text file with the name of a picture");
        Ok(())
    }
}

/// `cx, cy, w, h` of a row.
fn numbers(row: &str) -> Option<[f64; 4]> {
    let fields: Vec<f64> = row.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    fields.try_into().ok()
}

fn edge_distance([cx, cy, w, h]: &[f64; 4]) -> f64 {
    [cx - w / 2.0, 1.0 - cx - w / 2.0, cy - h / 2.0, 1.0 - cy - h / 2.0].into_iter().fold(f64::INFINITY, f64::min)
}

/// The row with its box stretched over the nearest edge by `excess` of the picture.
fn stretched(row: &str, [cx, cy, w, h]: [f64; 4], excess: f64) -> String {
    let (mut x1, mut y1, mut x2, mut y2) = (cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0);
    let nearest = edge_distance(&[cx, cy, w, h]);
    if x1 <= nearest {
        x1 = -excess;
    } else if 1.0 - x2 <= nearest {
        x2 = 1.0 + excess;
    } else if y1 <= nearest {
        y1 = -excess;
    } else {
        y2 = 1.0 + excess;
    }
    let class = row.split_whitespace().next().unwrap_or("0");
    format!("{class} {:.6} {:.6} {:.6} {:.6}", f64::midpoint(x1, x2), f64::midpoint(y1, y2), x2 - x1, y2 - y1)
}

fn report(faults: &[Fault]) -> String {
    let mut text = String::from(
        "# Planted faults\n\n\
         This dataset was broken on purpose. `boxwright check` should find each of these; `boxwright fix` mends what is safe to mend.\n\n\
         | File | Line | Fault |\n| --- | --- | --- |\n",
    );
    for fault in faults {
        let line = fault.line.map_or_else(|| "–".to_owned(), |line| line.to_string());
        writeln!(text, "| {} | {line} | {} |", fault.file, fault.what).expect("a string takes all text");
    }
    text
}
