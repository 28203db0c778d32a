//! Launches kernels/optimizer.cu: norm and clipping, a rule's step, moving average, weights in compute type, and the report
//! of a step.
//!
//! All arenas have the layout of one [`Params`]. The host writes [`Settings`] before a step and reads [`Results`] after it;
//! [`State`] stays on the device and is only uploaded when a run starts or goes on.

use super::gpu::{Args, Launch};
use super::kernels::Kernels;
use crate::engine::op::LOSS_ITEMS;
use crate::engine::params::{ParamId, ParamKind, Params};
use crate::engine::rule::Rule;

/// Elements of a block, as in kernels/optimizer.cu.
const SEGMENT: usize = 2048;
const THREADS: usize = 256;

/// A part of one parameter that a block treats; `Segment` in kernels/optimizer.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Segment {
    offset: u32,
    count: i32,
    group: i32,
    is_conv_weight: i32,
}

/// Groups of parameters that are not trained.
const ONLY_AVERAGED: i32 = -1;
const FROZEN: i32 = -2;

/// The table of segments, to be uploaded once.
pub fn segments(params: &Params) -> Vec<Segment> {
    assert!(u32::try_from(params.values.len()).is_ok(), "{} parameters", params.values.len());
    let of_parameter = |id: ParamId| {
        let untrained = if params.frozen[id.0 as usize] { FROZEN } else { ONLY_AVERAGED };
        let (range, kind) = (params.range(id), params.spec(id).kind);
        let end = range.end;
        range.step_by(SEGMENT).map(move |offset| Segment {
            offset: offset as u32,
            count: SEGMENT.min(end - offset) as i32,
            group: params.group(id).map_or(untrained, |group| group as i32),
            is_conv_weight: i32::from(kind == ParamKind::ConvWeight),
        })
    };
    params.ids().flat_map(of_parameter).collect()
}

/// What the host decides of a step; `Settings` in kernels/optimizer.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Settings {
    /// Of the three optimizer groups.
    pub lr: [f32; 3],
    /// The first beta of Adam and Lion.
    pub momentum: f32,
    pub beta2: f32,
    /// Of group 1.
    pub weight_decay: f32,
    /// Largest norm of the gradient.
    pub max_norm: f32,
    /// 1: AdamW divides by the largest mean square so far.
    pub amsgrad: i32,
    /// 1: the loss scale moves.
    pub scales: i32,
    /// 1: Adam's decay is part of the gradient.
    pub coupled: i32,
    /// The average keeps `ema_decay * (1 - exp(-n / ema_tau))` at update n.
    pub ema_decay: f64,
    pub ema_tau: f64,
}

/// What lives over the steps; `State` in kernels/optimizer.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct State {
    /// Steps that were not skipped.
    pub n_updates: i32,
    /// Of them, since the loss scale last moved.
    pub n_since_scale: i32,
    pub loss_scale: f32,
    skipped: i32,
    norm: f32,
    factor: f32,
    kept: f32,
    ema_keep: f32,
    ema_take: f32,
    correction1: f32,
    correction2: f32,
    counter: u32,
    update_ratio: f32,
}

impl State {
    /// Bytes from the start to the loss scale, which the loss reads.
    pub const LOSS_SCALE_OFFSET: usize = std::mem::offset_of!(Self, loss_scale);

    /// Before the first step, or after `n_updates` of them.
    pub fn new(n_updates: usize, loss_scale: f32) -> Self {
        Self { n_updates: n_updates as i32, loss_scale, ..Self::default() }
    }
}

/// What the device tells of a step; `Results` in kernels/optimizer.cu. All zero before the first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Results {
    /// As `Op::DetectionLoss` says.
    pub items: [f32; LOSS_ITEMS],
    /// Of the gradient at the last update, before clipping.
    pub norm: f32,
    /// For the next step.
    pub loss_scale: f32,
    /// 1: the last update was left out, because the norm is not finite.
    pub skipped: i32,
    pub n_updates: i32,
    /// Norm of the last update that was made over the norm of the trained values before it.
    pub update_ratio: f32,
    pub unused: i32,
    /// Steps so far, with and without an update.
    pub n_finished: u64,
}

