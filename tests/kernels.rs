//! Every kernel file compiles for every kind of card and compute type, without spilling registers. Needs NVRTC, no GPU.
//!
//! NVRTC is found as the program finds it. Where nothing of the kind is installed the test says so and passes, unless
//! `BOXWRIGHT_CUDA_PATH` says where it is (`scripts/test.sh` installs it and says so) or `CI` is set: then it fails.
#![cfg(feature = "cuda")]
#![expect(clippy::print_stdout, reason = "what the compiler says of each kernel is for the person")]

use std::collections::{BTreeMap, BTreeSet};

use boxwright::engine::cuda::Precision;
use boxwright::engine::cuda::kernels::{FILES, KernelFile};
use boxwright::engine::cuda::nvrtc::{Nvrtc, Target};
use rayon::prelude::*;

/// Turing, A100, RTX 30, RTX 40, Hopper, with the compute types that they are used with. On Hopper the GPU's tests run all.
const CARDS: [(u32, &[Precision]); 5] = [
    (75, &[Precision::F16, Precision::F32]),
    (80, &[Precision::Bf16, Precision::F32]),
    (86, &[Precision::Bf16, Precision::F32]),
    (89, &[Precision::Bf16, Precision::F32]),
    (90, &[Precision::Bf16, Precision::F16, Precision::F32]),
];

/// Bytes that a thread may spill: a few around a call cost nothing.
const SPILLS_ALLOWED: u32 = 16;

/// Kernels that may spill more in a compute type, with the bytes and why that is right.
const MAY_SPILL: &[(&str, Precision, u32, &str)] =
    &[("bn_act_backward_reduce_2_vec", Precision::F32, 56, "f32 is for comparisons; in bf16 and fp16 it spills nothing")];

/// What ptxas says of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Usage {
    registers: u32,
    stack: u32,
    /// The larger of what is stored and what is loaded.
    spilled: u32,
}

#[test]
fn every_kernel_compiles_for_every_card() {
    let nvrtc = match Nvrtc::open() {
        Ok(nvrtc) => nvrtc,
        Err(error) => {
            let wanted = ["BOXWRIGHT_CUDA_PATH", "CI"].into_iter().find(|name| std::env::var_os(name).is_some());
            assert!(wanted.is_none(), "{} is set, but {error}", wanted.unwrap_or_default());
            println!("kernels were NOT compiled: {error}; `pip install nvidia-cuda-nvrtc` brings it");
            return;
        }
    };
    println!("NVRTC {} in {}", nvrtc.found().version, nvrtc.found().path.display());

    let cases: Vec<_> = FILES
        .iter()
        .flat_map(|file| CARDS.into_iter().filter(|(sm, _)| file.is_for(*sm)).map(move |(sm, precisions)| (file, sm, precisions)))
        .flat_map(|(file, sm, precisions)| precisions.iter().map(move |&precision| (file, sm, precision)))
        .collect();
    let results: Vec<_> = cases.par_iter().map(|&(file, sm, precision)| compile(&nvrtc, file, sm, precision)).collect();

    let mut faults = Vec::new();
    let mut files_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    println!("{:32} {:>6} {:>9} {:>5} {:>7}", "kernel", "sm", "registers", "stack", "spilled");
    for ((file, sm, precision), result) in cases.iter().zip(results) {
        let log = match result {
            Ok(log) => log,
            Err(error) => {
                faults.push(format!("{precision:?}: {error}"));
                continue;
            }
        };
        for (kernel, usage) in usages(&log) {
            let Usage { registers, stack, spilled } = usage;
            println!("{:32} {:>6} {registers:9} {stack:5} {spilled:7}", format!("{kernel} {precision:?}"), format!("sm_{sm}"));
            let allowed = MAY_SPILL
                .iter()
                .find(|(name, of, ..)| *name == kernel && of == precision)
                .map_or(SPILLS_ALLOWED, |(_, _, bytes, _)| *bytes);
            if spilled > allowed {
                faults.push(format!("{}: {kernel} spills {spilled} bytes for sm_{sm} and {precision:?}", file.name));
            }
            files_of.entry(kernel).or_default().insert(file.name);
        }
    }
    for (kernel, files) in files_of.into_iter().filter(|(_, files)| files.len() > 1) {
        faults.push(format!("{kernel} is in more than one file: {files:?}"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The compiler's log.
fn compile(nvrtc: &Nvrtc, file: &KernelFile, sm: u32, precision: Precision) -> Result<String, String> {
    let target = Target { verbose: true, ..file.target(sm, precision) };
    nvrtc.compile(file.name, file.text, target).map(|compiled| compiled.log).map_err(|error| error.to_string())
}

/// Reads what `ptxas -v` prints: for each kernel a line with its name, one with stack and spills, one with registers.
fn usages(log: &str) -> Vec<(String, Usage)> {
    let mut usages: Vec<(String, Usage)> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            usages.push((rest.split('\'').next().unwrap_or_default().to_owned(), Usage::default()));
        } else if let Some((_, usage)) = usages.last_mut() {
            let number = |what: &str| line.split_once(what).and_then(|(before, _)| before.split_whitespace().last()?.parse::<u32>().ok());
            if let Some(stack) = number(" bytes stack frame") {
                usage.stack = stack;
            }
            for what in [" bytes spill stores", " bytes spill loads"] {
                usage.spilled = usage.spilled.max(number(what).unwrap_or(0));
            }
            if let Some(registers) = number(" registers") {
                usage.registers = registers;
            }
        }
    }
    usages
}

#[test]
fn what_the_compiler_says_is_read() {
    let log = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'set2' for 'sm_90'
ptxas info    : Function properties for set2
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 6 registers, used 0 barriers
ptxas info    : Compile time = 1.880 ms
ptxas info    : Compiling entry function 'set' for 'sm_90'
ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cmem[0]";
    let expected = [
        ("set2".to_owned(), Usage { registers: 6, stack: 8, spilled: 12 }),
        ("set".to_owned(), Usage { registers: 32, ..Usage::default() }),
    ];
    assert_eq!(usages(log), expected);
}
