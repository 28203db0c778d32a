//! A step learns, updates come when they are due, and a GPU goes the way of the CPU.

#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::train::config::OptimizerKind;
use crate::yolo::{Model, ModelSize};

const SIDE: usize = 64;
const SHAPES: [BatchShape; 2] = [BatchShape { n_images: 2, side: SIDE }, BatchShape { n_images: 1, side: SIDE }];

fn network() -> Network {
    Network::new(Model::dual(ModelSize::T), 2, 3)
}

fn spec(optimizer: OptimizerKind) -> StepSpec {
    StepSpec { side: SIDE, truth_rows: 8, hyp: Hyp { optimizer, ..Hyp::scratch_high() }, weight_decay: 0.0005 }
}

/// Pictures with a bright square each, and its box.
fn batch(n_images: usize, seed: usize) -> Batch {
    let (images, pixels) = ((0..n_images).collect(), vec![50; n_images * SIDE * SIDE * 3]);
    let (compositions, truth, faults) = (vec![], vec![], vec![]);
    let mut batch = Batch { epoch: 0, n_images, side: SIDE as u32, images, pixels, compositions, truth, faults };
    for (index, pixels) in batch.pixels.chunks_exact_mut(SIDE * SIDE * 3).enumerate() {
        let left = 4 + (index * 7 + seed * 5) % 24;
        for y in 16..48 {
            pixels[(y * SIDE + left) * 3..(y * SIDE + left + 32) * 3].fill(200);
        }
        batch.truth.extend([(index % 2) as f32, left as f32, 16.0, left as f32 + 32.0, 48.0]);
        for _ in 1..8 {
            batch.truth.extend([-1.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
    batch
}

const SETTINGS: StepSettings = StepSettings { lr: [0.002; 3], momentum: 0.9, accumulate: 1 };

fn no_progress(_: usize, _: usize) {}

fn on_cpu(optimizer: OptimizerKind) -> Stepper {
    Stepper::new(network(), spec(optimizer), &SHAPES, Device::Cpu, &mut no_progress).unwrap()
}

#[test]
fn steps_on_the_cpu_are_told_at_once_and_change_the_average_only_with_an_update() {
    let mut stepper = on_cpu(OptimizerKind::AdamW);
    let before = stepper.average().unwrap().params.clone();
    let first = stepper.step(&batch(2, 0), None).unwrap().unwrap();
    assert_eq!((first.step, first.grad_norm, first.skipped), (0, 0.0, false));
    assert!(first.items.iter().all(|item| item.is_finite()));
    assert_eq!(stepper.average().unwrap().params, before);

    let second = stepper.step(&batch(1, 1), Some(&SETTINGS)).unwrap().unwrap();
    assert!(second.step == 1 && second.grad_norm > 0.0 && second.update_ratio > 0.0);
    assert_ne!(stepper.average().unwrap().params, before);
    assert!(stepper.is_idle());
    assert_eq!((stepper.flush().unwrap(), stepper.device_bytes(), stepper.fallback()), (None, None, None));
    assert!(stepper.planned_bytes() > 0);
}

#[test]
fn a_gradient_that_is_no_number_changes_nothing() {
    let mut stepper = on_cpu(OptimizerKind::Sgd);
    stepper.step(&batch(2, 0), Some(&StepSettings { lr: [1e20; 3], ..SETTINGS })).unwrap();
    let before = stepper.average().unwrap().params.clone();
    let outcome = stepper.step(&batch(2, 1), Some(&SETTINGS)).unwrap().unwrap();
    assert!(outcome.skipped && !(outcome.items[3].is_finite() && outcome.grad_norm.is_finite()), "{outcome:?}");
    assert_eq!(stepper.average().unwrap().params, before);
    assert!(!stepper.scales_loss(), "on the CPU that is no matter of scale");
}

#[test]
fn a_gpu_that_is_not_there_says_what_to_do() {
    let error = Stepper::new(network(), spec(OptimizerKind::Sgd), &SHAPES, Device::Cuda(99), &mut no_progress).err().unwrap();
    assert!(error.hint().is_some(), "{error}");
}

#[cfg(feature = "gpu-tests")]
mod on_gpu {
    use std::ops::ControlFlow;

    use super::*;
    use crate::dataset::Dataset;
    use crate::engine::Params;
    use crate::engine::cuda::runtime::Runtime;
    use crate::engine::cuda::testing::test_gpu;
    use crate::engine::golden::repository;
    use crate::train::loader::Loader;
    use crate::train::loader::LoaderOptions;
    use crate::train::recipe::Stream;
    use crate::train::schedule::Schedule;
    use crate::train::train_set::TrainSet;
    use crate::train::truth_rows::truth_rows;

    fn all(stepper: &mut Stepper, n: usize) -> Vec<StepOutcome> {
        let mut outcomes = Vec::new();
        for step in 0..n {
            // A smaller batch now and then, and an update after every second.
            let batch = batch(if step % 5 == 4 { 1 } else { 2 }, step);
            outcomes.extend(stepper.step(&batch, (step % 2 == 1).then_some(&SETTINGS)).unwrap());
        }
        outcomes.extend(stepper.flush().unwrap());
        outcomes
    }

    fn distance(a: &Params, b: &Params) -> f64 {
        a.values.iter().zip(&b.values).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn twenty_steps_go_the_way_of_the_cpu() {
        let _turn = test_gpu();
        for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
            let runtime = Runtime::open(0, Precision::F32).unwrap();
            let mut gpu = Stepper::on_gpu(network(), spec(optimizer), &SHAPES, &runtime, &mut no_progress).unwrap();
            let mut cpu = on_cpu(optimizer);
            // How far an update moves the averages, and how far apart they are then: AdamW's first update is signs, and small
            // gradients have any.
            let (mut ours, mut reference) = (all(&mut gpu, 2), all(&mut cpu, 2));
            let apart = distance(&gpu.average().unwrap().params, &cpu.average().unwrap().params);
            let moved = distance(&cpu.average().unwrap().params, &network().params);
            let most = if optimizer == OptimizerKind::Sgd { 0.1 } else { 0.3 };
            eprintln!("{optimizer:?}: averages moved by {moved}, and are {apart} apart");
            assert!(apart <= most * moved);
            ours.extend(all(&mut gpu, 18));
            reference.extend(all(&mut cpu, 18));
            assert_eq!(ours.iter().map(|outcome| outcome.step).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
            // Before the first update only rounding differs. Afterwards it grows: gradients of this start are some thousand long, and
            // what is left of them after clipping is their direction.
            let close = |a: f32, b: f32, tolerance: f32| (a - b).abs() <= tolerance * b.abs().max(1.0);
            for (ours, reference) in ours.iter().zip(&reference).take(2) {
                assert!(ours.items.iter().zip(reference.items).all(|(a, b)| close(*a, b, 2e-3)), "{optimizer:?} {ours:?} {reference:?}");
                assert!(close(ours.grad_norm, reference.grad_norm, 0.02), "{optimizer:?} {ours:?} {reference:?}");
                let (ratio, expected) = (ours.update_ratio, reference.update_ratio);
                assert!((ratio - expected).abs() <= 0.02 * expected, "{optimizer:?} {ours:?} {reference:?}");
            }
            assert!(ours.iter().all(|outcome| !outcome.skipped && outcome.items[3].is_finite()));
            let mean = |outcomes: &[StepOutcome]| outcomes.iter().map(|outcome| outcome.items[3]).sum::<f32>() / outcomes.len() as f32;
            eprintln!("{optimizer:?}: mean loss of 20 steps {} here, {} on the CPU", mean(&ours), mean(&reference));
            assert!(close(mean(&ours), mean(&reference), 0.15));
            assert!(gpu.is_idle(), "every step was waited for");
            assert!(gpu.device_bytes().unwrap() > 0 && gpu.fallback().is_none(), "{:?}", gpu.fallback());
        }
    }

    /// The losses of 300 steps on the sample dataset from the start that `seed` gives, and the averaged weights.
    fn on_the_sample(precision: Precision, seed: u64) -> (Vec<f32>, Vec<f32>) {
        let dataset = Dataset::open(&repository().join("datasets/parts")).unwrap();
        let set = TrainSet::read(&dataset, 160, u64::MAX, &mut |_, _| ControlFlow::Continue(())).unwrap().unwrap();
        let set = Arc::new(set);
        let hyp = Hyp::small_data();
        let stream = Stream { hyp: hyp.clone(), seed, n_images: set.images.len(), mosaic_ends: 38 };
        let truth_rows = truth_rows(&set, &stream, 38);
        let options = LoaderOptions {
            stream,
            truth_rows,
            batch: 16,
            n_epochs: 38,
            first_batch: 0,
            n_workers: 4,
            sides: vec![],
            orders: None,
            paints: true,
        };
        let spec = StepSpec { side: 160, truth_rows, hyp, weight_decay: 0.01 };
        let runtime = Runtime::open(0, precision).unwrap();
        let mut network = Network::new(Model::dual(ModelSize::T), 3, seed);
        network.start_with_boxes_of(set.median_side().unwrap());
        let mut stepper = Stepper::on_gpu(network, spec, &[BatchShape { n_images: 16, side: 160 }], &runtime, &mut no_progress).unwrap();
        let schedule = Schedule::new(&options.stream.hyp, 16, 8, 38);
        let mut losses = Vec::new();
        for (index, batch) in Loader::start(&set, &options).unwrap().take(300).enumerate() {
            losses.extend(stepper.step(&batch, Some(&schedule.at(index))).unwrap());
        }
        losses.extend(stepper.flush().unwrap());
        let average = stepper.average().unwrap().params.values.clone();
        (losses.iter().map(|outcome| outcome.items[3] / 16.0).collect(), average)
    }

    #[test]
    fn three_hundred_steps_end_alike_in_bf16_and_f32_and_twice_the_same() {
        let _turn = test_gpu();
        let end = |losses: &[f32]| losses[250..].iter().sum::<f32>() / 50.0;
        let runs = |precision| [0, 1, 2].map(|seed| on_the_sample(precision, seed));
        let (bf16, f32) = (runs(Precision::Bf16), runs(Precision::F32));
        let again = on_the_sample(Precision::Bf16, 0);
        assert!(bf16[0] == again, "two runs differ");
        assert_eq!(bf16[0].0.len(), 300);
        let ends = |runs: &[(Vec<f32>, Vec<f32>); 3]| runs.each_ref().map(|(losses, _)| end(losses));
        let (bf16_ends, f32_ends) = (ends(&bf16), ends(&f32));
        eprintln!("mean loss of the last 50 of 300 steps from three starts: bf16 {bf16_ends:?}, f32 {f32_ends:?}");
        for (losses, _) in bf16.iter().chain(&f32) {
            assert!(end(losses) < 0.7 * losses[0], "nothing was learnt");
        }
        // The start alone makes this much; a mean of three is not that far off.
        let spread = |ends: [f32; 3]| ends.into_iter().fold(0.0, f32::max) - ends.into_iter().fold(f32::MAX, f32::min);
        let mean = |ends: [f32; 3]| ends.iter().sum::<f32>() / 3.0;
        let noise = spread(bf16_ends).max(spread(f32_ends));
        let (bf16_mean, f32_mean) = (mean(bf16_ends), mean(f32_ends));
        assert!((bf16_mean - f32_mean).abs() < 0.03 * f32_mean + noise, "{bf16_mean} but {f32_mean}");
    }
}
