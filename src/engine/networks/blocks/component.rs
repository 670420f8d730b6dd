//! The tensors of one component, found by the names of the folder layout wherever they are stored.

use std::collections::HashSet;

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};

use crate::networks::adapter::{LayerId, LayerShape, LayerTable, Pass, StoredLayer};
use crate::networks::layers::{Embedding, Linear};
use crate::networks::weights::{
    Flaw, Quantize, TensorBytes, TensorHeader, TensorSource, Weight, convert,
};
use muster_kernels::{self as kernels, Axis, Convolution, Edges};

/// Types of tensors.
pub const KNOWN_TYPES: &str = "f32, f16, bf16 and the blocks of GGUF files";
const FINITE: &str = "finite numbers; the file is damaged, download or convert it again";

/// A component's tensors and their naming scheme.
#[derive(Clone, Copy)]
pub struct ComponentSource<'a> {
    pub tensors: &'a dyn TensorSource,
    pub layout: Layout,
    pub device: &'a Device,
    /// Quantize the matrices of linear layers.
    pub quantize: Option<Quantize>,
}

/// The naming of a file's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A folder for each component, as diffusers keeps them.
    Folder,
    /// One file for all components, the original layout of Stable Diffusion.
    SingleFile,
}

/// Places one tensor after the other, and remembers which were used.
pub struct ComponentReader<'a> {
    source: ComponentSource<'a>,
    /// Converts names of the folder layout to those of the file.
    rename: Box<dyn Fn(&str) -> String + 'a>,
    /// Another name of a layer, in files of adapters.
    alias: Box<dyn Fn(&str) -> String + 'a>,
    layers: LayerTable,
    used: HashSet<String>,
}

impl<'a> ComponentReader<'a> {
    pub fn new(source: ComponentSource<'a>, rename: impl Fn(&str) -> String + 'a) -> Self {
        Self {
            source,
            rename: Box::new(rename),
            alias: Box::new(str::to_owned),
            layers: LayerTable::default(),
            used: HashSet::new(),
        }
    }

    /// Sets alternative layer names, for adapters.
    pub fn with_alias(mut self, alias: impl Fn(&str) -> String + 'a) -> Self {
        self.alias = Box::new(alias);
        self
    }

    /// The layers that were read.
    pub fn into_layers(self) -> LayerTable {
        self.layers
    }

    fn layer(&mut self, name: &str, shape: LayerShape, stored: StoredLayer) -> LayerId {
        let names = [name.to_owned(), (self.alias)(name)];
        self.layers.add(&names, shape, stored)
    }

    pub fn convolution(
        &mut self,
        name: &str,
        [outputs, inputs, kernel]: [usize; 3],
        axis: Axis,
    ) -> Result<ConvolutionLayer, Flaw> {
        let shape = [outputs, inputs, kernel, kernel];
        let (header, dtype, bytes) = self.find(&format!("{name}.weight"), &[&shape])?;
        let weight = self.dense(&header, dtype, &bytes)?;
        let bias = self.vector(&format!("{name}.bias"), outputs)?;
        let stored = StoredLayer {
            dtype,
            weight: bytes.in_file(),
            bias: Some(bias.clone()),
        };
        let shape = LayerShape {
            outputs,
            inputs,
            kernel,
            axis: Some(axis),
        };
        Ok(ConvolutionLayer {
            convolution: Convolution::new(&weight, Some(&bias), [axis; 2], 1)?,
            layer: self.layer(name, shape, stored),
        })
    }

    /// Whether the tensor exists.
    pub fn has(&self, name: &str) -> bool {
        let name = (self.rename)(name);
        self.source.tensors.header(&name).is_some()
    }

    /// Whether a matrix is stored in blocks, or becomes so.
    pub fn is_in_blocks(&self, name: &str) -> bool {
        let header = self.source.tensors.header(&(self.rename)(name));
        let is_stored_so = header.is_some_and(|header| header.dtype.block_size() > 1);
        is_stored_so || self.source.quantize.is_some()
    }

    /// A linear layer, which some files store as a convolution of one place.
    pub fn projection(
        &mut self,
        name: &str,
        (outputs, inputs): (usize, usize),
        has_bias: bool,
    ) -> Result<Projection, Flaw> {
        let shapes: [&[usize]; 3] = [
            &[outputs, inputs],
            &[outputs, inputs, 1, 1],
            &[outputs, inputs, 1, 1, 1],
        ];
        self.projection_stored(name, (outputs, inputs), has_bias, &shapes)
    }

