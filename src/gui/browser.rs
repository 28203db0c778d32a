//! Going through the images of a listing: grid or list, the current image, the chosen ones, keys and pointer.
//!
//! In:  the images of a listing in their order. Out: which one is current, which are chosen, which is to be opened.
//!
//! The current image is remembered as an image of the dataset, so it stays when filter, order or labels change.

use std::collections::HashSet;
use std::path::Path;

use super::grid::{Grid, Page};
use super::image_item::{BandDone, ItemsDone};
use super::image_list::ImageList;
use super::selection::{Choice, Selection, position_of};
use crate::dataset::Dataset;

/// How images are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    #[default]
    Grid,
    List,
}

/// A step of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Previous,
    Next,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// What browsing remembers between frames.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    pub layout: Layout,
    pub grid: Grid,
    pub list: ImageList,
    pub selection: Selection,
    /// An image of the dataset; `None` in an empty listing.
    current: Option<usize>,
    /// Where the current image stands in the listing.
    position: usize,
    /// What was chosen when the rubber band began.
    before_band: Selection,
}

impl Browser {
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    pub fn position(&self) -> usize {
        self.position
    }

    /// Takes in a new listing: the current image stays, or else the first becomes it.
    pub fn follow(&mut self, listing: &[u32]) {
        self.position = self.current.and_then(|image| position_of(listing, image)).unwrap_or(0);
        self.current = listing.get(self.position).map(|&image| image as usize);
    }

    /// Makes an image the current one, whether it is listed or not.
    pub fn turn_to(&mut self, listing: &[u32], image: usize) {
        self.current = Some(image);
        self.position = position_of(listing, image).unwrap_or(self.position);
        self.show_current();
    }

    /// The dataset was opened again, perhaps with its images in another order: what was current and chosen stays so, by the path.
    pub fn follow_dataset(&mut self, before: &Dataset, after: &Dataset) {
        let path_of = |image: usize| before.images.get(image).map(|entry| entry.path.as_path());
        let current = self.current.and_then(path_of);
        let chosen: HashSet<&Path> = self.selection.images().filter_map(path_of).collect();
        self.selection.clear();
        self.current = None;
        for (image, entry) in after.images.iter().enumerate() {
            if chosen.contains(entry.path.as_path()) {
                self.selection.insert(image);
            }
            if current == Some(entry.path.as_path()) {
                self.current = Some(image);
            }
        }
    }

    /// Another dataset is shown: nothing of the old one is meant any more; layout and sizes stay.
    pub fn reset(&mut self) {
        let mut grid = Grid::default();
        grid.cell_width = self.grid.cell_width;
        *self = Self { layout: self.layout, grid, ..Self::default() };
    }

    /// Makes the image at a position the current one, and brings it into the middle of the view.
    pub fn go_to(&mut self, listing: &[u32], position: usize) {
        if let Some(&image) = listing.get(position) {
            (self.current, self.position) = (Some(image as usize), position);
            self.show_current();
        }
    }

    /// Brings the current image into the middle of the view.
    pub fn show_current(&mut self) {
        self.grid.show_cell(self.position);
        self.list.show_row(self.position);
    }

    /// Goes on by a key; with Shift everything on the way is chosen, too.
    pub fn step(&mut self, listing: &[u32], step: Step, extends: bool) {
        let Some(last) = listing.len().checked_sub(1) else { return };
        let Page { n_columns, n_rows } = self.page();
        let page = n_columns * n_rows;
        let at = self.position.min(last);
        let to = match step {
            Step::Previous => at.saturating_sub(1),
            Step::Next => (at + 1).min(last),
            // There is a row above or below only where its cell is.
            Step::Up => at.checked_sub(n_columns).unwrap_or(at),
            Step::Down if at + n_columns <= last => at + n_columns,
            Step::Down if at / n_columns < last / n_columns => last,
            Step::Down => at,
            Step::PageUp => at.checked_sub(page).unwrap_or(at % n_columns),
            Step::PageDown => (at + page).min(last),
            Step::First => 0,
            Step::Last => last,
        };
        if extends && self.selection.is_empty() {
            self.selection.choose(listing, at, Choice::Only);
        }
        self.choose(listing, to, if extends { Choice::Range } else { Choice::Only });
    }

    /// Goes to the image before or after, and leaves alone what is chosen.
    pub fn turn(&mut self, listing: &[u32], forward: bool) {
        let to = if forward { self.position + 1 } else { self.position.wrapping_sub(1) };
        self.go_to(listing, to);
    }

