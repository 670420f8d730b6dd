//! Maps token ids to rows of the embedding table.

use candle_core::{
    DType, Device, Result, Tensor, bail,
    quantized::{GgmlDType, QStorage, QTensor},
};

use crate::networks::weights::{TensorBytes, convert};
use muster_kernels::select_rows;

pub struct Embedding {
    table: Table,
    rows: usize,
    cols: usize,
    /// The type of the rows it hands out.
    dtype: DType,
}

enum Table {
    /// Rows are converted on demand; the table keeps the file's format, and only the rows ever used of a mapped file
    /// are in memory.
    Stored {
        dtype: GgmlDType,
        bytes: TensorBytes,
    },
    Dense(Tensor),
    Blocks(QTensor),
}

impl Embedding {
    pub fn place(
        stored: GgmlDType,
        bytes: TensorBytes,
        (rows, cols): (usize, usize),
        device: &Device,
        dtype: DType,
    ) -> Result<Self> {
        let table = match convert::dense_dtype(stored) {
            _ if device.is_cpu() => Table::Stored {
                dtype: stored,
                bytes,
            },
            Some(dense) => {
                let table = Tensor::from_raw_buffer(&bytes, dense, &[rows, cols], device)?;
                Table::Dense(table.to_dtype(dtype)?)
            }
            None => {
                let storage = QStorage::from_data(convert::aligned(&bytes), device, stored)?;
                Table::Blocks(QTensor::new(storage, (rows, cols))?)
            }
        };
        Ok(Self {
            table,
            rows,
            cols,
            dtype,
        })
    }

    /// Device memory of the table.
    pub fn device_bytes(&self) -> u64 {
        match &self.table {
            Table::Stored { .. } => 0,
            Table::Dense(table) => (table.elem_count() * table.dtype().size_in_bytes()) as u64,
            Table::Blocks(table) => table.storage_size_in_bytes() as u64,
        }
    }

    /// One row per token: `[tokens, cols]`.
    pub fn gather(&self, tokens: &[u32], device: &Device) -> Result<Tensor> {
        match &self.table {
            Table::Stored { .. } => self.rows_of(tokens, None),
            _ => self.rows_of(tokens, Some(&Tensor::new(tokens, device)?)),
        }
    }

    /// The same with the tokens already on the device.
    pub fn gather_uploaded(&self, tokens: &[u32], uploaded: &Tensor) -> Result<Tensor> {
        self.rows_of(tokens, Some(uploaded))
    }

    fn rows_of(&self, tokens: &[u32], uploaded: Option<&Tensor>) -> Result<Tensor> {
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= self.rows) {
            bail!(
                "the token {token} is outside the vocabulary of {}",
                self.rows
            );
        }
        match (&self.table, uploaded) {
            (Table::Stored { dtype, bytes }, _) => self.gather_stored(*dtype, bytes, tokens),
            (Table::Dense(table), Some(uploaded)) => select_rows(table, uploaded),
            (Table::Blocks(table), Some(uploaded)) => {
                table.embedding(uploaded)?.to_dtype(self.dtype)
            }
            (_, None) => bail!("the table is on a device, but the tokens are not"),
        }
    }

    fn gather_stored(&self, dtype: GgmlDType, bytes: &[u8], tokens: &[u32]) -> Result<Tensor> {
        let row_bytes = self.cols / dtype.block_size() * dtype.type_size();
        let mut gathered = Vec::with_capacity(tokens.len() * self.cols);
        for &token in tokens {
            let start = token as usize * row_bytes;
            gathered.extend(convert::floats(dtype, &bytes[start..start + row_bytes])?);
        }
        Tensor::from_vec(gathered, (tokens.len(), self.cols), &Device::Cpu)
    }
}
