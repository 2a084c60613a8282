//! Experiments and their pictures.

mod experiments;
