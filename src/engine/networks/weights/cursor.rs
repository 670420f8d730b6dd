//! Reads little-endian numbers from untrusted bytes, never past their end.

use super::error::Flaw;

pub struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], Flaw> {
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| self.position.checked_add(length))
            .and_then(|end| Some((end, self.bytes.get(self.position..end)?)));
        let Some((end, taken)) = taken else {
            return Err(Flaw::broken(
                what,
                format!("{} bytes left in the file", self.remaining()),
                format!("{length}"),
            ));
        };
        self.position = end;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Flaw> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Flaw> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Flaw> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// How many things follow, refused when the file could not hold them at their least size.
    pub fn count(&mut self, least_bytes: u64, what: &str) -> Result<usize, Flaw> {
        let count = self.u64(what)?;
        let room = self.remaining() as u64 / least_bytes;
        if count > room {
            let wanted = format!("at most {room} in the rest of the file");
            return Err(Flaw::broken(what, count, wanted));
        }
        usize::try_from(count)
            .map_err(|_| Flaw::broken(what, count, "a number that fits in memory"))
    }

    pub fn string(&mut self, longest: u64, what: &str) -> Result<&'a [u8], Flaw> {
        let length = self.u64(what)?;
        if length > longest {
            return Err(Flaw::broken(
                format!("the length of {what}"),
                length,
                format!("at most {longest}"),
            ));
        }
        self.take(length, what)
    }
}
