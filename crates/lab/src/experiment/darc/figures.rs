//! Figures 5 to 9: Iometer's patterns by queue depth.

use super::super::{Claim, Outcome, Table};
use super::measured::{
    Configuration, Exhibit, Layout, Measured, NO_OTHER, NOT_MEASURED, Point, RATIOS, Spread,
    captured, told,
};
use crate::plot::{Chart, Look, Scale, Series};
use trace::generate::Pattern;

/// In a picture only.
const PICTURE: &str = "only in the picture";

/// Name and title of the outcome of a pattern in a figure.
fn heading(exhibit: Exhibit, pattern: Pattern) -> (&'static str, &'static str) {
    use Pattern::{FileServer, Oltp, SequentialRead, SequentialWrite, WebServer};
    match (exhibit, pattern) {
        (Exhibit::Fig5, SequentialWrite) => ("darc-fig5-ws", "Sequential writes on RAID-0"),
        (Exhibit::Fig5, _) => ("darc-fig5-rs", "Sequential reads on RAID-0"),
        (Exhibit::Fig6, SequentialWrite) => ("darc-fig6-ws", "Sequential writes on RAID-10"),
        (Exhibit::Fig6, _) => ("darc-fig6-rs", "Sequential reads on RAID-10"),
        (Exhibit::Fig7, Oltp) => ("darc-fig7-oltp", "OLTP on RAID-0"),
        (Exhibit::Fig7, FileServer) => ("darc-fig7-fs", "A file server on RAID-0"),
        (Exhibit::Fig7, _) => ("darc-fig7-web", "A web server on RAID-0"),
        (Exhibit::Fig8, Oltp) => ("darc-fig8-oltp", "OLTP on RAID-10"),
        (Exhibit::Fig8, FileServer) => ("darc-fig8-fs", "A file server on RAID-10"),
        (Exhibit::Fig8, WebServer) => ("darc-fig8-web", "A web server on RAID-10"),
        (_, SequentialRead) => ("darc-fig9-rs", "What the allocator costs: sequential reads"),
        (_, _) => ("darc-fig9-ws", "What the allocator costs: sequential writes"),
    }
}

/// Maxima that the text states, MB/s: of DARC, and of the controller beside it.
fn published(layout: Layout, pattern: Pattern) -> Option<(f64, f64, &'static str)> {
    match (layout, pattern) {
        (Layout::Raid0, Pattern::SequentialRead) => {
            Some((850.0, 1000.0, "85 % of ARC-1680's 1 GB/s, with several requests in flight"))
        }
        (Layout::Raid0, Pattern::SequentialWrite) => {
            Some((752.0, 885.0, "85 % of ARC-1680's 885 MB/s, with several requests in flight"))
        }
        (Layout::Raid10, Pattern::SequentialRead) => {
            Some((549.0, 794.0, "549 MB/s; ARC-1680 794 MB/s"))
        }
        (Layout::Raid10, Pattern::SequentialWrite) => {
            Some((385.0, 290.0, "385 MB/s; ARC-1680 290 MB/s"))
        }
        _ => None,
    }
}

pub(super) fn figures(measured: &Measured, exhibit: Exhibit) -> Vec<Outcome> {
    let (layout, patterns) = exhibit.patterns();
    patterns.iter().map(|pattern| figure(measured, exhibit, layout, *pattern)).collect()
}

fn figure(measured: &Measured, exhibit: Exhibit, layout: Layout, pattern: Pattern) -> Outcome {
    let is_of_it = |point: &&Point| {
        (point.layout, point.pattern) == (layout, pattern) && exhibit.shows(point.configuration)
    };
    let points: Vec<Point> = measured.points.iter().filter(is_of_it).copied().collect();
    let (name, title) = heading(exhibit, pattern);
    let claims = match exhibit {
        Exhibit::Fig9 => allocator_claims(measured, &points, pattern),
        _ => claims(measured, &points, layout, pattern),
    };
    let setting = format!("{}, {}. {}", pattern.name(), layout.name(), measured.setting);
    let chart = chart(measured, &points, title, layout, pattern);
    Outcome { name, title, setting, chart, table: table(&points), claims }
}

fn is_stream(pattern: Pattern) -> bool {
    matches!(pattern, Pattern::SequentialWrite | Pattern::SequentialRead)
}

