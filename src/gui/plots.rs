//! Which plots of a run are there? Each with its lines, what it says in plain words, and where its values come from.
//!
//! In:  the steps and epochs of a run. Out: for each line a [`Series`], and a chart for a file.
//!
//! New values are taken in once, a bounded number a frame. Never draws.

use std::ops::Range;

use egui::Color32;

use super::series::Series;
use super::theme::Palette;
use crate::engine::cuda::nvml::GpuFigures;
use crate::media::chart::{Chart, ChartLine};
use crate::session::RunView;
use crate::train::health::{Band, Signal};
use crate::train::{AlarmKind, EpochReport, MachineReport, StepReport};

/// What lies along a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    Steps,
    Epochs,
    /// Minutes since the run began.
    Minutes,
}

impl Along {
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "step",
            Self::Epochs => "epoch",
            Self::Minutes => "minute",
        }
    }
}

/// Where the values of a line come from; NaN where a run does not know it.
#[derive(Clone, Copy)]
pub enum Source {
    Step(fn(&StepReport) -> f32),
    Epoch(fn(&EpochReport) -> f32),
    Machine(fn(&MachineReport) -> f32),
}

/// A line of a plot.
pub struct LineInfo {
    pub name: &'static str,
    pub color: fn(&Palette) -> Color32,
    pub source: Source,
}

/// A plot that a person can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotKind {
    Losses,
    Branches,
    AveragePrecision,
    PrecisionRecall,
    LearningRate,
    Gradient,
    UpdateRatio,
    Speed,
    DataWait,
    GpuLoad,
    GpuMemory,
    GpuPower,
    GpuTemperature,
    Cpu,
    Memory,
    Disk,
}

/// What there is to say about a plot.
pub struct PlotInfo {
    /// For file names.
    pub id: &'static str,
    pub title: &'static str,
    pub tooltip: &'static str,
    /// Decimals of the values that are shown.
    pub digits: usize,
    /// Whether a logarithmic scale says something.
    pub has_log: bool,
    pub lines: &'static [LineInfo],
}

const fn line(name: &'static str, color: fn(&Palette) -> Color32, source: Source) -> LineInfo {
    LineInfo { name, color, source }
}

const fn plot(id: &'static str, title: &'static str, tooltip: &'static str, digits: usize, lines: &'static [LineInfo]) -> PlotInfo {
    PlotInfo { id, title, tooltip, digits, has_log: false, lines }
}

impl PlotKind {
    pub const ALL: [Self; 16] = [
        Self::Losses,
        Self::Branches,
        Self::AveragePrecision,
        Self::PrecisionRecall,
        Self::LearningRate,
        Self::Gradient,
        Self::UpdateRatio,
        Self::Speed,
        Self::DataWait,
        Self::GpuLoad,
        Self::GpuMemory,
        Self::GpuPower,
        Self::GpuTemperature,
        Self::Cpu,
        Self::Memory,
        Self::Disk,
    ];