    /// A linear layer whose matrix is stored in one of these shapes.
    pub fn projection_stored(
        &mut self,
        name: &str,
        (outputs, inputs): (usize, usize),
        has_bias: bool,
        shapes: &[&[usize]],
    ) -> Result<Projection, Flaw> {
        let bias = match has_bias {
            true => Some(self.vector(&format!("{name}.bias"), outputs)?),
            false => None,
        };
        let shape = LayerShape {
            outputs,
            inputs,
            kernel: 1,
            axis: None,
        };
        let (header, dtype, bytes) = self.find(&format!("{name}.weight"), shapes)?;
        let stored = StoredLayer {
            dtype,
            weight: bytes.in_file(),
            bias: bias.clone(),
        };
        let layer = self.layer(name, shape, stored);
        let target = self.source.quantize;
        let target = target.and_then(|quantize| quantize.target(inputs, false));
        let target = target.filter(|_| convert::is_dense(dtype));
        if self.source.device.is_cpu() && target.is_none() && convert::is_dense(dtype) {
            let weight = self.dense(&header, dtype, &bytes)?;
            let product = Convolution::product(&weight.reshape((outputs, inputs))?, bias.as_ref())?;
            return Ok(Projection {
                product: Product::Dense(product),
                layer,
            });
        }
        let shape = (outputs, inputs);
        let weight = match target {
            Some(target) => {
                let quantized = convert::quantized(dtype, &bytes, inputs, target)?;
                Weight::place(target, &quantized, shape, self.source.device, None)?
            }
            None => Weight::place(dtype, &bytes, shape, self.source.device, None)?,
        };
        Ok(Projection {
            product: Product::Weight(Linear { weight, bias }),
            layer,
        })
    }

    /// A linear layer for few rows at a time.
    pub fn linear(
        &mut self,
        name: &str,
        (outputs, inputs): (usize, usize),
        has_bias: bool,
    ) -> Result<Linear, Flaw> {
        let bias = match has_bias {
            true => Some(self.vector(&format!("{name}.bias"), outputs)?),
            false => None,
        };
        let weight = self.matrix(&format!("{name}.weight"), (outputs, inputs))?;
        Ok(Linear { weight, bias })
    }

    /// A matrix for products with few rows, quantized if requested.
    pub fn matrix(&mut self, name: &str, shape: (usize, usize)) -> Result<Weight, Flaw> {
        let (_, dtype, bytes) = self.find(name, &[&[shape.0, shape.1]])?;
        let target = self.source.quantize;
        let target = target.and_then(|quantize| quantize.target(shape.1, false));
        let device = self.source.device;
        Ok(match target.filter(|_| convert::is_dense(dtype)) {
            Some(target) => {
                let quantized = convert::quantized(dtype, &bytes, shape.1, target)?;
                Weight::place(target, &quantized, shape, device, None)?
            }
            None => Weight::place(dtype, &bytes, shape, device, None)?,
        })
    }

