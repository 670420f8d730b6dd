//! Matrices of four or eight bits in words of 32, as AWQ, GPTQ and compressed-tensors store them: codes, a scale for each
//! group of columns and row, and zero points. Memory has them as blocks of GGUF's Q4_0, Q4_1 or Q8_0 that hold the same numbers,
//! or as f16 where groups are no rows of whole blocks.

use std::{collections::HashMap, num::NonZero, ops::Range, thread};

use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use serde_json::Value;

use super::error::Flaw;
use super::header::{TensorHeader, TensorType};

/// How the matrices of a checkpoint are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    form: PackedForm,
    bits: usize,
    /// GPTQ's columns are quantized in a different order.
    is_ordered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PackedForm {
    /// Words along the rows of the matrix.
    Awq,
    /// Words along its columns, zero points along its rows. Files of the first version store a zero point less one.
    Gptq { less_one: bool },
    /// Words along the columns; without zero points codes are numbers with a sign.
    CompressedTensors,
}

/// The tensors that one matrix is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedMatrixParts {
    packing: Packing,
    rows: usize,
    cols: usize,
    groups: usize,
    codes: StoredRange,
    scales: StoredRange,
    scale_type: GgmlDType,
    zeros: Option<StoredRange>,
    /// The group of each column.
    order: Option<StoredRange>,
}

/// A range of bytes in the checkpoint's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRange {
    pub file: usize,
    pub range: Range<usize>,
}

/// Which of the eight rows of a word of AWQ's each of its four bits belong to.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
/// Columns of a block of Q4_0, Q4_1 and Q8_0.
const BLOCK: usize = 32;
/// Rows that are unpacked together.
const TILE: usize = 16;
const I32: &str = "I32";

impl Packing {
    /// `None` if the configuration declares no such format; other formats of these methods are refused by name.
    pub fn of(config: &Value) -> Result<Option<Self>, Flaw> {
        let config = match &config["quantization_config"] {
            Value::Null => &config["compression_config"],
            config => config,
        };
        let bits = |value: &Value| {
            let bits = value.as_u64().unwrap_or(4);
            match bits {
                4 | 8 => Ok(bits as usize),
                other => Err(refused(format!("weights of {other} bits"))),
            }
        };
        let packing = |form, bits| Self {
            form,
            bits,
            is_ordered: false,
        };
        match config["quant_method"].as_str() {
            Some("awq") => {
                let version = config["version"].as_str().unwrap_or("gemm");
                if !version.eq_ignore_ascii_case("gemm") {
                    return Err(refused(format!("awq in the version {version}")));
                }
                match bits(&config["bits"])? {
                    4 => Ok(Some(packing(PackedForm::Awq, 4))),
                    _ => Err(refused("awq with weights of 8 bits")),
                }
            }
            Some("gptq") => {
                let less_one = config["checkpoint_format"].as_str() != Some("gptq_v2");
                Ok(Some(Self {
                    is_ordered: config["desc_act"] == true,
                    ..packing(PackedForm::Gptq { less_one }, bits(&config["bits"])?)
                }))
            }
            Some("compressed-tensors") if config["format"] == "pack-quantized" => {
                let groups = config["config_groups"].as_object();
                let groups: Vec<&Value> = groups.into_iter().flat_map(|it| it.values()).collect();
                let [group] = groups.as_slice() else {
                    let found = format!("{} groups of layers", groups.len());
                    return Err(refused(format!("compressed-tensors with {found}")));
                };
                let weights = &group["weights"];
                if weights["type"].as_str().is_some_and(|it| it != "int") {
                    return Err(refused(format!("packed {}", weights["type"])));
                }
                let bits = bits(&weights["num_bits"])?;
                Ok(Some(packing(PackedForm::CompressedTensors, bits)))
            }
            _ => Ok(None),
        }
    }