    pub fn info(self) -> &'static PlotInfo {
        static LOSSES: PlotInfo = PlotInfo {
            has_log: true,
            ..plot(
                "loss",
                "Loss",
                "How far the network is from the labels: the place of boxes (box and dfl), and their class. It should fall",
                3,
                &[
                    line("box", |p| p.curves[0], Source::Step(|step| step.box_loss)),
                    line("class", |p| p.curves[1], Source::Step(|step| step.cls_loss)),
                    line("dfl", |p| p.curves[2], Source::Step(|step| step.dfl_loss)),
                ],
            )
        };
        static AVERAGE_PRECISION: PlotInfo = plot(
            "map",
            "Average precision",
            "How well the val split is found, 0 to 1: mAP50 counts boxes that overlap by half, mAP50-95 asks for exact places too",
            3,
            &[
                line("mAP50", |p| p.scores[0], Source::Epoch(|epoch| epoch.metrics.map50 as f32)),
                line("mAP50-95", |p| p.scores[1], Source::Epoch(|epoch| epoch.metrics.map50_95 as f32)),
            ],
        );
        static PRECISION_RECALL: PlotInfo = plot(
            "precision-recall",
            "Precision and recall",
            "Precision: share of the detections that are right. Recall: share of the labels that are found. At the score where both are best",
            3,
            &[
                line("precision", |p| p.curves[0], Source::Epoch(|epoch| epoch.metrics.precision as f32)),
                line("recall", |p| p.curves[2], Source::Epoch(|epoch| epoch.metrics.recall as f32)),
            ],
        );
        static LEARNING_RATE: PlotInfo = PlotInfo {
            has_log: true,
            ..plot(
                "learning-rate",
                "Learning rate",
                "How far one step goes: it grows in the warm-up and falls to the end",
                5,
                &[
                    line("weights", |p| p.curves[0], Source::Step(|step| step.lr as f32)),
                    line("batch norm", |p| p.curves[2], Source::Step(|step| group_rate(step, 2))),
                    line("biases", |p| p.curves[1], Source::Step(|step| group_rate(step, 0))),
                ],
            )
        };
        static GRADIENT: PlotInfo = PlotInfo {
            has_log: true,
            ..plot(
                "gradient",
                "Gradient norm",
                "How strongly a batch pulls at the weights, before clipping. Sudden peaks are batches that fit nothing learnt so far",
                2,
                &[line("gradient norm", |p| p.curves[1], Source::Step(|step| step.grad_norm))],
            )
        };
        static SPEED: PlotInfo = plot(
            "speed",
            "Images a second",
            "Images learnt a second. Where it drops, something else uses the machine, or pictures come too slowly",
            1,
            &[line("images/s", |p| p.curves[2], Source::Step(|step| step.images_per_sec))],
        );
        static BRANCHES: PlotInfo = PlotInfo {
            has_log: true,
            ..plot(
                "branches",
                "Loss of both branches",
                "The main branch is what is kept; the auxiliary branch only helps it to learn. Both should fall",
                3,
                &[
                    line("main", |p| p.curves[0], Source::Step(|step| known(step.main.map(|losses| losses.sum())))),
                    line("auxiliary", |p| p.scores[0], Source::Step(|step| known(step.aux.map(|losses| losses.sum())))),
                ],
            )
        };
        static UPDATE_RATIO: PlotInfo = PlotInfo {
            has_log: true,
            ..plot(
                "update-ratio",
                "Update to weight ratio",
                "How much a step changes the weights, against their size: about 0.001 is healthy, 0.1 destroys, 0.00001 stands still",
                5,
                &[line("ratio", |p| p.scores[0], Source::Step(|step| known(step.update_ratio)))],
            )
        };
        static DATA_WAIT: PlotInfo = plot(
            "data-wait",
            "Waiting for images",
            "Share of the time in which the training waits for images. Near 0 is good; much of it means disk or CPU are the limit",
            2,
            &[line("share", |p| p.scores[1], Source::Step(|step| known(step.data_wait)))],
        );
        static GPU_LOAD: PlotInfo = plot(
            "gpu-load",
            "GPU load",
            "Share of the time in which the GPU computes, and in which its memory is read or written",
            2,
            &[
                line("computing", |p| p.curves[2], Source::Machine(|report| gpu(report, |gpu| gpu.load))),
                line("memory busy", |p| p.curves[1], Source::Machine(|report| gpu(report, |gpu| gpu.memory_load))),
            ],
        );
        static GPU_MEMORY: PlotInfo = plot(
            "gpu-memory",
            "GPU memory",
            "Memory in use on the card in GB, by all programs",
            1,
            &[
                line("used", |p| p.curves[0], Source::Machine(|report| gpu(report, |gpu| gpu.memory_used_bytes.map(gigabytes)))),
                line("there is", |p| p.weak, Source::Machine(|report| gpu(report, |gpu| gpu.memory_total_bytes.map(gigabytes)))),
            ],
        );
        static GPU_POWER: PlotInfo = plot(
            "gpu-power",
            "GPU power",
            "Watts that the card takes, and what it may take",
            0,
            &[
                line("watts", |p| p.curves[1], Source::Machine(|report| gpu(report, |gpu| gpu.power_watts))),
                line("limit", |p| p.weak, Source::Machine(|report| gpu(report, |gpu| gpu.power_limit_watts))),
            ],
        );
        static GPU_TEMPERATURE: PlotInfo = plot(
            "gpu-temperature",
            "GPU temperature",
            "Degrees Celsius. A card that becomes too hot lowers its clocks, and every step takes longer",
            0,
            &[line("°C", |p| p.bad, Source::Machine(|report| gpu(report, |gpu| gpu.temperature.map(|degrees| degrees as f32))))],
        );
        static CPU: PlotInfo = plot(
            "cpu",
            "CPU load",
            "Share of all cores that is busy, with whatever",
            2,
            &[line("all cores", |p| p.curves[0], Source::Machine(|report| known(report.cpu_load)))],
        );
        static MEMORY: PlotInfo = plot(
            "memory",
            "Memory",
            "Memory of this program in GB. It is planned before the first step and should not grow",
            1,
            &[line("this program", |p| p.curves[2], Source::Machine(|report| known(report.process_bytes.map(gigabytes))))],
        );
        static DISK: PlotInfo = plot(
            "disk",
            "Read from disk",
            "MB a second that this program reads from disks, without what was in memory already",
            1,
            &[line(
                "MB/s",
                |p| p.curves[1],
                Source::Machine(|report| known(report.disk_read_bytes_per_sec.map(|bytes| (bytes / 1e6) as f32))),
            )],
        );
        match self {
            Self::Branches => &BRANCHES,
            Self::UpdateRatio => &UPDATE_RATIO,
            Self::DataWait => &DATA_WAIT,
            Self::GpuLoad => &GPU_LOAD,
            Self::GpuMemory => &GPU_MEMORY,
            Self::GpuPower => &GPU_POWER,
            Self::GpuTemperature => &GPU_TEMPERATURE,
            Self::Cpu => &CPU,
            Self::Memory => &MEMORY,
            Self::Disk => &DISK,
            Self::Losses => &LOSSES,
            Self::AveragePrecision => &AVERAGE_PRECISION,
            Self::PrecisionRecall => &PRECISION_RECALL,
            Self::LearningRate => &LEARNING_RATE,
            Self::Gradient => &GRADIENT,
            Self::Speed => &SPEED,
        }
    }

    pub fn along(self) -> Along {
        match self.info().lines[0].source {
            Source::Step(_) => Along::Steps,
            Source::Epoch(_) => Along::Epochs,
            Source::Machine(_) => Along::Minutes,
        }
    }
}

