//! Watches over HTTP. What a look finds is tested beside its code.

use api::{CreateShare, ProblemKind, SensitivityName, SetWatch};
use units::Sensitivity;

use crate::fixture::{Fixture, kind};

fn setting(sensitivity: Sensitivity) -> SetWatch {
    SetWatch { sensitivity: SensitivityName(sensitivity) }
}

#[test]
fn a_watch_is_set_shown_changed_kept_over_a_restart_and_removed() {
    let mut fixture = Fixture::with_volume();
    let client = &fixture.client;
    let name = client.volumes().expect("listed")[0].name.clone();
    let path = format!("/volumes/{name}/watch");
    assert_eq!(kind(client.watch(&name)), ProblemKind::NotFound);
    assert_eq!(kind(client.remove_watch(&name)), ProblemKind::NotFound);
    assert_eq!(client.volume(&name).expect("shown").watch, None);

    client.set_watch(&name, &setting(Sensitivity::Normal)).expect("set");
    let watch = client.watch(&name).expect("shown");
    assert_eq!(watch.sensitivity.0, Sensitivity::Normal);
    assert!(watch.alarms.is_empty());
    for wrong in
        [r#"{"sensitivity": "Normal"}"#, r#"{"sensitivity": null}"#, r#"{"how": 1}"#, "{}", ""]
    {
        let (status, body) = fixture.send("PUT", &path, wrong);
        assert!((400..=422).contains(&status), "{wrong}: {status} {body}");
    }
    client.set_watch(&name, &setting(Sensitivity::High)).expect("set");
    fixture.restart();
    let client = &fixture.client;
    let told = client.volume(&name).expect("shown").watch.map(|watch| watch.0);
    assert_eq!(told, Some(Sensitivity::High));
    let (_, metrics) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let line = format!("hindsight_volume_watch_alarm_time_seconds{{volume=\"{name}\"}} 0");
    assert!(metrics.lines().any(|it| it == line), "{metrics}");

    client.remove_watch(&name).expect("removed");
    assert_eq!(kind(client.watch(&name)), ProblemKind::NotFound);
    let audit = client.audit(&api::ListQuery::default()).expect("listed").entries;
    let details = audit.iter().filter(|record| record.action == "watch-set");
    assert_eq!(details.map(|it| it.detail.as_str()).collect::<Vec<_>>(), ["normal", "high", "off"]);
}

#[test]
fn shares_are_not_watched_and_clones_are_not_by_themselves() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let name = client.volumes().expect("listed")[0].name.clone();
    let share = CreateShare { name: "home".to_owned(), ..CreateShare::default() };
    client.create_share(&share).expect("made");
    let refused = kind(client.set_watch("home", &setting(Sensitivity::Low)));
    assert_eq!(refused, ProblemKind::Invalid);
    client.set_watch(&name, &setting(Sensitivity::Low)).expect("set");
    let body = r#"{"name": "copy", "at": "latest"}"#;
    let (status, body) = fixture.send("POST", &format!("/volumes/{name}/clones"), body);
    assert_eq!(status, 201, "{body}");
    assert_eq!(kind(client.watch("copy")), ProblemKind::NotFound);
}
