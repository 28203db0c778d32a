//! The built program on small datasets: printed lines, exit codes, and what is left on disk.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "program/dir.rs"]
mod dir;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use dir::Dir;

impl Dir {
    /// Runs with `--json` and kills it, without a warning, at the `n`th event of this name. Returns whether there were so many.
    fn killed_at(&self, args: &[&str], event: &str, mut n: usize) -> bool {
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            n -= usize::from(line["event"] == event);
            if n == 0 {
                child.kill().unwrap();
                assert!(!child.wait().unwrap().success());
                return true;
            }
        }
        child.wait().unwrap();
        false
    }

    /// Runs and asserts that it went well; returns stdout.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.boxwright(args);
        assert!(output.status.success(), "boxwright {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs and asserts exit code 1 with one `error:` line and a `hint:`; returns stderr.
    fn mendable(&self, args: &[&str]) -> String {
        let output = self.boxwright(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "boxwright {args:?}: {stderr}");
        assert_eq!(stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{stderr}");
        assert!(stderr.lines().any(|line| line.starts_with("hint: ")), "{stderr}");
        stderr
    }

    /// A sample dataset of few small pictures.
    fn sample(&self, name: &str, images: &str, extra: &[&str]) -> PathBuf {
        let args = [&["sample", name, "--images", images, "--size", "96", "--seed", "3"], extra].concat();
        self.ok(&args);
        self.path(name)
    }
}

fn last_json(stdout: &str) -> serde_json::Value {
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

fn all_files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = walkdir::WalkDir::new(dir).sort_by_file_name();
    let files = entries.into_iter().map(|entry| entry.unwrap()).filter(|entry| entry.file_type().is_file());
    files.map(|entry| (entry.path().to_owned(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn findings_are_told_by_rule_severity_and_number_and_as_documents() {
    let dir = Dir::new();
    dir.sample("broken", "32", &["--broken"]);
    let told = |args: &[&str]| {
        let output = dir.boxwright(&[&["check", "broken"], args].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let findings = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).filter(|line: &serde_json::Value| line["event"] == "finding").collect()
    };
    let (code, text, _) = told(&["--json"]);
    let all = findings(&text);
    assert_eq!(code, Some(1));
    let (_, text, _) = told(&["--rule", "out-of-range", "--format", "json"]);
    let of_rule = findings(&text);
    assert!(!of_rule.is_empty() && of_rule.len() < all.len());
    assert!(of_rule.iter().all(|finding| finding["rule"] == "out-of-range"));
    let (code, text, _) = told(&["--severity", "error", "--max", "2"]);
    assert_eq!((code, text.lines().filter(|line| line.starts_with("error ")).count()), (Some(1), 2), "{text}");
    assert!(text.lines().last().unwrap().starts_with(&format!("2 of {} findings, ", all.len())), "{text}");
    assert_eq!(told(&["--rule", "image-without-label"]).0, Some(0), "no error was asked for");

    let (code, text, _) = told(&["--format", "sarif"]);
    let sarif: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, sarif["runs"][0]["results"].as_array().unwrap().len()), (Some(1), all.len()));
    let (code, text, _) = told(&["--format", "html"]);
    assert!(code == Some(1) && text.starts_with("<!DOCTYPE html>") && text.contains("data:image/jpeg;base64,"));
    let (code, _, text) = told(&["--rule", "no-such-rule"]);
    assert!(code == Some(2) && text.contains("there is no such rule") && text.contains("out-of-range"), "{text}");
}

#[test]
fn a_sound_dataset_has_no_errors() {
    let dir = Dir::new();
    dir.sample("parts", "10", &[]);
    let finished = last_json(&dir.ok(&["check", "parts", "--json"]));
    assert_eq!(finished["event"], "finished");
    assert_eq!(finished["result"]["errors"], 0);
    assert_eq!(finished["result"]["images"], 10);
}

#[test]
fn planted_faults_are_found_fixed_and_restored() {
    let dir = Dir::new();
    let dataset = dir.sample("parts", "28", &["--broken"]);
    let before = all_files(&dataset);

    let check = dir.boxwright(&["check", "parts", "--json"]);
    assert_eq!(check.status.code(), Some(1));
    let found = last_json(&String::from_utf8(check.stdout).unwrap());
    let out_of_range = found["result"]["by_rule"]["out-of-range"].as_u64().unwrap();
    assert!(out_of_range >= 2, "{found}");

    let dry = last_json(&dir.ok(&["fix", "parts", "--dry-run", "--json"]));
    assert_eq!(all_files(&dataset), before, "a dry run changes nothing");
    let fixed = last_json(&dir.ok(&["fix", "parts", "--json"]));
    assert_eq!(fixed["result"]["changes"], dry["result"]["changes"]);
    assert!(Path::new(fixed["result"]["receipt"].as_str().unwrap()).is_file());
    assert_ne!(all_files(&dataset), before);

    let again = last_json(&dir.ok(&["fix", "parts", "--json"]));
    assert_eq!(again["result"]["changes"].as_array().unwrap().len(), 0, "a second fix finds nothing");

    dir.ok(&["undo", "parts"]);
    assert_eq!(all_files(&dataset), before, "undo brings every byte back");
}

#[test]
fn the_loop_trains_measures_detects_and_exports() {
    let dir = Dir::new();
    dir.sample("parts", "10", &[]);
    let train =
        ["train", "--data", "parts", "--model", "gelan-t", "--imgsz", "64", "--batch", "4", "--epochs", "2", "--name", "short", "--json"];
    let trained = last_json(&dir.ok(&train));
    assert_eq!(trained["result"]["epochs"], 2, "{trained}");
    let run = dir.path("runs/short");
    for file in ["run.yaml", "results.csv", "events.jsonl", "weights/last.safetensors", "weights/best.safetensors"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    assert_eq!(std::fs::read_to_string(run.join("results.csv")).unwrap().lines().count(), 3);

    let told = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert!(!told.contains("device_bytes"), "a run on the CPU takes nothing on a GPU");

    let weights = "runs/short/weights/best.safetensors";
    let val = last_json(&dir.ok(&["val", "--data", "parts", "--weights", weights, "--json"]));
    assert_eq!(val["result"]["metrics"]["images"], 2);
    let again = last_json(&dir.ok(&["val", "--data", "parts", "--weights", weights, "--json"]));
    assert_eq!(val, again, "the same weights give the same figures");

    let detect =
        ["detect", "--weights", weights, "--source", "parts/images/val", "--conf", "0.001", "--save-img", "--save-txt", "--out", "found"];
    dir.ok(&detect);
    assert_eq!(all_files(&dir.path("found")).iter().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "jpg")).count(), 2);

    dir.ok(&["export", "--weights", weights, "--format", "onnx", "--out", "short.onnx"]);
    dir.ok(&["export", "--weights", weights, "--format", "safetensors", "--out", "short.safetensors"]);
    assert!(dir.path("short.onnx").metadata().unwrap().len() > 1 << 20);
}

#[test]
fn a_training_that_is_killed_again_and_again_ends_with_the_same_weights() {
    let dir = Dir::new();
    dir.sample("parts", "14", &[]);
    let train = |name| {
        let options = ["train", "--data", "parts", "--model", "gelan-t", "--imgsz", "64", "--batch", "4", "--epochs", "4", "--json"];
        [&options[..], &["--name", name]].concat()
    };
    dir.ok(&train("whole"));
    assert!(dir.killed_at(&train("killed"), "step", 1), "before the first state");
    let resume = ["train", "--resume", "runs/killed", "--json"];
    for (event, n) in [("step", 2), ("epoch", 1), ("saved", 1), ("step", 2), ("step", 1), ("saved", 1)] {
        if !dir.killed_at(&resume, event, n) {
            break;
        }
    }
    // Another one begins where none trains: the newest run goes on by itself, if it has not reached its end.
    let finished = dir.boxwright(&["train", "--resume", "--json"]);
    if finished.status.success() {
        assert_eq!(last_json(&String::from_utf8(finished.stdout).unwrap())["result"]["epochs"], 4);
    } else {
        assert!(String::from_utf8_lossy(&finished.stderr).contains("has finished its 4 epochs"), "{finished:?}");
    }
    for file in ["weights/last.safetensors", "weights/best.safetensors", "results.csv"] {
        let [whole, killed] = ["whole", "killed"].map(|name| std::fs::read(dir.path("runs").join(name).join(file)).unwrap());
        assert!(whole == killed, "{file} differs");
    }
    let steps: Vec<u64> = std::fs::read_to_string(dir.path("runs/killed/events.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["event"] == "step")
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>(), "each step is told once");
    dir.mendable(&["train", "--resume", "runs/killed"]);
    dir.mendable(&["train", "--resume", "runs/nowhere"]);
    dir.mendable(&["train", "--resume", "runs/killed", "--batch", "8"]);
}

#[test]
fn bad_input_is_one_error_line_with_a_hint_and_leaves_nothing_behind() {
    let dir = Dir::new();
    dir.sample("parts", "10", &[]);
    dir.write("tabs/data.yaml", "train: images/train\nval: images/val\nnames:\n\t0: a\n");
    dir.write("nonames/data.yaml", "train: images/train\nval: images/val\n");
    dir.write("empty/data.yaml", "train: images/train\nval: images/val\nnames: [a]\n");
    std::fs::create_dir_all(dir.path("empty/images/train")).unwrap();
    dir.write("notes.safetensors", "these are no weights");

    for dataset in ["missing", "tabs", "nonames", "empty"] {
        dir.mendable(&["check", dataset]);
        dir.mendable(&["train", "--data", dataset, "--epochs", "1"]);
    }
    dir.mendable(&["train", "--data", "parts", "--device", "99"]);
    dir.mendable(&["bench", "infer", "--device", "99"]);
    dir.mendable(&["train", "--data", "parts", "--weights", "notes.safetensors"]);
    dir.mendable(&["train", "--data", "parts", "--epochs", "0"]);
    dir.mendable(&["val", "--data", "parts", "--weights", "missing.safetensors"]);
    dir.mendable(&["detect", "--weights", "notes.safetensors", "--source", "parts/images/val"]);
    dir.mendable(&["export", "--weights", "notes.safetensors", "--format", "onnx", "--out", "a.onnx"]);
    assert!(!dir.path("runs").exists() && !dir.path("a.onnx").exists(), "a refused command writes nothing");
}

#[test]
fn the_doctor_reports_on_any_machine() {
    let dir = Dir::new();
    let text = dir.ok(&["doctor"]);
    assert!(text.lines().any(|line| line.starts_with("CPU ") && line.ends_with("threads")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("GPU")), "{text}");
    let report: serde_json::Value = serde_json::from_str(&dir.ok(&["doctor", "--json"])).unwrap();
    assert_eq!(report["event"], "finished");
    let result = &report["result"];
    assert!(result["usable_gpu"].is_boolean() && result["threads"].as_u64() > Some(0), "{report}");
    // What is missing comes with what to do.
    let is_complete = result["usable_gpu"] == true;
    assert!(is_complete || !result["advice"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn a_folder_that_is_not_empty_is_never_written_into() {
    let dir = Dir::new();
    dir.write("full/letter.txt", "precious");
    let before = all_files(&dir.path("full"));
    dir.mendable(&["sample", "full"]);
    dir.sample("parts", "10", &[]);
    dir.mendable(&["convert", "parts", "full"]);
    assert_eq!(all_files(&dir.path("full")), before);
}