impl PlotKind {
    /// The figure whose usual band lies behind the lines.
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Gradient => Some(Signal::GradNorm),
            Self::UpdateRatio => Some(Signal::UpdateRatio),
            Self::Speed => Some(Signal::Speed),
            Self::DataWait => Some(Signal::DataWait),
            _ => None,
        }
    }

    /// Where an alarm is marked, if this plot lies along steps.
    pub fn shows(self, alarm: AlarmKind) -> bool {
        match alarm {
            AlarmKind::LossRises => matches!(self, Self::Losses | Self::Branches),
            AlarmKind::GradientGrows | AlarmKind::GradientVanishes | AlarmKind::UpdatesSkipped => self == Self::Gradient,
            AlarmKind::UpdatesTooLarge | AlarmKind::UpdatesTooSmall => self == Self::UpdateRatio,
            AlarmKind::Slower | AlarmKind::GpuHeldBack => self == Self::Speed,
            AlarmKind::WaitsForData => self == Self::DataWait,
            _ => false,
        }
    }
}

fn known(value: Option<f32>) -> f32 {
    value.unwrap_or(f32::NAN)
}

fn gpu(report: &MachineReport, value: fn(&GpuFigures) -> Option<f32>) -> f32 {
    known(report.gpu.as_ref().and_then(value))
}

fn gigabytes(bytes: u64) -> f32 {
    (bytes as f64 / 1e9) as f32
}

/// The learning rate of an optimizer group; runs of earlier versions do not tell it.
fn group_rate(step: &StepReport, group: usize) -> f32 {
    if step.lrs == [0.0; 3] { f32::NAN } else { step.lrs[group] as f32 }
}

/// Steps that are taken in during a frame: the rest follows in the next ones.
const MAX_NEW: usize = 2000;

