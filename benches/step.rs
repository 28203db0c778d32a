//! Speed and memory of whole steps on the CPU, by op.
//!
//! `cargo bench --no-default-features --bench step -- train|infer [MODEL [BATCH [SIDE [STEPS]]]]` prints images a second of
//! the best step, the share of each op in it, and the planned memory beside the peak that the system saw.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use boxwright::engine::cpu::Executor;
use boxwright::engine::cpu::optimizer::{Memory, Step, clip_gradients, ema_update, step};
use boxwright::engine::gradients::{GradientStyle, append_gradients};
use boxwright::engine::{BnMode, LossSpec, Plan, Rule};
use boxwright::yolo::network::{Network, NetworkGraph};
use boxwright::yolo::variant::Model;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Boxes in each image.
const N_BOXES: usize = 12;
const N_CLASSES: usize = 80;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let arg = |index: usize| args.get(index).map(String::as_str);
    let number = |index: usize, default: usize| arg(index).map_or(default, |text| text.parse().expect("a whole number"));
    let train = arg(0).unwrap_or("train") == "train";
    let model: Model = arg(1).unwrap_or(if train { "yolov9-t" } else { "gelan-t" }).parse().expect("a model's name");
    let (batch, side, steps) = (number(2, if train { 8 } else { 1 }), number(3, if train { 320 } else { 640 }), number(4, 4));
    println!("{} {model}, batch {batch}, {side} px", if train { "train" } else { "infer" });
    let network = Network::new(model, N_CLASSES, 1);
    if train { bench_train(network, batch, side, steps) } else { bench_infer(&network.to_deploy(), batch, side, steps) }
}

fn bench_train(network: Network, batch: usize, side: usize, steps: usize) {
    let mut built = network.graph(batch, side, side, BnMode::Batch);
    let loss = built.append_loss(N_BOXES, LossSpec::published(N_CLASSES, built.aux.is_some()));
    let NetworkGraph { mut graph, input, .. } = built;
    append_gradients(&mut graph, GradientStyle::Added);
    let mut params = network.params;
    let plan = Plan::new(graph, &[loss.items]);
    let planned = plan.memory(&params);
    println!("{} nodes, arena {:.1} MB, bound {:.1} MB", plan.graph.nodes.len(), mb(plan.arena_bytes), mb(plan.lower_bound()));
    let image: Vec<f32> = (0..batch * side * side * 3).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
    let truth = truth(batch, side as f32);

    let mut gradients = params.zeros_like();
    let mut velocities = Memory::new(Rule::Sgd, &params);
    let mut ema = params.clone();
    let mut executor = Executor::new(plan);
    let mut best = Duration::MAX;
    let mut best_times = Vec::new();
    for _ in 0..steps {
        let start = Instant::now();
        executor.write(input, &image);
        executor.write(loss.truth, &truth);
        gradients.values.fill(0.0);
        let mut times = executor.run_timed(&mut params, &mut gradients);
        let update = Instant::now();
        clip_gradients(&mut gradients, 10.0);
        let sgd = Step { rule: Rule::Sgd, lr: [0.001; 3], momentum: 0.937, weight_decay: 5e-4 };
        step(&mut params, &gradients, &mut velocities, &sgd);
        ema_update(&mut ema, &params, 0.999);
        times.push(("optimizer", update.elapsed()));
        if start.elapsed() < best {
            (best, best_times) = (start.elapsed(), times);
        }
    }
    report(best, batch, &best_times);
    println!("loss items {:?}", executor.read(loss.items));
    println!("planned {:.1} MB ({planned:?}), peak {:.1} MB", mb(planned.total()), peak_mb());
}

fn bench_infer(network: &Network, batch: usize, side: usize, steps: usize) {
    let mut built = network.graph(batch, side, side, BnMode::Running);
    let decoded = built.append_decode();
    let NetworkGraph { graph, input, .. } = built;
    let mut params = network.params.clone();
    let plan = Plan::new(graph, &[decoded]);
    let planned = plan.memory(&params);
    println!("{} nodes, arena {:.1} MB, bound {:.1} MB", plan.graph.nodes.len(), mb(plan.arena_bytes), mb(plan.lower_bound()));
    let image: Vec<f32> = (0..batch * side * side * 3).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
    let mut executor = Executor::frozen(plan, &params);
    let mut best = Duration::MAX;
    for _ in 0..steps {
        let start = Instant::now();
        executor.write(input, &image);
        executor.run_inference(&params);
        best = best.min(start.elapsed());
    }
    executor.write(input, &image);
    let times = executor.run_timed(&mut params, &mut network.params.zeros_like());
    report(best, batch, &times);
    println!("planned {:.1} MB ({planned:?}), peak {:.1} MB", mb(planned.total()), peak_mb());
}

/// Boxes spread over each image, of many sizes.
fn truth(batch: usize, side: f32) -> Vec<f32> {
    let mut truth = Vec::new();
    for index in 0..batch * N_BOXES {
        let share = |factor: usize| (index * factor % 17) as f32 / 17.0;
        let (w, h) = (side * (0.05 + 0.4 * share(5)), side * (0.05 + 0.4 * share(7)));
        let (x, y) = ((side - w) * share(3), (side - h) * share(11));
        truth.extend([(index % N_CLASSES) as f32, x, y, x + w, y + h]);
    }
    truth
}

fn report(best: Duration, batch: usize, times: &[(&'static str, Duration)]) {
    println!("{:.1} ms a step, {:.2} images/s", best.as_secs_f64() * 1e3, batch as f64 / best.as_secs_f64());
    let mut sums: BTreeMap<&str, (Duration, usize)> = BTreeMap::new();
    for &(name, time) in times {
        let sum = sums.entry(name).or_default();
        sum.0 += time;
        sum.1 += 1;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    for (name, (time, count)) in sums {
        println!("  {name:24} {count:5} x {:9.2} ms  {:5.1} %", time.as_secs_f64() * 1e3, 100.0 * time.as_secs_f64() / best.as_secs_f64());
    }
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// The most memory that this process has had, as Linux counts it.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1.024e-3
}