/// What the paper plots: MB/s of streams, requests a second of the others.
fn plotted(point: &Point) -> f64 {
    match is_stream(point.pattern) {
        true => point.measure.bytes_per_second / 1e6,
        false => point.measure.requests_per_second,
    }
}

fn depths(points: &[Point]) -> Vec<u32> {
    let mut depths: Vec<u32> = points.iter().map(|point| point.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

fn chart(
    measured: &Measured,
    points: &[Point],
    title: &str,
    layout: Layout,
    pattern: Pattern,
) -> Chart {
    let depths = depths(points);
    let median = |configuration: Configuration, depth: u32| {
        let at = |p: &&Point| p.configuration == configuration && p.depth == depth;
        Spread::of(points.iter().filter(at).map(plotted)).map(|s| (f64::from(depth), s.median))
    };
    let line = |configuration: Configuration| Series {
        name: configuration.name().to_owned(),
        colour: configuration.colour(),
        look: Look::Measured,
        points: depths.iter().filter_map(|depth| median(configuration, *depth)).collect(),
    };
    let configurations = measured.configurations(points, |point| point.configuration);
    let mut series: Vec<Series> = configurations.into_iter().map(line).collect();
    if let Some((darc, other, _)) = published(layout, pattern) {
        let ends = [depths.first(), depths.last()];
        let at = |y: f64| ends.into_iter().flatten().map(|d| (f64::from(*d), y)).collect();
        for (colour, name, value) in [(6, "DARC, highest", darc), (7, "ARC-1680, highest", other)] {
            let name = name.to_owned();
            series.push(Series { name, colour, look: Look::Predicted, points: at(value) });
        }
    }
    let unit = if is_stream(pattern) { "MB/s" } else { "requests/s" };
    Chart {
        title: format!("{title} ({})", pattern.name()),
        x_label: "requests in flight".to_owned(),
        y_label: unit.to_owned(),
        x_scale: Scale::Logarithmic,
        x_ticks: depths.iter().map(|depth| (f64::from(*depth), depth.to_string())).collect(),
        series,
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "configuration",
        "depth",
        "round",
        "requests_per_second",
        "mb_per_second",
        "mean_us",
        "p50_us",
        "p99_us",
        "cpu_us_per_request",
        "member_reads_per_request",
        "member_writes_per_request",
        "member_flushes",
        "checksums_per_request",
        "captures",
        "pruned",
    ]);
    for point in points {
        let m = &point.measure;
        table.row(vec![
            point.configuration.name().to_owned(),
            point.depth.to_string(),
            point.round.to_string(),
            format!("{:.1}", m.requests_per_second),
            format!("{:.2}", m.bytes_per_second / 1e6),
            format!("{:.1}", m.mean_us),
            format!("{:.1}", m.p50_us),
            format!("{:.1}", m.p99_us),
            m.cpu_us.map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            format!("{:.3}", m.member_reads),
            format!("{:.3}", m.member_writes),
            m.member_flushes.to_string(),
            format!("{:.3}", m.checksums),
            m.captures.to_string(),
            m.pruned.to_string(),
        ]);
    }
    table
}

/// The ratio of two configurations, depth by depth and round by round.
fn ratio(
    points: &[Point],
    one: Configuration,
    other: Configuration,
    depths: &dyn Fn(u32) -> bool,
) -> Option<Spread> {
    let ratios =
        points.iter().filter(|p| p.configuration == one && depths(p.depth)).filter_map(|p| {
            let is_beside =
                |q: &&Point| q.configuration == other && (q.depth, q.round) == (p.depth, p.round);
            points.iter().find(is_beside).map(|q| plotted(p) / plotted(q))
        });
    Spread::of(ratios)
}

fn claims(measured: &Measured, points: &[Point], layout: Layout, pattern: Pattern) -> Vec<Claim> {
    let mut claims = Vec::new();
    let none = String::new;
    let highest = |configuration: Configuration| {
        let of_it = depths(points).into_iter().filter_map(|depth| {
            let at = |p: &&Point| p.configuration == configuration && p.depth == depth;
            Spread::of(points.iter().filter(at).map(plotted))
        });
        of_it.max_by(|a, b| a.median.total_cmp(&b.median))
    };
    let unit = if is_stream(pattern) { "MB/s" } else { "requests/s" };
    for configuration in measured.configurations(points, |point| point.configuration) {
        let paper = match published(layout, pattern) {
            Some((_, _, paper)) if configuration == Configuration::NoEdc => paper,
            Some(_) => "-",
            None => PICTURE,
        };
        let what = format!("highest {unit}, {}", configuration.name());
        let found = told(highest(configuration), 0);
        claims.push(Claim::new(&what, paper, none(), found, true).not_judged());
    }
    for (one, other) in RATIOS {
        let (paper, note) = match (one, other) {
            (Configuration::Edc, _) => (
                "0.80 to 0.88",
                "conclusion: EDC costs 12 to 20 %, depending on the requests in flight",
            ),
            (Configuration::Version, _) => (
                "0.95 to 0.975",
                "conclusion: capture and purge (prune, here) cost 2.5 to 5 % more",
            ),
            _ => ("-", "what history and the map's checksums cost together, or save"),
        };
        let what = format!("{} / {}, all depths", one.name(), other.name());
        let found = ratio(points, one, other, &|_| true);
        let shape = found.filter(|_| measured.is_long_enough()).zip(shape_of(one));
        let holds =
            shape.is_none_or(|(found, (least, most))| (least..=most).contains(&found.median));
        let claim = Claim::new(&what, paper, none(), told(found, 2), holds).with_note(note);
        claims.push(match shape {
            Some((_, (least, most))) => {
                claim.fails(&format!("a median below {least} or above {most}"))
            }
            None => claim.not_judged(),
        });
    }
    claims.push(captured(points.iter().map(|point| (point.configuration, point.measure))));
    claims.push(checksum_claim(measured, points));
    if !is_stream(pattern) {
        let paper = match (layout, pattern) {
            (Layout::Raid0, Pattern::Oltp | Pattern::FileServer) => "0.50",
            _ => "around 0.67",
        };
        let found = NO_OTHER.to_owned();
        claims.push(Claim::new("ARC-1680 / DARC", paper, none(), found, true).not_judged());
    }
    claims
}

/// Between what the median of a ratio has to be for the paper's shape: what it states, and 0.1 to
/// either side for disks, processors and a controller that are not these.
fn shape_of(one: Configuration) -> Option<(f64, f64)> {
    match one {
        Configuration::Edc => Some((0.70, 0.98)),
        Configuration::Version => Some((0.85, 1.07)),
        _ => None,
    }
}

/// How much of a volume's processor time its checksums are: there is no volume without them.
fn checksum_claim(measured: &Measured, points: &[Point]) -> Claim {
    let share = |point: &Point| {
        let m = &point.measure;
        Some(m.checksums * measured.checksum_ns / 1e3 / m.cpu_us.filter(|cpu| *cpu > 0.0)?)
    };
    let of_pool = points.iter().filter(|p| p.configuration == Configuration::Pool);
    let shares = Spread::of(of_pool.filter_map(share));
    let note = format!(
        "checksums of its blocks by calculation, times {:.0} ns for one of 4 KiB, measured alone",
        measured.checksum_ns
    );
    let what = "share of a volume's processor time that is its map's checksums";
    Claim::new(what, "-", String::new(), told(shares, 3), true).with_note(&note).not_judged()
}

fn allocator_claims(measured: &Measured, points: &[Point], pattern: Pattern) -> Vec<Claim> {
    let (one, other) = (Configuration::Served, Configuration::DefaultAllocator);
    let missing = measured.why_missing(other);
    let beyond_16 = ratio(points, one, other, &|depth| depth > 16);
    let all = ratio(points, one, other, &|_| true);
    let found = |spread: Option<Spread>| match (&missing, spread) {
        (_, Some(spread)) => spread.told(2),
        (Some(why), None) => why.clone(),
        (None, None) => NOT_MEASURED.to_owned(),
    };
    let paper = match pattern {
        Pattern::SequentialRead => "2.77 (177 % more; without pools up to 64 % is lost)",
        _ => "1, unchanged",
    };
    let what = "buffer pools / default allocator";
    let beyond = format!("{what}, more than 16 in flight");
    vec![
        Claim::new(&beyond, paper, String::new(), found(beyond_16), true).not_judged(),
        Claim::new(&format!("{what}, all depths"), PICTURE, String::new(), found(all), true)
            .not_judged(),
        Claim::new(
            "DMA segments of 64 KiB instead of 4 KiB",
            "reads as fast as ARC-1680's",
            String::new(),
            "nothing to measure: no DMA is programmed here".to_owned(),
            true,
        )
        .not_judged(),
    ]
}