/// Addresses of what the kernels work on; arenas begin at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimizer {
    /// The table of [`segments`], and its length.
    pub segments: u64,
    pub n_segments: usize,
    pub settings: u64,
    pub state: u64,
    pub values: u64,
    /// Times the loss scale. All zero before the first step, and after each update.
    pub gradients: u64,
    /// The moving average.
    pub averages: u64,
    /// Parameters but running statistics in compute type; 0: not wanted.
    pub copies: u64,
    /// What convolutions wrote in compute type, times the loss scale; 0: they add to `gradients` themselves.
    pub weight_gradients: u64,
    /// [`Optimizer::workspace_bytes`] at a multiple of 8.
    pub workspace: u64,
}

impl Optimizer {
    pub fn workspace_bytes(n_segments: usize) -> usize {
        // Two sums a segment.
        n_segments * 16
    }

    /// Adds the convolutions' weight gradients to the others, after a batch without an update.
    pub fn add_weight_gradients(&self, kernels: &Kernels) -> Launch {
        assert_ne!(self.weight_gradients, 0, "weight gradients in compute type");
        let args = Args::new().with(self.segments).with(self.gradients).with(self.weight_gradients);
        Launch::linear(kernels.get("add_weight_gradients"), self.n_segments, THREADS, args)
    }

    /// Adds the weight gradients, takes the norm, and updates.
    ///
    /// `remembered` are the addresses of f32 arenas that are zero before the first step, as many as the rule keeps.
    pub fn update(&self, kernels: &Kernels, rule: Rule, remembered: &[u64]) -> [Launch; 2] {
        assert_eq!(remembered.len(), rule.n_remembered(), "arenas of {rule:?}");
        let norm = Args::new()
            .with(self.segments)
            .with(self.settings)
            .with(self.state)
            .with(self.gradients)
            .with(self.weight_gradients)
            .with(self.workspace);
        let step = Args::new()
            .with(self.segments)
            .with(self.settings)
            .with(self.state)
            .with(self.values)
            .with(self.gradients)
            .with(self.averages)
            .with(self.copies)
            .with(self.workspace);
        let arena = |index: usize| remembered.get(index).copied().unwrap_or(0);
        let (name, step) = match rule {
            Rule::Sgd => ("sgd_step", step.with(arena(0))),
            Rule::Lion => ("lion_step", step.with(arena(0))),
            Rule::Adam | Rule::AdamW { .. } => ("adam_step", step.with(arena(0)).with(arena(1)).with(arena(2))),
        };
        [
            Launch::linear(kernels.get("gradient_norm"), self.n_segments, THREADS, norm),
            Launch::linear(kernels.get(name), self.n_segments, THREADS, step),
        ]
    }

    /// Writes trained parameters in compute type, after something else than an update has changed `values`.
    pub fn copy_parameters(&self, kernels: &Kernels) -> Launch {
        copy_parameters(kernels, self.segments, self.n_segments, self.values, self.copies)
    }

    /// Writes [`Results`] from the loss's items; the last launch of a step.
    pub fn finish(&self, kernels: &Kernels, items: u64, results: u64) -> Launch {
        Launch::linear(kernels.get("finish_step"), 1, 1, Args::new().with(items).with(self.state).with(results))
    }
}

/// Parameters but running statistics of an f32 arena (such as the averages) into one of compute type.
pub fn copy_parameters(kernels: &Kernels, segments: u64, n_segments: usize, values: u64, copies: u64) -> Launch {
    Launch::linear(kernels.get("copy_parameters"), n_segments, THREADS, Args::new().with(segments).with(values).with(copies))
}

