//! Launches our CUDA kernels: operands, uninitialized results, and the loaded module.

#![expect(
    unsafe_code,
    reason = "room is taken that a kernel fills, and kernels are launched with raw arguments"
)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaModule, CudaSlice, CudaStream, CudaView, DevicePtr, DeviceRepr, LaunchConfig,
    PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::op::BackpropOp;
use candle_core::{
    CudaDevice, CudaStorage, DType, Device, Result, Storage, StorageRef, Tensor, bail,
};
use half::{bf16, f16};

use super::trial::{Operation, is_faulty};

/// `kernels.cu`, compiled by the build for compute capability 8.0 and later: machine code for existing GPUs, and PTX
/// for future ones.
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// Default number of threads per block.
pub const THREADS: u32 = 256;
/// Threads of a warp.
pub const WARP: u32 = 32;

/// A tensor's numbers, held while a kernel is launched.
pub struct DeviceOperand<'a> {
    storage: StorageRef<'a>,
    range: (usize, usize),
}

impl<'a> DeviceOperand<'a> {
    /// The tensor is contiguous.
    pub fn of(x: &'a Tensor) -> Result<Self> {
        let (storage, layout) = x.storage_and_layout();
        let Some(range) = layout.contiguous_offsets() else {
            bail!(
                "a kernel takes contiguous tensors, found strides {:?}",
                layout.stride()
            );
        };
        Ok(Self { storage, range })
    }

    /// Where its numbers are.
    pub fn address<T: CudaDType>(&self, stream: &Arc<CudaStream>) -> Result<u64> {
        let view = self.view::<T>()?;
        let (address, _read) = view.device_ptr(stream);
        Ok(address)
    }

    /// The same; 0 for an operand that a kernel does without.
    pub fn address_or_zero<T: CudaDType>(
        operand: Option<&Self>,
        stream: &Arc<CudaStream>,
    ) -> Result<u64> {
        operand.map_or(Ok(0), |operand| operand.address::<T>(stream))
    }

    pub fn view<T: CudaDType>(&self) -> Result<CudaView<'_, T>> {
        match &*self.storage {
            Storage::Cuda(storage) => {
                let slice = storage.as_cuda_slice::<T>()?;
                Ok(slice.slice(self.range.0..self.range.1))
            }
            _ => bail!("a kernel of GPUs takes tensors on a GPU"),
        }
    }
}

pub fn tensor<T: CudaDType>(slice: CudaSlice<T>, device: &CudaDevice, shape: &[usize]) -> Tensor {
    let storage = CudaStorage::wrap_cuda_slice(slice, device.clone());
    Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false)
}

/// Room for numbers that a kernel or product writes.
pub fn room<T: CudaDType + DeviceRepr>(device: &CudaDevice, count: usize) -> Result<CudaSlice<T>> {
    // SAFETY: every caller has all numbers written before the slice becomes a tensor.
    unsafe { device.alloc::<T>(count) }
}

pub fn blocks(work: usize, each: u32) -> Result<LaunchConfig> {
    let count = work.div_ceil(each as usize);
    let Ok(count @ 1..) = u32::try_from(count) else {
        bail!("a kernel cannot be launched for {work} numbers");
    };
    Ok(LaunchConfig {
        grid_dim: (count, 1, 1),
        block_dim: (each, 1, 1),
        shared_mem_bytes: 0,
    })
}

/// Our program in the memory of a GPU, and the functions of it that were launched.
struct DeviceProgram {
    module: Arc<CudaModule>,
    functions: HashMap<String, CudaFunction>,
}

/// A kernel's function on a GPU, cached across handles of the GPU: the driver's lookup takes about as long as a kernel
/// launch.
pub fn function(device: &CudaDevice, name: &str) -> Result<CudaFunction> {
    static PROGRAMS: LazyLock<Mutex<HashMap<usize, DeviceProgram>>> = LazyLock::new(Mutex::default);
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let stream = device.cuda_stream();
    let program = match programs.entry(stream.context().ordinal()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let context = Arc::clone(stream.context());
            let module = context
                .load_module(Ptx::from_binary(PROGRAM.to_vec()))
                .w()?;
            new.insert(DeviceProgram {
                module,
                functions: HashMap::new(),
            })
        }
    };
    if let Some(function) = program.functions.get(name) {
        return Ok(function.clone());
    }
    let function = program.module.load_function(name).w()?;
    program.functions.insert(name.to_owned(), function.clone());
    Ok(function)
}

/// The number of a type in `kernels.cu: write_as`.
pub fn result_number(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 1,
        DType::BF16 => 2,
        _ => 0,
    }
}

/// Launches a kernel with these arguments.
macro_rules! launch {
    ($device:expr, $name:expr, $config:expr, $($argument:expr),+ $(,)?) => {{
        let (function, stream) = (function($device, $name)?, $device.cuda_stream());
        let mut builder = stream.launch_builder(&function);
        $(
            let argument = $argument;
            builder.arg(argument);
        )+
        // SAFETY: the kernel's parameters are these arguments, and its indices stay within them for this configuration.
        unsafe { builder.launch($config) }.w()?;
    }};
}
pub(super) use launch;

pub fn device_of(x: &Tensor) -> Option<&CudaDevice> {
    match x.device() {
        Device::Cuda(device) => Some(device),
        _ => None,
    }
}

/// The GPU of a tensor, unless our kernel for this operation fails there.
pub fn device_for(operation: Operation, x: &Tensor) -> Option<&CudaDevice> {
    device_of(x).filter(|_| !is_faulty(operation))
}

/// The same numbers as f32 in order.
pub fn floats(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::F32)?.contiguous()
}

/// f32 numbers as a type for products. Numbers beyond the range of f16 become its largest number.
pub fn narrowed(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let Some(device) = device_of(x) else {
        return x.to_dtype(dtype)?.contiguous();
    };
    if x.dtype() == dtype {
        return x.contiguous();
    }
    let x = floats(x)?;
    let count = x.elem_count();
    let config = blocks(count.div_ceil(4), THREADS)?;
    let held = DeviceOperand::of(&x)?;
    let from = held.view::<f32>()?;
    let numbers = count as u64;
    match dtype {
        DType::F32 => Ok(x.clone()),
        DType::F16 => {
            let mut to = room::<f16>(device, count)?;
            launch!(device, "narrow_f16", config, &from, &mut to, &numbers);
            Ok(tensor(to, device, x.dims()))
        }
        DType::BF16 => {
            let mut to = room::<bf16>(device, count)?;
            launch!(device, "narrow_bf16", config, &from, &mut to, &numbers);
            Ok(tensor(to, device, x.dims()))
        }
        other => bail!("operands of products are f32, f16 or bf16, not {other:?}"),
    }
}
