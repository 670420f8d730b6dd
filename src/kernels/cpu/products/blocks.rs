//! The layout of a block for each type of weights, in GGUF and in a panel.

use candle_core::quantized::GgmlDType;

use super::PANEL_ROWS;
use super::activations::Form;

/// Storage types of weights: candle's, and types of GGUF files that candle lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    Ggml(GgmlDType),
    /// Blocks of 32 columns: an exponent (e8m0), then codes of four bits (e2m1), two a byte: the low nibbles are the
    /// first sixteen columns.
    MxFp4,
}

impl WeightType {
    /// Columns of a stored block.
    pub fn block_size(self) -> usize {
        match self {
            Self::Ggml(dtype) => dtype.block_size(),
            Self::MxFp4 => 32,
        }
    }

    /// Bytes of a stored block.
    pub fn type_size(self) -> usize {
        match self {
            Self::Ggml(dtype) => dtype.type_size(),
            Self::MxFp4 => 17,
        }
    }
}

impl From<GgmlDType> for WeightType {
    fn from(dtype: GgmlDType) -> Self {
        Self::Ggml(dtype)
    }
}

/// The kinds of panels. Some types of weights are packed as another that holds them exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    BF16,
    Q8_0,
    Codes(Code),
    Q4K,
    Q5K,
    Q6K,
    Q2K,
}

impl Kind {
    pub fn of(stored: WeightType) -> Option<Self> {
        let dtype = match stored {
            WeightType::Ggml(dtype) => dtype,
            WeightType::MxFp4 => return Some(Self::Codes(Code::MxFp4)),
        };
        match dtype {
            GgmlDType::F32 => Some(Self::F32),
            GgmlDType::F16 => Some(Self::F16),
            GgmlDType::BF16 => Some(Self::BF16),
            GgmlDType::Q8_0 => Some(Self::Q8_0),
            GgmlDType::Q4_0 => Some(Self::Codes(Code::Q4_0)),
            GgmlDType::Q4_1 => Some(Self::Codes(Code::Q4_1)),
            GgmlDType::Q5_0 => Some(Self::Codes(Code::Q5_0)),
            GgmlDType::Q5_1 => Some(Self::Codes(Code::Q5_1)),
            GgmlDType::Q4K => Some(Self::Q4K),
            GgmlDType::Q5K => Some(Self::Q5K),
            GgmlDType::Q6K | GgmlDType::Q3K => Some(Self::Q6K),
            GgmlDType::Q2K => Some(Self::Q2K),
            _ => None,
        }
    }

    /// Columns of one block of a panel.
    pub fn block_cols(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::BF16 => 2,
            Self::Q8_0 => q8_0::COLS,
            Self::Codes(_) => codes::COLS,
            Self::Q4K | Self::Q5K | Self::Q6K | Self::Q2K => 256,
        }
    }

    /// Bytes of one block of a panel, all sixteen rows.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4 * PANEL_ROWS,
            Self::F16 => 2 * PANEL_ROWS,
            // Two columns of a row together, converted by one load.
            Self::BF16 => 4 * PANEL_ROWS,
            Self::Q8_0 => q8_0::BYTES,
            Self::Codes(code) => code.block_bytes(),
            Self::Q4K => q4k::BYTES,
            Self::Q5K => q5k::BYTES,
            Self::Q6K => q6k::BYTES,
            Self::Q2K => q2k::BYTES,
        }
    }

    pub fn panel_bytes(self, cols: usize) -> usize {
        (cols.div_ceil(self.block_cols()) * self.block_bytes()).next_multiple_of(64)
    }

    /// How activations are prepared for it.
    pub fn form(self) -> Form {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => Form::Floats,
            Self::Q8_0 | Self::Codes(_) => Form::Blocks32,
            Self::Q4K | Self::Q5K | Self::Q6K | Self::Q2K => Form::Blocks256,
        }
    }
}

/// Codes of four or five bits, with a scale for every 32 columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    MxFp4,
}

impl Code {
    pub const fn has_fifth_bits(self) -> bool {
        matches!(self, Self::Q5_0 | Self::Q5_1)
    }

