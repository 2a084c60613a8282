//! Traces and the model: no server is needed.

use std::path::Path;

use crate::fixture::{Fixture, run};

const MSR: &str = "128166372003061629,src1,0,Read,7014609920,24576,41286
128166372016382155,src1,0,Write,1317441536,8192,1963
nonsense
128166372026382245,src1,1,Write,2436440064,4096,1835
";

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_trace_is_converted_cut_scaled_and_summarised() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("msr.csv"), MSR).expect("write");
    let (msr, whole, part) = (path("msr.csv"), path("whole"), path("part"));
    let (msr, whole, part) = (text(&msr), text(&whole), text(&part));

    let ran = run(&["trace", "convert", msr, "-o", whole, "--json"]);
    assert_eq!(ran.code, 3, "one line is malformed: {ran:?}");
    let answer: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(answer["written"]["requests"], 3);
    assert_eq!(answer["read"]["malformed"], 1);
    assert!(ran.err.contains("msr.csv:3: not seven fields: nonsense"), "{ran:?}");
    let strict = run(&["trace", "convert", msr, "-o", part, "--strict"]);
    assert_eq!(strict.code, 1, "{strict:?}");
    assert!(!path("part").exists() && !path("part.part").exists());
    let again = run(&["trace", "convert", msr, "-o", whole]);
    assert_eq!(again.code, 1, "it exists: {again:?}");

    let ran = run(&["trace", "cut", whole, "-o", part, "--kind", "write", "--until", "2s"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let summary = run(&["trace", "summarise", part, "--json"]).json();
    assert_eq!(summary["requests"], 1);
    assert_eq!(summary["devices"][0]["name"], "src1_0");
    let ran = run(&["trace", "scale", whole, "-o", "-", "--to", "fio-v3", "--time", "0.5"]);
    assert!(ran.out.starts_with("fio version 3 iolog\n0 src1_0 add\n"), "{ran:?}");
    assert!(ran.out.contains("\n1166030 src1_1 write 2436440064 4096\n"), "{ran:?}");
    let shown = run(&["trace", "summarise", whole]);
    assert!(shown.out.contains("2007-02-22T17:00:00.306162900Z"), "{shown:?}");
}

#[test]
fn an_unknown_trace_is_named_with_its_first_bytes() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("file");
    std::fs::write(&path, b"\x7fELF").expect("write");
    let ran = run(&["trace", "summarise", text(&path)]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains(r#"it begins with "\x7fELF""#), "{ran:?}");
    assert!(ran.err.contains("\nhint: known formats are hindsight, "), "{ran:?}");
    assert_eq!(run(&["trace", "summarise", "/nonexistent"]).code, 1);
}

#[test]
fn a_workload_is_generated_and_the_model_speaks_of_it() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let trace = text(&path);
    let ran = run(&["trace", "generate", "cello", "-o", trace, "--duration", "20min"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let model =
        run(&["model", "show", trace, "--cache", "64MiB", "--granularity", "10min", "--json"]);
    let model = model.json();
    assert_eq!(model["dirty_pages"], 491);
    let shares = &model["forecasts"][0]["shares"];
    let (r, d) = (shares["retained"].as_f64(), shares["incurred"].as_f64());
    assert!(d.expect("d") >= 2.0 * r.expect("r"), "checkpointing is ahead: {model}");
    let shown = run(&["model", "show", trace]);
    assert!(shown.out.contains("every-write"), "{shown:?}");
    let advice = run(&["model", "advise", trace, "--json"]).json();
    assert_eq!(advice["plan"]["architecture"], "logging");
    assert_eq!(advice["others"].as_array().map(Vec::len), Some(5));
    let advice = run(&["model", "advise", trace, "--granularity", "10min", "--cache", "64MiB"]);
    assert!(advice.out.contains("granularity 10min: as asked"), "{advice:?}");
    assert!(advice.out.contains("hindsight volume create NAME --size "), "{advice:?}");
    let small = ["model", "advise", trace, "--memory", "64MiB", "--cache", "64MiB"];
    assert!(run(&small).out.contains("refuses this cache"), "half of the memory is for caches");
}

#[test]
fn what_does_not_fit_is_refused() {
    let wrong = run(&["trace", "generate", "uniform", "-o", "-", "--bsu", "3"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let wrong = run(&["trace", "generate", "spc1", "-o", "-", "--capacity", "1MiB"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let none =
        run(&["trace", "generate", "iometer-rs", "-o", "-", "--requests", "0", "--to", "fio-v3"]);
    assert_eq!(none.code, 0, "{none:?}");
}

#[test]
fn an_experiment_writes_its_pictures_and_a_report() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("made");
    let named = ["laden-fig12", "xiao-mix", "--no-engine", "-o", text(&output)];
    let ran = run(&[&["lab", "run"][..], &named].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("laden-fig12") && ran.out.contains("holds"), "{ran:?}");
    for name in ["laden-fig12", "xiao-mix"] {
        let read = |ending: &str| std::fs::read(output.join(format!("{name}.{ending}")));
        assert!(read("csv").expect("CSV").contains(&b','));
        assert!(read("svg").expect("SVG").starts_with(b"<svg"));
        assert!(read("png").expect("PNG").starts_with(b"\x89PNG"));
    }
    let page = std::fs::read_to_string(output.join("report.html")).expect("a report");
    assert!(page.contains("1.000 : 2.000 : 3.000"), "the paper's ratio, counted");
    let names: Vec<_> = std::fs::read_dir(&output).expect("directory").collect();
    assert_eq!(names.len(), 7, "nothing else is left behind: {names:?}");

    let again = run(&["lab", "run", "xiao-mix", "-o", text(&output), "--json"]).json();
    assert_eq!(again["experiments"][0]["claims"][0]["verdict"], "holds");
    let listed = run(&["lab", "list", "--json"]).json();
    assert!(listed.as_array().expect("a list").len() >= 13);
    let unknown = run(&["lab", "run", "laden-fig99"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("hint: there are all, laden-fig5"), "{unknown:?}");
    assert_eq!(run(&["lab", "run", "all", "--scale", "3"]).code, 2);
}

#[test]
fn a_trace_goes_through_the_engine_beside_the_model() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("trace");
    let trace = text(&path);
    let ran = run(&["trace", "generate", "cello", "-o", trace, "--duration", "2min"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // Small against the trace: what waits at its end would have been written again.
    let answer = run(&["lab", "replay", trace, "--cache", "2MiB", "--json"]).json();
    let all = answer.as_array().expect("a list");
    assert!(all.len() >= 8, "two architectures and four granularities at least: {answer}");
    for one in all {
        let off = one["off"].as_f64().expect("a number");
        // What `checkpointing` destages late costs less than the model says: see docs/lab.md.
        let is_late = one["architecture"] == "checkpointing";
        // `hybrid` guesses by what it has seen, and has seen little in two minutes.
        let most = if one["architecture"] == "hybrid" { 0.05 } else { 0.02 };
        assert!(off < most && (is_late || off > -most), "{one}");
        assert!(one["extents_written"].as_u64().expect("a number") > 1000, "{one}");
    }
    let shown = run(&["lab", "replay", trace, "--architecture", "logging", "--reads"]);
    assert!(shown.out.contains("history-write"), "{shown:?}");
    assert_eq!(run(&["lab", "replay", trace, "--architecture", "unheard-of"]).code, 2);
    let twice = run(&["lab", "replay", "-"]);
    assert_eq!(twice.code, 2, "{twice:?}");
}

#[test]
fn a_trace_is_sent_to_a_live_volume() {
    let server = Fixture::new();
    server.ok(&["volume", "create", "live", "--size", "64MiB"]);
    let trace = server.path("trace");
    let trace = text(&trace);
    let uri = format!("nbd+unix:///live?socket={}", server.path("pool/nbd.sock").display());
    let made = ["trace", "generate", "zipf", "-o", trace, "--capacity", "32MiB", "--rate", "1000"];
    let mut made = made.to_vec();
    made.extend(["--writes", "50", "--duration", "2s", "--size", "16KiB"]);
    assert_eq!(run(&made).code, 0);

    let refused = run(&["lab", "replay", trace, "--uri", &uri]);
    assert_eq!(refused.code, 2, "what the volume holds is safe: {refused:?}");
    let read = run(&["lab", "replay", trace, "--uri", &uri, "--reads-only", "--fast", "--json"]);
    let read = read.json();
    assert_eq!(
        (read["failed"].as_u64(), read["kinds"][0]["kind"].as_str()),
        (Some(0), Some("read"))
    );
    assert_eq!(read["kinds"].as_array().map(Vec::len), Some(1));

    let timed = run(&["lab", "replay", trace, "--uri", &uri, "--overwrite", "--json"]).json();
    assert_eq!(timed["failed"], 0, "{timed}");
    assert!(timed["requests"].as_u64().expect("a number") > 1500, "{timed}");
    let seconds = timed["seconds"].as_f64().expect("a number");
    assert!(seconds > 1.9, "in the trace's own time: {timed}");
    for kind in timed["kinds"].as_array().expect("a list") {
        let of = |name: &str| kind[name].as_f64().expect("a number");
        assert!(of("p50_us") > 0.0 && of("p50_us") <= of("p99_us"), "{kind}");
        assert!(of("p99_us") <= of("max_us"), "{kind}");
    }
    let info: serde_json::Value =
        serde_json::from_str(&server.ok(&["volume", "show", "live", "--json"])).expect("JSON");
    assert!(info["latest"]["seq"].as_u64().expect("a seq") > 700, "the writes arrived: {info}");
    let missing = uri.replace("live", "unheard-of");
    let missing = run(&["lab", "replay", trace, "--uri", &missing, "--overwrite"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.err.contains("unheard-of"), "{missing:?}");
    assert_eq!(run(&["lab", "replay", trace, "--uri", "http://x"]).code, 2);
    let gone = "nbd+unix:///live?socket=/no/such.sock";
    let gone = run(&["lab", "replay", trace, "--uri", gone, "--overwrite"]);
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("no NBD server at /no/such.sock"), "{}", gone.err);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn darc_is_measured_on_small_files_and_set_beside_the_paper() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("report");
    let output = text(&path);
    let small = ["--size", "8MiB", "--time", "20ms", "--warm-up", "1ms", "--depth", "4"];
    let mut asked = vec!["lab", "darc", "fig8", "fig9", "table4", "-o", output, "--json"];
    asked.extend(small);
    let ran = run(&asked);
    assert_eq!(ran.code, 0, "{ran:?}");
    let experiments = ran.json()["experiments"].clone();
    let names: Vec<&str> =
        experiments.as_array().expect("a list").iter().filter_map(|e| e["name"].as_str()).collect();
    let figures =
        ["darc-fig8-oltp", "darc-fig8-fs", "darc-fig8-web", "darc-fig9-ws", "darc-fig9-rs"];
    assert_eq!(names[..5], figures);
    assert_eq!(names[5..], ["darc-table4"]);
    let table4 = experiments[5]["claims"].as_array().expect("claims");
    let measured: Vec<&str> =
        table4.iter().filter_map(|c| c["measured"].as_str()).take(3).collect();
    let paper =
        ["3, 0, 2: data recovered", "2, 1, 2: checksum recovered", "2, 0, 2: error to the client"];
    assert_eq!(measured, paper);
    for name in figures.iter().chain(&["darc-table4"]) {
        for ending in ["csv", "svg", "png"] {
            assert!(path.join(format!("{name}.{ending}")).exists(), "{name}.{ending}");
        }
    }
    let oltp = std::fs::read_to_string(path.join("darc-fig8-oltp.csv")).expect("read");
    for configuration in ["no-edc", "edc", "pool", "pool-version", "pool-edc"] {
        assert!(oltp.contains(&format!("\n{configuration},4,0,")), "{configuration}: {oltp}");
    }
    let allocators = std::fs::read_to_string(path.join("darc-fig9-rs.csv")).expect("read");
    assert!(allocators.contains("\nserved,4,0,"), "{allocators}");
    // What is not there is said, and what is said not to be there is not made up.
    let is_missing = ran.err.contains("served-default-allocator is not available");
    assert_ne!(is_missing, allocators.contains("\nserved-default-allocator,4,0,"), "{ran:?}");
    let report = std::fs::read_to_string(path.join("report.html")).expect("read");
    assert!(report.contains("<th>Measured</th>") && report.contains("through the page cache"));
    let left: Vec<_> = std::fs::read_dir(&path).expect("read").flatten().collect();
    assert!(left.iter().all(|entry| entry.path().is_file()), "no pool is left: {left:?}");

    // A relative path is one, too.
    let mut command = crate::fixture::hindsight();
    command.current_dir(dir.path()).args(["lab", "darc", "fig9", "-o", "relative"]).args(small);
    let relative = command.output().expect("run");
    assert!(relative.status.success(), "{}", String::from_utf8_lossy(&relative.stderr));
    assert!(dir.path().join("relative/darc-fig9-ws.csv").exists());

    let odd = run(&["lab", "darc", "table4", "--members", "3", "-o", output]);
    assert_eq!(odd.code, 2, "{odd:?}");
    assert!(odd.err.contains("even number"), "{odd:?}");
    let unknown = run(&["lab", "darc", "fig4"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.err.contains("there are fig5, fig6"), "{unknown:?}");
}
