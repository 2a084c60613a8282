//! Where requests come from: a trace, a generator, or one of them changed on the way.
//!
//! 1. Times never fall.
//! 2. A request's device has a name before the request is given out.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::{NAME_BYTES_MAX, Request};

/// The most devices of one trace: the Tencent traces, the widest of those known, have 5,584.
pub const DEVICES_MAX: usize = 1 << 16;

/// Requests one after the other.
pub trait Source {
    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// Whatever is wrong with the input; nothing is given out after an error.
    fn next(&mut self) -> Result<Option<Request>>;

    /// The devices that were met so far.
    fn devices(&self) -> &Devices;

    /// Nanoseconds since 1970 at which the requests' time is 0; 0 if that is not known. Known once
    /// the first request was given out.
    fn start(&self) -> u64;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next(&mut self) -> Result<Option<Request>> {
        (**self).next()
    }

    fn devices(&self) -> &Devices {
        (**self).devices()
    }

    fn start(&self) -> u64 {
        (**self).start()
    }
}

/// Names of devices by number, and numbers by name.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// What was asked for last: traces stay with a device for a while.
    last: Option<(Box<[u8]>, u32)>,
}

impl Devices {
    /// A list of these names.
    ///
    /// # Errors
    /// When they are too many.
    pub fn of(names: &[&str]) -> Result<Devices> {
        let mut devices = Devices::default();
        for name in names {
            devices.number(name.as_bytes())?;
        }
        Ok(devices)
    }

    /// The number of a device that the trace calls `key`; a new one if it is new.
    ///
    /// # Errors
    /// `Limit` when there are too many.
    pub fn number(&mut self, key: &[u8]) -> Result<u32> {
        if let Some((last, number)) = &self.last
            && **last == *key
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(key) {
            Some(number) => *number,
            None => self.add(key)?,
        };
        self.last = Some((key.into(), number));
        Ok(number)
    }

    fn add(&mut self, key: &[u8]) -> Result<u32> {
        if self.names.len() >= DEVICES_MAX {
            let message = format!("more than {DEVICES_MAX} devices in one trace");
            return Err(Error::new(ErrorKind::Limit, message)
                .with_hint("convert parts of it, with --device, into several traces"));
        }
        let number = self.names.len() as u32;
        let mut name = String::from_utf8_lossy(key).replace(',', "_").replace(' ', ":");
        let end = (0..=name.len().min(NAME_BYTES_MAX)).rev().find(|i| name.is_char_boundary(*i));
        name.truncate(end.unwrap_or_default());
        if name.is_empty() {
            name.push('-');
        }
        self.names.push(name);
        self.numbers.insert(key.into(), number);
        Ok(number)
    }

    /// Names, in the order of their numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A device's name.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("-", String::as_str)
    }

    /// The number of the device of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|known| known == name).map(|i| i as u32)
    }
}
