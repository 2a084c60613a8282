//! DARC's Table 4 on files whose bytes are overwritten.

use hindsight_load::recovery::recoveries;
use lab::experiment::darc::{Case, Ended, Finder};

#[test]
fn a_recovery_takes_the_operations_of_table_4() {
    let dir = tempfile::tempdir().expect("a directory");
    let found = recoveries(dir.path()).expect("recoveries");
    let told: Vec<_> = found
        .iter()
        .map(|r| (r.by, r.case, [r.data_ios, r.checksum_ios, r.checksums], r.ended))
        .collect();
    let wanted = [
        (Finder::Layer, Case::OneWrong, [3, 0, 2], Ended::DataRecovered),
        (Finder::Layer, Case::BothTheSame, [2, 1, 2], Ended::ChecksumRecovered),
        (Finder::Layer, Case::BothWrong, [2, 0, 2], Ended::Refused),
        (Finder::Map, Case::OneWrong, [3, 0, 2], Ended::DataRecovered),
        (Finder::Map, Case::BothTheSame, [2, 0, 2], Ended::Refused),
        (Finder::Map, Case::BothWrong, [2, 0, 2], Ended::Refused),
    ];
    assert_eq!(told, wanted);
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0, "nothing is left");
}
