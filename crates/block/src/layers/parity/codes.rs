//! The arithmetic of parity: bytes are numbers of GF(2^8), as in every RAID-6 (Anvin, "The
//! mathematics of RAID-6"; of the polynomial 0x11d).
//!
//! Parity k of the bytes d0, d1, ... of a row is the sum of 2^(k*i) * di: parity 0 is their XOR.
//! Each byte is for itself, so any range of the cells of a row can be computed alone.

/// Parities that there can be: with a fourth of this kind, rows could be lost.
pub const PARITIES_MAX: usize = 3;

const POLYNOMIAL: u16 = 0x11d;

/// Powers of two and their logarithms.
struct Tables {
    power: [u8; 255],
    log: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables { power: [0; 255], log: [0; 256] };
    let mut value = 1_u16;
    let mut i = 0;
    while i < 255 {
        tables.power[i] = value as u8;
        tables.log[value as usize] = i as u8;
        value <<= 1;
        if value > 255 {
            value ^= POLYNOMIAL;
        }
        i += 1;
    }
    tables
}

fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let logs = usize::from(TABLES.log[a as usize]) + usize::from(TABLES.log[b as usize]);
    TABLES.power[logs % 255]
}

fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    TABLES.power[(255 - usize::from(TABLES.log[a as usize])) % 255]
}

/// What data byte `i` counts for in parity `k`.
fn weight(k: usize, i: usize) -> u8 {
    TABLES.power[(k * i) % 255]
}

/// Adds `source`, times a number, to `target`.
fn add_times(target: &mut [u8], source: &[u8], number: u8) {
    assert_eq!(target.len(), source.len(), "of one row");
    match number {
        0 => {}
        1 => target.iter_mut().zip(source).for_each(|(t, s)| *t ^= s),
        _ => {
            let (targets, rest) = target.as_chunks_mut::<LANES>();
            let (sources, rest_of_source) = source.as_chunks::<LANES>();
            let lanes = targets.iter_mut().zip(sources);
            lanes.for_each(|(target, source)| add_lanes(target, source, number));
            let rest = rest.iter_mut().zip(rest_of_source);
            rest.for_each(|(t, s)| *t ^= multiply(*s, number));
        }
    }
}

/// Bytes that are computed beside each other.
const LANES: usize = 64;

