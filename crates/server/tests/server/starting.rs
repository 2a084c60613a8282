//! Starting and stopping: pools made and found again, what is refused.

use std::fs;

use hindsight_server::{Config, Server, StartError};
use volume::WriteOp;

use crate::fixture::{Fixture, attach, settings};

fn start(settings: hindsight_server::Settings) -> Result<Server, StartError> {
    Server::start(&Config::from_settings(settings).expect("settings"))
}

fn refusal(settings: hindsight_server::Settings) -> StartError {
    match start(settings) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[test]
fn a_pool_is_found_again_with_what_was_in_it() {
    let mut fixture = Fixture::with_volume();
    fixture.write(3, 7);
    let pool = fixture.dir.path().join("pool");
    fixture.server.take().expect("running").stop().expect("stop");
    assert!(!pool.join("nbd.sock").exists() && !pool.join("api.sock").exists());
    fixture.server = Some(start(settings(&pool)).expect("start"));
    assert_eq!(fixture.first_byte(3), 7);
    assert_eq!(fixture.client.volumes().expect("list").len(), 1);
}

#[test]
fn a_second_server_on_a_pool_is_refused() {
    let fixture = Fixture::new();
    let error = refusal(settings(&fixture.dir.path().join("pool")));
    assert!(matches!(error, StartError::Locked { .. }), "{error}");
    assert!(fixture.client.volumes().is_ok(), "the first goes on");
}

#[test]
fn a_word_that_is_no_level_does_not_silence_the_log() {
    let log =
        |level: &str| hindsight_server::LogSettings { format: None, level: Some(level.to_owned()) };
    for level in ["loud", "hindsight_server=noise"] {
        assert!(hindsight_server::start_log(&log(level)).is_err(), "{level:?}");
    }
    assert!(hindsight_server::start_log(&log("WARN")).is_ok());
}

#[test]
fn a_directory_with_other_things_is_not_made_a_pool() {
    let dir = tempfile::tempdir().expect("directory");
    fs::write(dir.path().join("thesis.tex"), "x").expect("write");
    let error = refusal(settings(dir.path()));
    assert!(matches!(error, StartError::NotAPool { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
}

#[test]
fn the_root_of_a_new_file_system_is_made_a_pool() {
    let dir = tempfile::tempdir().expect("directory");
    fs::create_dir(dir.path().join("lost+found")).expect("directory");
    start(settings(dir.path())).expect("start").stop().expect("stop");
    assert!(dir.path().join("pool.img").exists());
}

#[test]
fn a_start_that_was_interrupted_is_made_good() {
    let dir = tempfile::tempdir().expect("directory");
    fs::write(dir.path().join("pool.img.new"), "half").expect("write");
    start(settings(dir.path())).expect("start").stop().expect("stop");
    assert!(!dir.path().join("pool.img.new").exists());
}

#[test]
fn a_pool_whose_superblocks_are_gone_is_refused_and_left_alone() {
    let mut fixture = Fixture::with_volume();
    fixture.server.take().expect("running").stop().expect("stop");
    let pool = fixture.dir.path().join("pool");
    let image = pool.join("pool.img");
    let file = fs::OpenOptions::new().write(true).open(&image).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 256 << 10], 0).expect("damage");
    let before = fs::metadata(&image).expect("there").modified().expect("time");
    let error = refusal(settings(&pool));
    assert!(matches!(error, StartError::Pool(_)), "{error}");
    assert!(error.to_string().contains(&image.display().to_string()), "which pool: {error}");
    assert_eq!(fs::metadata(&image).expect("there").modified().expect("time"), before);
}

#[test]
fn listeners_beyond_this_machine_need_protection() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let mut exposed = settings(&pool);
    exposed.nbd.listen = vec!["0.0.0.0:0".to_owned()];
    let error = refusal(exposed.clone());
    assert!(matches!(error, StartError::Exposed { .. }), "{error}");
    assert!(!pool.exists(), "nothing is made before that is known");
    exposed.insecure = Some(true);
    start(exposed).expect("start").stop().expect("stop");
}

#[test]
fn a_key_that_is_none_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let mut secured = settings(&pool);
    secured.nbd.tls_cert = Some(dir.path().join("cert.pem"));
    secured.nbd.tls_key = Some(dir.path().join("key.pem"));
    for file in [&secured.nbd.tls_cert, &secured.nbd.tls_key] {
        fs::write(file.as_ref().expect("named"), "no PEM").expect("write");
    }
    let error = refusal(secured);
    assert!(matches!(error, StartError::Tls(_)), "{error}");
    assert!(!pool.exists());
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("directory");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let taken = vec![busy.local_addr().expect("bound").to_string()];
    let device = dir.path().join("disk");
    fs::File::create(&device).and_then(|f| f.set_len(1 << 30)).expect("disk");
    fs::create_dir(dir.path().join("there")).expect("directory");
    let entries = |path: &std::path::Path| fs::read_dir(path).expect("list").count();
    for (pool, on_device) in [("new/er", false), ("there", false), ("new/er", true)] {
        for is_http in [true, false] {
            let mut failing = settings(&dir.path().join(pool));
            failing.device = on_device.then(|| device.clone());
            failing.create = Some(on_device);
            *if is_http { &mut failing.http.listen } else { &mut failing.nbd.listen } =
                taken.clone();
            let error = refusal(failing);
            assert!(matches!(error, StartError::Listen { .. }), "{error}");
            assert_eq!((entries(dir.path()), entries(&dir.path().join("there"))), (2, 0));
        }
    }
    let blank = std::io::Read::bytes(fs::File::open(&device).expect("disk")).take(1 << 20);
    assert!(blank.map(|byte| byte.expect("read")).all(|byte| byte == 0), "no pool on it");
    // A relay before NFS that is off.
    let mut failing = settings(&dir.path().join("new/er"));
    failing.intercept = vec!["127.0.0.1:0,inline,home".parse().expect("a relay")];
    let error = refusal(failing);
    assert!(error.to_string().contains("which is off"), "{error}");
    assert_eq!(entries(dir.path()), 2);
    // What can be known only while the pool is made.
    let mut tiny = settings(&dir.path().join("new/er"));
    tiny.pool_size = Some("1MiB".to_owned());
    refusal(tiny);
    assert_eq!(entries(dir.path()), 2);
    // A pool that is there stays.
    start(settings(&dir.path().join("there"))).expect("start").stop().expect("stop");
    let mut failing = settings(&dir.path().join("there"));
    failing.nbd.listen = taken;
    refusal(failing);
    assert!(dir.path().join("there/pool.img").exists() && dir.path().join("there/token").exists());
}

#[test]
fn a_device_is_laid_out_only_when_told() {
    let dir = tempfile::tempdir().expect("directory");
    let device = dir.path().join("disk");
    fs::File::create(&device).and_then(|f| f.set_len(1 << 30)).expect("disk");
    let mut on_device = settings(&dir.path().join("pool"));
    on_device.device = Some(device);
    let error = refusal(on_device.clone());
    assert!(error.to_string().contains("holds no pool"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--create")), "{error}");
    on_device.create = Some(true);
    start(on_device.clone()).expect("start").stop().expect("stop");
    on_device.create = None;
    start(on_device).expect("start again").stop().expect("stop");
}

#[test]
fn a_stop_ends_clients_and_keeps_what_they_wrote() {
    let mut fixture = Fixture::with_volume();
    let mut attached = attach(&fixture.nbd_socket(), "v");
    let volume = fixture.server().pool().volume("v").expect("v");
    volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &[9; 512] }]).expect("write");
    drop(volume);
    fixture.server.take().expect("running").stop().expect("stop");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut attached, &mut rest).expect("ended");
    fixture.server = Some(start(settings(&fixture.dir.path().join("pool"))).expect("start"));
    assert_eq!(fixture.first_byte(0), 9);
}
