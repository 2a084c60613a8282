//! `target create`, `set`, `delete`: made iSCSI targets, whether or not iSCSI is served.

use crate::fixture::Fixture;

#[test]
fn a_target_of_several_units_is_made_changed_and_deleted() {
    let fixture = Fixture::new();
    for name in ["data", "wal"] {
        fixture.ok(&["volume", "create", name, "--size", "64MiB"]);
    }
    fixture.ok(&["group", "create", "bank", "wal", "data"]);
    fixture.ok(&["group", "version", "bank"]);
    let made = fixture.run(&["target", "create", "past", "--group", "bank@v:0", "--json"]).json();
    let luns = made["luns"].as_array().expect("units");
    assert_eq!((&luns[0]["volume"], &luns[1]["volume"]), (&"data".into(), &"wal".into()));
    assert!(luns.iter().all(|lun| lun["seq"].is_u64() && lun["uri"].is_null()), "{made}");
    let units = ["--lun", "0=data", "--lun", "300=wal@latest"];
    let made = fixture.ok(&[&["target", "create", "t"][..], &units].concat());
    assert!(made.contains("0=data") && made.contains("300=wal@seq:"), "{made}");
    for (arguments, code) in [
        (&["create", "t", "--lun", "0=data"][..], 1),
        (&["create", "data", "--lun", "0=data"], 1),
        (&["create", "u", "--lun", "0=nobody"], 10),
        (&["create", "u", "--lun", "0=data", "--group", "bank"], 2),
        (&["create", "u", "--lun", "data"], 2),
        (&["create", "u", "--lun", "99999=data"], 2),
        (&["create", "u"], 2),
        (&["set", "t"], 2),
        (&["set", "t", "--remove-lun", "7"], 10),
        (&["set", "data", "--add-lun", "1=wal"], 2),
        (&["set", "nobody", "--allow", "all"], 10),
        (&["delete", "data"], 10),
    ] {
        let ran = fixture.run(&[&["target"], arguments].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    }
    assert_eq!(fixture.run(&["volume", "create", "t", "--size", "1MiB"]).code, 1);
    fixture.ok(&["target", "set", "t", "--remove-lun", "0", "--add-lun", "301=wal"]);
    fixture.ok(&["target", "set", "t", "--allow", "iqn.2026-11.org.example:db1"]);
    fixture.signal("KILL");
    let fixture = Fixture::on(fixture.killed());
    assert_eq!(fixture.run(&["target", "set", "t", "--add-lun", "0=data"]).code, 2);
    let shown = fixture.ok(&["target", "show", "t"]);
    for part in ["300=wal@seq:", "301=wal", "retired", "iqn.2026-11.org.example:db1"] {
        assert!(shown.contains(part), "{shown}");
    }
    let listed = fixture.ok(&["target", "list"]);
    assert!(listed.contains("LUNS") && listed.contains("0=data@seq:"), "{listed}");
    let listed = fixture.run(&["target", "list", "--json"]).json();
    let names: Vec<_> = listed.as_array().expect("all").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["past", "t"]);
    fixture.ok(&["target", "delete", "t"]);
    assert_eq!(fixture.run(&["target", "show", "t"]).code, 10);
}
