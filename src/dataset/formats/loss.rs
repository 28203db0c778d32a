//! What a format cannot hold of a collection: told before anything is written.
//!
//! In:  a collection and the format that it is to be written in.
//! Out: one line for each kind of thing that is lost or changes, with how many there are.

use std::collections::BTreeMap;

use super::collection::{CROWD, Collection, Coords, ImageRecord};
use super::target;
use super::{Attributes, FormatInfo, Trait, Units};

/// So many different attributes are told one by one.
const MAX_ATTRIBUTES: usize = 12;

/// Something that is lost or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Such as `polygons`.
    pub kind: &'static str,
    pub n: usize,
    /// The whole sentence, without full stop.
    pub text: String,
}

impl Loss {
    fn new(kind: &'static str, n: usize, text: String) -> Self {
        Self { kind, n, text }
    }
}

/// Takes out what the format cannot hold at all, and tells everything that is lost.
pub fn losses(collection: &mut Collection, format: &FormatInfo) -> Vec<Loss> {
    let mut losses: Vec<Loss> = std::mem::take(&mut collection.left_out).into_iter().map(|text| Loss::new("left-out", 1, text)).collect();
    let title = format.title;
    collection.images.retain(|image| match misfit(image, format) {
        None => true,
        Some(reason) => {
            losses.push(Loss::new("image-left-out", 1, format!("{}: {reason}; the image is left out", image.name)));
            false
        }
    });
    let mut tell = |kind, n, text: String| {
        if n > 0 {
            losses.push(Loss::new(kind, n, format!("{n} {text}")));
        }
    };

    let mut n_crowds = 0;
    if format.attributes != Attributes::All {
        for image in &mut collection.images {
            let before = image.objects.len();
            image.objects.retain(|object| !object.is(CROWD));
            n_crowds += before - image.objects.len();
        }
    }
    tell("crowds", n_crowds, format!("regions of many objects (iscrowd) are left out: {title} would take each for one object"));

    let objects = || collection.images.iter().flat_map(|image| &image.objects);
    let with_outline = || collection.images.iter().flat_map(|image| image.objects.iter().map(move |object| (image, object)));
    if format.has(Trait::OneRing) {
        let n = with_outline().filter(|(image, object)| !object.outline.is_empty() && object.ring(image.size).is_none()).count();
        tell("polygons", n, "outlines of several parts, or with a box of their own, become boxes".to_owned());
    } else if !format.has(Trait::Outlines) {
        let n = objects().filter(|object| !object.outline.is_empty()).count();
        tell("polygons", n, format!("polygons become their enclosing boxes: {title} has boxes only"));
    }
    if !format.has(Trait::Scores) {
        let n = objects().filter(|object| object.score.is_some()).count();
        tell("scores", n, format!("objects have a score, which {title} cannot hold"));
    }
    if !format.has(Trait::Tracks) {
        let n = objects().filter(|object| object.track.is_some()).count();
        tell("tracks", n, format!("objects have a track id, which {title} cannot hold"));
    }

    let mut lost: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for (key, value) in objects().flat_map(|object| &object.attributes) {
        let is_held = match format.attributes {
            Attributes::All => true,
            Attributes::Only(held) => held.contains(&key.as_str()),
        };
        if !is_held {
            let (n, is_mark) = lost.entry(key).or_insert((0, true));
            *n += 1;
            *is_mark &= value == "1";
        }
    }
    let n_kinds = lost.len();
    for (key, (n, is_mark)) in lost.into_iter().take(MAX_ATTRIBUTES) {
        let what = if is_mark { format!("are marked {key}") } else { format!("have the attribute {key:?}") };
        tell("attributes", n, format!("objects {what}, which {title} cannot hold"));
    }
    if n_kinds > MAX_ATTRIBUTES {
        tell("attributes", n_kinds - MAX_ATTRIBUTES, format!("more attributes, which {title} cannot hold"));
    }

    let n_unseen = collection.images.iter().filter(|image| !image.is_labelled && image.objects.is_empty()).count();
    if !format.has(Trait::Unlabelled) {
        tell("unlabelled", n_unseen, format!("images have no labels yet; in {title} they count as background images"));
    }
    if let Some(ids) = &collection.class_ids
        && !format.has(Trait::ClassIds)
        && ids.iter().zip(0..).any(|(&id, place)| id != place)
    {
        let (low, high) = (ids.iter().min().copied().unwrap_or(0), ids.iter().max().copied().unwrap_or(0));
        let last = ids.len().saturating_sub(1);
        losses.push(Loss::new("class-ids", ids.len(), format!("class numbers {low} to {high} become 0 to {last}, in the same order")));
    }
    let mut tell = |kind, n, text: String| {
        if n > 0 {
            losses.push(Loss::new(kind, n, format!("{n} {text}")));
        }
    };
    if format.has(Trait::ByName) {
        let n = {
            let mut names: Vec<&String> = collection.names.iter().collect();
            names.sort();
            names.windows(2).filter(|pair| pair[0] == pair[1]).count()
        };
        tell("class-names", n, format!("classes have the name of another class and become one with it: {title} knows classes by name"));
    }
    if format.has(Trait::NamesAllClasses) {
        let unnamed = collection.unnamed_classes();
        let n = objects().filter(|object| unnamed.contains(&object.class)).count();
        let names: Vec<String> = unnamed.iter().take(4).map(|&class| collection.class_name(class)).collect();
        tell("unnamed-classes", n, format!("objects have a class number without a name; {title} calls them {}", names.join(", ")));
    }
    if format.has(Trait::OneVideo) {
        let what = "images become the frames of one video, in this order, without their names and splits";
        tell("names", collection.images.len(), what.to_owned());
    } else if let Some(naming) = format.naming {
        tell("renamed", target::n_renamed(collection, naming), "images get another name, since two have the same".to_owned());
    }
    let n_missing = collection.images.iter().filter(|image| image.path.is_none()).count();
    tell("pictures", n_missing, "images have no picture here; only their labels are written".to_owned());
    losses
}

/// Why an image cannot be written in this format.
fn misfit(image: &ImageRecord, format: &FormatInfo) -> Option<String> {
    if image.size.is_some() {
        return None;
    }
    let other = |coords: Coords| match coords {
        Coords::Pixels(_) => format.units == Units::Fractions,
        Coords::Fractions(_) => format.units == Units::Pixels,
    };
    let needs_size = format.has(Trait::StatesSize) || image.objects.iter().any(|object| other(object.coords));
    needs_size.then(|| {
        let why = if image.path.is_some() { "its picture does not decode" } else { "there is no picture" };
        format!("the size of the image is not known, since {why}")
    })
}
