//! Charts of the laboratory, drawn once and written as SVG and as PNG.
//!
//! A chart is laid out into a scene of few shapes in units of a drawing 860 wide and 480 high; both
//! writers know nothing but the scene.

mod chart;
mod png;
mod scene;
mod svg;

pub use chart::{Chart, Look, Scale, Series};
pub use png::png;
pub(crate) use svg::escaped;
pub use svg::svg;
