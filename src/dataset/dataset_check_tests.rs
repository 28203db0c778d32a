//! Faults of datasets as a whole, each planted alone, and sound twins.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;

use super::super::check::check;
use super::super::open::tests::folder;
use super::super::open::tests::png;
use super::*;

/// Files of a dataset: data.yaml with these names, and images (all different) with their rows, by path below `images`.
fn dataset(names: &str, images: &[(String, String)], more: &[(&str, &str)]) -> tempfile::TempDir {
    let yaml = format!("train: images/train\nval: images/val\nnames: {names}\n");
    let mut files = vec![("data.yaml", yaml.as_str())];
    files.extend_from_slice(more);
    let root = folder(&files);
    for (index, (name, rows)) in images.iter().enumerate() {
        let image = root.path().join("images").join(name);
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        png(root.path(), &format!("images/{name}"), 20 + index as u32, 20);
        let label = root.path().join("labels").join(name).with_extension("txt");
        std::fs::create_dir_all(label.parent().unwrap()).unwrap();
        std::fs::write(label, rows).unwrap();
    }
    root
}

/// Findings of the rules of this file, as `rule file`.
fn told(root: &Path) -> Vec<String> {
    let report = check(&Dataset::open(root).unwrap(), &|_, _| ControlFlow::Continue(())).unwrap();
    report.findings.iter().map(|finding| format!("{} {}", finding.rule.id(), finding.file.display())).collect()
}

/// 60 images in train, 20 in val, of which every 15th is a background; `row(index)` is in the others.
fn many(row: impl Fn(usize) -> String) -> Vec<(String, String)> {
    let rows = |index: usize| if index.is_multiple_of(15) { String::new() } else { row(index) };
    (0..80).map(|index| (format!("{}/{}.png", if index < 60 { "train" } else { "val" }, word(index)), rows(index))).collect()
}

/// A name without a number, which would look like a video.
fn word(index: usize) -> String {
    [index / 26, index % 26].iter().map(|&letter| char::from(b'a' + letter as u8)).collect()
}

const A: &str = "0 .5 .5 .2 .2\n";
const B: &str = "1 .5 .5 .3 .2\n";

#[test]
fn a_sound_dataset_has_no_findings() {
    let root = dataset("[cat, dog]", &many(|_| format!("{A}{B}")), &[]);
    assert_eq!(told(root.path()), [""; 0]);
}

#[test]
fn classes_that_are_rare_or_out_of_balance_or_missing_are_told() {
    let few = many(|index| if index == 1 { format!("{A}{B}") } else { format!("{A}{}", "0 .3 .3 .1 .1\n") });
    let root = dataset("[cat, dog, owl]", &few, &[]);
    let expected = ["unused-name", "class-imbalance", "rare-class", "class-not-in-val"].map(|rule| format!("{rule} data.yaml"));
    assert_eq!(told(root.path()), expected);
}

#[test]
fn too_many_and_no_backgrounds_are_told() {
    let none = many(|_| A.to_owned()).into_iter().map(|(name, _)| (name, A.to_owned())).collect::<Vec<_>>();
    assert_eq!(told(dataset("[cat]", &none, &[]).path()), ["background-share data.yaml"]);
    let half = many(|index| if index.is_multiple_of(2) { A.to_owned() } else { String::new() });
    assert_eq!(told(dataset("[cat]", &half, &[]).path()), ["background-share data.yaml"]);
}

#[test]
fn names_that_are_nearly_the_same_are_told() {
    let names = |names: &[&str]| similar_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(names(&["car", "Car", "truck", "trucks", "person", "persom", "hard hat", "hard_hat", "bus", "buses"]).len(), 5);
    assert_eq!(names(&["cat", "car", "bus", "boat", "class_1", "class_2", "left", "right", "cup", "cap"]), []);
    let images = [("train/a.png".to_owned(), format!("{A}{B}")), ("val/b.png".to_owned(), format!("{A}{B}"))];
    assert_eq!(told(dataset("[Car, car]", &images, &[]).path()), ["similar-names data.yaml"]);
    assert_eq!(told(dataset("[car, car]", &images, &[]).path()), ["duplicate-names data.yaml"]);
    assert_eq!(told(dataset("[car, tree]", &images, &[]).path()), [""; 0]);
}

#[test]
fn no_name_of_coco_is_like_another() {
    let coco = "person bicycle car motorcycle airplane bus train truck boat bench bird cat dog horse sheep cow elephant bear zebra giraffe \
                backpack umbrella handbag tie suitcase frisbee skis snowboard kite skateboard surfboard bottle cup fork knife spoon bowl \
                banana apple sandwich orange broccoli carrot pizza donut cake chair couch bed toilet tv laptop mouse remote keyboard \
                microwave oven toaster sink refrigerator book clock vase scissors toothbrush";
    assert_eq!(similar_names(&coco.split_whitespace().map(str::to_owned).collect::<Vec<_>>()), []);
}

#[test]
fn names_out_of_order_are_told() {
    let images = [("train/a.png".to_owned(), format!("{A}{B}")), ("val/b.png".to_owned(), format!("{A}{B}"))];
    assert_eq!(told(dataset("\n  1: dog\n  0: cat", &images, &[]).path()), ["names-unsorted data.yaml"]);
    assert_eq!(told(dataset("\n  0: dog\n  1: cat", &images, &[]).path()), [""; 0]);
}

#[test]
fn shared_label_files_repeated_names_and_strayed_files_are_told() {
    let images = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), A.to_owned())).collect::<Vec<_>>();
    let root = dataset("[cat]", &images(&["train/a.png", "val/a.png"]), &[]);
    assert_eq!(told(root.path()), ["same-basename data.yaml"]);

    let root = dataset("[cat]", &images(&["train/a.png", "val/b.png"]), &[("labels/train.cache", "x"), ("images/train/c.HEIC", "x")]);
    png(root.path(), "images/train/a.bmp", 40, 20);
    assert_eq!(
        told(root.path()),
        ["shared-label-file images/train/a.png", "unsupported-image images/train/c.HEIC", "foreign-cache labels/train.cache"]
    );
}

#[cfg(unix)]
#[test]
fn links_to_nowhere_and_in_circles_are_told() {
    let images = [("train/a.png".to_owned(), A.to_owned()), ("val/b.png".to_owned(), A.to_owned())];
    let root = dataset("[cat]", &images, &[]);
    std::os::unix::fs::symlink("gone.png", root.path().join("images/train/c.png")).unwrap();
    std::os::unix::fs::symlink("..", root.path().join("images/train/round")).unwrap();
    std::os::unix::fs::symlink("a.png", root.path().join("images/train/.hidden.png")).unwrap();
    assert_eq!(told(root.path()), ["broken-link images/train/c.png", "broken-link images/train/round"]);
}

#[test]
fn an_annotation_of_another_size_is_told() {
    let annotation =
        |width: u32, height: u32| format!("<annotation><size><width>{width}</width><height>{height}</height></size></annotation>");
    let root = folder(&[
        ("Annotations/a.xml", &annotation(30, 20)),
        ("Annotations/b.xml", &annotation(20, 30)),
        ("Annotations/c.xml", &annotation(0, 0)),
    ]);
    for (name, width) in [("a", 30), ("b", 30), ("c", 31)] {
        png(root.path(), &format!("JPEGImages/{name}.png"), width, 20);
    }
    let told: Vec<String> = told(root.path()).into_iter().filter(|line| line.starts_with("image-size")).collect();
    assert_eq!(told, ["image-size-differs Annotations/b.xml"]);
}