    /// The headers with one for each packed matrix in place of its parts.
    pub fn matrices(self, headers: &[TensorHeader]) -> Result<Vec<TensorHeader>, Flaw> {
        let names = self.form.names();
        let named = headers.iter().map(|header| (header.name.as_str(), header));
        let by_name: HashMap<&str, &TensorHeader> = named.collect();
        let mut matrices = Vec::new();
        for header in headers {
            if let Some(stem) = header.name.strip_suffix(names.codes) {
                let part = |suffix: &str| by_name.get(format!("{stem}{suffix}").as_str()).copied();
                matrices.push(self.matrix(stem, header, part)?);
            }
        }
        let is_part = |header: &TensorHeader| {
            let suffixes = [
                names.codes,
                names.scales,
                names.zeros,
                names.order,
                names.shape,
            ];
            let stem = suffixes
                .iter()
                .filter(|suffix| !suffix.is_empty())
                .find_map(|suffix| header.name.strip_suffix(*suffix));
            stem.is_some_and(|stem| by_name.contains_key(format!("{stem}{}", names.codes).as_str()))
        };
        let rest = headers.iter().filter(|header| !is_part(header)).cloned();
        matrices.extend(rest);
        Ok(matrices)
    }

    fn matrix<'a>(
        self,
        stem: &str,
        codes: &TensorHeader,
        part: impl Fn(&str) -> Option<&'a TensorHeader>,
    ) -> Result<TensorHeader, Flaw> {
        let names = self.form.names();
        let what = |suffix: &str| format!("the tensor {:?}", format!("{stem}{suffix}"));
        let in_word = 32 / self.bits;
        let broken = |suffix: &str, header: Option<&TensorHeader>, wanted: String| {
            let found = match header {
                Some(header) => format!("{} of shape {:?}", header.dtype, header.shape),
                None => "nothing".to_owned(),
            };
            Flaw::broken(what(suffix), found, wanted)
        };
        let is_words = |header: &TensorHeader, shape: [usize; 2]| {
            let is_i32 = matches!(header.dtype, TensorType::Other { name: I32, .. });
            is_i32 && header.shape == shape
        };
        let [first, second] = codes.shape.as_slice() else {
            return Err(broken(
                names.codes,
                Some(codes),
                "a matrix of I32".to_owned(),
            ));
        };
        let (rows, cols) = match self.form {
            PackedForm::Awq => (second.saturating_mul(in_word), *first),
            PackedForm::Gptq { .. } => (*second, first.saturating_mul(in_word)),
            PackedForm::CompressedTensors => (*first, second.saturating_mul(in_word)),
        };
        if rows == 0 || cols == 0 || !is_words(codes, [*first, *second]) {
            return Err(broken(
                names.codes,
                Some(codes),
                "a matrix of I32".to_owned(),
            ));
        }
        let scales = part(names.scales);
        let is_by_row = self.form == PackedForm::CompressedTensors;
        let groups = scales.and_then(|scales| match (scales.shape.as_slice(), is_by_row) {
            ([found, groups], true) if *found == rows => Some(*groups),
            ([groups, found], false) if *found == rows => Some(*groups),
            _ => None,
        });
        let groups = groups.filter(|groups| *groups > 0 && cols.is_multiple_of(*groups));
        let (Some(scales), Some(groups)) = (scales, groups) else {
            let wanted = format!("scales for groups of the {cols} columns of {rows} rows");
            return Err(broken(names.scales, scales, wanted));
        };
        let TensorType::Weight(scale_type @ (GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)) =
            scales.dtype
        else {
            let wanted = "f32, f16 or bf16".to_owned();
            return Err(broken(names.scales, Some(scales), wanted));
        };
        let zeros = part(names.zeros);
        let zero_shape = match is_by_row {
            true => [rows.div_ceil(in_word), groups],
            false => [groups, rows.div_ceil(in_word)],
        };
        if zeros.is_some_and(|zeros| !is_words(zeros, zero_shape))
            || (zeros.is_none() && !is_by_row)
        {
            return Err(broken(
                names.zeros,
                zeros,
                format!("I32 of shape {zero_shape:?}"),
            ));
        }
        let order = part(names.order).filter(|_| self.is_ordered || is_by_row);
        if let Some(order) = order {
            let is_order = matches!(order.dtype, TensorType::Other { name: I32, .. });
            if !is_order || order.shape != [cols] {
                return Err(broken(
                    names.order,
                    Some(order),
                    format!("I32 of shape [{cols}]"),
                ));
            }
        }
        let parts = PackedMatrixParts {
            packing: self,
            rows,
            cols,
            groups,
            codes: codes.place(),
            scales: scales.place(),
            scale_type,
            zeros: zeros.map(TensorHeader::place),
            order: order.map(TensorHeader::place),
        };
        let name = format!("{stem}.weight");
        Ok(TensorHeader::packed(name, vec![rows, cols], parts))
    }
}

