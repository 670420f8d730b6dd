//! Tensors of a text encoder in a single file, under the names of the folder layout.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::networks::weights::{Flaw, TensorBytes, TensorHeader, TensorSource, TensorType};

/// Some tensors of a file, renamed, cut or transposed.
pub struct TensorView<'a> {
    source: &'a dyn TensorSource,
    headers: Vec<TensorHeader>,
    pieces: HashMap<String, TensorPiece>,
}

struct TensorPiece {
    header: TensorHeader,
    rows: Option<Range<usize>>,
    is_transposed: bool,
}

/// OpenCLIP's names of a layer's parts.
const LAYER_PARTS: [(&str, &str); 5] = [
    ("attn.out_proj.", "self_attn.out_proj."),
    ("ln_1.", "layer_norm1."),
    ("ln_2.", "layer_norm2."),
    ("mlp.c_fc.", "mlp.fc1."),
    ("mlp.c_proj.", "mlp.fc2."),
];
const ENDS: [(&str, &str); 4] = [
    (
        "token_embedding.weight",
        "embeddings.token_embedding.weight",
    ),
    (
        "positional_embedding",
        "embeddings.position_embedding.weight",
    ),
    ("ln_final.weight", "final_layer_norm.weight"),
    ("ln_final.bias", "final_layer_norm.bias"),
];
/// Around the name of a layer.
const BLOCKS: &str = "transformer.resblocks.";
const PROJECTION: &str = "text_projection";
/// The scale of CLIP's text-image similarity.
const UNUSED: &str = "logit_scale";

impl<'a> TensorView<'a> {
    /// A text encoder whose names have a prefix.
    pub fn behind(source: &'a dyn TensorSource, prefix: &str) -> Self {
        let mut view = Self::empty(source);
        for header in source.headers() {
            if let Some(name) = header.name.strip_prefix(prefix) {
                view.add(name.to_owned(), header.shape.clone(), whole(header));
            }
        }
        view
    }

    /// A text encoder with OpenCLIP's names. Layers from `layers` on are unused in image generation and left out, as is
    /// the projection unless `is_projected`.
    pub fn open_clip(
        source: &'a dyn TensorSource,
        prefix: &str,
        layers: usize,
        is_projected: bool,
    ) -> Result<Self, Flaw> {
        let mut view = Self::empty(source);
        for header in source.headers() {
            let Some(name) = header.name.strip_prefix(prefix) else {
                continue;
            };
            if let Some((_, to)) = ENDS.iter().find(|(from, _)| *from == name) {
                view.add(
                    format!("text_model.{to}"),
                    header.shape.clone(),
                    whole(header),
                );
            } else if name == PROJECTION {
                if is_projected {
                    view.add_projection(header)?;
                }
            } else if let Some((index, part)) = layer_part(name) {
                if index < layers {
                    view.add_part(header, index, part)?;
                }
            } else if name != UNUSED {
                // Keeps a name that no reader requests, so that the tensor is refused as unused.
                view.add(header.name.clone(), header.shape.clone(), whole(header));
            }
        }
        Ok(view)
    }

    fn empty(source: &'a dyn TensorSource) -> Self {
        Self {
            source,
            headers: Vec::new(),
            pieces: HashMap::new(),
        }
    }

    fn add(&mut self, name: String, shape: Vec<usize>, piece: TensorPiece) {
        let header = TensorHeader::described(name.clone(), shape, piece.header.dtype);
        self.headers.push(header);
        self.pieces.insert(name, piece);
    }

    fn add_projection(&mut self, header: &TensorHeader) -> Result<(), Flaw> {
        let &[rows, columns] = header.shape.as_slice() else {
            return Err(misshapen(header, "a matrix"));
        };
        let piece = TensorPiece {
            is_transposed: true,
            ..whole(header)
        };
        self.add(
            "text_projection.weight".to_owned(),
            vec![columns, rows],
            piece,
        );
        Ok(())
    }

    fn add_part(&mut self, header: &TensorHeader, index: usize, part: &str) -> Result<(), Flaw> {
        let layer = format!("text_model.encoder.layers.{index}");
        if let Some(kind) = part.strip_prefix("attn.in_proj_") {
            let rows = header.shape.first().copied().unwrap_or(0);
            if !rows.is_multiple_of(3) || rows == 0 {
                return Err(misshapen(header, "three matrices of one size"));
            }
            let size = rows / 3;
            for (at, name) in ["q", "k", "v"].into_iter().enumerate() {
                let mut shape = header.shape.clone();
                shape[0] = size;
                let piece = TensorPiece {
                    rows: Some(at * size..(at + 1) * size),
                    ..whole(header)
                };
                self.add(
                    format!("{layer}.self_attn.{name}_proj.{kind}"),
                    shape,
                    piece,
                );
            }
            return Ok(());
        }
        let renamed = LAYER_PARTS.iter().find_map(|(from, to)| {
            let rest = part.strip_prefix(from)?;
            Some(format!("{layer}.{to}{rest}"))
        });
        let name = renamed.unwrap_or_else(|| header.name.clone());
        self.add(name, header.shape.clone(), whole(header));
        Ok(())
    }
}

/// The number of a layer and the rest of the name.
pub fn layer_part(name: &str) -> Option<(usize, &str)> {
    let (index, part) = name.strip_prefix(BLOCKS)?.split_once('.')?;
    Some((index.parse().ok()?, part))
}

fn whole(header: &TensorHeader) -> TensorPiece {
    TensorPiece {
        header: header.clone(),
        rows: None,
        is_transposed: false,
    }
}

fn misshapen(header: &TensorHeader, wanted: &str) -> Flaw {
    let what = format!("the tensor {:?}", header.name);
    Flaw::broken(what, format!("{:?}", header.shape), wanted)
}

impl TensorSource for TensorView<'_> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn headers(&self) -> &[TensorHeader] {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<&TensorHeader> {
        self.headers.iter().find(|header| header.name == name)
    }

    fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        let Some(piece) = self.pieces.get(&header.name) else {
            return TensorBytes::Owned(Vec::new());
        };
        let bytes = self.source.bytes(&piece.header);
        let rows = piece.header.shape.first().copied().unwrap_or(1).max(1);
        let row_bytes = bytes.len() / rows;
        if let Some(rows) = &piece.rows {
            let range = rows.start * row_bytes..rows.end * row_bytes;
            return bytes.part(range);
        }
        match (piece.is_transposed, piece.header.dtype) {
            (true, TensorType::Weight(dtype)) if dtype.block_size() == 1 => {
                let size = dtype.type_size();
                let columns = row_bytes / size;
                let places = (0..columns)
                    .flat_map(|column| (0..rows).map(move |row| (row * columns + column) * size));
                let numbers = places.flat_map(|at| bytes[at..at + size].iter().copied());
                TensorBytes::Owned(numbers.collect())
            }
            _ => bytes,
        }
    }
}
