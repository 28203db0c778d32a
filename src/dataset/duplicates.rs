//! Which pictures are the same, and which nearly?
//!
//! In:  fingerprints, or the files themselves where nothing was decoded.
//! Out: groups of the same picture; for each picture a nearly equal one, and how many bits of 64 differ.
//!
//! Two perceptual hashes that differ in at most 4 bits agree in at least one of five blocks of 12 or 13 bits (pigeonhole), so that only
//! hashes that share a block are compared: about n²/8192 comparisons for each block instead of n²/2, and equal hashes are one.
//! The threshold is the lower end of what is usual for pHash (4 to 6 bits). Source: Norouzi, Punjani, Fleet, Fast Search in Hamming
//! Space with Multi-Index Hashing (2012).

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::media::fingerprint::Fingerprint;

/// Bits that may differ between pictures that are nearly the same.
pub(super) const MAX_DISTANCE: u32 = 4;
/// Blocks of a hash, one more than bits may differ, and where each begins.
const BLOCKS: [(u32, u32); MAX_DISTANCE as usize + 1] = [(0, 13), (13, 13), (26, 13), (39, 13), (52, 12)];
/// More pairs of nearly equal hashes are not kept.
const MAX_PAIRS: usize = 2_000_000;

/// Groups of places with the same pixels, each in order, more than one each.
pub(super) fn same_pixels(prints: &[Option<Fingerprint>]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<[u8; 16], Vec<usize>> = BTreeMap::new();
    for (place, print) in prints.iter().enumerate() {
        if let Some(print) = print {
            groups.entry(print.pixels).or_default().push(place);
        }
    }
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    groups
}

/// A picture that shows nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Near {
    pub(super) distance: u32,
    pub(super) place: usize,
}

/// Nearly equal pictures with other pixels.
pub(super) struct NearPictures<'a> {
    prints: &'a [Option<Fingerprint>],
    /// Places by hash, in order, of the same pixels only the first.
    places: HashMap<u64, Vec<usize>>,
    /// Other hashes within the distance.
    neighbours: HashMap<u64, Vec<u64>>,
}

impl<'a> NearPictures<'a> {
    pub(super) fn find(prints: &'a [Option<Fingerprint>]) -> Self {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        for (place, print) in prints.iter().enumerate() {
            if let Some(Fingerprint { pixels, perceptual: Some(hash) }) = print
                && seen.insert(*pixels)
            {
                places.entry(*hash).or_default().push(place);
            }
        }
        let mut hashes: Vec<u64> = places.keys().copied().collect();
        hashes.sort_unstable();
        let mut neighbours: HashMap<u64, Vec<u64>> = HashMap::new();
        for (a, b) in near_pairs(&hashes) {
            neighbours.entry(a).or_default().push(b);
            neighbours.entry(b).or_default().push(a);
        }
        Self { prints, places, neighbours }
    }

    /// The nearest picture that `is_wanted`, of several the first.
    pub(super) fn nearest(&self, place: usize, is_wanted: impl Fn(usize) -> bool) -> Option<Near> {
        let print = self.prints[place]?;
        let hash = print.perceptual?;
        let others = self.neighbours.get(&hash).into_iter().flatten().copied();
        let first = |other: u64| {
            let is_other = |&&at: &&usize| self.prints[at].is_some_and(|at| at.pixels != print.pixels);
            let place = *self.places.get(&other)?.iter().filter(is_other).find(|&&at| is_wanted(at))?;
            Some(Near { distance: (hash ^ other).count_ones(), place })
        };
        std::iter::once(hash).chain(others).filter_map(first).min()
    }
}

/// Pairs of different hashes within the distance, each once.
fn near_pairs(hashes: &[u64]) -> Vec<(u64, u64)> {
    let mut pairs = Vec::new();
    for (block, &(start, n_bits)) in BLOCKS.iter().enumerate() {
        let part = |hash: u64, (start, n_bits): (u32, u32)| (hash >> start) & ((1 << n_bits) - 1);
        let mut buckets: HashMap<u64, Vec<u64>> = HashMap::new();
        for &hash in hashes {
            buckets.entry(part(hash, (start, n_bits))).or_default().push(hash);
        }
        for bucket in buckets.into_values() {
            for (i, &a) in bucket.iter().enumerate() {
                for &b in &bucket[i + 1..] {
                    // A pair that shares an earlier block was found there.
                    let is_new = || BLOCKS[..block].iter().all(|&earlier| part(a, earlier) != part(b, earlier));
                    if (a ^ b).count_ones() <= MAX_DISTANCE && is_new() {
                        pairs.push((a, b));
                        if pairs.len() == MAX_PAIRS {
                            return pairs;
                        }
                    }
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::sample::random::Random;

    fn print(pixels: u8, perceptual: u64) -> Fingerprint {
        Fingerprint { pixels: [pixels; 16], perceptual: Some(perceptual) }
    }

    #[test]
    fn the_search_finds_what_comparing_all_finds() {
        let mut random = Random::new(1, 0, 0);
        let mut hashes: Vec<u64> = (0..300).map(|_| random.bits()).collect();
        for i in 0..300 {
            let n_flips = i as u32 % 8;
            hashes.push((0..n_flips).fold(hashes[i], |hash, _| hash ^ 1 << random.below(64)));
        }
        hashes.sort_unstable();
        hashes.dedup();
        let mut found: Vec<(u64, u64)> = near_pairs(&hashes).into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        found.sort_unstable();
        let mut expected = Vec::new();
        for (i, &a) in hashes.iter().enumerate() {
            expected.extend(hashes[i + 1..].iter().filter(|&&b| (a ^ b).count_ones() <= MAX_DISTANCE).map(|&b| (a, b)));
        }
        assert_eq!(found, expected);
        assert!(found.len() > 100);
    }

    #[test]
    fn the_nearest_wanted_picture_is_told_and_a_copy_is_none() {
        let mut prints = [print(1, 0), print(1, 0), print(2, 0b111), print(3, 0b1), print(4, u64::MAX)].map(Some).to_vec();
        prints.push(None);
        assert_eq!(same_pixels(&prints), [vec![0, 1]]);
        let near = NearPictures::find(&prints);
        assert_eq!(near.nearest(3, |_| true), Some(Near { distance: 1, place: 0 }));
        assert_eq!(near.nearest(3, |place| place == 2), Some(Near { distance: 2, place: 2 }));
        assert_eq!(near.nearest(1, |_| true), Some(Near { distance: 1, place: 3 }));
        assert_eq!(near.nearest(4, |_| true), None);
        assert_eq!(near.nearest(5, |_| true), None);
    }
}
