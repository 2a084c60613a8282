//! DARC's evaluation (Fountoulakis et al., SYSTOR 2010): what was measured here, beside what the
//! paper says in words.
//!
//! 1. Nothing is measured here: whoever has a pool and a clock (the crate `load`) hands in what it
//!    measured, and gets pictures, numbers and claims.
//! 2. The paper's pictures are not known, only its text and tables; what is only in a picture is
//!    said to be.
//! 3. Times are shown, not judged: its disks, controller and host are not these. What is judged is
//!    what must be the same anywhere: the operations of a recovery (Table 4), and, of points that
//!    were measured for 30 s at least, what checksums and versions take away (figures 5 to 8).

mod figures;
mod measured;
mod tables;

pub use measured::{
    Case, Configuration, DEPTHS, Ended, Exhibit, Finder, Layout, MailRun, Measure, Measured, Point,
    QueryRun, Recovery,
};

use super::outcome::Outcome;

/// What the exhibits say.
#[must_use]
pub fn outcomes(measured: &Measured, exhibits: &[Exhibit]) -> Vec<Outcome> {
    let one = |exhibit: &Exhibit| match exhibit {
        Exhibit::Fig10 => vec![tables::fig10(measured)],
        Exhibit::Table3 => vec![tables::table3(measured)],
        Exhibit::Table4 => vec![tables::table4(measured)],
        figure => figures::figures(measured, *figure),
    };
    exhibits.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::measured::Spread;
    use super::{
        Case, Configuration, Ended, Exhibit, Finder, Layout, Measure, Measured, Point, Recovery,
        outcomes,
    };
    use crate::experiment::{Claim, Verdict};
    use trace::generate::Pattern;

    #[test]
    fn a_spread_is_the_middle_and_the_ends() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]).map(|s| s.told(1)), Some("2.0 (1.0-3.0, 3)".to_owned()));
        assert_eq!(of(&[4.0, 1.0]).map(|s| s.median), Some(2.5));
    }

    fn point(configuration: Configuration, depth: u32, round: u32, mb: f64) -> Point {
        let measure = Measure {
            bytes_per_second: mb * 1e6,
            checksums: 16.0,
            cpu_us: Some(64.0),
            ..Measure::default()
        };
        let (layout, pattern) = (Layout::Raid10, Pattern::SequentialRead);
        Point { layout, pattern, configuration, depth, round, measure }
    }

    fn claim<'a>(claims: &'a [Claim], what: &str) -> &'a Claim {
        claims.iter().find(|claim| claim.what == what).unwrap_or_else(|| panic!("no {what}"))
    }

    #[test]
    fn ratios_are_made_within_a_round_and_stand_beside_the_papers() {
        let (no_edc, edc) = (Configuration::NoEdc, Configuration::Edc);
        let points = vec![
            point(no_edc, 1, 0, 100.0),
            point(edc, 1, 0, 80.0),
            point(edc, 1, 1, 180.0),
            point(no_edc, 1, 1, 200.0),
            point(no_edc, 64, 0, 300.0),
            point(edc, 64, 0, 150.0),
            point(Configuration::Pool, 64, 0, 150.0),
        ];
        let measured = Measured { points, checksum_ns: 400.0, ..Measured::default() };
        let found = outcomes(&measured, &[Exhibit::Fig6, Exhibit::Fig5]);
        let claims = &found.iter().find(|one| one.name == "darc-fig6-rs").expect("there").claims;
        let ratio = claim(claims, "edc / no-edc, all depths");
        assert_eq!((&*ratio.paper, &*ratio.measured), ("0.80 to 0.88", "0.80 (0.50-0.90, 3)"));
        assert_eq!(ratio.verdict, Verdict::NotJudged);
        let highest = claim(claims, "highest MB/s, no-edc");
        assert!(highest.paper.contains("549"), "{highest:?}");
        assert_eq!(highest.measured, "300 (300-300, 1)");
        assert_eq!(claim(claims, "pool-version / pool, all depths").measured, "not measured");
        let long = Measured { point_seconds: 30.0, ..measured.clone() };
        let long = outcomes(&long, &[Exhibit::Fig6]);
        let claims_of_long = &long.iter().find(|one| one.name == "darc-fig6-rs").unwrap().claims;
        let judged = claim(claims_of_long, "edc / no-edc, all depths");
        assert_eq!((judged.verdict, judged.fails_with.is_empty()), (Verdict::Holds, false));
        let share = claim(claims, "share of a volume's processor time that is its map's checksums");
        assert_eq!(share.measured, "0.100 (0.100-0.100, 1)");
        // What was measured on one layout is not said of another.
        let raid0 = found.iter().find(|one| one.name == "darc-fig5-rs").expect("there");
        assert!(raid0.table.rows.is_empty());
    }

    #[test]
    fn a_recovery_with_other_operations_differs() {
        let recovery = |by, case, [data_ios, checksum_ios, checksums]: [u64; 3], ended| Recovery {
            case,
            by,
            data_ios,
            checksum_ios,
            checksums,
            ended,
            took_us: 1.0,
            clean_us: 1.0,
        };
        let verdict = |one: Recovery| {
            let what = outcomes(
                &Measured { recoveries: vec![one], ..Measured::default() },
                &[Exhibit::Table4],
            );
            let judged = what[0].claims.iter().filter(|c| c.verdict != Verdict::NotJudged);
            let judged: Vec<Verdict> = judged.map(|claim| claim.verdict).collect();
            assert_eq!(judged.len(), 1, "of one case");
            judged[0]
        };
        let same = Case::BothTheSame;
        let (trusting, map) = (Finder::Layer, Finder::Map);
        let recovered = Ended::ChecksumRecovered;
        assert_eq!(verdict(recovery(trusting, same, [2, 1, 2], recovered)), Verdict::Holds);
        assert_eq!(verdict(recovery(trusting, same, [2, 0, 2], recovered)), Verdict::Differs);
        assert_eq!(verdict(recovery(trusting, same, [2, 1, 2], Ended::Refused)), Verdict::Differs);
        // A map never blesses what both copies say.
        assert_eq!(verdict(recovery(map, same, [2, 1, 2], recovered)), Verdict::Differs);
        assert_eq!(verdict(recovery(map, same, [2, 0, 2], Ended::Refused)), Verdict::Holds);
        let one = Case::OneWrong;
        assert_eq!(verdict(recovery(map, one, [3, 0, 2], Ended::DataRecovered)), Verdict::Holds);
        assert_eq!(verdict(recovery(map, one, [4, 0, 2], Ended::DataRecovered)), Verdict::Differs);
    }
}
