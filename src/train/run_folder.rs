//! The run folder: run.yaml, results.csv, events.jsonl, weights.