/// The curves of the run that is shown.
#[derive(Default)]
pub struct Curves {
    /// For each plot its lines.
    series: Vec<Vec<Series>>,
    step_places: Vec<f64>,
    epoch_places: Vec<f64>,
    minute_places: Vec<f64>,
    /// The last step and epoch that were taken in, to notice another run, or one that went back.
    last_step: Option<StepReport>,
    last_epoch: Option<EpochReport>,
    last_machine: Option<MachineReport>,
    /// What is usual for the figures that have a band.
    bands: Vec<(Signal, Band)>,
}

impl Curves {
    /// Takes in what is new; says whether there is more.
    pub fn update(&mut self, run: &RunView, smoothing: f64) -> bool {
        let (n_steps, n_epochs) = (self.step_places.len(), self.epoch_places.len());
        let goes_on = (n_steps == 0 || run.steps.get(n_steps - 1) == self.last_step.as_ref())
            && (n_epochs == 0 || run.epochs.get(n_epochs - 1) == self.last_epoch.as_ref());
        if !goes_on || self.series.is_empty() {
            let lines = |kind: PlotKind| vec![Series::default(); kind.info().lines.len()];
            *self = Self { series: PlotKind::ALL.map(lines).into(), ..Self::default() };
        }
        let steps = &run.steps[self.step_places.len()..];
        let new = &steps[..steps.len().min(MAX_NEW)];
        let new_epochs = &run.epochs[self.epoch_places.len()..];
        for (kind, lines) in PlotKind::ALL.into_iter().zip(&mut self.series) {
            for (info, series) in kind.info().lines.iter().zip(lines) {
                series.set_smoothing(if kind.along() == Along::Steps { smoothing } else { 0.0 });
                match info.source {
                    Source::Step(value) => new.iter().for_each(|step| series.push(value(step))),
                    Source::Epoch(value) => new_epochs.iter().for_each(|epoch| series.push(value(epoch))),
                    // Taken in below.
                    Source::Machine(_) => {}
                }
            }
        }
        if !new.is_empty() {
            self.bands = bands(run);
        }
        self.update_machine(&run.machine);
        self.step_places.extend(new.iter().map(|step| step.step as f64 + 1.0));
        self.epoch_places.extend(new_epochs.iter().map(|epoch| epoch.epoch as f64 + 1.0));
        self.last_step = self.step_places.len().checked_sub(1).and_then(|last| run.steps.get(last).copied());
        self.last_epoch = run.epochs.last().cloned();
        new.len() < steps.len()
    }

    /// The machine's figures are thinned out in a long run, so they are taken in anew when there is another one.
    fn update_machine(&mut self, machine: &[MachineReport]) {
        if machine.last() == self.last_machine.as_ref() && machine.len() == self.minute_places.len() {
            return;
        }
        self.last_machine = machine.last().cloned();
        self.minute_places = machine.iter().map(|report| report.secs / 60.0).collect();
        for (kind, lines) in PlotKind::ALL.into_iter().zip(&mut self.series) {
            for (info, series) in kind.info().lines.iter().zip(lines) {
                if let Source::Machine(value) = info.source {
                    *series = Series::default();
                    for report in machine {
                        series.push(value(report));
                    }
                }
            }
        }
    }

    /// What is usual for a plot's figure.
    pub fn band(&self, kind: PlotKind) -> Option<Band> {
        let signal = kind.signal()?;
        self.bands.iter().find(|(of, _)| *of == signal).map(|(_, band)| *band)
    }

    /// The lines of a plot, in the order of its [`PlotInfo`]; none before the first update.
    pub fn lines(&self, kind: PlotKind) -> impl Iterator<Item = (&'static LineInfo, &Series)> {
        let series = PlotKind::ALL.iter().position(|each| *each == kind).and_then(|index| self.series.get(index));
        kind.info().lines.iter().zip(series.into_iter().flatten())
    }

    /// Where the values of a plot lie on its horizontal axis.
    pub fn places(&self, along: Along) -> &[f64] {
        match along {
            Along::Steps => &self.step_places,
            Along::Epochs => &self.epoch_places,
            Along::Minutes => &self.minute_places,
        }
    }

    /// The indices whose places are within bounds, with one more at each side, so that lines reach the edge.
    pub fn indices(&self, along: Along, low: f64, high: f64) -> Range<usize> {
        let places = self.places(along);
        let first = places.partition_point(|place| *place < low).saturating_sub(1);
        let last = (places.partition_point(|place| *place <= high) + 1).min(places.len());
        first..last.max(first)
    }

