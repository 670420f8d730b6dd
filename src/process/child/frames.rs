//! How requests and replies cross a pipe: a length in four bytes, then JSON or a table.

use std::io::{self, Read, Write};

use serde::Serialize;

/// The vocabulary of a GGUF file with its merges is the largest thing that crosses.
pub const MAX_FRAME_BYTES: u32 = 256 << 20;

/// The frame of a request or a reply. Both are structs of texts and numbers, which always are JSON.
pub fn to_bytes(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let _ = serde_json::to_writer(&mut bytes, message);
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

pub fn write_table(out: &mut impl Write, table: &[u8]) -> io::Result<()> {
    let length = u32::try_from(table.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(table)?;
    out.flush()
}

/// The next frame's content. Memory grows with the bytes received, not with the announced length.
pub fn read(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    input.take(length.into()).read_to_end(&mut bytes)?;
    match bytes.len() == length as usize {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
