//! Scenes as SVG: text, small, and sharp at every size.

use std::fmt::Write;

use super::chart::Chart;
use super::scene::{Anchor, HEIGHT, Shape, WIDTH, scene};

/// A chart as a document of its own, which may also stand inside a page.
#[must_use]
pub fn svg(chart: &Chart) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" font-size=\"13\" fill=\"#222\" \
         font-family=\"system-ui, sans-serif\">\n<title>{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n",
        escaped(&chart.title)
    );
    for shape in scene(chart) {
        write(&mut out, &shape).expect("a string takes all");
    }
    out.push_str("</svg>\n");
    out
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn write(out: &mut String, shape: &Shape) -> std::fmt::Result {
    match shape {
        Shape::Line { points, colour, width, is_dashed } => {
            out.push_str("<polyline points=\"");
            for (x, y) in points {
                write!(out, "{x:.1},{y:.1} ")?;
            }
            let dash = if *is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            let colour = hex(*colour);
            writeln!(out, "\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>")
        }
        Shape::Dot { x, y, radius, colour } => {
            let colour = hex(*colour);
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>")
        }
        Shape::Text { x, y, text, anchor } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let text = escaped(text);
            writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
        }
    }
}

/// Text that is nothing but text in a page.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}
