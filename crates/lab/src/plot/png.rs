//! Scenes as PNG, for where no SVG is shown: drawn here, two pixels a unit, with smooth lines and
//! a bitmap font.

use crc_fast::{CrcAlgorithm, checksum};
use miniz_oxide::deflate::compress_to_vec_zlib;
use spleen_font::{FONT_12X24, PSF2Font};

use super::chart::Chart;
use super::scene::{Anchor, HEIGHT, Shape, WIDTH, scene};

const SCALE: f64 = 2.0;
const GLYPH_WIDTH: f64 = 12.0;
const GLYPH_HEIGHT: f64 = 24.0;
/// Rows of a glyph above its base line.
const GLYPH_ASCENT: f64 = 19.0;
const COMPRESSION: u8 = 7;
const INK: [u8; 3] = [0x22, 0x22, 0x22];

/// A chart as the bytes of a PNG file.
#[must_use]
pub fn png(chart: &Chart) -> Vec<u8> {
    let mut canvas = Canvas::new((WIDTH * SCALE) as usize, (HEIGHT * SCALE) as usize);
    for shape in scene(chart) {
        canvas.draw(&shape);
    }
    canvas.encode()
}

struct Canvas {
    width: usize,
    height: usize,
    /// Red, green and blue, row by row.
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: vec![0xff; width * height * 3] }
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { points, colour, width, is_dashed } => {
                let points = points.iter().map(|(x, y)| (x * SCALE, y * SCALE));
                let points: Vec<(f64, f64)> = points.collect();
                let parts = if *is_dashed { dashes(&points) } else { pairs(&points) };
                for (from, to) in parts {
                    self.stroke(from, to, width * SCALE, *colour);
                }
            }
            Shape::Dot { x, y, radius, colour } => {
                let at = (x * SCALE, y * SCALE);
                self.stroke(at, at, 2.0 * radius * SCALE, *colour);
            }
            Shape::Text { x, y, text, anchor } => self.text(x * SCALE, y * SCALE, text, *anchor),
        }
    }

    /// A line with round ends: each pixel as dark as far as it is within half of the width.
    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: [u8; 3]) {
        let reach = width / 2.0 + 1.0;
        let low = |a: f64, b: f64| (a.min(b) - reach).floor().max(0.0) as usize;
        let high =
            |a: f64, b: f64, end: usize| ((a.max(b) + reach).ceil().max(0.0) as usize).min(end);
        let (along, across) = (to.0 - from.0, to.1 - from.1);
        let square = along * along + across * across;
        for row in low(from.1, to.1)..high(from.1, to.1, self.height) {
            for column in low(from.0, to.0)..high(from.0, to.0, self.width) {
                let (x, y) = (column as f64 + 0.5 - from.0, row as f64 + 0.5 - from.1);
                let part = if square > 0.0 { (x * along + y * across) / square } else { 0.0 };
                let part = part.clamp(0.0, 1.0);
                let distance = (x - part * along).hypot(y - part * across);
                self.blend(column, row, colour, (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0));
            }
        }
    }

    fn blend(&mut self, column: usize, row: usize, colour: [u8; 3], cover: f64) {
        if column >= self.width || row >= self.height || cover <= 0.0 {
            return;
        }
        let at = (row * self.width + column) * 3;
        for (pixel, channel) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            let mixed = f64::from(*pixel) * (1.0 - cover) + f64::from(channel) * cover;
            *pixel = mixed.round() as u8;
        }
    }

    fn text(&mut self, x: f64, y: f64, text: &str, anchor: Anchor) {
        let width = text.chars().count() as f64 * GLYPH_WIDTH;
        let from = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let top = (y - GLYPH_ASCENT).max(0.0) as usize;
        let Ok(mut font) = PSF2Font::new(FONT_12X24) else { return };
        for (index, c) in text.chars().enumerate() {
            let left = (from + index as f64 * GLYPH_WIDTH).max(0.0) as usize;
            let mut bytes = [0; 4];
            let Some(glyph) = font.glyph_for_utf8(c.encode_utf8(&mut bytes).as_bytes()) else {
                continue;
            };
            for (row, bits) in glyph.enumerate().take(GLYPH_HEIGHT as usize) {
                for (column, _) in bits.enumerate().filter(|(_, is_ink)| *is_ink) {
                    self.blend(left + column, top + row, INK, 1.0);
                }
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
        let mut header = Vec::new();
        header.extend((self.width as u32).to_be_bytes());
        header.extend((self.height as u32).to_be_bytes());
        // Eight bits a channel, colours without transparency, and the only compression there is.
        header.extend([8, 2, 0, 0, 0]);
        let mut rows = Vec::with_capacity(self.pixels.len() + self.height);
        for row in self.pixels.chunks_exact(self.width * 3) {
            rows.push(0);
            rows.extend(row);
        }
        let mut out = SIGNATURE.to_vec();
        chunk(&mut out, *b"IHDR", &header);
        chunk(&mut out, *b"IDAT", &compress_to_vec_zlib(&rows, COMPRESSION));
        chunk(&mut out, *b"IEND", &[]);
        out
    }
}

fn chunk(out: &mut Vec<u8>, kind: [u8; 4], bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    let from = out.len();
    out.extend(kind);
    out.extend(bytes);
    let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, &out[from..]) as u32;
    out.extend(crc.to_be_bytes());
}

type Part = ((f64, f64), (f64, f64));

fn pairs(points: &[(f64, f64)]) -> Vec<Part> {
    points.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A path in pieces of 12 pixels with 8 between them.
fn dashes(points: &[(f64, f64)]) -> Vec<Part> {
    const INK_LENGTH: f64 = 6.0 * SCALE;
    const GAP: f64 = 4.0 * SCALE;
    let mut parts = Vec::new();
    let (mut is_ink, mut left) = (true, INK_LENGTH);
    for ((mut x, mut y), to) in pairs(points) {
        loop {
            let length = (to.0 - x).hypot(to.1 - y);
            if length <= 0.0 {
                break;
            }
            let step = left.min(length);
            let next = (x + (to.0 - x) * step / length, y + (to.1 - y) * step / length);
            if is_ink {
                parts.push(((x, y), next));
            }
            (x, y) = next;
            left -= step;
            if left <= 0.0 {
                is_ink = !is_ink;
                left = if is_ink { INK_LENGTH } else { GAP };
            }
            if step >= length {
                break;
            }
        }
    }
    parts
}
