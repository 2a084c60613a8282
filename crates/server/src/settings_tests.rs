//! Settings from flags, file and defaults.

use super::{Config, Listening, Settings, SocketAccess};

fn config(settings: Settings) -> Result<Config, String> {
    Config::from_settings(settings).map_err(|e| e.to_string())
}

fn nbd(listen: &[&str]) -> Result<Listening, String> {
    let mut settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
    settings.nbd.listen = listen.iter().map(|s| (*s).to_owned()).collect();
    config(settings).map(|c| c.nbd)
}

fn listening_at(unix: &str, tcp: &[&str]) -> Listening {
    let tcp = tcp.iter().map(|s| (*s).to_owned()).collect();
    Listening { unix: Some(unix.into()), tcp, access: SocketAccess::default() }
}

#[test]
fn a_pool_is_all_that_is_needed() {
    let settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
    let config = config(settings).expect("defaults");
    assert_eq!(config.nbd, listening_at("/pool/nbd.sock", &[]));
    assert_eq!(config.http, listening_at("/pool/api.sock", &["127.0.0.1:9820"]));
    assert!(!config.insecure);
    assert_eq!(config.nbd_tls, None);
}

#[test]
fn without_a_pool_the_error_says_so() {
    assert_eq!(config(Settings::default()), Err("no pool is named".to_owned()));
}

