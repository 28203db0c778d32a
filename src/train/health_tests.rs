//! Alarms over whole runs: one that was made up, and a real one as `tests/golden/train_figures.csv` keeps it, with and without faults.
//!
//! The real one trained on a GPU and was healthy from beginning to end; what is planted into it are faults that runs have.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::event::EpochReport;
use super::event::StepReport;
use super::event::TrainEvent;
use super::health::Alarm;
use super::health::AlarmKind;
use super::health::Health;
use super::health::HealthOptions;
use super::machine::MachineReport;
use crate::engine::cuda::nvml::GpuFigures;
use crate::engine::cuda::nvml::Throttle;
use crate::eval::Metrics;

/// The steps, epochs and machine reports of the real run, in the order of its events.
fn recorded() -> (HealthOptions, Vec<TrainEvent>) {
    let mut options = HealthOptions::default();
    let mut events = Vec::new();
    for line in include_str!("../../tests/golden/train_figures.csv").lines().filter(|line| !line.starts_with('#')) {
        let (event, values) = line.split_once(',').unwrap();
        let values: Vec<f64> = values.split(',').map(|value| value.parse().unwrap()).collect();
        match (event, &values[..]) {
            ("plan", &[warmup_steps, epochs, planned_bytes]) => {
                options =
                    HealthOptions { warmup_steps: warmup_steps as usize, epochs: epochs as usize, planned_bytes: planned_bytes as u64 };
            }
            ("step", &[epoch, step, box_loss, cls_loss, dfl_loss, grad_norm, update_ratio, images_per_sec, data_wait, n_skipped]) => {
                events.push(TrainEvent::Step(StepReport {
                    epoch: epoch as usize,
                    step: step as usize,
                    box_loss: box_loss as f32,
                    cls_loss: cls_loss as f32,
                    dfl_loss: dfl_loss as f32,
                    grad_norm: grad_norm as f32,
                    images_per_sec: images_per_sec as f32,
                    update_ratio: Some(update_ratio as f32),
                    data_wait: Some(data_wait as f32),
                    n_skipped: n_skipped as usize,
                    ..StepReport::default()
                }));
            }
            ("machine", &[process, gpu]) => {
                let gpu = Some(GpuFigures { memory_used_bytes: Some(gpu as u64), ..GpuFigures::default() });
                events.push(TrainEvent::Machine(MachineReport { process_bytes: Some(process as u64), gpu, ..MachineReport::default() }));
            }
            ("epoch", &[epoch, n_labels, map50]) => {
                let metrics = Metrics { n_labels: n_labels as usize, map50, ..Metrics::default() };
                events.push(TrainEvent::Epoch(EpochReport { epoch: epoch as usize, metrics, ..EpochReport::default() }));
            }
            _ => panic!("{line}"),
        }
    }
    (options, events)
}

/// What a run's events tell: the kinds of the alarms, and the steps where they are told.
fn told(options: HealthOptions, events: &[TrainEvent]) -> Vec<(AlarmKind, usize)> {
    let mut health = Health::new(options);
    let alarms = events.iter().flat_map(|event| match event {
        TrainEvent::Step(step) => health.step(step),
        TrainEvent::Machine(report) => health.machine(report),
        TrainEvent::Epoch(report) => health.epoch(report),
        _ => Vec::new(),
    });
    alarms.map(|alarm| (alarm.kind, alarm.step)).collect()
}

#[test]
fn a_real_healthy_run_gives_no_alarm_also_where_it_was_resumed() {
    let (options, events) = recorded();
    let n_of = |is: fn(&TrainEvent) -> bool| events.iter().filter(|event| is(event)).count();
    assert_eq!([n_of(|event| matches!(event, TrainEvent::Step(_))), n_of(|event| matches!(event, TrainEvent::Epoch(_)))], [780, 60]);
    assert_eq!(n_of(|event| matches!(event, TrainEvent::Machine(_))), 50);
    assert_eq!(told(options, &events), []);
    for first in [100, 390] {
        let start = events.iter().position(|event| matches!(event, TrainEvent::Step(step) if step.step == first)).unwrap();
        assert_eq!(told(options, &events[start..]), [], "from step {first} on");
    }
}