    /// Takes in what the pointer did; returns whether the current image is to be opened.
    pub fn take(&mut self, listing: &[u32], done: &ItemsDone) -> bool {
        if let Some((position, choice)) = done.clicked {
            self.choose(listing, position, choice);
        }
        if let Some(BandDone { has_begun, adds, block }) = &done.band {
            if *has_begun {
                self.before_band = if *adds { self.selection.clone() } else { Selection::default() };
            }
            self.selection.replace(&self.before_band);
            block.positions().for_each(|range| self.selection.extend(listing, range));
        }
        if let Some(position) = done.menu
            && listing.get(position).is_some_and(|&image| !self.selection.contains(image as usize))
        {
            self.choose(listing, position, Choice::Only);
        }
        if let Some(position) = done.opened {
            self.choose(listing, position, Choice::Only);
        }
        done.opened.is_some()
    }

    pub fn choose_all(&mut self, listing: &[u32]) {
        self.selection.extend(listing, 0..listing.len());
    }

    /// The images that an action is about: the chosen ones, or else the current one.
    pub fn subjects(&self) -> Vec<usize> {
        if self.selection.is_empty() { self.current.into_iter().collect() } else { self.selection.images().collect() }
    }

    fn choose(&mut self, listing: &[u32], position: usize, choice: Choice) {
        let Some(&image) = listing.get(position) else { return };
        self.selection.choose(listing, position, choice);
        (self.current, self.position) = (Some(image as usize), position);
        self.grid.keep_in_view(position);
        self.list.keep_in_view(position);
    }

    fn page(&self) -> Page {
        match self.layout {
            Layout::Grid => self.grid.page,
            Layout::List => self.list.page(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::image_item::Block;
    use super::*;

    fn browser(listing: &[u32], at: usize) -> Browser {
        let mut browser = Browser::default();
        browser.grid.page = Page { n_columns: 3, n_rows: 2 };
        browser.follow(listing);
        browser.go_to(listing, at);
        browser
    }

    #[test]
    fn keys_go_along_rows_and_pages_and_stay_within() {
        let listing: Vec<u32> = (0..11).collect();
        let to = |at, step| {
            let mut browser = browser(&listing, at);
            browser.step(&listing, step, false);
            browser.position()
        };
        assert_eq!([to(0, Step::Previous), to(10, Step::Next), to(4, Step::Up), to(1, Step::Up)], [0, 10, 1, 1]);
        assert_eq!([to(4, Step::Down), to(8, Step::Down), to(10, Step::Down)], [7, 10, 10], "the last row is short");
        assert_eq!([to(4, Step::PageDown), to(8, Step::PageDown), to(7, Step::PageUp), to(4, Step::PageUp)], [10, 10, 1, 1]);
        assert_eq!([to(5, Step::First), to(5, Step::Last)], [0, 10]);
        let mut empty = browser(&[], 0);
        empty.step(&[], Step::Last, true);
        assert_eq!((empty.current(), empty.selection.len()), (None, 0));
    }

    #[test]
    fn shift_extends_from_where_it_began() {
        let listing = [9, 8, 7, 6, 5];
        let mut browser = browser(&listing, 1);
        browser.step(&listing, Step::Next, true);
        browser.step(&listing, Step::Next, true);
        assert_eq!(browser.subjects(), [6, 7, 8]);
        browser.step(&listing, Step::Previous, true);
        assert_eq!((browser.subjects(), browser.current()), (vec![7, 8], Some(7)));
        browser.step(&listing, Step::Next, false);
        assert_eq!(browser.subjects(), [6]);
    }

    #[test]
    fn the_current_image_stays_in_whatever_order() {
        let mut browser = browser(&[0, 1, 2, 3], 2);
        browser.follow(&[3, 2, 1]);
        assert_eq!((browser.current(), browser.position()), (Some(2), 1));
        browser.follow(&[3, 1]);
        assert_eq!((browser.current(), browser.position()), (Some(3), 0), "the first, where it is gone");
        browser.follow(&[]);
        assert_eq!(browser.current(), None);
    }

    #[test]
    fn a_band_replaces_the_choice_or_adds_to_it() {
        let listing = [4, 5, 6, 7];
        let mut browser = browser(&listing, 0);
        let band = |has_begun, adds, columns| {
            let block = Block { rows: 0..1, columns, n_columns: 4 };
            ItemsDone { band: Some(BandDone { has_begun, adds, block }), ..ItemsDone::default() }
        };
        browser.take(&listing, &band(true, false, 0..1));
        browser.take(&listing, &band(false, false, 0..2));
        browser.take(&listing, &band(false, false, 1..2));
        assert_eq!(browser.subjects(), [5], "a band that shrinks gives back what it left");
        browser.take(&listing, &band(true, true, 3..4));
        assert_eq!(browser.subjects(), [5, 7]);
        let click = ItemsDone { menu: Some(3), ..ItemsDone::default() };
        browser.take(&listing, &click);
        assert_eq!(browser.subjects(), [5, 7], "a menu is about what is chosen");
        browser.take(&listing, &ItemsDone { menu: Some(0), ..ItemsDone::default() });
        assert_eq!(browser.subjects(), [4]);
    }
}