/// Suffixes of a layer's tensors.
struct PartNames {
    codes: &'static str,
    scales: &'static str,
    zeros: &'static str,
    order: &'static str,
    shape: &'static str,
}

impl PackedForm {
    fn names(self) -> PartNames {
        match self {
            Self::Awq | Self::Gptq { .. } => PartNames {
                codes: ".qweight",
                scales: ".scales",
                zeros: ".qzeros",
                order: ".g_idx",
                shape: "",
            },
            Self::CompressedTensors => PartNames {
                codes: ".weight_packed",
                scales: ".weight_scale",
                zeros: ".weight_zero_point",
                order: ".weight_g_idx",
                shape: ".weight_shape",
            },
        }
    }
}

fn refused(found: impl ToString) -> Flaw {
    let known =
        "AWQ (version gemm), GPTQ and packed compressed-tensors with weights of 4 or 8 bits";
    Flaw::unsupported("quantization_config", found, known)
}

impl PackedMatrixParts {
    /// The type that holds the same numbers.
    pub fn held(&self) -> GgmlDType {
        let group = self.cols / self.groups;
        let is_whole = group.is_multiple_of(BLOCK) && self.order.is_none();
        match (is_whole, self.packing.bits, &self.zeros) {
            (true, 4, None) => GgmlDType::Q4_0,
            (true, 4, Some(_)) => GgmlDType::Q4_1,
            (true, 8, None) => GgmlDType::Q8_0,
            _ => GgmlDType::F16,
        }
    }

    /// All the places that it is read from.
    pub fn places(&self) -> impl Iterator<Item = &StoredRange> {
        let optional = self.zeros.iter().chain(&self.order);
        [&self.codes, &self.scales].into_iter().chain(optional)
    }

    /// The matrix as [`Self::held`], on all the machine's threads.
    pub fn converted<'a>(&self, bytes: impl Fn(&StoredRange) -> &'a [u8]) -> Vec<u8> {
        let numbers = Numbers {
            parts: self,
            codes: bytes(&self.codes),
            scales: bytes(&self.scales),
            zeros: self.zeros.as_ref().map(&bytes),
            groups: self.groups_of_columns(self.order.as_ref().map(&bytes)),
        };
        let held = self.held();
        let row_bytes = self.cols / held.block_size() * held.type_size();
        let mut out = vec![0; self.rows * row_bytes];
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let tiles = self.rows.div_ceil(TILE).div_ceil(threads).max(1);
        let numbers = &numbers;
        thread::scope(|scope| {
            for (part, out) in out.chunks_mut(tiles * TILE * row_bytes).enumerate() {
                scope.spawn(move || {
                    let mut codes = vec![0; TILE * self.cols];
                    for (tile, out) in out.chunks_mut(TILE * row_bytes).enumerate() {
                        let first = (part * tiles + tile) * TILE;
                        numbers.tile(first, &mut codes);
                        for (row, out) in out.chunks_mut(row_bytes).enumerate() {
                            let codes = &codes[row * self.cols..(row + 1) * self.cols];
                            numbers.write(first + row, codes, held, out);
                        }
                    }
                });
            }
        });
        out
    }

    fn groups_of_columns(&self, order: Option<&[u8]>) -> Vec<usize> {
        let group = self.cols / self.groups;
        match order {
            Some(order) => (0..self.cols)
                .map(|col| (word(order, col) as usize).min(self.groups - 1))
                .collect(),
            None => (0..self.cols).map(|col| col / group).collect(),
        }
    }
}

