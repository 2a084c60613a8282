//! Layers over one thing, one over the other, that keep something of their own there.

use std::sync::Arc;

use super::candidate::ArrayError;
use super::materials::{Device, Materials, Random};
use crate::layers::{CryptDevice, CryptError, CryptKey, KeySource};
use crate::stack::Stack;
use crate::{DeviceError, DeviceErrorKind, Operation};

/// Layers, the lowest first, and what they are made and opened with.
pub(super) struct Kept {
    layers: Vec<(KeySource, Arc<CryptKey>)>,
    /// How deep the uppermost lies; none of those of a single member, which are opened anew with
    /// the book held, when nobody else has them.
    depth: Option<usize>,
    random: Random,
}

/// A layer that cannot be opened.
pub(super) struct Unopened {
    pub error: CryptError,
    /// Where its key is.
    pub key: KeySource,
}

/// What lies under the layers over one thing.
pub(super) fn base_of(mut stack: &Stack) -> &Stack {
    while let Stack::Crypt { below, .. } = stack {
        stack = below;
    }
    stack
}

impl Kept {
    /// The layers over one thing that a stack begins with.
    ///
    /// # Errors
    /// When a key cannot be had.
    pub fn of(mut stack: &Stack, materials: &Materials<'_>) -> Result<Kept, ArrayError> {
        let mut layers = Vec::new();
        while let Stack::Crypt { key, below } = stack {
            let read = (materials.key)(key).map_err(|text| {
                let text = format!("{key} ({text})");
                of_layer(CryptError::KeySource { text, expected: "one that can be read" })
            })?;
            layers.push((key.clone(), Arc::new(read)));
            stack = below;
        }
        layers.reverse();
        Ok(Kept { layers, depth: None, random: Arc::clone(&materials.random) })
    }

    /// The same, so deep in a stack.
    pub fn at_depth(self, depth: usize) -> Kept {
        Kept { depth: Some(depth), ..self }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.layers.len()
    }

    /// The sources of all keys.
    pub fn keys(&self) -> impl Iterator<Item = &KeySource> {
        self.layers.iter().map(|(key, _)| key)
    }

    /// Bytes above all of them.
    pub fn bytes_above(&self, below_bytes: u64) -> u64 {
        self.layers.iter().fold(below_bytes, |bytes, _| CryptDevice::bytes_above(bytes))
    }

    /// Opens all of them on a device.
    pub fn open(&self, device: Device) -> Result<Device, Unopened> {
        (0..self.count()).try_fold(device, |below, number| self.open_one(number, below))
    }

    fn open_one(&self, number: usize, below: Device) -> Result<Device, Unopened> {
        let (source, key) = &self.layers[number];
        let opened = CryptDevice::open(below, key)
            .map_err(|error| Unopened { error, key: source.clone() })?;
        let depth = self.depth.map(|depth| depth + self.count() - 1 - number);
        Ok(match depth {
            Some(depth) => Arc::new(opened.at_depth(depth)),
            None => Arc::new(opened),
        })
    }

    /// Makes all of them on a device on which nothing was written.
    pub fn make(&self, device: &Device) -> Result<(), CryptError> {
        let mut below = Arc::clone(device);
        for (number, (_, key)) in self.layers.iter().enumerate() {
            CryptDevice::format(&*below, key, &mut |bytes| (self.random)(bytes))?;
            below = self.open_one(number, below).map_err(|unopened| unopened.error)?;
        }
        Ok(())
    }
}

/// What could not be made or opened, as the array's error.
pub(super) fn of_layer(error: CryptError) -> ArrayError {
    let hint = match error {
        CryptError::Device(error) => return error.into(),
        CryptError::WrongKey { .. } => "give the key that the pool was made with",
        CryptError::KeySource { .. } => "the key is named in pool.stack",
        _ => "",
    };
    ArrayError::Refused { what: error.to_string(), hint: hint.to_owned() }
}

/// The same as a device's error.
pub(super) fn of_device(error: CryptError, device: &Device) -> DeviceError {
    let (kind, text) = (DeviceErrorKind::Io, error.to_string());
    match error {
        CryptError::Device(error) => error,
        _ => DeviceError::new(kind, Operation::Read, (0, 0), device.describe(), &text),
    }
}
