//! Layers over one thing, one over the other, that keep something of their own there.

use std::sync::Arc;

use super::build::{Device, Materials, Random};
use super::candidate::ArrayError;
use crate::layers::{CryptDevice, CryptError, CryptKey, DelayDevice, Delays, KeySource, Pause};
use crate::stack::Stack;
use crate::{DeviceError, DeviceErrorKind, Operation};

#[derive(Clone)]
enum Layer {
    Crypt(KeySource, Arc<CryptKey>),
    Delay(Delays),
}

/// Layers, the lowest first, and what they are made and opened with.
pub(super) struct Kept {
    layers: Vec<Layer>,
    /// How deep the uppermost lies; none of those of a single member, which are opened anew with
    /// the book held, when nobody else has them.
    depth: Option<usize>,
    random: Random,
    pause: Pause,
}

/// A layer that cannot be opened.
pub(super) struct Unopened {
    pub error: CryptError,
    /// Its key, if it has one.
    pub key: Option<KeySource>,
}

/// What lies under the layers over one thing.
pub(super) fn base_of(mut stack: &Stack) -> &Stack {
    while let Stack::Crypt { below, .. } | Stack::Delay { below, .. } = stack {
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
        loop {
            let (layer, below) = match stack {
                Stack::Crypt { key, below } => {
                    let read = (materials.key)(key).map_err(|text| {
                        let text = format!("{key} ({text})");
                        let expected = "one that can be read";
                        of_layer(CryptError::KeySource { text, expected })
                    })?;
                    (Layer::Crypt(key.clone(), Arc::new(read)), below)
                }
                Stack::Delay { delays, below } => (Layer::Delay(*delays), below),
                _ => break,
            };
            layers.push(layer);
            stack = below;
        }
        layers.reverse();
        let (random, pause) = (Arc::clone(&materials.random), Arc::clone(&materials.pause));
        Ok(Kept { layers, depth: None, random, pause })
    }

    /// The same, so deep in a stack.
    pub fn at_depth(self, depth: usize) -> Kept {
        Kept { depth: Some(depth), ..self }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is nothing to make anew with a device.
    pub fn is_nothing(&self) -> bool {
        self.layers.iter().all(|layer| matches!(layer, Layer::Delay(_)))
    }

    /// The sources of all keys.
    pub fn keys(&self) -> impl Iterator<Item = &KeySource> {
        self.layers.iter().filter_map(Layer::key)
    }

    /// Bytes above all of them.
    pub fn bytes_above(&self, below_bytes: u64) -> u64 {
        self.layers.iter().fold(below_bytes, |bytes, layer| layer.bytes_above(bytes))
    }

    /// Opens all of them on a device.
    pub fn open(&self, device: Device) -> Result<Device, Unopened> {
        let mut layers = self.layers.iter().enumerate();
        layers.try_fold(device, |below, (number, layer)| self.open_one(number, layer, below))
    }

    fn open_one(&self, number: usize, layer: &Layer, below: Device) -> Result<Device, Unopened> {
        let opened: Result<Device, CryptError> = match layer {
            Layer::Crypt(_, key) => {
                let depth = self.depth.map(|depth| depth + self.layers.len() - 1 - number);
                let opened = CryptDevice::open(below, key);
                opened.map(|device| match depth {
                    Some(depth) => Arc::new(device.at_depth(depth)) as Device,
                    None => Arc::new(device),
                })
            }
            Layer::Delay(delays) => {
                Ok(Arc::new(DelayDevice::new(below, *delays, Arc::clone(&self.pause))))
            }
        };
        opened.map_err(|error| Unopened { error, key: layer.key().cloned() })
    }

    /// Makes all of them on a device on which nothing was written.
    pub fn make(&self, device: &Device) -> Result<(), CryptError> {
        let mut below = Arc::clone(device);
        for (number, layer) in self.layers.iter().enumerate() {
            match layer {
                Layer::Crypt(_, key) => {
                    CryptDevice::format(&*below, key, &mut |bytes| (self.random)(bytes))?;
                }
                Layer::Delay(_) => {}
            }
            below = self.open_one(number, layer, below).map_err(|unopened| unopened.error)?;
        }
        Ok(())
    }
}

impl Layer {
    fn key(&self) -> Option<&KeySource> {
        match self {
            Layer::Crypt(source, _) => Some(source),
            Layer::Delay(_) => None,
        }
    }

    fn bytes_above(&self, below_bytes: u64) -> u64 {
        match self {
            Layer::Crypt(..) => CryptDevice::bytes_above(below_bytes),
            Layer::Delay(_) => below_bytes,
        }
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
