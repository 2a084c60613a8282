//! What the machine is: only what a figure depends on, and nothing that says whose it is.

use std::path::Path;
use std::process::Command;

use super::fio;
use crate::program;

/// Lines of a Markdown list.
pub fn notes(directory: &Path) -> Vec<String> {
    let cpu_model = first_line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = first_line("/proc/meminfo", "MemTotal").unwrap_or_default();
    vec![
        format!("processor: {cpu_model}, {cores} cores"),
        format!("memory: {memory}"),
        format!("kernel: {}", said("uname", &["-sr"])),
        format!("free memory given back to a host: {}", reporting()),
        format!("file system: {}", said_of("stat", &["-f", "-c", "%T"], directory)),
        format!("fio: {}", first_said(fio::command().arg("--version"))),
        format!("nbdkit: {}", said("nbdkit", &["--version"])),
        format!("qemu-nbd: {}", said("qemu-nbd", &["--version"])),
        format!("rustc: {}", said("rustc", &["--version"])),
        format!("commit: {}", said("git", &["describe", "--always", "--dirty"])),
    ]
}

/// A guest that reports free pages to its host pays for each again when it next touches it: a log
/// always writes to fresh pages, a server that writes over the same bytes never does.
fn reporting() -> String {
    let parameters = Path::new("/sys/module/page_reporting/parameters");
    let read = |name: &str| std::fs::read_to_string(parameters.join(name));
    match (read("page_reporting_order"), read("min_free_ms")) {
        (Ok(order), Ok(wait)) => {
            format!("blocks of 2^{} pages after {} ms", order.trim(), wait.trim())
        }
        (Ok(order), Err(_)) => format!("blocks of 2^{} pages", order.trim()),
        (Err(_), _) => "no".to_owned(),
    }
}

/// Load of the last minute, and the share of time stolen by the host since boot.
pub fn load() -> String {
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = average.split(' ').next().unwrap_or("unknown").to_owned();
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    let stolen = fields.get(7).copied().unwrap_or(0.0);
    let total: f64 = fields.iter().take(8).sum();
    format!("{minute} (steal since boot {:.1} %)", 100.0 * stolen / total.max(1.0))
}

/// The date, for names of folders.
pub fn date() -> String {
    said("date", &["-u", "+%Y-%m-%d"])
}

fn first_line(path: &str, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(name: &str, arguments: &[&str]) -> String {
    first_said(Command::new(name).args(arguments))
}

fn said_of(name: &str, arguments: &[&str], path: &Path) -> String {
    first_said(Command::new(name).args(arguments).arg(path))
}

fn first_said(command: &mut Command) -> String {
    let text = program::output(command).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
