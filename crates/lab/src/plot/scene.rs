//! From a chart to shapes.

use super::chart::{Chart, Look, Scale, Series};

/// Size of the drawing.
pub(super) const WIDTH: f64 = 860.0;
pub(super) const HEIGHT: f64 = 480.0;
/// Where the axes are.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 420.0;

/// Colours that people with any eyesight can tell apart (Okabe and Ito), the dark ones first.
const COLOURS: [[u8; 3]; 8] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0x60, 0x60, 0x60],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x7a, 0x4a, 0x12],
];
/// By so much lines are wider that another lies on.
const COVERED_EXTRA: f64 = 2.0;
const INK: [u8; 3] = [0x22, 0x22, 0x22];
const FAINT: [u8; 3] = [0xdd, 0xdd, 0xdd];

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Line {
        points: Vec<(f64, f64)>,
        colour: [u8; 3],
        width: f64,
        is_dashed: bool,
    },
    Dot {
        x: f64,
        y: f64,
        radius: f64,
        colour: [u8; 3],
    },
    /// `y` is the base line.
    Text {
        x: f64,
        y: f64,
        text: String,
        anchor: Anchor,
    },
}

fn text(x: f64, y: f64, text: impl Into<String>, anchor: Anchor) -> Shape {
    Shape::Text { x, y, text: text.into(), anchor }
}

fn rule(from: (f64, f64), to: (f64, f64), colour: [u8; 3]) -> Shape {
    Shape::Line { points: vec![from, to], colour, width: 1.0, is_dashed: false }
}

fn square((x, y): (f64, f64), colour: [u8; 3]) -> Shape {
    let corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)];
    let points = corners.map(|(right, down)| (x + 5.0 * right, y + 5.0 * down)).to_vec();
    Shape::Line { points, colour, width: 2.0, is_dashed: false }
}

/// How a series is drawn.
struct Pen {
    colour: [u8; 3],
    look: Look,
    is_dashed: bool,
    /// So much wider than others.
    extra: f64,
}

impl Pen {
    /// Points that are joined.
    fn draw(&self, points: &[(f64, f64)], shapes: &mut Vec<Shape>) {
        let Pen { colour, look, is_dashed, extra } = *self;
        if look == Look::Squares {
            shapes.extend(points.iter().map(|place| square(*place, colour)));
            return;
        }
        if look != Look::Predicted {
            let radius = 3.0 + extra / 2.0;
            shapes.extend(points.iter().map(|&(x, y)| Shape::Dot { x, y, radius, colour }));
        }
        let points = match *points {
            // Dashes alone: one of them, wider than a dot.
            [(x, y)] if look == Look::Predicted => vec![(x - 6.0, y), (x + 6.0, y)],
            _ => points.to_vec(),
        };
        if look != Look::Dots && points.len() > 1 {
            shapes.push(Shape::Line { points, colour, width: 2.0 + extra, is_dashed });
        }
    }
}

/// Whether two lines are one for a while: no further apart than they are wide, twice at least.
fn lies_on(one: &[(f64, f64)], other: &[(f64, f64)]) -> bool {
    let is_on = |(x, y): &&(f64, f64)| {
        other.iter().any(|(u, v)| (u - x).abs() < 0.5 && (v - y).abs() < 1.5)
    };
    one.iter().filter(is_on).count() > 1
}