    /// Whether each scale comes with a minimum, to which code times scale is added.
    pub const fn has_minima(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1)
    }

    /// The value of each code plus the zero point; `None` if a code is its own value.
    pub const fn table(self) -> Option<[u8; 16]> {
        match self {
            // Twice the values of e2m1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and the same below zero) plus 16.
            Self::MxFp4 => Some([16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4]),
            _ => None,
        }
    }

    /// The initial integer sum, given -128 times the sum of its activations: minus the weights' zero point times that
    /// sum.
    pub const fn start(self, offset: i32) -> i32 {
        match self.shift() {
            Some(shift) => offset >> shift,
            None => 0,
        }
    }

    /// Weights were raised by `128 >> shift`.
    pub const fn shift(self) -> Option<u32> {
        match self {
            Self::Q4_0 => Some(4),
            Self::Q5_0 | Self::MxFp4 => Some(3),
            Self::Q4_1 | Self::Q5_1 => None,
        }
    }

    /// The scales of MXFP4 are powers of two that only bf16 holds.
    pub const fn has_wide_scales(self) -> bool {
        matches!(self, Self::MxFp4)
    }

    /// Offset of a block's codes.
    pub const fn quants(self) -> usize {
        if self.has_minima() {
            codes::MINIMA + 64
        } else {
            codes::MINIMA
        }
    }

    /// Offset of a block's fifth bits.
    pub const fn fifth_bits(self) -> usize {
        self.quants() + 512
    }

    const fn block_bytes(self) -> usize {
        if self.has_fifth_bits() {
            self.fifth_bits() + 128
        } else {
            self.fifth_bits()
        }
    }
}

/// Two stored blocks: scales f16 or bf16 `[2][16]`, minima f16 `[2][16]` where the code has them, then codes
/// `[2][4][16 rows][4]`: the low nibbles are four columns, the high ones the next four. Fifth bits `[2][16 rows][4]`
/// follow as in [`q5k`].
pub mod codes {
    pub const COLS: usize = 64;
    pub const SCALES: usize = 0;
    pub const MINIMA: usize = 64;
}

/// Two stored blocks, so that quants start on a cache line: scales f16 `[2][16]`, then quants
/// `[2][8][16 rows][4]`, each plus 128 so that they are unsigned.
pub mod q8_0 {
    pub const COLS: usize = 64;
    pub const SCALES: usize = 0;
    pub const QUANTS: usize = 64;
    pub const BYTES: usize = QUANTS + 1024;
}

/// Four lines of 64 numbers of six bits each: the low four bits of the lines in pairs (low nibbles one line, high ones
/// the next), then the high two bits (bits 2g and 2g + 1 belong to the g-th line).
pub mod six_bits {
    pub const LOW: usize = 0;
    pub const HIGH: usize = 128;
    pub const BYTES: usize = 192;

    /// Offset of a line's low four bits, and their left shift.
    pub fn low(line: usize) -> (usize, usize) {
        (LOW + line / 2 * 64, line % 2 * 4)
    }
}

/// Scales f16 `[16]`, scales of minima f16 `[16]`, sub-scales packed as [`six_bits`]: two lines of sub-scales `[8][16]`
/// and two of minima `[4][16][2]` (those of two neighbouring sub-blocks side by side), then quants `[32][16 rows][4]`:
/// the low nibbles are four columns, the high ones the next four.
pub mod q4k {
    use super::six_bits;

    pub const SCALES: usize = 0;
    pub const MIN_SCALES: usize = 32;
    pub const HEADS: usize = 64;
    pub const QUANTS: usize = HEADS + six_bits::BYTES;
    pub const BYTES: usize = QUANTS + 2048;
    /// Offset within the unpacked six-bit numbers.
    pub const MINIMA: usize = 128;
}

/// Like [`q4k`], then the fifth bits `[8][16 rows][4]`, a byte for each column of the four: bit 4 + g for the g-th four
/// columns of a sub-block, and bit 7 - g from the fifth four on.
pub mod q5k {
    use super::q4k;

    pub const FIFTH_BITS: usize = q4k::BYTES;
    pub const BYTES: usize = FIFTH_BITS + 512;

    /// The bit position of the g-th four columns.
    pub fn bit(g: usize) -> usize {
        if g < 4 { 4 + g } else { 7 - g }
    }
}

/// Scales f32 `[16]`, sub-scales i8 `[16][16 rows]`, then for each sub-block of sixteen columns [`six_bits`]
/// `[4][16 rows][4]`. Quants are plus 32, so unsigned.
pub mod q6k {
    use super::six_bits;

    pub const SCALES: usize = 0;
    pub const SUB_SCALES: usize = 64;
    pub const QUANTS: usize = 320;
    pub const BYTES: usize = QUANTS + 16 * six_bits::BYTES;
}

/// Like [`q6k`], then scales of minima f32 `[16]` and minima u8 `[16][16 rows]`, one for each sub-block.
pub mod q2k {
    use super::q6k;

    pub const MIN_SCALES: usize = q6k::BYTES;
    pub const MINIMA: usize = MIN_SCALES + 64;
    pub const BYTES: usize = MINIMA + 256;
}