/// Changes a step: how many steps had the fault so far, and whether this one has it.
type Fault = fn(&mut StepReport, usize, bool);

/// What the real run tells with a fault in some of its steps.
fn with_fault(fault: Fault, has_it: impl Fn(usize) -> bool) -> Vec<(AlarmKind, usize)> {
    let (options, mut events) = recorded();
    let mut n = 0;
    for event in &mut events {
        if let TrainEvent::Step(step) = event {
            let is_wrong = has_it(step.step);
            n += usize::from(is_wrong);
            fault(step, n, is_wrong);
        }
    }
    told(options, &events)
}

#[test]
fn a_fault_of_a_real_run_is_told_soon_once_for_each_time_that_it_begins_and_nothing_else_is() {
    let faults: [(AlarmKind, Fault); 7] = [
        (AlarmKind::LossRises, |step, _, is_wrong| {
            let factor = if is_wrong { 5.0 } else { 1.0 };
            (step.box_loss, step.cls_loss, step.dfl_loss) = (step.box_loss * factor, step.cls_loss * factor, step.dfl_loss * factor);
        }),
        (AlarmKind::WaitsForData, |step, _, is_wrong| step.data_wait = if is_wrong { Some(0.5) } else { step.data_wait }),
        (AlarmKind::UpdatesSkipped, |step, _, is_wrong| step.grad_norm = if is_wrong { f32::NAN } else { step.grad_norm }),
        (AlarmKind::UpdatesSkipped, |step, n, _| step.n_skipped += n),
        (AlarmKind::Slower, |step, _, is_wrong| step.images_per_sec *= if is_wrong { 0.5 } else { 1.0 }),
        (AlarmKind::GradientGrows, |step, _, is_wrong| step.grad_norm *= if is_wrong { 30.0 } else { 1.0 }),
        (AlarmKind::UpdatesTooLarge, |step, _, is_wrong| {
            step.update_ratio = step.update_ratio.map(|ratio| if is_wrong { 20.0 * ratio } else { ratio });
        }),
    ];
    for (kind, fault) in faults {
        let stays = with_fault(fault, |step| step >= 500);
        assert!(matches!(stays[..], [(told, 500..525)] if told == kind), "{kind:?} that stays: {stays:?}");
        let twice = with_fault(fault, |step| (250..290).contains(&step) || (600..640).contains(&step));
        assert!(matches!(twice[..], [(first, 250..275), (second, 600..625)] if [first, second] == [kind; 2]), "{kind:?} twice: {twice:?}");
    }
}

#[test]
fn memory_of_a_real_run_that_begins_to_grow_is_told_once() {
    for mib_a_report in [50, 100, 400] {
        let (options, mut events) = recorded();
        let mut grown = 0;
        let start = events.iter().position(|event| matches!(event, TrainEvent::Step(step) if step.step == 500)).unwrap();
        for event in &mut events[start..] {
            if let TrainEvent::Machine(MachineReport { process_bytes: Some(bytes), .. }) = event {
                grown += mib_a_report << 20;
                *bytes += grown;
            }
        }
        let told = told(options, &events);
        assert!(matches!(told[..], [(AlarmKind::MemoryGrows, 500..)]), "{mib_a_report} MiB a report: {told:?}");
    }
}

