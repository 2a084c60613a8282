//! Ways of reading all of a parity: each leaves out some sides, and computes what they have.

/// Sides that are left out, a bit each.
pub type Without = u64;

/// How many sets of so many there are among some.
fn choose(among: usize, size: usize) -> usize {
    match size > among {
        true => 0,
        false => (0..size).fold(1, |count, i| count * (among - i) / (i + 1)),
    }
}

/// How many sets of at most so many.
pub(super) fn sets(among: usize, most: usize) -> usize {
    (0..=most).map(|size| choose(among, size)).sum()
}

/// One of these by its number: the smaller ones come first.
pub(super) fn set(of: &[usize], most: usize, mut number: usize) -> Without {
    for size in 0..=most {
        let count = choose(of.len(), size);
        if number < count {
            return set_of_size(of, size, number);
        }
        number -= count;
    }
    0
}

fn set_of_size(of: &[usize], size: usize, number: usize) -> Without {
    let (Some((first, rest)), Some(others)) = (of.split_first(), size.checked_sub(1)) else {
        return 0;
    };
    let with_first = choose(rest.len(), others);
    match number.checked_sub(with_first) {
        None => 1 << first | set_of_size(rest, others, number),
        Some(number) => set_of_size(rest, size, number),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{set, sets};

    #[test]
    fn every_set_has_one_number() {
        for (of, most) in [(&[0, 1, 2][..], 1), (&[1, 2, 4, 7], 2), (&[0, 3, 4, 5, 6], 3), (&[], 1)]
        {
            let all: Vec<u64> = (0..sets(of.len(), most)).map(|n| set(of, most, n)).collect();
            assert_eq!(all[0], 0, "the first leaves out nothing");
            assert!(all.is_sorted_by_key(|set| set.count_ones()), "{all:?}");
            let expected: BTreeSet<u64> = (0..1 << 8_u64)
                .filter(|set: &u64| set.count_ones() as usize <= most)
                .filter(|set| (0..8).all(|side| set >> side & 1 == 0 || of.contains(&side)))
                .collect();
            assert_eq!(all.len(), expected.len());
            assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
