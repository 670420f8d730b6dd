//! Copies of models for tests, with networks in GGUF files.

use std::fs;
use std::path::Path;

use candle_core::quantized::GgmlDType;

use super::weights::{Checkpoint, GgufWriter, TensorType, quantized};

pub fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                fs::create_dir(&target).unwrap();
                copy_folder(&entry.path(), &target);
            }
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Converts a folder's network to a GGUF file next to its `config.json`, by [`write_gguf`].
pub fn put_in_gguf(
    folder: &Path,
    dtype: Option<GgmlDType>,
    rename: impl Fn(&str) -> Option<String>,
) -> usize {
    let stored = Checkpoint::open(folder).unwrap();
    let count = write_gguf(&stored, &folder.join("any.gguf"), dtype, rename);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "safetensors") {
            fs::remove_file(path).unwrap();
        }
    }
    count
}

/// Writes tensors to a GGUF file. Matrices whose rows are whole blocks of `dtype` get that type, others keep theirs.
/// `rename` drops tensors by returning `None`. Returns the number of matrices in blocks.
pub fn write_gguf(
    stored: &Checkpoint,
    file: &Path,
    dtype: Option<GgmlDType>,
    rename: impl Fn(&str) -> Option<String>,
) -> usize {
    let mut writer = GgufWriter::default();
    writer.text("general.architecture", "any");
    let (mut contents, mut count) = (Vec::new(), 0);
    for header in stored.tensors() {
        let (Some(name), TensorType::Weight(own)) = (rename(&header.name), header.dtype) else {
            continue;
        };
        let mut bytes = stored.bytes(header).to_vec();
        let mut shape = header.shape.as_slice();
        // A mark without numbers: GGUF has no empty tensors.
        if shape.contains(&0) {
            shape = &[1];
            bytes.resize(own.type_size(), 0);
        }
        let inputs = shape.last().copied().unwrap_or(1);
        let fits = |dtype: &GgmlDType| {
            shape.len() == 2
                && inputs.is_multiple_of(dtype.block_size())
                && !header.name.contains("relative")
        };
        match dtype.filter(fits) {
            Some(dtype) => {
                count += 1;
                writer.tensor(name, shape, dtype);
                contents.push(quantized(own, &bytes, inputs, dtype).unwrap());
            }
            None => {
                writer.tensor(name, shape, own);
                contents.push(bytes);
            }
        }
    }
    let out = fs::File::create(file).unwrap();
    writer
        .write(out, |index| Ok(std::mem::take(&mut contents[index])))
        .unwrap();
    count
}
