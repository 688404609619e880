//! A place whose calls fail after a request to stop the measurement. Calls that remove things still work.

use super::stop::Stop;
use super::{OpenFile, Place};
use std::io;
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::machine::DiskWatches;

/// See the module.
pub struct Interruptible {
    inner: Box<dyn Place>,
    stop: Stop,
}

impl Interruptible {
    /// `inner`, until `stop` is asked for.
    pub fn new(inner: Box<dyn Place>, stop: Stop) -> Interruptible {
        Interruptible { inner, stop }
    }

    fn watched(&self, inner: Box<dyn OpenFile>) -> Box<dyn OpenFile> {
        Box::new(InterruptibleFile { inner, stop: self.stop.clone() })
    }
}

struct InterruptibleFile {
    inner: Box<dyn OpenFile>,
    stop: Stop,
}

impl Place for Interruptible {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.stop.check()?;
        Ok(self.watched(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.stop.check()?;
        Ok(self.watched(self.inner.open(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn settle(&self) -> io::Result<()> {
        self.stop.check()?;
        self.inner.settle()
    }

    fn clear(&self) -> io::Result<()> {
        self.inner.clear()
    }

    fn finish(&self) -> io::Result<()> {
        self.inner.finish()
    }

    fn client(&self) -> Option<&Client> {
        self.inner.client()
    }

    fn disks(&self) -> Option<Arc<DiskWatches>> {
        self.inner.disks()
    }
}

impl OpenFile for InterruptibleFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.stop.check()?;
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.stop.check()?;
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.stop.check()?;
        self.inner.sync()
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.inner.close()
    }
}
