//! Copies and leaks, each planted alone, and datasets without.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::super::check::check_to;
use super::super::open::tests::folder;
use super::*;
use crate::geom::Size;
use crate::media::Picture;
use crate::media::encode::encode;

/// Soft shapes that lie elsewhere for each `seed`.
fn scene(seed: u32) -> Picture {
    let at = |i: u32| {
        let mixed = seed.wrapping_mul(0x9E37_79B1) ^ i.wrapping_mul(0x85EB_CA6B);
        let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2C1B_3C6D);
        ((mixed ^ mixed >> 12) % 997) as f32 / 997.0
    };
    let shade = |x: u32, y: u32| {
        let (x, y) = (x as f32 / 64.0, y as f32 / 48.0);
        let blob = |i: u32| (-((x - at(i)).powi(2) + (y - at(i + 1)).powi(2)) * 30.0).exp() * (at(i + 2) - 0.4) * 300.0;
        (110.0 + (0..8).map(|i| blob(i * 3)).sum::<f32>()).clamp(0.0, 255.0) as u8
    };
    let rgb = (0..48).flat_map(|y| (0..64).flat_map(move |x| [shade(x, y); 3])).collect();
    Picture { size: Size::new(64, 48), rgb }
}

/// The leaks and copies of a dataset with these images (path below `images`, seed of the picture, quality), as `rule file`.
fn told(images: &[(&str, u32, u8)], labels: &[(&str, &str)], depth: Depth) -> Vec<String> {
    let root = folder(&[("data.yaml", "train: images/train\nval: images/val\nnames: [a]\n")]);
    for (name, seed, quality) in images {
        let path = root.path().join("images").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        encode(&path, &scene(*seed), *quality).unwrap();
    }
    for (name, rows) in labels {
        let path = root.path().join("labels").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, rows).unwrap();
    }
    let dataset = Dataset::open(root.path()).unwrap();
    let report = check_to(&dataset, depth, None, &|_, _| ControlFlow::Continue(())).unwrap();
    let rules = [Rule::DuplicateImage, Rule::NearDuplicateImage, Rule::DuplicateLabelsDiffer, Rule::SplitLeak, Rule::SameImagesInSplits];
    let told = report.findings.iter().filter(|finding| rules.contains(&finding.rule));
    told.map(|finding| format!("{} {}", finding.rule.id(), finding.file.display())).collect()
}

#[test]
fn other_pictures_are_no_copies() {
    let images: Vec<(String, u32, u8)> = (0..30).map(|seed| (format!("train/{}.jpg", (b'a' + seed as u8) as char), seed + 1, 90)).collect();
    let mut images: Vec<(&str, u32, u8)> = images.iter().map(|(name, seed, quality)| (name.as_str(), *seed, *quality)).collect();
    images.push(("val/other.jpg", 99, 90));
    for depth in [Depth::Header, Depth::Pixels] {
        assert_eq!(told(&images, &[], depth), [""; 0]);
    }
}

#[test]
fn copies_are_told_and_labels_that_differ() {
    let images = [("train/a.png", 1, 90), ("train/b.png", 1, 90), ("val/other.png", 2, 90)];
    let same = [("train/a.txt", "0 .5 .5 .2 .2\n0 .2 .2 .1 .1\n"), ("train/b.txt", "0 .2 .2 .1 .1\n0 .50001 .5 .2 .2\n")];
    let other = [("train/a.txt", "0 .5 .5 .2 .2\n"), ("train/b.txt", "0 .5 .6 .2 .2\n")];
    for depth in [Depth::Header, Depth::Pixels] {
        assert_eq!(told(&images, &same, depth), ["duplicate-image images/train/b.png"]);
        let expected = ["duplicate-image images/train/b.png", "duplicate-labels-differ images/train/b.png"];
        assert_eq!(told(&images, &other, depth), expected);
    }
}

