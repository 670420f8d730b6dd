//! Converts PyTorch's `.ckpt`, `.pt`, `.pth` and `.bin` files to safetensors.
//!
//! A pickle is a program. This parser only records objects: classes and calls are names, and the one supported call
//! rebuilds a tensor from bytes of the same archive. Nothing is imported or executed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use candle_core::pickle::{Object, Stack};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use zip::{CompressionMethod, ZipArchive};

use super::error::{CheckpointError, Flaw};

/// Descriptions of the largest models take a few MB.
const MOST_DESCRIPTION_BYTES: u64 = 64 << 20;
/// Dictionaries inside dictionaries.
const MOST_DEPTH: usize = 4;
const MOST_DIMENSIONS: usize = 8;
const FORMAT: &str = "a zip archive of PyTorch 1.6 or newer with one data.pkl";

/// An archive whose tensor headers are known.
#[derive(Debug)]
pub struct PickledFile {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
    /// The folder of the tensors' bytes inside of the archive.
    folder: String,
    description: PickleDescription,
}

/// The content of a pickle: tensors, and names of the other entries.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PickleDescription {
    tensors: Vec<PickledTensor>,
    left_out: Vec<String>,
}

/// Why tensors were not written anew.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("writing the tensors failed: {0}")]
    Write(#[from] io::Error),
}

#[derive(Debug, Serialize, Deserialize)]
struct PickledTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    offset: usize,
    storage: String,
}

impl PickledFile {
    /// `describe` reads the pickle, which is foreign code: [`PickleDescription::read`], in a process with limits.
    pub fn open(
        path: &Path,
        describe: impl FnOnce(&[u8]) -> Result<PickleDescription, Flaw>,
    ) -> Result<Self, CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        Self::read(path, BufReader::new(file), describe).map_err(|flaw| flaw.in_file(path))
    }

    fn read(
        path: &Path,
        file: BufReader<File>,
        describe: impl FnOnce(&[u8]) -> Result<PickleDescription, Flaw>,
    ) -> Result<Self, Flaw> {
        let mut archive = ZipArchive::new(file).map_err(|error| archive_flaw(&error))?;
        let names = archive.file_names().filter_map(Result::ok);
        let names: Vec<String> = names
            .filter(|name| *name == "data.pkl" || name.ends_with("/data.pkl"))
            .map(Cow::into_owned)
            .collect();
        let [description] = names.as_slice() else {
            let found = format!("{} files named data.pkl", names.len());
            return Err(Flaw::unsupported("the archive", found, FORMAT));
        };
        let bytes = entry(&mut archive, description, MOST_DESCRIPTION_BYTES)?;
        let found = Self {
            path: path.to_owned(),
            archive,
            folder: description.replace(".pkl", ""),
            description: describe(&bytes)?,
        };
        found.description.check()?;
        Ok(found)
    }

    pub fn tensors(&self) -> usize {
        self.description.tensors.len()
    }

    /// Names of entries that are no tensors, such as the number of training steps.
    pub fn left_out(&self) -> &[String] {
        &self.description.left_out
    }

    /// Bytes of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        let bytes = self.description.tensors.iter();
        bytes
            .filter_map(|one| one.bytes().ok())
            .map(|bytes| bytes as u64)
            .sum()
    }

    /// Writes a safetensors file. `progress` gets the number of bytes written.
    pub fn write(
        &mut self,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, ConversionError> {
        let header = self.header()?;
        let mut written = 8 + header.len() as u64;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for at in 0..self.description.tensors.len() {
            let bytes = self.bytes(at).map_err(|flaw| flaw.in_file(&self.path))?;
            out.write_all(&bytes)?;
            written += bytes.len() as u64;
            progress(written);
        }
        out.flush()?;
        Ok(written)
    }

    fn header(&self) -> Result<Vec<u8>, ConversionError> {
        let mut infos = Vec::with_capacity(self.description.tensors.len());
        let mut end = 0;
        for tensor in &self.description.tensors {
            let bytes = tensor.bytes().map_err(|flaw| flaw.in_file(&self.path))?;
            let info = TensorInfo {
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                data_offsets: (end, end + bytes),
            };
            infos.push((tensor.name.clone(), info));
            end += bytes;
        }
        let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let header = Metadata::new(Some(format), infos).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&header).map_err(io::Error::other)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(header)
    }

    fn bytes(&mut self, at: usize) -> Result<Vec<u8>, Flaw> {
        let tensor = &self.description.tensors[at];
        let name = format!("{}/{}", self.folder, tensor.storage);
        let most = tensor.end()?.saturating_mul(tensor.width()) as u64;
        let storage = entry(&mut self.archive, &name, most)?;
        tensor.gather(&storage)
    }
}