/// A matrix that is being unpacked.
struct Numbers<'a> {
    parts: &'a PackedMatrixParts,
    codes: &'a [u8],
    scales: &'a [u8],
    zeros: Option<&'a [u8]>,
    /// The group of each column.
    groups: Vec<usize>,
}

impl Numbers<'_> {
    /// The codes of some rows, each of all columns.
    fn tile(&self, first: usize, out: &mut [u8]) {
        let &PackedMatrixParts {
            packing,
            rows,
            cols,
            ..
        } = self.parts;
        let Packing { form, bits, .. } = packing;
        let in_word = 32 / bits;
        let count = TILE.min(rows - first);
        let piece = |word: u32, at: usize| (word >> (at * bits) & ((1 << bits) - 1)) as u8;
        match form {
            PackedForm::Awq => {
                // Tiles are whole words.
                for col in 0..cols {
                    for at in 0..count / in_word {
                        let word = word(self.codes, col * (rows / in_word) + first / in_word + at);
                        for (nibble, row) in AWQ_ORDER.into_iter().enumerate() {
                            out[(at * in_word + row) * cols + col] = piece(word, nibble);
                        }
                    }
                }
            }
            PackedForm::Gptq { .. } => {
                for words in 0..cols / in_word {
                    for row in 0..count {
                        let word = word(self.codes, words * rows + first + row);
                        for at in 0..in_word {
                            out[row * cols + words * in_word + at] = piece(word, at);
                        }
                    }
                }
            }
            PackedForm::CompressedTensors => {
                for row in 0..count {
                    let words = cols / in_word;
                    for at in 0..words {
                        let word = word(self.codes, (first + row) * words + at);
                        for place in 0..in_word {
                            out[row * cols + at * in_word + place] = piece(word, place);
                        }
                    }
                }
            }
        }
    }

    fn scale(&self, row: usize, group: usize) -> f32 {
        let &PackedMatrixParts { rows, groups, .. } = self.parts;
        let at = match self.parts.packing.form {
            PackedForm::CompressedTensors => row * groups + group,
            _ => group * rows + row,
        };
        let pair = || [self.scales[2 * at], self.scales[2 * at + 1]];
        match self.parts.scale_type {
            GgmlDType::F16 => f16::from_le_bytes(pair()).to_f32(),
            GgmlDType::BF16 => bf16::from_le_bytes(pair()).to_f32(),
            _ => f32::from_bits(word(self.scales, at)),
        }
    }

    /// The zero point.
    fn zero(&self, row: usize, group: usize) -> i32 {
        let &PackedMatrixParts {
            packing,
            rows,
            groups,
            ..
        } = self.parts;
        let Packing { form, bits, .. } = packing;
        let in_word = 32 / bits;
        let Some(zeros) = self.zeros else {
            return 1 << (bits - 1);
        };
        let (at, place) = (row / in_word, row % in_word);
        let (index, place) = match form {
            PackedForm::Awq => {
                let nibble = AWQ_ORDER.iter().position(|it| *it == place);
                (group * (rows / in_word) + at, nibble.unwrap_or(0))
            }
            PackedForm::Gptq { .. } => (group * rows.div_ceil(in_word) + at, place),
            PackedForm::CompressedTensors => (at * groups + group, place),
        };
        let stored = (word(zeros, index) >> (place * bits) & ((1 << bits) - 1)) as i32;
        match form {
            PackedForm::Gptq { less_one: true } => stored + 1,
            _ => stored,
        }
    }

    fn write(&self, row: usize, codes: &[u8], held: GgmlDType, out: &mut [u8]) {
        if held == GgmlDType::F16 {
            for ((&code, &group), out) in codes.iter().zip(&self.groups).zip(out.chunks_mut(2)) {
                let number =
                    self.scale(row, group) * (i32::from(code) - self.zero(row, group)) as f32;
                out.copy_from_slice(&f16::from_f32(number).to_le_bytes());
            }
            return;
        }
        for ((index, codes), out) in codes
            .chunks_exact(BLOCK)
            .enumerate()
            .zip(out.chunks_mut(held.type_size()))
        {
            let group = self.groups[index * BLOCK];
            let scale = self.scale(row, group);
            let (scales, out) = match held {
                GgmlDType::Q4_1 => out.split_at_mut(4),
                _ => out.split_at_mut(2),
            };
            scales[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            if held == GgmlDType::Q8_0 {
                for (code, out) in codes.iter().zip(out) {
                    *out = code.wrapping_sub(128);
                }
                continue;
            }
            if held == GgmlDType::Q4_1 {
                let least = -scale * self.zero(row, group) as f32;
                scales[2..].copy_from_slice(&f16::from_f32(least).to_le_bytes());
            }
            let (low, high) = codes.split_at(BLOCK / 2);
            for ((low, high), out) in low.iter().zip(high).zip(out) {
                *out = low | high << 4;
            }
        }
    }
}

