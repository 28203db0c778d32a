//! How well does a typed text fit a name? Its letters must come in this order; those that begin words or follow one another
//! count more.

/// How well `query` fits `text`, or that it does not; larger is better. An empty query fits everything alike.
pub fn score(query: &str, text: &str) -> Option<i32> {
    let text: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    let query: Vec<char> = query.chars().filter(|letter| !letter.is_whitespace()).flat_map(char::to_lowercase).collect();
    if query.is_empty() {
        return Some(0);
    }
    // `best[j]`: the best score of the letters so far with the last of them at `j`; filled letter by letter.
    let mut best: Vec<Option<i32>> = Vec::new();
    for (place, &letter) in query.iter().enumerate() {
        let mut before: Option<i32> = None;
        let mut next = vec![None; text.len()];
        for j in 0..text.len() {
            if text[j] == letter {
                let begins_word = j == 0 || !text[j - 1].is_alphanumeric();
                let bonus = if begins_word { 8 } else { 1 };
                let follows = j.checked_sub(1).and_then(|i| best.get(i).copied().flatten()).map(|score| score + 9);
                next[j] = match place {
                    0 => Some(bonus),
                    _ => before.into_iter().chain(follows).max().map(|score| score + bonus),
                };
            }
            // From here on the letter before may stand at `j`.
            before = before.max(best.get(j).copied().flatten());
        }
        best = next;
    }
    let found = best.into_iter().flatten().max()?;
    // Of two that fit alike, the shorter is meant.
    Some(found * 16 - i32::try_from(text.len()).unwrap_or(i32::MAX).min(160))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_must_come_in_order() {
        assert!(score("nxt", "Next").is_some());
        assert!(score("txn", "Next").is_none());
        assert!(score("", "Next").is_some());
        assert!(score("nextt", "Next").is_none());
    }

    #[test]
    fn beginnings_of_words_and_runs_of_letters_count_more() {
        let rank = |query: &str, better: &str, worse: &str| {
            assert!(score(query, better) > score(query, worse), "{query}: {:?} {:?}", score(query, better), score(query, worse));
        };
        rank("st", "Start training", "Next");
        rank("cl", "Check labels", "Ocular");
        rank("show tr", "Show Train", "Show the whole run");
        rank("next", "Next", "Next unreviewed");
        rank("zoom", "Zoom in", "Zero of our moons");
    }
}
