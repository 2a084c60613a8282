//! How collectors tell Prometheus a value: alone, or one for each of some labels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;

/// Tells one value.
pub(crate) fn tell<M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    value: M,
) -> fmt::Result {
    value.encode(encoder.encode_descriptor(name, help, None, M::TYPE)?)
}

/// Tells a value for each of some labels.
pub(crate) fn tell_each<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (L, M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    let mut values = values.into_iter();
    values.try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
}