impl PickleDescription {
    /// A pickle may recurse and allocate without end: call this in a process with limits.
    pub fn read(pickle: &[u8]) -> Result<Self, Flaw> {
        let mut stack = Stack::empty();
        let read = stack.read_loop(&mut Cursor::new(pickle));
        let root = read.and_then(|()| stack.finalize());
        let root = root.map_err(|error| Flaw::broken("data.pkl", error, "a pickle of tensors"))?;
        let mut found = Self::default();
        found.walk("", root, 0)?;
        found.left_out.sort();
        Ok(found)
    }

    /// Tensors under the names of their dictionaries, without the one in which trainers keep the model.
    fn walk(&mut self, name: &str, value: Object, depth: usize) -> Result<(), Flaw> {
        let entries = match value {
            Object::Dict(entries) if depth < MOST_DEPTH => entries,
            // A module with its parts.
            Object::Build { args, .. } if depth < MOST_DEPTH => {
                return self.walk(name, *args, depth + 1);
            }
            value => {
                match tensor(name, value)? {
                    Some(tensor) => self.tensors.push(tensor),
                    None => self.left_out.push(name.to_owned()),
                }
                return Ok(());
            }
        };
        let is_model = |key: &Object| matches!(key, Object::Unicode(key) if key == "state_dict");
        let has_model = entries.iter().any(|(key, _)| is_model(key));
        for (key, value) in entries {
            let is_model = is_model(&key);
            let key = match key {
                Object::Unicode(key) => key,
                Object::Int(key) => key.to_string(),
                other => return Err(Flaw::unsupported("a name", format!("{other:?}"), "text")),
            };
            let full = match name {
                "" => key,
                name => format!("{name}.{key}"),
            };
            match (has_model, is_model) {
                (true, true) => self.walk(name, value, depth + 1)?,
                // Optimizers and averages next to the model are dropped.
                (true, false) => self.left_out.push(full),
                (false, _) => self.walk(&full, value, depth + 1)?,
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Flaw> {
        if self.tensors.is_empty() {
            return Err(Flaw::broken("data.pkl", "no tensors", "at least one"));
        }
        for tensor in &self.tensors {
            tensor.bytes()?;
        }
        let mut names = HashSet::new();
        match self.tensors.iter().find(|one| !names.insert(&one.name)) {
            Some(twice) => {
                let what = format!("the tensor {:?}", twice.name);
                Err(Flaw::broken(what, "twice", "once"))
            }
            None => Ok(()),
        }
    }
}

impl PickledTensor {
    fn width(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// Refuses a tensor that repeats elements of its storage, which could claim any size.
    fn bytes(&self) -> Result<usize, Flaw> {
        let mut sides = self.shape.iter().zip(&self.strides);
        if sides.any(|(size, stride)| *size > 1 && *stride == 0) {
            return Err(self.strange());
        }
        let mut elements = self.shape.iter();
        let elements = elements.try_fold(1_usize, |product, size| product.checked_mul(*size));
        elements
            .and_then(|elements| elements.checked_mul(self.width()))
            .ok_or_else(|| self.strange())
    }

    /// The end of its elements in the storage.
    fn end(&self) -> Result<usize, Flaw> {
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let mut places = self.shape.iter().zip(&self.strides);
        let last = places.try_fold(self.offset, |sum, (size, stride)| {
            sum.checked_add((size - 1).checked_mul(*stride)?)
        });
        last.and_then(|last| last.checked_add(1))
            .ok_or_else(|| self.strange())
    }

    fn strange(&self) -> Flaw {
        let found = format!("shape {:?}, strides {:?}", self.shape, self.strides);
        let wanted = "a size whose elements are all stored";
        Flaw::broken(format!("the tensor {:?}", self.name), found, wanted)
    }

    /// Row by row, for any strides.
    fn gather(&self, storage: &[u8]) -> Result<Vec<u8>, Flaw> {
        let (width, bytes) = (self.width(), self.bytes()?);
        let end = self.end()?.saturating_mul(width);
        if end > storage.len() {
            let what = format!("the bytes of the tensor {:?}", self.name);
            return Err(Flaw::broken(what, storage.len(), format!("at least {end}")));
        }
        // Strides may overlap: no more is written than was stored.
        if bytes > storage.len() {
            return Err(self.strange());
        }
        let start = self.offset * width;
        if self.is_contiguous() {
            return Ok(storage[start..start + bytes].to_vec());
        }
        let mut gathered = Vec::with_capacity(bytes);
        let mut place = vec![0; self.shape.len()];
        while gathered.len() < bytes {
            let steps = place.iter().zip(&self.strides);
            let at = self.offset + steps.map(|(at, stride)| at * stride).sum::<usize>();
            gathered.extend_from_slice(&storage[at * width..(at + 1) * width]);
            for (place, size) in place.iter_mut().zip(&self.shape).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
        }
        Ok(gathered)
    }

    fn is_contiguous(&self) -> bool {
        let mut wanted = 1;
        self.shape
            .iter()
            .zip(&self.strides)
            .rev()
            .all(|(size, stride)| {
                let fits = *size == 1 || *stride == wanted;
                wanted *= size;
                fits
            })
    }
}

/// A tensor, if the object is the call that rebuilds one.
fn tensor(name: &str, value: Object) -> Result<Option<PickledTensor>, Flaw> {
    let Object::Reduce { callable, args } = value else {
        return Ok(None);
    };
    let Object::Class {
        module_name,
        class_name,
    } = *callable
    else {
        return Ok(None);
    };
    let Object::Tuple(args) = *args else {
        return Ok(None);
    };
    match (module_name.as_str(), class_name.as_str()) {
        // A parameter is a tensor with a mark.
        ("torch._utils", "_rebuild_parameter") => {
            let inner = args.into_iter().next();
            inner.map_or(Ok(None), |inner| tensor(name, inner))
        }
        ("torch._utils", "_rebuild_tensor_v2") => rebuilt(name, args).map(Some),
        ("torch._utils", other) if other.starts_with("_rebuild") => Err(Flaw::unsupported(
            format!("the tensor {name:?}"),
            other,
            "_rebuild_tensor_v2 and _rebuild_parameter",
        )),
        _ => Ok(None),
    }
}

/// Arguments: storage, offset, shape, strides, and training options.
fn rebuilt(name: &str, args: Vec<Object>) -> Result<PickledTensor, Flaw> {
    let broken = |what: &str| Flaw::broken(format!("the tensor {name:?}"), what, "a tensor");
    let mut args = args.into_iter();
    let (Some(storage), Some(offset), Some(shape), Some(strides)) =
        (args.next(), args.next(), args.next(), args.next())
    else {
        return Err(broken("too few arguments"));
    };
    let numbers = |list: Object| match list {
        Object::Tuple(list) => list.iter().map(number).collect::<Option<Vec<usize>>>(),
        _ => None,
    };
    let (Some(offset), Some(shape), Some(strides)) =
        (number(&offset), numbers(shape), numbers(strides))
    else {
        return Err(broken("no shape"));
    };
    if shape.len() != strides.len() || shape.len() > MOST_DIMENSIONS {
        return Err(broken("a strange shape"));
    }
    // ("storage", class, key, device, elements)
    let storage = match storage {
        Object::PersistentLoad(id) => id.tuple().ok(),
        _ => None,
    };
    let mut storage = storage.unwrap_or_default().into_iter().skip(1);
    let (Some(Object::Class { class_name, .. }), Some(Object::Unicode(key))) =
        (storage.next(), storage.next())
    else {
        return Err(broken("no storage"));
    };
    let dtype = match class_name.as_str() {
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" => Dtype::U8,
        "BoolStorage" => Dtype::BOOL,
        other => {
            let known = "storages of f64, f32, f16, bf16, whole numbers and bool";
            let what = format!("the storage of the tensor {name:?}");
            return Err(Flaw::unsupported(what, other, known));
        }
    };
    Ok(PickledTensor {
        name: name.to_owned(),
        dtype,
        shape,
        strides,
        offset,
        storage: key,
    })
}

fn number(value: &Object) -> Option<usize> {
    match value {
        Object::Int(value) => usize::try_from(*value).ok(),
        Object::Long(value) => usize::try_from(*value).ok(),
        _ => None,
    }
}

/// The start of a file in the archive, up to this many bytes.
fn entry(
    archive: &mut ZipArchive<BufReader<File>>,
    name: &str,
    most: u64,
) -> Result<Vec<u8>, Flaw> {
    let mut bytes = Vec::new();
    let found = archive
        .by_name(name)
        .map_err(|error| Flaw::broken(format!("the file {name} in the archive"), error, "one"))?;
    if found.compression() != CompressionMethod::Stored {
        let what = format!("the file {name} in the archive");
        return Err(Flaw::unsupported(
            what,
            "compressed bytes",
            "bytes as they are",
        ));
    }
    let read = found.take(most).read_to_end(&mut bytes);
    read.map_err(|error| Flaw::broken(format!("the file {name} in the archive"), error, "whole"))?;
    Ok(bytes)
}

fn archive_flaw(error: &zip::result::ZipError) -> Flaw {
    Flaw::unsupported("the file", error, FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/pickled");

    fn converted(name: &str) -> (Vec<u8>, Vec<String>) {
        let mut file =
            PickledFile::open(&Path::new(FOLDER).join(name), PickleDescription::read).unwrap();
        let mut bytes = Vec::new();
        let mut said = 0;
        let written = file.write(&mut bytes, |at| said = at).unwrap();
        assert_eq!((written, said), (bytes.len() as u64, bytes.len() as u64));
        (bytes, file.left_out().to_vec())
    }

    fn refused(name: &str) -> String {
        let opened = PickledFile::open(&Path::new(FOLDER).join(name), PickleDescription::read);
        opened.unwrap_err().to_string()
    }

    #[test]
    fn a_checkpoint_becomes_its_tensors() {
        let (bytes, left_out) = converted("checkpoint.ckpt");
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut names = file.names();
        names.sort_unstable();
        assert_eq!(
            names,
            ["model.half", "model.part", "model.turned", "model.weight"]
        );
        assert_eq!(left_out, ["epoch", "optimizer_states"]);
        let numbers = |name: &str| -> Vec<f32> {
            let view = file.tensor(name).unwrap();
            let values = view.data().chunks_exact(4);
            values
                .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
                .collect()
        };
        assert_eq!(numbers("model.weight"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        // A transposed tensor, and a column of another storage.
        assert_eq!(file.tensor("model.turned").unwrap().shape(), [3, 2]);
        assert_eq!(numbers("model.turned"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(numbers("model.part"), [4.0, 5.0]);
        assert_eq!(file.tensor("model.half").unwrap().dtype(), Dtype::F16);
    }

    #[test]
    fn nothing_is_run_and_nothing_is_skipped_in_silence() {
        // Calls os.system in PyTorch.
        let (_, left_out) = converted("hostile.pt");
        assert_eq!(left_out, ["run"]);
        assert!(!Path::new("pickle-was-run").exists());
        let error = refused("complex.pt");
        assert!(
            error.contains("\"wave\"") && error.contains("ComplexFloatStorage"),
            "{error}"
        );
        let error = refused("old.pt");
        assert!(error.contains("PyTorch 1.6 or newer"), "{error}");
        let error = refused("nothing.pt");
        assert!(error.contains("no tensors"), "{error}");
    }

    #[test]
    fn a_tensor_larger_than_its_storage_is_refused_by_name() {
        let tensor = |shape: &[usize], strides: &[usize]| PickledTensor {
            name: "wide".to_owned(),
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset: 0,
            storage: "0".to_owned(),
        };
        let refused = |tensor: PickledTensor| {
            let gathered = tensor.bytes().and_then(|_| tensor.gather(&[0; 64]));
            match gathered {
                Err(Flaw::Broken { what, .. }) => what,
                other => panic!("{other:?}"),
            }
        };
        for wide in [
            tensor(&[1 << 33], &[0]),
            tensor(&[4, 1 << 20], &[1, 0]),
            tensor(&[8, 8], &[1, 1]),
            tensor(&[usize::MAX, 2], &[1, 1]),
        ] {
            assert!(refused(wide).contains("\"wide\""));
        }
        assert!(tensor(&[4, 4], &[1, 4]).gather(&[0; 64]).is_ok());
    }

    #[test]
    fn a_file_cut_or_changed_anywhere_is_refused_or_read() {
        let whole = std::fs::read(Path::new(FOLDER).join("checkpoint.ckpt")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.ckpt");
        let mut numbers = 1_u64;
        for _ in 0..300 {
            numbers = numbers
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (numbers >> 33) as usize % whole.len();
            let mut bytes = whole.clone();
            match numbers.is_multiple_of(2) {
                true => bytes.truncate(at),
                false => bytes[at] ^= (numbers >> 8) as u8 | 1,
            }
            std::fs::write(&path, bytes).unwrap();
            if let Ok(mut file) = PickledFile::open(&path, PickleDescription::read) {
                let _ = file.write(&mut Vec::new(), |_| {});
            }
        }
    }
}