#[test]
fn the_same_pixels_in_other_bytes_are_found_by_decoding() {
    let images = [("train/a.png", 1, 90), ("train/b.bmp", 1, 90), ("val/other.png", 2, 90)];
    assert_eq!(told(&images, &[], Depth::Header), [""; 0]);
    assert_eq!(told(&images, &[], Depth::Pixels), ["duplicate-image images/train/b.bmp"]);
}

#[test]
fn near_copies_are_told_and_leak() {
    let images = [("train/a.jpg", 1, 95), ("train/b.jpg", 1, 50), ("val/c.jpg", 1, 70), ("val/other.jpg", 2, 90)];
    assert_eq!(told(&images, &[], Depth::Header), [""; 0]);
    let expected = ["near-duplicate-image images/train/b.jpg", "near-duplicate-image images/val/c.jpg", "split-leak images/val/c.jpg"];
    assert_eq!(told(&images, &[], Depth::Pixels), expected);
}

#[test]
fn a_copy_in_another_split_leaks() {
    let images = [("train/a.png", 1, 90), ("val/b.png", 1, 90), ("val/other.png", 2, 90)];
    for depth in [Depth::Header, Depth::Pixels] {
        assert_eq!(told(&images, &[], depth), ["duplicate-image images/val/b.png", "split-leak images/val/b.png"]);
    }
}

#[test]
fn roboflow_copies_and_frames_of_a_video_leak() {
    let copies = [("train/x_jpg.rf.1a.jpg", 1, 90), ("val/x_jpg.rf.2b.jpg", 2, 90)];
    assert_eq!(told(&copies, &[], Depth::Header), ["split-leak images/val/x_jpg.rf.2b.jpg"]);
    let apart = [("train/x_jpg.rf.1a.jpg", 1, 90), ("train/x_jpg.rf.2b.jpg", 2, 90), ("val/y_jpg.rf.1a.jpg", 3, 90)];
    assert_eq!(told(&apart, &[], Depth::Header), [""; 0]);
    let frames = [("train/clip_0011.jpg", 1, 90), ("val/clip_0012.jpg", 2, 90), ("train/other.jpg", 3, 90), ("val/more.jpg", 4, 90)];
    assert_eq!(told(&frames, &[], Depth::Header), ["split-leak images/val/clip_0012.jpg"]);
    let whole = [("train/clip_0011.jpg", 1, 90), ("train/clip_0012.jpg", 2, 90), ("val/other.jpg", 3, 90), ("val/more.jpg", 4, 90)];
    assert_eq!(told(&whole, &[], Depth::Header), [""; 0]);
}

#[test]
fn a_val_that_is_train_is_told_once() {
    let root = folder(&[("data.yaml", "train: images\nval: images\nnames: [a]\n")]);
    std::fs::create_dir_all(root.path().join("images")).unwrap();
    for name in ["clip_0011.png", "clip_0012.png"] {
        encode(&root.path().join("images").join(name), &scene(u32::from(name.as_bytes()[8])), 90).unwrap();
    }
    let dataset = Dataset::open(root.path()).unwrap();
    let report = check_to(&dataset, Depth::Pixels, None, &|_, _| ControlFlow::Continue(())).unwrap();
    let told: Vec<_> =
        report.findings.iter().filter(|finding| [Rule::SameImagesInSplits, Rule::SplitLeak].contains(&finding.rule)).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].message.contains("train and val are the same 2 images"), "{}", told[0].message);
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let root = folder(&[("images/a.jpg", "x"), ("labels/a.txt", "")]);
    let dataset = Dataset::open(root.path()).unwrap();
    let finding = Finding::of_dataset(&dataset, Rule::SplitLeak, Severity::Warning, "m".to_owned());
    let cut = capped(vec![finding; MAX_FINDINGS_PER_RULE + 5]);
    assert_eq!(cut.len(), MAX_FINDINGS_PER_RULE);
    assert!(cut[MAX_FINDINGS_PER_RULE - 1].message.ends_with("and 5 more findings of this rule"));
}
