//! What may have been meant.

/// `did you mean 'stock'?`, when one of `known` is close to `name`.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distances = known.map(|candidate| (distance(name, candidate), candidate));
    let (_, best) = distances.filter(|(distance, _)| *distance <= most).min()?;
    Some(format!("did you mean '{best}'?"))
}

/// How many characters have to be changed, added, removed or swapped with their neighbour; case counts for nothing.
fn distance(a: &str, b: &str) -> usize {
    // Long names are not typed, and the work grows with the product of the lengths.
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) =
        (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, x) in a.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, y) in b.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&last, column) + usize::from(x != y))
                .min(at(&last, column + 1) + 1)
                .min(at(&current, column) + 1);
            if row > 0 && column > 0 && a.get(row - 1) == Some(y) && b.get(column - 1) == Some(x) {
                best = best.min(at(&before, column - 1) + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested_and_distant_ones_are_not() {
        let known = ["stock", "reserved", "id"];
        assert_eq!(nearest("stok", known.into_iter()).as_deref(), Some("did you mean 'stock'?"));
        assert_eq!(nearest("Stock", known.into_iter()).as_deref(), Some("did you mean 'stock'?"));
        assert_eq!(nearest("resevred", known.into_iter()).as_deref(), Some("did you mean 'reserved'?"));
        assert_eq!(nearest("price", known.into_iter()), None);
    }
}
