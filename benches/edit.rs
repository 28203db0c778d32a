//! How long does an edit take until it is on disk, and how long does a long ledger take to open?
//!
//! `cargo bench --no-default-features --bench edit -- [N_EDITS [N_RECORDS]]` makes a dataset in a temporary folder (`TMPDIR` says where),
//! moves boxes through a session, takes the edits back, and opens a ledger of `N_RECORDS` edits.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use boxwright::dataset::edit::{Edit, LabelOp};
use boxwright::dataset::ledger::{Change, Ledger, NewEdit};
use boxwright::session::{Command, Session, Settings};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const N_IMAGES: usize = 200;
/// Boxes of each image.
const N_BOXES: usize = 10;

fn main() {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (n_edits, n_records) = (args.first().copied().unwrap_or(1000), args.get(1).copied().unwrap_or(100_000));
    let temp = tempfile::tempdir().expect("a temporary folder");
    let root = temp.path().join("dataset");
    write_dataset(&root);
    let mut session = Session::new(Settings::in_dir(&temp.path().join("state")), Arc::new(|| {}));
    session.apply(Command::Open(root.clone()));
    finish(&mut session);

    let mut times = Vec::new();
    for edit in 0..n_edits {
        let image = edit * 7 % N_IMAGES;
        let mut label = session.labels(image)[edit % N_BOXES];
        label.bbox.cx = 0.3 + (edit % 1000) as f32 * 4e-4;
        let op = LabelOp::Set { index: edit % N_BOXES, label };
        times.push(timed(|| {
            session.apply(Command::Edit(Edit::of_image("Move box", image, vec![op])));
            finish(&mut session);
        }));
    }
    report("edit until it is durable", &mut times);
    let mut times: Vec<f64> = (0..n_edits)
        .map(|_| {
            timed(|| {
                session.apply(Command::UndoEdit);
                finish(&mut session);
            })
        })
        .collect();
    report("undo until it is durable", &mut times);
    assert!(session.notices.is_empty(), "{:?}", session.notices);

    long_ledger(&temp.path().join("long"), n_records);
}

/// Edits of one file without waiting for the disk at each, then opening.
fn long_ledger(state: &Path, n_records: usize) {
    let root = state.join("dataset");
    std::fs::create_dir_all(&root).expect("a folder");
    let mut ledger = Ledger::open(state, &root).expect("a new ledger");
    let row = |n: usize| format!("0 0.5 0.5 0.2 {}\n", 0.1 + n as f64 * 1e-6).into_bytes();
    let path = root.join("a.txt");
    let edit = |n: usize| {
        let before = (n > 0).then(|| row(n - 1));
        NewEdit { name: "Move box".to_owned(), files: vec![Change::whole(path.clone(), before, row(n))], ..NewEdit::default() }
    };
    // A part of it is written as ever; the rest is as long, and is the same line for the reader.
    for n in 0..200 {
        ledger.write(edit(n), &|| ControlFlow::Continue(())).expect("a disk that takes it");
    }
    drop(ledger);
    let file = walkdir::WalkDir::new(state).into_iter().flatten().find(|entry| entry.file_name() == "edits.ledger").expect("the ledger");
    let bytes = std::fs::read(file.path()).expect("the ledger");
    let header_end = bytes.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut long = bytes[..header_end].to_vec();
    while long.len() < bytes.len() / 200 * n_records {
        long.extend_from_slice(&bytes[header_end..]);
    }
    std::fs::write(file.path(), &long).expect("a disk that takes it");
    let mut n_done = 0;
    let mut times: Vec<f64> = (0..10).map(|_| timed(|| n_done = Ledger::open(state, &root).expect("the long ledger").n_done())).collect();
    println!("ledger of {n_done} edits, {:.1} MB", long.len() as f64 / 1e6);
    report("opening it", &mut times);
}

fn finish(session: &mut Session) {
    while session.wait().is_some() {}
}

/// Milliseconds.
fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

fn report(what: &str, times: &mut [f64]) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{what}: median {:.2} ms, p99 {:.2} ms, longest {:.2} ms, of {}", at(0.5), at(0.99), at(1.0), times.len());
}

fn write_dataset(root: &Path) {
    for folder in ["images", "labels"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    std::fs::write(root.join("data.yaml"), "train: images\nval: images/0.jpg\nnames: [a, b]\n").expect("a file");
    for image in 0..N_IMAGES {
        std::fs::write(root.join(format!("images/{image}.jpg")), "").expect("a file");
        let rows = (0..N_BOXES).map(|n| format!("{} 0.5 0.{}5 0.1 0.05\n", n % 2, n % 10)).collect::<Vec<_>>().concat();
        std::fs::write(root.join(format!("labels/{image}.txt")), rows).expect("a file");
    }
}
