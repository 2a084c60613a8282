//! Numbers, flags and opaque bytes as XDR has them (RFC 4506).

use anyhow::{Context, Result, bail, ensure};

/// What is written.
#[derive(Default)]
pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u32(u32::try_from(bytes.len()).expect("what is sent is short")).fixed(bytes)
    }
}

/// What is read, from the front.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("a reply ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into()?))
    }

    pub fn flag(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => bail!("a flag is {other}"),
        }
    }

    pub fn eight(&mut self) -> Result<[u8; 8]> {
        Ok(self.take(8)?.try_into()?)
    }

    pub fn opaque(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?;
        let padding = self.take(length.next_multiple_of(4) - length)?;
        ensure!(padding.iter().all(|&byte| byte == 0), "bytes are padded with other than zeros");
        Ok(bytes)
    }

    pub fn end(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "a reply has {} bytes too many", self.0.len());
        Ok(())
    }
}