/// The same for so many bytes: twice what there is for each bit of the number, from the highest on.
/// The compiler makes a few instructions for all bytes of that; a table takes two for each byte.
fn add_lanes(target: &mut [u8; LANES], source: &[u8; LANES], number: u8) {
    let mut sum = *source;
    for bit in (0..number.ilog2()).rev() {
        for byte in &mut sum {
            let carried = if *byte > 0x7f { POLYNOMIAL as u8 } else { 0 };
            *byte = (*byte << 1) ^ carried;
        }
        if number >> bit & 1 == 1 {
            sum.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
    target.iter_mut().zip(sum).for_each(|(target, byte)| *target ^= byte);
}

/// Parity `k` of a row.
pub fn parity<'d>(k: usize, length: usize, data: impl Iterator<Item = &'d [u8]>) -> Vec<u8> {
    let mut sum = vec![0; length];
    data.enumerate().for_each(|(i, bytes)| add(&mut sum, k, i, bytes));
    sum
}

/// Adds data cell `i` to its parity `k`: what was there is taken out in the same way.
pub fn add(parity: &mut [u8], k: usize, i: usize, bytes: &[u8]) {
    add_times(parity, bytes, weight(k, i));
}

/// Computes the data cells that are not there from those that are and as many parities,
/// `(k, bytes)`.
pub fn recover(data: &mut [Option<Vec<u8>>], parities: Vec<(usize, Vec<u8>)>) {
    let lost: Vec<usize> = (0..data.len()).filter(|&i| data[i].is_none()).collect();
    assert_eq!(lost.len(), parities.len(), "a parity for each that is lost");
    // What the lost ones make of each parity: a system of as many equations.
    let mut sums: Vec<Vec<u8>> = Vec::with_capacity(lost.len());
    let mut matrix: Vec<Vec<u8>> = Vec::with_capacity(lost.len());
    for (k, mut sum) in parities {
        for (i, bytes) in data.iter().enumerate() {
            if let Some(bytes) = bytes {
                add(&mut sum, k, i, bytes);
            }
        }
        matrix.push(lost.iter().map(|&i| weight(k, i)).collect());
        sums.push(sum);
    }
    solve(&mut matrix, &mut sums);
    lost.into_iter().zip(sums).for_each(|(i, bytes)| data[i] = Some(bytes));
}

/// Solves a system of equations in place (Gauss).
fn solve(matrix: &mut [Vec<u8>], sums: &mut [Vec<u8>]) {
    for column in 0..matrix.len() {
        let pivot = (column..matrix.len()).find(|&row| matrix[row][column] != 0);
        let pivot = pivot.expect("any few parities are independent of each other");
        matrix.swap(column, pivot);
        sums.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        if scale != 1 {
            matrix[column].iter_mut().for_each(|n| *n = multiply(*n, scale));
            let mut scaled = vec![0; sums[column].len()];
            add_times(&mut scaled, &sums[column], scale);
            sums[column] = scaled;
        }
        let (this, row_sums) = (matrix[column].clone(), sums[column].clone());
        for row in (0..matrix.len()).filter(|&row| row != column) {
            let factor = matrix[row][column];
            matrix[row].iter_mut().zip(&this).for_each(|(n, t)| *n ^= multiply(*t, factor));
            add_times(&mut sums[row], &row_sums, factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, PARITIES_MAX, add, add_times, inverse, multiply, parity, recover};

    fn row(count: usize) -> Vec<Vec<u8>> {
        let byte = |i: usize, j: usize| (i * 37 + j * 101 + i * i * j) as u8;
        (0..count).map(|i| (0..24).map(|j| byte(i, j)).collect()).collect()
    }

    fn parities_of(row: &[Vec<u8>]) -> Vec<Vec<u8>> {
        (0..PARITIES_MAX).map(|k| parity(k, 24, row.iter().map(|d| &d[..]))).collect()
    }

    /// Every set of at most so many numbers below `count`.
    fn sets(count: usize, most: usize) -> Vec<Vec<usize>> {
        let mut sets = vec![vec![]];
        let mut of_size: Vec<Vec<usize>> = vec![vec![]];
        for _ in 0..most {
            let longer = |set: &Vec<usize>| {
                let next = set.last().map_or(0, |last| last + 1);
                (next..count).map(|n| [&set[..], &[n]].concat()).collect::<Vec<_>>()
            };
            of_size = of_size.iter().flat_map(longer).collect();
            sets.extend(of_size.iter().cloned());
        }
        sets
    }

    #[test]
    fn the_numbers_are_a_field() {
        assert_eq!(multiply(0x80, 2), 0x1d);
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 5), multiply(a, b) ^ multiply(a, 5));
            }
        }
    }

    #[test]
    fn many_bytes_are_multiplied_as_each_is() {
        let source: Vec<u8> = (0..LANES * 5 + 7).map(|i| (i * 31 + i / 256) as u8).collect();
        for number in 0..=255 {
            let mut target: Vec<u8> = source.iter().rev().copied().collect();
            let expected: Vec<u8> =
                target.iter().zip(&source).map(|(t, s)| t ^ multiply(*s, number)).collect();
            add_times(&mut target, &source, number);
            assert!(target == expected, "{number}");
        }
    }

    #[test]
    fn the_parities_are_those_of_raid_6() {
        // P = a ^ b ^ c, Q = a ^ 2b ^ 4c: by hand.
        let row = [[0x01], [0x80], [0x40]];
        let of = |k| parity(k, 1, row.iter().map(|d| &d[..]))[0];
        assert_eq!(of(0), 0x01 ^ 0x80 ^ 0x40);
        assert_eq!(of(1), 0x01 ^ 0x1d ^ 0x1d);
        assert_eq!(of(2), 0x01 ^ multiply(0x80, 4) ^ multiply(0x40, 16));
    }

    #[test]
    fn every_loss_is_recovered_from_every_choice_of_parities() {
        for count in [1, 2, 3, 5, 8, 31] {
            let row = row(count);
            let parities = parities_of(&row);
            for lost in sets(count, PARITIES_MAX) {
                for choice in sets(PARITIES_MAX, PARITIES_MAX) {
                    if choice.len() != lost.len() {
                        continue;
                    }
                    let mut data: Vec<_> = row.iter().cloned().map(Some).collect();
                    lost.iter().for_each(|&i| data[i] = None);
                    let given = choice.iter().map(|&k| (k, parities[k].clone())).collect();
                    recover(&mut data, given);
                    let found: Vec<_> = data.into_iter().flatten().collect();
                    assert!(found == row, "{count}: {lost:?} by {choice:?}");
                }
            }
        }
    }

    #[test]
    fn a_parity_follows_a_cell_that_changes() {
        let mut row = row(5);
        let mut parities = parities_of(&row);
        let new = vec![0xc3; 24];
        for (k, parity) in parities.iter_mut().enumerate() {
            add(parity, k, 3, &row[3]);
            add(parity, k, 3, &new);
        }
        row[3] = new;
        assert!(parities == parities_of(&row));
    }
}