/// A run of 400 steps as it should be, with noise that is the same each time.
fn steps() -> Vec<StepReport> {
    let noise = |index: usize| ((index * 7919 + 13) % 101) as f32 / 101.0 - 0.5;
    let report = |step: usize| {
        let fall = (-(step as f32) / 150.0).exp();
        let warm = (step as f32 / 50.0).min(1.0);
        StepReport {
            epoch: step / 20,
            step,
            box_loss: 1.0 + 2.0 * fall + 0.4 * noise(step),
            cls_loss: 0.5 + 4.0 * fall + 0.4 * noise(step + 7),
            dfl_loss: 1.0 + fall,
            grad_norm: 6.0 + 20.0 * fall + 3.0 * noise(step + 3),
            update_ratio: Some(1e-3 * warm * (1.0 + 0.3 * noise(step + 5)) * (1.0 - step as f32 / 410.0)),
            images_per_sec: 40.0 + 5.0 * noise(step + 11),
            data_wait: Some(if step.is_multiple_of(16) { 0.3 } else { 0.01 }),
            ..StepReport::default()
        }
    };
    (0..400).map(report).collect()
}

const OPTIONS: HealthOptions = HealthOptions { warmup_steps: 50, epochs: 20, planned_bytes: 2 << 30 };

fn alarms(steps: &[StepReport]) -> Vec<Alarm> {
    let mut health = Health::new(OPTIONS);
    steps.iter().flat_map(|step| health.step(step)).collect()
}

/// The kinds that a change of the steps from 300 to 340 gives, and when the first is told.
fn planted(change: impl Fn(&mut StepReport)) -> (Vec<AlarmKind>, usize) {
    let mut steps = steps();
    steps[300..340].iter_mut().for_each(change);
    let alarms = alarms(&steps);
    (alarms.iter().map(|alarm| alarm.kind).collect(), alarms.first().map_or(0, |alarm| alarm.step))
}

#[test]
fn a_run_as_it_should_be_gives_no_alarm() {
    assert_eq!(alarms(&steps()), []);
}

#[test]
fn each_planted_fault_is_told_once_and_soon() {
    for (expected, change) in [
        (AlarmKind::LossRises, (|step| step.box_loss *= 6.0) as fn(&mut StepReport)),
        (AlarmKind::GradientGrows, |step| step.grad_norm *= 20.0),
        (AlarmKind::GradientVanishes, |step| step.grad_norm *= 1e-3),
        (AlarmKind::UpdatesTooLarge, |step| step.update_ratio = Some(0.1)),
        (AlarmKind::UpdatesTooSmall, |step| step.update_ratio = Some(1e-9)),
        (AlarmKind::Slower, |step| step.images_per_sec *= 0.4),
        (AlarmKind::WaitsForData, |step| step.data_wait = Some(0.6)),
    ] {
        let (kinds, step) = planted(change);
        assert_eq!(kinds, [expected]);
        assert!((300..325).contains(&step), "{expected:?} at step {step}");
    }
}

#[test]
fn a_single_odd_step_says_nothing() {
    let mut steps = steps();
    for (index, step) in [200, 230, 260, 290].into_iter().enumerate() {
        steps[step].box_loss = 50.0;
        steps[step].grad_norm = 1e4;
        steps[step].images_per_sec = 0.5;
        steps[step + index].data_wait = Some(0.9);
    }
    assert_eq!(alarms(&steps), []);
}

#[test]
fn a_fault_that_comes_again_is_told_again_and_one_that_stays_becomes_usual() {
    let mut again = steps();
    for range in [150..180, 300..330] {
        again[range].iter_mut().for_each(|step| step.images_per_sec *= 0.3);
    }
    assert_eq!(alarms(&again).iter().map(|alarm| alarm.kind).collect::<Vec<_>>(), [AlarmKind::Slower; 2]);
    let mut stays = steps();
    stays[100..].iter_mut().for_each(|step| step.images_per_sec *= 0.3);
    assert_eq!(alarms(&stays).len(), 1);
}

#[test]
fn waiting_from_the_start_names_the_slowest_stage() {
    let mut health = Health::new(OPTIONS);
    health.set_slowest_stage("decoding");
    let slow = steps().into_iter().map(|step| StepReport { data_wait: Some(0.4), ..step });
    let alarms: Vec<Alarm> = slow.take(60).flat_map(|step| health.step(&step)).collect();
    assert_eq!(alarms.len(), 1);
    assert!(alarms[0].what.contains("40 %") && alarms[0].explanation.contains("decoding is the slowest"), "{:?}", alarms[0]);
    let line = serde_json::to_value(&alarms[0]).unwrap_or_default();
    assert_eq!((line["id"].as_str(), line["where"].as_str()), (Some("waits-for-data"), Some("data-wait share")));
}

