//! `share`: made, listed, shown, changed, allowed, denied, deleted.

use crate::fixture::Fixture;

#[test]
fn a_share_is_made_shown_changed_and_deleted() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "disk", "--size", "1MiB"]);
    let made = fixture.run(&["share", "create", "home", "--window", "7d", "--json"]).json();
    assert_eq!((&made["name"], &made["window"]), (&"home".into(), &"7d".into()));
    assert_eq!(fixture.run(&["share", "create", "home"]).code, 1, "the name is taken");
    let list = fixture.ok(&["share", "list"]);
    assert!(list.contains("home") && !list.contains("disk"), "{list}");
    let list = fixture.ok(&["volume", "list"]);
    assert!(list.contains("disk") && !list.contains("home"), "{list}");
    let shown = fixture.ok(&["share", "show", "home"]);
    assert!(shown.contains("NFS is off: serve --nfs 127.0.0.1:20490"), "{shown}");
    assert!(!shown.contains("PiB"), "a share has no size: {shown}");
    let shown = fixture.ok(&["volume", "show", "home"]);
    assert!(shown.contains("hindsight share show home") && !shown.contains("PiB"), "{shown}");

    let dry = fixture.run(&["share", "set", "home", "--window", "1h", "--dry-run"]);
    assert!(dry.err.contains("the window would be 1h: history older"), "{dry:?}");
    fixture.ok(&["share", "set", "home", "--metadata", "server", "--window", "2h"]);
    let set = fixture.run(&["share", "show", "home", "--json"]).json();
    assert_eq!((&set["metadata"], &set["window"]), (&"server".into(), &"2h".into()));
    assert_eq!(fixture.run(&["share", "set", "home"]).code, 2, "no setting is named");
    assert_eq!(fixture.run(&["share", "set", "home", "--grace", "1d"]).code, 2);

    assert_eq!(fixture.run(&["share", "show", "nobody"]).code, 10);
    let other = fixture.run(&["share", "show", "disk"]);
    assert!(other.code == 10 && other.err.contains("hint: it is a volume"), "{other:?}");
    assert_eq!(fixture.run(&["share", "delete", "disk"]).code, 10);
    let resized = fixture.run(&["volume", "resize", "home", "1GiB"]);
    assert!(resized.code == 2 && resized.err.contains("home is a share"), "{resized:?}");
    fixture.ok(&["share", "delete", "home"]);
    assert_eq!(fixture.run(&["share", "show", "home"]).code, 10);
    fixture.ok(&["volume", "undelete", "home"]);
    let back = fixture.run(&["share", "show", "home", "--json"]).json();
    assert_eq!(back["metadata"], "server");
    let image = fixture.path("image");
    let image = image.to_str().expect("UTF-8");
    let exported = fixture.run(&["volume", "export", "home", image]);
    assert!(
        exported.code != 0 && exported.err.contains("home is a share, and no disk"),
        "{exported:?}"
    );
}

#[test]
fn networks_are_allowed_and_denied() {
    let fixture = Fixture::new();
    fixture.ok(&["share", "create", "home"]);
    fixture.ok(&["share", "allow", "home", "10.0.0.7"]);
    let ways = ["--ro", "--squash", "all", "--anon-uid", "7", "--anon-gid", "8", "--any-port"];
    let allow = ["share", "allow", "home", "10.1.2.3/16", "--past", "root", "--json"];
    let told = fixture.run(&[&allow[..], &ways[..]].concat()).json();
    let expected = serde_json::json!([
        {
            "network": "10.0.0.7", "read_only": false, "squash": "root", "anonymous_uid": 65534,
            "anonymous_gid": 65534, "any_port": false, "past": "all",
        },
        {
            "network": "10.1.0.0/16", "read_only": true, "squash": "all", "anonymous_uid": 7,
            "anonymous_gid": 8, "any_port": true, "past": "root",
        },
    ]);
    assert_eq!(told["allowed"], expected);
    let shown = fixture.ok(&["share", "show", "home"]);
    let line = "10.1.0.0/16 reads, squash all to 7:8, any port, past root";
    assert!(shown.contains(line), "{shown}");
    let wrong = fixture.run(&["share", "allow", "home", "10.1.0.0/33"]);
    assert!(wrong.code == 2 && wrong.err.contains("an address has 32 bits"), "{wrong:?}");
    assert_eq!(fixture.run(&["share", "allow", "home", "::1", "--squash", "some"]).code, 2);
    assert_eq!(fixture.run(&["share", "allow", "nobody", "::1"]).code, 10);
    let denied = fixture.run(&["share", "deny", "home", "10.1.0.0/16", "--json"]).json();
    assert_eq!(denied["denied"], true);
    let missing = fixture.run(&["share", "deny", "home", "10.1.0.0/16"]);
    assert!(missing.code == 10 && missing.err.contains("\nhint: "), "{missing:?}");
    let left = fixture.run(&["share", "list", "--json"]).json();
    assert_eq!(left[0]["allowed"], serde_json::json!([expected[0]]));
}
