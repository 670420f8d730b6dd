//! Writes GGUF version 3: the header first, then the tensors, without keeping them in memory.

use std::io::{self, Write};

use super::{DEFAULT_ALIGNMENT, GgufValue, MAGIC, type_number};
use crate::networks::weights::header::TensorType;

#[derive(Default)]
pub struct GgufWriter {
    values: Vec<(String, GgufValue)>,
    tensors: Vec<(String, Vec<usize>, TensorType)>,
}

impl GgufWriter {
    pub fn value(&mut self, key: impl Into<String>, value: GgufValue) -> &mut Self {
        self.values.push((key.into(), value));
        self
    }

    pub fn text(&mut self, key: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.value(key, GgufValue::Text(text.into()))
    }

    pub fn unsigned(&mut self, key: impl Into<String>, number: u64) -> &mut Self {
        self.value(key, GgufValue::Unsigned(number))
    }

    pub fn float(&mut self, key: impl Into<String>, number: f64) -> &mut Self {
        self.value(key, GgufValue::Float(number))
    }

    /// Adds a tensor of this shape, rows first; `write` requests its bytes in this order.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        dtype: impl Into<TensorType>,
    ) -> &mut Self {
        let tensor = (name.into(), shape.to_vec(), dtype.into());
        self.tensors.push(tensor);
        self
    }

    /// Writes everything; `bytes` makes the bytes of the tensor with this index.
    pub fn write(
        &self,
        mut out: impl Write,
        mut bytes: impl FnMut(usize) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let mut header = self.header();
        pad(&mut header);
        out.write_all(&header)?;
        for index in 0..self.tensors.len() {
            let mut data = bytes(index)?;
            if data.len() as u64 != self.bytes_of(index) {
                let (name, ..) = &self.tensors[index];
                return Err(io::Error::other(format!(
                    "{name}: expected {} bytes, got {}",
                    self.bytes_of(index),
                    data.len()
                )));
            }
            pad(&mut data);
            out.write_all(&data)?;
        }
        out.flush()
    }

    fn header(&self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend(3_u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            put_text(&mut header, key);
            header.extend(kind(value).to_le_bytes());
            put_value(&mut header, value);
        }
        let mut start = 0_u64;
        for (index, (name, shape, dtype)) in self.tensors.iter().enumerate() {
            put_text(&mut header, name);
            header.extend((shape.len() as u32).to_le_bytes());
            for &dim in shape.iter().rev() {
                header.extend((dim as u64).to_le_bytes());
            }
            header.extend(type_number(*dtype).to_le_bytes());
            header.extend(start.to_le_bytes());
            start += self.bytes_of(index).next_multiple_of(DEFAULT_ALIGNMENT);
        }
        header
    }

    fn bytes_of(&self, index: usize) -> u64 {
        let (_, shape, dtype) = &self.tensors[index];
        dtype.bytes_of(shape).unwrap_or(0)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Readers expect sizes as u32, positions as f32 and token types as i32, like in files of the format's tools.
fn kind(value: &GgufValue) -> u32 {
    match value {
        GgufValue::Unsigned(_) => 4,
        GgufValue::Signed(_) => 5,
        GgufValue::Float(_) => 6,
        GgufValue::Bool(_) => 7,
        GgufValue::Text(_) => 8,
        GgufValue::List(_) => 9,
    }
}

fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    match value {
        GgufValue::Unsigned(number) => out.extend((*number as u32).to_le_bytes()),
        GgufValue::Signed(number) => out.extend((*number as i32).to_le_bytes()),
        GgufValue::Float(number) => out.extend((*number as f32).to_le_bytes()),
        GgufValue::Bool(flag) => out.push(u8::from(*flag)),
        GgufValue::Text(text) => put_text(out, text),
        GgufValue::List(list) => {
            out.extend(list.first().map_or(4, kind).to_le_bytes());
            out.extend((list.len() as u64).to_le_bytes());
            for value in list {
                put_value(out, value);
            }
        }
    }
}