fn word(words: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&words[4 * at..4 * at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const WORDS: TensorType = TensorType::Other {
        name: I32,
        size_bytes: 4,
    };
    const HALVES: TensorType = TensorType::Weight(GgmlDType::F16);

    fn packing(config: Value) -> Result<Option<Packing>, Flaw> {
        Packing::of(&json!({"quantization_config": config}))
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        for (config, wanted) in [
            (json!({"quant_method": "awq", "version": "gemv"}), "gemv"),
            (
                json!({"quant_method": "awq", "bits": 8}),
                "awq with weights of 8 bits",
            ),
            (
                json!({"quant_method": "gptq", "bits": 3}),
                "weights of 3 bits",
            ),
            (
                json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {}, "b": {}}}),
                "2 groups of layers",
            ),
        ] {
            let flaw = packing(config).unwrap_err();
            let found = flaw
                .in_file(std::path::Path::new("config.json"))
                .to_string();
            assert!(found.contains(wanted), "{found}");
        }
        assert_eq!(packing(json!({"quant_method": "fp8"})).unwrap(), None);
        assert_eq!(Packing::of(&Value::Null).unwrap(), None);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let gptq = packing(json!({"quant_method": "gptq", "desc_act": true}));
        let gptq = gptq.unwrap().unwrap();
        let whole = [
            ("a.qweight", vec![8, 16], WORDS),
            ("a.qzeros", vec![2, 2], WORDS),
            ("a.scales", vec![2, 16], HALVES),
            ("a.g_idx", vec![64], WORDS),
        ];
        let headers = |parts: &[(&str, Vec<usize>, TensorType)]| {
            let header = |(name, shape, dtype): &(&str, Vec<usize>, TensorType)| {
                TensorHeader::described((*name).to_owned(), shape.clone(), *dtype)
            };
            parts.iter().map(header).collect::<Vec<_>>()
        };
        let matrices = gptq.matrices(&headers(&whole)).unwrap();
        assert_eq!(matrices.len(), 1);
        assert_eq!(
            (matrices[0].name.as_str(), matrices[0].shape.as_slice()),
            ("a.weight", &[16, 64][..])
        );
        assert_eq!(matrices[0].dtype, HALVES);
        for (at, shape, dtype, wanted) in [
            (0, vec![8], WORDS, "a.qweight"),
            (0, vec![0, 16], WORDS, "a.qweight"),
            (0, vec![8, 16], HALVES, "a.qweight"),
            (1, vec![2, 3], WORDS, "a.qzeros"),
            (1, vec![2, 2], HALVES, "a.qzeros"),
            (2, vec![0, 16], HALVES, "a.scales"),
            (2, vec![3, 16], HALVES, "a.scales"),
            (2, vec![2, 17], HALVES, "a.scales"),
            (2, vec![2, 16], WORDS, "a.scales"),
            (3, vec![63], WORDS, "a.g_idx"),
        ] {
            let mut parts = whole.to_vec();
            parts[at] = (parts[at].0, shape, dtype);
            let flaw = gptq.matrices(&headers(&parts)).unwrap_err();
            let found = flaw
                .in_file(std::path::Path::new("m.safetensors"))
                .to_string();
            assert!(found.contains(wanted), "{found}");
        }
        let flaw = gptq.matrices(&headers(&whole[..2])).unwrap_err();
        assert!(
            flaw.in_file(std::path::Path::new("m"))
                .to_string()
                .contains("found nothing")
        );
    }
}
