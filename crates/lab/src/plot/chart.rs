//! A chart before it is laid out.

/// How a coordinate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By its logarithm; values are above 0.
    Logarithmic,
}

/// What a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What was counted: a line with dots.
    Measured,
    /// The same beside a prediction: only dots, so that the dashes under them are seen.
    Dots,
    /// What the model says, or the second of two kinds: dashes without dots.
    Predicted,
    /// What stands beside both, at single places: squares.
    Squares,
}

impl Look {
    /// Whether one would be hidden under the other.
    pub(super) fn is_drawn_as(self, other: Look) -> bool {
        let is_full = |look| matches!(look, Look::Measured | Look::Dots);
        is_full(self) && is_full(other)
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Which of the colours it has; a measured line and its prediction share one.
    pub colour: usize,
    /// What it shows.
    pub look: Look,
    /// Its points, from left to right; where y is no number the line is interrupted.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows, in a line.
    pub title: String,
    /// What is to the right.
    pub x_label: String,
    /// What is upwards.
    pub y_label: String,
    /// How x runs; y is linear from 0.
    pub x_scale: Scale,
    /// Where x is labelled, from left to right; the first and the last are its ends.
    pub x_ticks: Vec<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    pub(super) fn y_max(&self) -> f64 {
        let values = self.series.iter().flat_map(|one| one.points.iter().map(|(_, y)| *y));
        values.filter(|y| y.is_finite()).fold(0.0, f64::max)
    }
}