    /// Whether a run tells anything for a plot.
    pub fn has(&self, kind: PlotKind) -> bool {
        self.lines(kind).any(|(_, series)| series.last().is_some())
    }

    /// A plot for a file: every value for a table, what is drawn for a picture.
    pub fn chart(&self, kind: PlotKind, is_log: bool, every_value: bool, palette: &Palette) -> Chart {
        let info = kind.info();
        let places = self.places(kind.along());
        let lines = self.lines(kind).map(|(line, series)| {
            let points = if every_value {
                places.iter().zip(series.values()).map(|(place, value)| [*place, f64::from(*value)]).collect()
            } else {
                series.smooth(0..series.len(), 1200).into_iter().map(|(index, value)| [places[index], f64::from(value)]).collect()
            };
            let [r, g, b, _] = (line.color)(palette).to_array();
            ChartLine { name: line.name.to_owned(), color: [r, g, b], points }
        });
        Chart {
            title: info.title.to_owned(),
            x_name: kind.along().name().to_owned(),
            is_log: is_log && info.has_log,
            lines: lines.collect(),
        }
    }
}

/// Steps before the newest ones that a band is shown from, as the alarms learn theirs.
const BAND_STEPS: usize = 128;

fn bands(run: &RunView) -> Vec<(Signal, Band)> {
    let newest = &run.steps[run.steps.len().saturating_sub(BAND_STEPS)..];
    let of = |signal: Signal| {
        let values: Vec<f64> = newest.iter().filter_map(|step| signal.value(step)).collect();
        Some((signal, signal.band(&values)?))
    };
    Signal::ALL.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n_steps: usize) -> RunView {
        let step = |step| StepReport { step, box_loss: step as f32, cls_loss: 1.0, dfl_loss: 0.5, ..StepReport::default() };
        RunView { steps: (0..n_steps).map(step).collect(), ..RunView::default() }
    }

    #[test]
    fn steps_are_taken_in_once_a_bounded_number_a_frame() {
        let mut curves = Curves::default();
        assert!(curves.update(&run(MAX_NEW + 5), 0.9));
        assert_eq!(curves.places(Along::Steps).len(), MAX_NEW);
        assert!(!curves.update(&run(MAX_NEW + 5), 0.9));
        assert_eq!(curves.places(Along::Steps).len(), MAX_NEW + 5);
        assert_eq!(curves.lines(PlotKind::Losses).map(|(_, series)| series.len()).collect::<Vec<_>>(), [MAX_NEW + 5; 3]);
    }

    #[test]
    fn another_run_or_one_that_went_back_begins_anew() {
        let mut curves = Curves::default();
        curves.update(&run(100), 0.0);
        curves.update(&run(60), 0.0);
        assert_eq!(curves.places(Along::Steps).len(), 60);
        let mut other = run(80);
        other.steps[59].box_loss = -1.0;
        curves.update(&other, 0.0);
        let values: Vec<f32> = curves.lines(PlotKind::Losses).next().map(|(_, series)| series.values().to_vec()).unwrap_or_default();
        assert_eq!((values.len(), values[59]), (80, -1.0));
    }

    #[test]
    fn a_part_of_the_axis_gives_its_indices_and_one_more_at_each_side() {
        let mut curves = Curves::default();
        curves.update(&run(100), 0.0);
        assert_eq!(curves.indices(Along::Steps, 10.5, 20.5), 9..21);
        assert_eq!(curves.indices(Along::Steps, -5.0, 1e9), 0..100);
        assert_eq!(curves.indices(Along::Epochs, 0.0, 5.0), 0..0);
    }

    #[test]
    fn a_table_holds_every_value() {
        let mut curves = Curves::default();
        while curves.update(&run(3000), 0.9) {}
        let palette = super::super::theme::paper();
        let chart = curves.chart(PlotKind::Losses, true, true, palette);
        assert_eq!((chart.lines.len(), chart.lines[0].points.len(), chart.is_log), (3, 3000, true));
        assert_eq!(chart.lines[0].points[2999], [3000.0, 2999.0]);
        assert!(!curves.chart(PlotKind::Speed, true, false, palette).is_log);
    }
}