    /// A convolution along one axis.
    pub fn convolution_along(
        &mut self,
        name: &str,
        [outputs, inputs, kernel]: [usize; 3],
        axis: Axis,
    ) -> Result<Convolution, Flaw> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs, kernel])?;
        let bias = self.vector(&format!("{name}.bias"), outputs)?;
        let axes = [Axis::default(), axis];
        Ok(Convolution::new(&weight, Some(&bias), axes, 1)?)
    }

    /// A convolution over several maps, `[outputs, inputs, maps, height, width]`, as one over their concatenated
    /// channels, those of the first map first.
    pub fn convolution_of_maps(
        &mut self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        [maps, height, width]: [usize; 3],
        axes: [Axis; 2],
    ) -> Result<Convolution, Flaw> {
        let shape = [outputs, inputs, maps, height, width];
        let weight = self.tensor(&format!("{name}.weight"), &shape)?;
        let joined = weight.permute((0, 2, 1, 3, 4))?.contiguous()?;
        let joined = joined.reshape((outputs, maps * inputs, height, width))?;
        let bias = self.vector(&format!("{name}.bias"), outputs)?;
        Ok(Convolution::new(&joined, Some(&bias), axes, 1)?)
    }

    /// Numbers that files store in one of these shapes, in f32.
    pub fn numbers(&mut self, name: &str, shapes: &[&[usize]]) -> Result<Tensor, Flaw> {
        let (header, dtype, bytes) = self.find(name, shapes)?;
        let numbers = self.dense(&header, dtype, &bytes)?;
        Ok(numbers.to_dtype(DType::F32)?)
    }

    pub fn norm(&mut self, name: &str, channels: usize, eps: f64) -> Result<AffineNorm, Flaw> {
        Ok(AffineNorm {
            weight: self.vector(&format!("{name}.weight"), channels)?,
            bias: self.vector(&format!("{name}.bias"), channels)?,
            eps,
        })
    }

    pub fn table(&mut self, name: &str, shape: (usize, usize)) -> Result<Tensor, Flaw> {
        let table = self.tensor(name, &[shape.0, shape.1])?;
        Ok(table.to_dtype(DType::F32)?)
    }

    /// A table whose rows are read on demand.
    pub fn embedding(
        &mut self,
        name: &str,
        (rows, cols): (usize, usize),
    ) -> Result<Embedding, Flaw> {
        let (_, dtype, bytes) = self.find_unread(name, &[&[rows, cols]])?;
        let device = self.source.device;
        Ok(Embedding::place(
            dtype,
            bytes,
            (rows, cols),
            device,
            DType::F32,
        )?)
    }

    pub fn vector(&mut self, name: &str, size: usize) -> Result<Tensor, Flaw> {
        Ok(self.tensor(name, &[size])?.to_dtype(DType::F32)?)
    }

    /// A tensor that must be there in this shape: dense as it is stored, or the numbers of its blocks in f32.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, Flaw> {
        let (header, dtype, bytes) = self.find(name, &[shape])?;
        self.dense(&header, dtype, &bytes)
    }

    fn dense(
        &self,
        header: &TensorHeader,
        stored: GgmlDType,
        bytes: &[u8],
    ) -> Result<Tensor, Flaw> {
        let device = self.source.device;
        let Some(dtype) = convert::dense_dtype(stored) else {
            let numbers = convert::floats(stored, bytes)?;
            return Ok(Tensor::from_vec(numbers, header.shape.as_slice(), device)?);
        };
        Ok(Tensor::from_raw_buffer(
            bytes,
            dtype,
            &header.shape,
            device,
        )?)
    }

    /// A tensor that must be there, without a number that is none.
    fn find(
        &mut self,
        name: &str,
        shapes: &[&[usize]],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let (header, dtype, bytes) = self.find_unread(name, shapes)?;
        match convert::first_odd(dtype, &bytes)? {
            None => Ok((header, dtype, bytes)),
            Some(odd) => {
                let what = format!("the tensor {:?}", header.name);
                Err(Flaw::broken(what, odd, FINITE))
            }
        }
    }

    fn find_unread(
        &mut self,
        name: &str,
        shapes: &[&[usize]],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let name = (self.rename)(name);
        let found = self.source.tensors.weight(&name, shapes, KNOWN_TYPES)?;
        self.used.insert(name);
        Ok(found)
    }

    /// Refuses a file with unused tensors, except for those without weights: the network would compute something else.
    /// `is_ours` selects the tensors of this component.
    pub fn check_nothing_was_ignored(&self, is_ours: impl Fn(&str) -> bool) -> Result<(), Flaw> {
        let names = self.source.tensors.headers().iter();
        let names = names.map(|header| header.name.as_str());
        let ignored = |name: &&str| {
            is_ours(name) && !self.used.contains(*name) && !name.ends_with("position_ids")
        };
        match names.filter(ignored).min() {
            None => Ok(()),
            Some(name) => Err(Flaw::unsupported(
                format!("the tensor {name:?}"),
                "a tensor that this network does not use",
                "the tensors that the network's settings ask for",
            )),
        }
    }
}

/// A convolution that adapters can change.
#[derive(Debug)]
pub struct ConvolutionLayer {
    convolution: Convolution,
    layer: LayerId,
}

impl ConvolutionLayer {
    pub fn forward(&self, x: &Tensor, pass: Pass) -> candle_core::Result<Tensor> {
        let y = self.convolution.apply_with(x, pass.edges)?;
        pass.adapt(self.layer, x, y)
    }
}

/// A linear layer over the last dimension, that adapters can change.
#[derive(Debug)]
pub struct Projection {
    product: Product,
    layer: LayerId,
}

#[derive(Debug)]
enum Product {
    /// The convolution kernel, for many rows of dense weights.
    Dense(Convolution),
    Weight(Linear),
}

impl Projection {
    /// Without adapters.
    pub fn apply(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.forward(x, Pass::plain(Edges::Zeros))
    }

    pub fn forward(&self, x: &Tensor, pass: Pass) -> candle_core::Result<Tensor> {
        pass.adapt(self.layer, x, self.product.forward(x)?)
    }
}

impl Product {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Self::Dense(product) => match x.rank() {
                2 => product.apply(&x.unsqueeze(0)?)?.squeeze(0),
                _ => product.apply(x),
            },
            Self::Weight(linear) => {
                let mut shape = x.dims().to_vec();
                let inputs = shape.pop().unwrap_or(0);
                let flat = linear.forward(&x.reshape(((), inputs))?)?;
                shape.push(flat.dim(1)?);
                flat.reshape(shape)
            }
        }
    }
}

/// A norm over channels: of each row, or of groups of channels over a whole map.
#[derive(Debug)]
pub struct AffineNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl AffineNorm {
    pub fn of_rows(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        kernels::layer_norm(x, Some(&self.weight), Some(&self.bias), self.eps)
    }

    pub fn of_groups(&self, x: &Tensor, groups: usize) -> candle_core::Result<Tensor> {
        kernels::group_norm(x, groups, Some(&self.weight), Some(&self.bias), self.eps)
    }
}