/// Lays a chart out.
pub(super) fn scene(chart: &Chart) -> Vec<Shape> {
    let mut shapes = Vec::new();
    shapes.push(text(LEFT, 24.0, &*chart.title, Anchor::Start));
    shapes.push(text(LEFT, 50.0, &*chart.y_label, Anchor::Start));
    let (y_step, y_end) = steps(chart.y_max());
    let y_at = |y: f64| BOTTOM - (BOTTOM - TOP) * (y / y_end);
    let mut count = 0;
    while f64::from(count) * y_step <= y_end * (1.0 + 1e-9) {
        let value = f64::from(count) * y_step;
        let at = y_at(value);
        shapes.push(rule((LEFT, at), (RIGHT, at), FAINT));
        shapes.push(text(LEFT - 8.0, at + 4.0, number(value, y_step), Anchor::End));
        count += 1;
    }
    let position = |x: f64| match chart.x_scale {
        Scale::Linear => x,
        Scale::Logarithmic => x.ln(),
    };
    let first = chart.x_ticks.first().map_or(0.0, |(x, _)| position(*x));
    let last = chart.x_ticks.last().map_or(1.0, |(x, _)| position(*x));
    let span = if last > first { last - first } else { 1.0 };
    let x_at = |x: f64| LEFT + (RIGHT - LEFT) * (position(x) - first) / span;
    for (x, label) in &chart.x_ticks {
        let at = x_at(*x);
        shapes.push(rule((at, TOP), (at, BOTTOM + 4.0), FAINT));
        shapes.push(text(at, BOTTOM + 20.0, &**label, Anchor::Middle));
    }
    shapes.push(rule((LEFT, BOTTOM), (RIGHT, BOTTOM), INK));
    shapes.push(text((LEFT + RIGHT) / 2.0, BOTTOM + 44.0, &*chart.x_label, Anchor::Middle));
    for (index, one) in chart.series.iter().enumerate() {
        let place = |(x, y): &(f64, f64)| (x_at(*x), y_at(*y));
        let places = |one: &Series| one.points.iter().map(place).collect::<Vec<_>>();
        let points = places(one);
        let is_covered = chart.series[index + 1..]
            .iter()
            .any(|later| later.look.is_drawn_as(one.look) && lies_on(&points, &places(later)));
        let pen = Pen {
            colour: COLOURS[one.colour % COLOURS.len()],
            look: one.look,
            // Beyond the colours there are, dashes tell lines of one colour apart.
            is_dashed: one.look == Look::Predicted || one.colour >= COLOURS.len(),
            // A line under another shows on both sides of it.
            extra: if is_covered { COVERED_EXTRA } else { 0.0 },
        };
        for run in points.split(|(_, y)| !y.is_finite()) {
            pen.draw(run, &mut shapes);
        }
        let legend_at = TOP + 8.0 + index as f64 * 22.0;
        let of_legend = match one.look {
            Look::Dots | Look::Squares => vec![(RIGHT + 30.0, legend_at)],
            _ => vec![(RIGHT + 16.0, legend_at), (RIGHT + 44.0, legend_at)],
        };
        pen.draw(&of_legend, &mut shapes);
        shapes.push(text(RIGHT + 52.0, legend_at + 4.0, &*one.name, Anchor::Start));
    }
    shapes
}

/// A round step, and a multiple of it that is not below `max`.
fn steps(max: f64) -> (f64, f64) {
    if max <= 0.0 {
        return (0.5, 1.0);
    }
    let rough = max / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(power);
    (step, (max / step).ceil() * step)
}

fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::{COLOURS, Shape, number, scene, steps};
    use crate::plot::{Chart, Look, Scale, Series};

    #[test]
    fn no_two_lines_look_alike() {
        let series = (0..2 * COLOURS.len()).map(|colour| Series {
            name: String::new(),
            colour,
            look: Look::Measured,
            points: vec![(1.0, 1.0), (2.0, colour as f64)],
        });
        let chart = Chart {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            x_scale: Scale::Linear,
            x_ticks: Vec::new(),
            series: series.collect(),
        };
        let is_of_a_line =
            |shape: &Shape| matches!(shape, Shape::Line { width, .. } if *width > 1.0);
        let looks = scene(&chart).into_iter().filter(is_of_a_line).map(|shape| match shape {
            Shape::Line { colour, is_dashed, .. } => (colour, is_dashed),
            _ => unreachable!("only lines are left"),
        });
        let mut looks: Vec<_> = looks.collect();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), 2 * COLOURS.len());
    }

    #[test]
    fn a_line_that_lies_under_another_is_wider() {
        let line = |colour, y: [f64; 3]| Series {
            name: String::new(),
            colour,
            look: Look::Measured,
            points: vec![(1.0, y[0]), (2.0, y[1]), (3.0, y[2])],
        };
        let chart = Chart {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            x_scale: Scale::Linear,
            x_ticks: vec![(1.0, String::new()), (3.0, String::new())],
            series: vec![
                line(0, [1.0, 2.0, 3.0]),
                line(1, [2.0, 2.0, 2.0]),
                line(2, [2.0, 2.0, 3.0]),
            ],
        };
        let width = |shape: Shape| match shape {
            Shape::Line { width, colour, .. } if colour != super::FAINT => Some(width),
            _ => None,
        };
        let mut widths: Vec<f64> = scene(&chart).into_iter().filter_map(width).collect();
        // Each line has one in the legend beside it; the axis comes before.
        widths.remove(0);
        assert_eq!(widths, [4.0, 4.0, 4.0, 4.0, 2.0, 2.0]);
    }

    #[test]
    fn steps_are_round_and_reach_the_top() {
        assert_eq!(steps(3.0), (0.5, 3.0));
        assert_eq!(steps(1.0), (0.2, 1.0));
        let (step, end) = steps(47.3);
        assert_eq!((step, end), (10.0, 50.0));
        assert_eq!((number(0.4, 0.2), number(30.0, 10.0)), ("0.4".to_owned(), "30".to_owned()));
    }
}
