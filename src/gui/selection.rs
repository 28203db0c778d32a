//! Which images are chosen, and where does a choice with Shift begin?
//!
//! In:  what the pointer and the keys did to positions of a listing. Out: a set of images.
//!
//! The set holds images of the dataset, not positions, so it survives a change of filter or order: what passes no filter any
//! more stays chosen and is counted. One bit an image; a choice over all of 100,000 images costs microseconds.

/// A set of images with the one that a range begins at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    bits: Vec<u64>,
    n_selected: usize,
    /// The image that was chosen last without Shift.
    anchor: Option<usize>,
    /// Another number after each change.
    version: u64,
}

/// What a click or a key does to the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one alone.
    Only,
    /// This one in or out, the others stay.
    Toggle,
    /// Everything from the anchor to this one, nothing else.
    Range,
}

impl Choice {
    /// By the modifiers of a click.
    pub fn of(modifiers: egui::Modifiers) -> Self {
        if modifiers.shift {
            Self::Range
        } else if modifiers.command {
            Self::Toggle
        } else {
            Self::Only
        }
    }
}

impl Selection {
    pub fn len(&self) -> usize {
        self.n_selected
    }

    pub fn is_empty(&self) -> bool {
        self.n_selected == 0
    }

    pub fn contains(&self, image: usize) -> bool {
        self.bits.get(image / 64).is_some_and(|word| word >> (image % 64) & 1 == 1)
    }

    /// The chosen images in the dataset's order.
    pub fn images(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.checked_sub(1)?;
                Some(index * 64 + bit)
            })
        })
    }

    /// Tells two states apart.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many of a listing's images are chosen; looks at each.
    pub fn n_within(&self, listing: &[u32]) -> usize {
        listing.iter().filter(|&&image| self.contains(image as usize)).count()
    }

    /// Becomes another choice; its version goes on from here.
    pub fn replace(&mut self, other: &Self) {
        let version = self.version + 1;
        *self = Self { version, ..other.clone() };
    }

    pub fn clear(&mut self) {
        self.version += 1;
        self.bits.clear();
        self.n_selected = 0;
    }

    pub fn insert(&mut self, image: usize) {
        self.set(image, true);
    }

    /// Chooses the image at `position` of a listing in the way that was asked for.
    pub fn choose(&mut self, listing: &[u32], position: usize, choice: Choice) {
        let Some(&image) = listing.get(position) else { return };
        let image = image as usize;
        match choice {
            Choice::Only => {
                self.clear();
                self.set(image, true);
                self.anchor = Some(image);
            }
            Choice::Toggle => {
                self.set(image, !self.contains(image));
                self.anchor = Some(image);
            }
            Choice::Range => {
                let start = self.anchor.and_then(|anchor| position_of(listing, anchor)).unwrap_or(position);
                self.anchor = Some(listing[start] as usize);
                self.clear();
                self.extend(listing, start.min(position)..start.max(position) + 1);
            }
        }
    }

    /// Adds a range of positions, as far as there are any.
    pub fn extend(&mut self, listing: &[u32], positions: std::ops::Range<usize>) {
        let end = positions.end.min(listing.len());
        for &image in listing.get(positions.start..end).unwrap_or_default() {
            self.set(image as usize, true);
        }
    }

    /// Turns the choice round within a listing.
    pub fn invert(&mut self, listing: &[u32]) {
        for &image in listing {
            self.set(image as usize, !self.contains(image as usize));
        }
    }

    fn set(&mut self, image: usize, is_selected: bool) {
        if self.bits.len() <= image / 64 {
            self.bits.resize(image / 64 + 1, 0);
        }
        let (word, bit) = (&mut self.bits[image / 64], 1 << (image % 64));
        let was_selected = *word & bit != 0;
        self.version += 1;
        match (was_selected, is_selected) {
            (false, true) => self.n_selected += 1,
            (true, false) => self.n_selected -= 1,
            _ => {}
        }
        *word = if is_selected { *word | bit } else { *word & !bit };
    }
}

/// Where an image stands in a listing; 0.02 ms for 100,000 images.
pub fn position_of(listing: &[u32], image: usize) -> Option<usize> {
    listing.iter().position(|&each| each as usize == image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(selection: &Selection) -> Vec<usize> {
        selection.images().collect()
    }

    #[test]
    fn a_range_follows_the_order_of_the_listing_from_the_anchor() {
        let listing = [5, 900, 3, 64, 7];
        let mut selection = Selection::default();
        selection.choose(&listing, 3, Choice::Only);
        selection.choose(&listing, 1, Choice::Range);
        assert_eq!(chosen(&selection), [3, 64, 900]);
        selection.choose(&listing, 4, Choice::Range);
        assert_eq!((chosen(&selection), selection.len()), (vec![7, 64], 2));
        selection.choose(&listing, 0, Choice::Toggle);
        selection.choose(&listing, 4, Choice::Toggle);
        assert_eq!(chosen(&selection), [5, 64]);
        selection.choose(&listing, 2, Choice::Only);
        assert_eq!(chosen(&selection), [3]);
    }

    #[test]
    fn a_range_without_its_anchor_begins_where_it_ends() {
        let mut selection = Selection::default();
        selection.choose(&[1, 2, 3], 1, Choice::Only);
        selection.choose(&[1, 3], 1, Choice::Range);
        assert_eq!(chosen(&selection), [3]);
        selection.choose(&[1, 3], 0, Choice::Range);
        assert_eq!(chosen(&selection), [1, 3]);
        selection.choose(&[1, 3], 2, Choice::Only);
        assert_eq!(chosen(&selection), [1, 3], "there is no such position");
    }

    #[test]
    fn no_two_states_have_the_same_version() {
        let (before, mut selection) = (Selection::default(), Selection::default());
        selection.extend(&[1, 2], 0..2);
        let version = selection.version();
        selection.replace(&before);
        selection.extend(&[3, 4], 0..1);
        assert!(selection.version() > version);
    }

    #[test]
    fn inverting_counts_only_what_is_listed() {
        let mut selection = Selection::default();
        selection.extend(&[0, 1, 2, 3], 1..3);
        selection.invert(&[0, 1]);
        assert_eq!((chosen(&selection), selection.len()), (vec![0, 2], 2));
        selection.clear();
        assert!(selection.is_empty() && !selection.contains(0));
    }
}