#[test]
fn listeners_are_moved_and_switched_off() {
    assert_eq!(nbd(&["none"]), Ok(Listening::default()));
    assert_eq!(nbd(&["127.0.0.1:0"]), Ok(listening_at("/pool/nbd.sock", &["127.0.0.1:0"])));
    assert_eq!(nbd(&["unix:/x"]), Ok(listening_at("/x", &[])));
    assert_eq!(nbd(&["/x", "[::1]:7"]), Ok(listening_at("/x", &["[::1]:7"])));
    for wrong in [&["none", "/x"][..], &["unix:x"], &["/x", "/y"], &["7"], &[":7"], &["a:b"]] {
        assert!(nbd(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_socket_is_its_owners_unless_the_operator_says_more() {
    let access = |mode: &str, group: &str| {
        let text = format!(
            "pool = \"/pool\"\n[nbd]\nsocket_mode = \"{mode}\"\nsocket_group = \"{group}\""
        );
        let config = config(Settings::from_toml(&text, &|_| None).expect("settings"))?;
        assert_eq!(config.http.access, SocketAccess { mode: 0o600, group: None });
        Ok::<_, String>((config.nbd.access.mode, config.nbd.access.group))
    };
    assert_eq!(access("0660", "107"), Ok((0o660, Some(107))));
    assert_eq!(access("666", "root"), Ok((0o666, Some(0))));
    for (mode, group) in [("rw", "0"), ("1777", "0"), ("", "0"), ("0660", "no:such group")] {
        assert!(access(mode, group).is_err(), "{mode} {group}");
    }
}

#[test]
fn nfs_is_served_over_tcp_when_it_is_asked_for() {
    let with = |listen: &[&str]| {
        let mut settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
        settings.nfs.listen = listen.iter().map(|&text| text.to_owned()).collect();
        config(settings).map(|config| config.nfs)
    };
    let address = "127.0.0.1:20490".to_owned();
    assert_eq!(with(&[]), Ok(Listening::default()));
    assert_eq!(with(&["none"]), Ok(Listening::default()));
    assert_eq!(with(&[&address]).expect("listens").tcp, [address]);
    for wrong in ["unix:/nfs", "20490", "none:x"] {
        assert!(with(&[wrong]).expect_err("refused").starts_with("--nfs: "), "{wrong}");
    }
    let file = "pool = \"/pool\"\n[nfs]\nlisten = [\"[::1]:0\"]\ntrusted_networks = [\"10.0.0.7\"]";
    let settings = Settings::from_toml(file, &|_| None).expect("read");
    let found = config(settings).expect("a configuration");
    assert_eq!((found.nfs.tcp.len(), found.nfs_trusted.len()), (1, 1));
}

#[test]
fn iscsi_is_served_over_tcp_when_it_is_asked_for() {
    let with = |listen: &[&str], base: Option<&str>| {
        let mut settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
        settings.iscsi.listen = listen.iter().map(|&text| text.to_owned()).collect();
        settings.iscsi.base = base.map(str::to_owned);
        config(settings).map(|config| (config.iscsi.tcp, config.iscsi_base))
    };
    assert_eq!(with(&[], None), Ok((Vec::new(), None)));
    assert_eq!(with(&["none"], None), Ok((Vec::new(), None)));
    let address = "127.0.0.1:3260".to_owned();
    let base = Some("iqn.2026-11.org.example".to_owned());
    assert_eq!(with(&[&address], Some("iqn.2026-11.ORG.example")), Ok((vec![address], base)));
    for (listen, base) in [("unix:/iscsi", None), ("none", Some("store")), ("3260", None)] {
        assert!(with(&[listen], base).is_err(), "{listen} {base:?}");
    }
}

#[test]
fn discovery_tells_addresses_that_are_some() {
    let with = |announce: &str| {
        let text = format!("pool = \"/pool\"\n[iscsi]\nannounce = [{announce:?}]");
        config(Settings::from_toml(&text, &|_| None).expect("read")).map(|it| it.iscsi_announced)
    };
    for good in ["192.0.2.7:3260", "store-1.example.org:3260", "[2001:db8::7]:3260"] {
        assert_eq!(with(good), Ok(vec![good.to_owned()]));
    }
    for wrong in
        ["", "store", "store:", ":3260", "store:0", "store:70000", "2001:db8::7:3260", "a b:1"]
    {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_has_no_encryption_is_served_in_trusted_networks_or_refused() {
    let outcome = |protocol: &str, listen: &str, networks: &[&str], insecure: bool| {
        let text = format!(
            "pool = \"/pool\"\ninsecure = {insecure}\n[{protocol}]\nlisten = [{listen:?}]\n\
             trusted_networks = {networks:?}"
        );
        let settings = Settings::from_toml(&text, &|_| None).expect("read");
        let config = config(settings)?;
        crate::exposure::refuse_exposed(&config).map_err(|error| error.to_string())
    };
    let private = ["10.1.0.0/16", "fd00::/8"];
    for protocol in ["iscsi", "nfs"] {
        for listen in ["127.0.0.1:0", "10.1.2.3:0", "[fd00::1]:0", "[::ffff:10.1.2.3]:0"] {
            assert_eq!(outcome(protocol, listen, &private, false), Ok(()), "{protocol} {listen}");
        }
        for listen in ["10.2.0.1:0", "0.0.0.0:0", "[::]:0", "[fe80::1]:0"] {
            assert!(outcome(protocol, listen, &private, false).is_err(), "{protocol} {listen}");
            assert_eq!(outcome(protocol, listen, &[], true), Ok(()), "{protocol} {listen}");
        }
        assert!(outcome(protocol, "10.1.2.3:0", &[], false).is_err());
        let wrong = outcome(protocol, "127.0.0.1:0", &["10.1.0.0/33"], false);
        let start = format!("{protocol}.trusted_networks: `10.1.0.0/33` is no network");
        assert!(wrong.expect_err("refused").starts_with(&start));
    }
}

#[test]
fn hooks_name_absolute_paths_and_have_a_time() {
    let hook = |text: &str| -> Result<Config, String> {
        let text = format!("pool = \"/pool\"\n[hooks.freeze]\n{text}");
        let settings = Settings::from_toml(&text, &|_| None).map_err(|e| e.to_string())?;
        config(settings)
    };
    let both = hook("before = [\"/sbin/x\", \"-f\"]\nafter = [\"/sbin/x\"]").expect("a hook");
    let freeze = &both.hooks["freeze"];
    assert_eq!(
        (&freeze.before[..], freeze.timeout.as_secs()),
        (&["/sbin/x", "-f"].map(str::to_owned)[..], 30)
    );
    let timed = hook("after = [\"/sbin/x\"]\ntimeout = \"90s\"").expect("a hook");
    assert_eq!(timed.hooks["freeze"].timeout.as_secs(), 90);
    for wrong in [
        "",
        "before = [\"fsfreeze\"]",
        "before = \"/sbin/x\"",
        "before = [\"/x\"]\ntimeout = \"0s\"",
        "before = [\"/x\"]\ntimeout = \"2h\"",
        "before = [\"/x\"]\ntimeout = \"5m\"",
        "before = [\"/x\"]\nbetween = []",
    ] {
        assert!(hook(wrong).is_err(), "{wrong}");
    }
    let none = "pool = \"/pool\"\n[hooks.none]\nbefore = [\"/sbin/x\"]";
    let settings = Settings::from_toml(none, &|_| None).expect("read");
    assert!(config(settings).is_err_and(|e| e.contains("no hook at all")));
}

#[test]
fn rates_are_bytes_a_second_and_none_by_default() {
    let none = Settings { pool: Some("/pool".into()), ..Settings::default() };
    assert_eq!(config(none.clone()).expect("config").rates, volume::Rates::default());
    let file = "pool = \"/pool\"\nscrub_rate = \"20MiB\"\nrebuild_rate = \"1MiB\"";
    let file = Settings::from_toml(file, &|_| None).expect("file");
    let flags = Settings { rebuild_rate: Some("64KiB".to_owned()), ..Settings::default() };
    let rates = config(flags.over(file)).expect("config").rates;
    let bytes = |rate: Option<std::num::NonZeroU64>| rate.map_or(0, std::num::NonZeroU64::get);
    assert_eq!((bytes(rates.scrub), bytes(rates.rebuild)), (20 << 20, 64 << 10));
    for wrong in ["0", "65535", "fast", "5MB"] {
        let settings = Settings { scrub_rate: Some(wrong.to_owned()), ..none.clone() };
        let error = config(settings).expect_err("refused");
        assert!(error.starts_with("--scrub-rate"), "{error}");
    }
}

#[test]
fn a_key_without_a_certificate_is_refused() {
    let mut settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
    settings.nbd.tls_key = Some("/key".into());
    assert_eq!(config(settings), Err("TLS needs a certificate and its key".to_owned()));
}

#[test]
fn the_file_is_read_and_flags_win() {
    let text = r#"
        pool = "${STATE}/hindsight"
        memory = "64MiB"
        [nbd]
        listen = ["unix:/run/nbd.sock"]
        [log]
        format = "json"
    "#;
    let variable = |name: &str| (name == "STATE").then(|| "/var/lib".to_owned());
    let file = Settings::from_toml(text, &variable).expect("file");
    assert_eq!(file.pool, Some("/var/lib/hindsight".into()));
    let flags = Settings { memory: Some("128MiB".to_owned()), ..Settings::default() };
    let config = config(flags.over(file)).expect("config");
    assert_eq!(config.memory_bytes, 128 << 20);
    assert_eq!(config.nbd, listening_at("/run/nbd.sock", &[]));
}

#[test]
fn an_unknown_field_and_an_unset_variable_are_errors() {
    let none = |_: &str| None;
    let error = |text: &str| Settings::from_toml(text, &none).expect_err("error").to_string();
    assert!(error("pol = \"/x\"").contains("unknown field `pol`"));
    assert!(error("[nbd]\nport = 7").contains("unknown field `port`"));
    assert_eq!(error("pool = \"${HOME_OF_NOBODY}\""), "the variable HOME_OF_NOBODY is not set");
    assert_eq!(error("pool = \"${X\""), "`${X` has no closing brace");
}

#[test]
fn a_doubled_dollar_stands_for_itself_and_values_are_not_syntax() {
    let variable = |_: &str| Some("\"\n[nbd]".to_owned());
    let file = Settings::from_toml("pool = \"$${A}-${B}\"", &variable).expect("file");
    assert_eq!(file.pool, Some("${A}-\"\n[nbd]".into()));
}