#[test]
fn skipped_updates_are_forgiven_at_first() {
    let skip = |from: usize, to: usize| {
        let mut steps = steps();
        for (index, step) in steps.iter_mut().enumerate() {
            step.n_skipped = index.clamp(from, to) - from;
        }
        alarms(&steps).iter().map(|alarm| (alarm.kind, alarm.step)).collect::<Vec<_>>()
    };
    assert_eq!(skip(0, 16), []);
    assert_eq!(skip(200, 203), []);
    assert_eq!(skip(200, 220), [(AlarmKind::UpdatesSkipped, 205)]);
    // One of 20, so that the last 100 steps hold now four, now five.
    let mut evenly = steps();
    for (index, step) in evenly.iter_mut().enumerate() {
        step.n_skipped = index / 20;
    }
    assert_eq!(alarms(&evenly).len(), 1);
}

/// What 100 reports tell of which the first 40 belong to the first two epochs.
fn machine(report: impl Fn(usize) -> MachineReport) -> Vec<AlarmKind> {
    let mut health = Health::new(OPTIONS);
    let mut kinds = Vec::new();
    for index in 0..100 {
        health.step(&StepReport { epoch: index / 20, step: index, ..StepReport::default() });
        kinds.extend(health.machine(&report(index)).iter().map(|alarm| alarm.kind));
    }
    kinds
}

#[test]
fn memory_that_grows_is_told_of_the_process_and_of_the_gpu() {
    let process = |mib: u64| MachineReport { process_bytes: Some(mib << 20), ..MachineReport::default() };
    assert_eq!(machine(|index| process(if index < 30 { 500 + 40 * index as u64 } else { 1900 + index as u64 % 7 })), []);
    assert_eq!(machine(|_| process(4000)), [AlarmKind::MemoryGrows], "far above the plan from the start");
    let card = |mib: u64| GpuFigures { memory_used_bytes: Some(mib << 20), ..GpuFigures::default() };
    let gpu = |mib| MachineReport { gpu: Some(card(mib)), ..MachineReport::default() };
    assert_eq!(machine(|index| gpu(if index < 60 { 8000 } else { 12_000 })), [AlarmKind::GpuMemoryGrows]);
    assert_eq!(machine(|_| gpu(8000)), []);
}

#[test]
fn a_hot_card_is_told_and_one_at_its_power_limit_is_not() {
    let gpu = |throttle: Vec<Throttle>| {
        let gpu = Some(GpuFigures { temperature: Some(90), throttle, ..GpuFigures::default() });
        MachineReport { gpu, ..MachineReport::default() }
    };
    assert_eq!(machine(|_| gpu(vec![Throttle::PowerCap])), []);
    assert_eq!(machine(|index| gpu(if index % 5 == 0 { vec![Throttle::Heat] } else { vec![] })), []);
    assert_eq!(machine(|index| gpu(if index > 30 { vec![Throttle::Heat] } else { vec![] })), [AlarmKind::GpuHeldBack]);
}

#[test]
fn finding_nothing_is_told_when_it_is_late_for_that() {
    let mut health = Health::new(OPTIONS);
    let mut epoch = |epoch, map50, n_labels| {
        let metrics = Metrics { n_labels, map50, ..Metrics::default() };
        health.epoch(&EpochReport { epoch, metrics, ..EpochReport::default() }).len()
    };
    assert_eq!([epoch(3, 0.0, 9), epoch(9, 0.2, 9), epoch(9, 0.0, 0), epoch(10, 0.0, 9), epoch(11, 0.0, 9)], [0, 0, 0, 1, 0]);
}