#[cfg(all(test, feature = "gpu-tests"))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::{Optimizer, Results, Settings, State, segments};
    use crate::engine::cpu::optimizer::{Memory, Step, clip_gradients, ema_update, step};
    use crate::engine::cuda::Precision;
    use crate::engine::cuda::gpu::{DeviceBuffer, Launch};
    use crate::engine::cuda::testing::{PRECISIONS, Random, TestGpu, Tolerance, assert_close, rounded, test_gpu, test_kernels};
    use crate::engine::golden::Golden;
    use crate::engine::op::LOSS_ITEMS;
    use crate::engine::params::{ParamId, ParamKind, ParamSpec, Params};
    use crate::engine::rule::Rule;

    const SETTINGS: Settings = Settings {
        lr: [0.1, 0.01, 0.02],
        momentum: 0.9,
        beta2: 0.999,
        weight_decay: 0.0005,
        max_norm: 10.0,
        amsgrad: 0,
        scales: 0,
        coupled: 0,
        ema_decay: 0.9999,
        ema_tau: 2000.0,
    };

    const RULES: [Rule; 5] = [Rule::Sgd, Rule::Adam, Rule::AdamW { amsgrad: false }, Rule::AdamW { amsgrad: true }, Rule::Lion];

    fn settings_of(rule: Rule) -> Settings {
        Settings {
            beta2: rule.beta2(),
            amsgrad: i32::from(rule == Rule::AdamW { amsgrad: true }),
            coupled: i32::from(rule == Rule::Adam),
            ..SETTINGS
        }
    }

    const ITEMS: [f32; LOSS_ITEMS] = [1.0, 2.0, 3.0, 24.0, 0.25, 0.5, 0.75, 0.75, 1.5, 2.25];

    fn params_of(tensors: &[(ParamKind, Vec<f32>)]) -> Params {
        let mut params = Params::default();
        for (index, (kind, values)) in tensors.iter().enumerate() {
            let id = params.add(ParamSpec { name: index.to_string(), kind: *kind, dims: vec![values.len()] });
            params.get_mut(id).copy_from_slice(values);
        }
        params
    }

    /// Every kind, lengths around those of threads and segments.
    fn random_params(random: &mut Random, largest: f32) -> Params {
        let kinds =
            [ParamKind::ConvWeight, ParamKind::BnGamma, ParamKind::BnBeta, ParamKind::BnMean, ParamKind::BnVar, ParamKind::ConvBias];
        let mut tensors = Vec::new();
        for len in [1, 3, 64, 255, 1024, 2048, 2049, 30_000] {
            tensors.extend(kinds.map(|kind| (kind, random.values(len, -largest, largest, Precision::F32))));
        }
        params_of(&tensors)
    }

    /// The same table with random values, none between parameters, and none for running statistics.
    fn random_gradients(params: &Params, random: &mut Random, largest: f32) -> Params {
        let mut gradients = params.zeros_like();
        for id in params.ids().filter(|&id| params.spec(id).kind.is_trained()) {
            let values = random.values(params.spec(id).len(), -largest, largest, Precision::F32);
            gradients.get_mut(id).copy_from_slice(&values);
        }
        gradients
    }

    /// Arenas on the device.
    struct OnGpu {
        optimizer: Optimizer,
        rule: Rule,
        /// Values, gradients, averages, copies, weight gradients, then what the optimizer remembers.
        arenas: Vec<DeviceBuffer>,
        settings: DeviceBuffer,
        state: DeviceBuffer,
        results: DeviceBuffer,
        items: DeviceBuffer,
        _others: [DeviceBuffer; 2],
    }

    fn run(test: &TestGpu, launches: &[Launch]) {
        for launch in launches {
            test.gpu.launch(launch).unwrap();
        }
    }

    impl OnGpu {
        fn new(test: &TestGpu, params: &Params, precision: Precision, rule: Rule, state: State) -> Self {
            let zeros = vec![0.0; params.values.len()];
            let mut arenas = vec![
                test.gpu.upload(&params.values).unwrap(),
                test.gpu.upload(&zeros).unwrap(),
                test.gpu.upload(&params.values).unwrap(),
                test.poisoned(zeros.len(), precision),
                test.poisoned(zeros.len(), precision),
            ];
            arenas.extend((0..3).map(|_| test.gpu.upload(&zeros).unwrap()));
            let table = segments(params);
            let workspace = test.gpu.alloc(Optimizer::workspace_bytes(table.len())).unwrap();
            workspace.fill(0xff).unwrap();
            let (segments, settings, state) =
                (test.gpu.upload(&table).unwrap(), test.gpu.upload(&[settings_of(rule)]).unwrap(), test.gpu.upload(&[state]).unwrap());
            let address = |index: usize| arenas[index].address;
            Self {
                optimizer: Optimizer {
                    segments: segments.address,
                    n_segments: table.len(),
                    settings: settings.address,
                    state: state.address,
                    values: address(0),
                    gradients: address(1),
                    averages: address(2),
                    copies: address(3),
                    weight_gradients: address(4),
                    workspace: workspace.address,
                },
                rule,
                arenas,
                settings,
                state,
                results: test.gpu.upload(&[Results::default()]).unwrap(),
                items: test.gpu.upload(&ITEMS).unwrap(),
                _others: [segments, workspace],
            }
        }

        /// Writes gradients as a backward pass leaves them: those of convolution weights in compute type.
        fn write_gradients(&self, test: &TestGpu, gradients: &Params, precision: Precision) {
            let (mut others, mut weights) = (gradients.clone(), gradients.clone());
            for id in gradients.ids() {
                let is_weight = gradients.spec(id).kind == ParamKind::ConvWeight;
                if is_weight { others.get_mut(id).fill(0.0) } else { weights.get_mut(id).fill(f32::NAN) }
            }
            let mut now: Vec<f32> = self.arenas[1].read(0, others.values.len()).unwrap();
            for (now, more) in now.iter_mut().zip(&others.values) {
                *now += more;
            }
            self.arenas[1].write(0, &now).unwrap();
            let packed = test.upload(&weights.values, precision);
            test.gpu.copy(self.arenas[4].address, packed.address, weights.values.len() * precision.bytes()).unwrap();
            test.gpu.synchronize().unwrap();
        }

        fn update(&self, test: &TestGpu, precision: Precision) -> Results {
            let kernels = test_kernels(precision);
            let remembered: Vec<u64> = self.arenas[5..5 + self.rule.n_remembered()].iter().map(|arena| arena.address).collect();
            run(test, &self.optimizer.update(kernels, self.rule, &remembered));
            run(test, &[self.optimizer.finish(kernels, self.items.address, self.results.address)]);
            self.results.read(0, 1).unwrap()[0]
        }

        fn arena(&self, index: usize) -> Vec<f32> {
            self.arenas[index].read(0, self.arenas[index].bytes / 4).unwrap()
        }
    }

    /// Gradients of convolution weights pass through the compute type; the CPU gets what is left of them.
    fn round_weights(gradients: &mut Params, precision: Precision) {
        for id in gradients.ids() {
            if gradients.spec(id).kind == ParamKind::ConvWeight {
                gradients.get_mut(id).iter_mut().for_each(|value| *value = rounded(*value, precision));
            }
        }
    }

    #[test]
    fn steps_agree_with_the_cpu() {
        let test = test_gpu();
        for precision in PRECISIONS {
            for rule in RULES {
                let mut random = Random::new(5);
                let mut params = random_params(&mut random, 1.0);
                // A weight and an offset.
                for id in [36, 38].map(ParamId) {
                    params.frozen[id.0 as usize] = true;
                }
                let gpu = OnGpu::new(&test, &params, precision, rule, State::new(0, 1.0));
                let mut average = params.clone();
                let mut memory = Memory::new(rule, &params);
                // The second is short enough to be left as it is.
                for (number, largest) in [(1, 1.0), (2, 0.01), (3, 2.0)] {
                    let mut gradients = random_gradients(&params, &mut random, largest);
                    round_weights(&mut gradients, precision);
                    gpu.write_gradients(&test, &gradients, precision);
                    let results = gpu.update(&test, precision);

                    let norm = clip_gradients(&mut gradients, SETTINGS.max_norm);
                    let Settings { lr, momentum, weight_decay, .. } = SETTINGS;
                    let ratio = step(&mut params, &gradients, &mut memory, &Step { rule, lr, momentum, weight_decay });
                    let keep = SETTINGS.ema_decay * (1.0 - (-f64::from(number) / SETTINGS.ema_tau).exp());
                    ema_update(&mut average, &params, keep);

                    let what = format!("{precision:?}, {rule:?}, step {number}");
                    assert!((results.norm - norm).abs() <= 1e-5 * norm, "{what}: norm {} but {norm}", results.norm);
                    // Both round each value after its change, which matters for changes as small as that rounding.
                    assert!((results.update_ratio - ratio).abs() <= 1e-4 * ratio, "{what}: ratio {} but {ratio}", results.update_ratio);
                    assert_eq!((results.skipped, results.n_updates, results.n_finished), (0, number, number as u64), "{what}");
                    assert_eq!(results.items, ITEMS);
                    // A few roundings of values up to 1, and of AdamW's quotient, times the rate.
                    assert_close(&format!("{what}: values"), &gpu.arena(0), &params.values, Tolerance { abs: 1e-6, rel: 1e-6 });
                    assert_close(&format!("{what}: averages"), &gpu.arena(2), &average.values, Tolerance { abs: 1e-6, rel: 1e-6 });
                    let left = gpu.arena(1);
                    assert!(
                        params.ids().filter(|&id| params.is_trained(id)).all(|id| left[params.range(id)].iter().all(|&g| g == 0.0)),
                        "{what}: gradients are left"
                    );
                    let copies = test.download(&gpu.arenas[3], params.values.len(), precision);
                    for id in params.ids() {
                        let copies = &copies[params.range(id)];
                        if params.is_trained(id) {
                            assert_close(&format!("{what}: copies"), copies, params.get(id), Tolerance::rounding(precision));
                        } else {
                            assert!(copies.iter().all(|copy| copy.is_nan()), "{what}: what is not trained is copied");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn accumulated_and_scaled_gradients_give_the_same_step() {
        let test = test_gpu();
        let precision = Precision::F16;
        let mut random = Random::new(9);
        let params = random_params(&mut random, 1.0);
        let mut parts = [random_gradients(&params, &mut random, 0.5), random_gradients(&params, &mut random, 0.5)];
        for part in &mut parts {
            round_weights(part, precision);
        }
        let (plain, scaled) = (
            OnGpu::new(&test, &params, precision, Rule::Sgd, State::new(0, 1.0)),
            OnGpu::new(&test, &params, precision, Rule::Sgd, State::new(0, 64.0)),
        );
        for (gpu, scale) in [(&plain, 1.0), (&scaled, 64.0)] {
            for (number, part) in parts.iter().enumerate() {
                let mut part = part.clone();
                part.values.iter_mut().for_each(|value| *value *= scale);
                gpu.write_gradients(&test, &part, precision);
                if number == 0 {
                    run(&test, &[gpu.optimizer.add_weight_gradients(test_kernels(precision))]);
                }
            }
        }
        let (plain_results, scaled_results) = (plain.update(&test, precision), scaled.update(&test, precision));
        assert_eq!((plain_results.norm, plain_results.skipped), (scaled_results.norm, 0));
        assert_eq!(plain.arena(0), scaled.arena(0));
        let mut sum = parts[0].clone();
        sum.values.iter_mut().zip(&parts[1].values).for_each(|(sum, more)| *sum += more);
        let norm = clip_gradients(&mut sum, SETTINGS.max_norm);
        assert!((plain_results.norm - norm).abs() <= 1e-5 * norm, "{} but {norm}", plain_results.norm);
    }

    #[test]
    fn a_gradient_that_is_no_number_changes_nothing_but_the_scale() {
        let test = test_gpu();
        for (precision, bad) in [(Precision::F16, f32::INFINITY), (Precision::Bf16, f32::NAN)] {
            let mut random = Random::new(2);
            let params = random_params(&mut random, 1.0);
            let gpu = OnGpu::new(&test, &params, precision, Rule::Sgd, State::new(7, 1024.0));
            gpu.settings.write(0, &[Settings { scales: 1, ..SETTINGS }]).unwrap();
            let mut gradients = random_gradients(&params, &mut random, 1.0);
            let middle = params.range(params.find("42").unwrap()).start + 20_000;
            gradients.values[middle] = bad;
            gpu.write_gradients(&test, &gradients, precision);
            let results = gpu.update(&test, precision);
            assert!(!results.norm.is_finite());
            assert_eq!((results.skipped, results.n_updates, results.loss_scale), (1, 7, 512.0));
            assert_eq!((gpu.arena(0), gpu.arena(2)), (params.values.clone(), params.values.clone()));
            assert!(gpu.arena(1).iter().chain(&gpu.arena(5)).all(|&value| value == 0.0));
        }
    }

    #[test]
    fn the_scale_grows_after_many_good_steps() {
        let test = test_gpu();
        let params = params_of(&[(ParamKind::ConvBias, vec![1.0])]);
        let gpu = OnGpu::new(&test, &params, Precision::F16, Rule::Sgd, State { n_since_scale: 1998, ..State::new(1998, 4.0) });
        gpu.settings.write(0, &[Settings { scales: 1, ..SETTINGS }]).unwrap();
        let scales: Vec<f32> = (0..3).map(|_| gpu.update(&test, Precision::F16).loss_scale).collect();
        assert_eq!(scales, [4.0, 8.0, 8.0]);
        let state: State = gpu.state.read(0, 1).unwrap()[0];
        assert_eq!((state.n_updates, state.n_since_scale), (2001, 1));
    }

    #[test]
    fn parameters_are_copied_into_the_compute_type() {
        let test = test_gpu();
        for precision in PRECISIONS {
            let params = random_params(&mut Random::new(4), 3.0);
            let gpu = OnGpu::new(&test, &params, precision, Rule::Sgd, State::new(0, 1.0));
            run(&test, &[gpu.optimizer.copy_parameters(test_kernels(precision))]);
            let copies = test.download(&gpu.arenas[3], params.values.len(), precision);
            for id in params.ids().filter(|&id| params.spec(id).kind.is_trained()) {
                let expected: Vec<f32> = params.get(id).iter().map(|&value| rounded(value, precision)).collect();
                assert_eq!(copies[params.range(id)], expected);
            }
        }
    }

    #[test]
    fn three_steps_agree_with_the_reference() {
        let test = test_gpu();
        let golden = Golden::open("optimizers.safetensors");
        let read = |prefix: &str| {
            let names = [
                ("conv.weight", ParamKind::ConvWeight),
                ("bn.weight", ParamKind::BnGamma),
                ("bn.bias", ParamKind::BnBeta),
                ("head.weight", ParamKind::ConvWeight),
                ("head.bias", ParamKind::ConvBias),
            ];
            params_of(&names.map(|(name, kind)| (kind, golden.f32s(&format!("{prefix}.{name}")))))
        };
        let rules = [
            ("SGD", Rule::Sgd, 0.01),
            ("Adam", Rule::Adam, 0.001),
            ("AdamW", Rule::AdamW { amsgrad: true }, 0.001),
            ("LION", Rule::Lion, 0.0001),
        ];
        for (name, rule, lr) in rules {
            let gpu = OnGpu::new(&test, &read(&format!("{name}.step0")), Precision::F32, rule, State::new(0, 1.0));
            let settings = Settings { lr: [lr; 3], momentum: 0.937, max_norm: f32::MAX, ..settings_of(rule) };
            gpu.settings.write(0, &[settings]).unwrap();
            for number in 1..=3 {
                gpu.write_gradients(&test, &read(&format!("grad{number}")), Precision::F32);
                gpu.update(&test, Precision::F32);
                let expected = read(&format!("{name}.step{number}"));
                assert_close(&format!("{name}, step {number}"), &gpu.arena(0), &expected.values, Tolerance { abs: 1e-6, rel: 0.0 });
            }
        }
    }
}
