//! Traces and the model: no server is needed.

use std::path::Path;

use crate::fixture::run;

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
