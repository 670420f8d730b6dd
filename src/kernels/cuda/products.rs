//! Matrix products where the vendor's library is absent: replaces the functions of cuBLAS that candle and we call, so
//! that a driver alone is enough. `cuda/setup` makes the hook that finds these functions.

#![expect(
    unsafe_code,
    reason = "these functions have the signatures of a C library and launch kernels with raw arguments"
)]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::cublas::sys as blas;
use candle_core::cuda_backend::cudarc::driver::sys;

use super::launch::{PROGRAM, THREADS, WARP};

use blas::cublasOperation_t::CUBLAS_OP_N;
use blas::cublasStatus_t::{
    CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED,
    CUBLAS_STATUS_SUCCESS,
};

unsafe extern "C" {
    fn shim_cublas_is_there() -> c_int;
    fn shim_cuda_is_there() -> c_int;
    fn shim_cublas_set_stand_in(find: extern "C" fn(*const c_char) -> *const c_void);
}

/// Whether the vendor's library does the products.
pub fn are_the_vendors() -> bool {
    // SAFETY: the function only tries to open the library.
    unsafe { shim_cublas_is_there() != 0 }
}

/// Whether the driver's own library opens.
pub fn has_driver() -> bool {
    // SAFETY: the function only tries to open the library.
    unsafe { shim_cuda_is_there() != 0 }
}

/// Has the functions below taken where the library is absent.
pub fn stand_in() {
    // SAFETY: the function lives as long as the program, and answers for any name.
    unsafe { shim_cublas_set_stand_in(find) };
}

extern "C" fn find(name: *const c_char) -> *const c_void {
    // SAFETY: the hook gives the name of a symbol.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"cublasCreate_v2" => create as *const c_void,
        b"cublasDestroy_v2" => destroy as *const c_void,
        b"cublasSetStream_v2" => set_stream as *const c_void,
        b"cublasGemmEx" => gemm_ex as *const c_void,
        b"cublasGemmStridedBatchedEx" => gemm_strided_batched_ex as *const c_void,
        _ => ptr::null(),
    }
}

/// The data behind our cuBLAS handle.
struct ProductHandle {
    stream: sys::CUstream,
}

/// `kernels.cu: ProductSizes`
#[repr(C)]
#[derive(Clone, Copy)]
struct ProductSizes {
    rows: u32,
    columns: u32,
    depth: u32,
    a_row: u64,
    a_depth: u64,
    b_depth: u64,
    b_column: u64,
    c_column: u64,
    next_a: u64,
    next_b: u64,
    next_c: u64,
    alpha: f32,
    beta: f32,
}

/// Rows and columns that a block has.
const TILE: u32 = 64;
/// The most columns of which each is summed by a warp.
const FEW: u32 = 8;

extern "C" fn create(handle: *mut blas::cublasHandle_t) -> blas::cublasStatus_t {
    let made = Box::new(ProductHandle {
        stream: ptr::null_mut(),
    });
    // SAFETY: the caller gives a place for a handle.
    unsafe { *handle = Box::into_raw(made).cast() };
    CUBLAS_STATUS_SUCCESS
}

extern "C" fn destroy(handle: blas::cublasHandle_t) -> blas::cublasStatus_t {
    // SAFETY: handles come from `create`, and are destroyed once.
    drop(unsafe { Box::from_raw(handle.cast::<ProductHandle>()) });
    CUBLAS_STATUS_SUCCESS
}

extern "C" fn set_stream(
    handle: blas::cublasHandle_t,
    stream: blas::cudaStream_t,
) -> blas::cublasStatus_t {
    // SAFETY: handles come from `create`.
    unsafe { (*handle.cast::<ProductHandle>()).stream = stream.cast() };
    CUBLAS_STATUS_SUCCESS
}

extern "C" fn gemm_ex(
    handle: blas::cublasHandle_t,
    of_a: blas::cublasOperation_t,
    of_b: blas::cublasOperation_t,
    rows: c_int,
    columns: c_int,
    depth: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: blas::cudaDataType,
    a_stride: c_int,
    b: *const c_void,
    b_type: blas::cudaDataType,
    b_stride: c_int,
    beta: *const c_void,
    c: *mut c_void,
    c_type: blas::cudaDataType,
    c_stride: c_int,
    compute: blas::cublasComputeType_t,
    algorithm: blas::cublasGemmAlgo_t,
) -> blas::cublasStatus_t {
    gemm_strided_batched_ex(
        handle, of_a, of_b, rows, columns, depth, alpha, a, a_type, a_stride, 0, b, b_type,
        b_stride, 0, beta, c, c_type, c_stride, 0, 1, compute, algorithm,
    )
}

extern "C" fn gemm_strided_batched_ex(
    handle: blas::cublasHandle_t,
    of_a: blas::cublasOperation_t,
    of_b: blas::cublasOperation_t,
    rows: c_int,
    columns: c_int,
    depth: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: blas::cudaDataType,
    a_stride: c_int,
    next_a: c_longlong,
    b: *const c_void,
    b_type: blas::cudaDataType,
    b_stride: c_int,
    next_b: c_longlong,
    beta: *const c_void,
    c: *mut c_void,
    c_type: blas::cudaDataType,
    c_stride: c_int,
    next_c: c_longlong,
    batch: c_int,
    compute: blas::cublasComputeType_t,
    _: blas::cublasGemmAlgo_t,
) -> blas::cublasStatus_t {
    let types = (a_type == b_type)
        .then(|| kernel_name(a_type, c_type))
        .flatten();
    let (Some(types), true) = (types, sums_in_f32(compute)) else {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    };
    let (Ok(rows), Ok(columns), Ok(depth), Ok(batch)) = (
        u32::try_from(rows),
        u32::try_from(columns),
        u32::try_from(depth),
        u32::try_from(batch),
    ) else {
        return CUBLAS_STATUS_INVALID_VALUE;
    };
    if rows == 0 || columns == 0 || batch == 0 {
        return CUBLAS_STATUS_SUCCESS;
    }
    // Strides are as large as the matrices, and so not below zero.
    let steps = |operation, stride: c_int| match operation == CUBLAS_OP_N {
        true => (1, stride as u64),
        false => (stride as u64, 1),
    };
    let (a_row, a_depth) = steps(of_a, a_stride);
    let (b_depth, b_column) = steps(of_b, b_stride);
    // SAFETY: factors of products that sum in f32 are f32.
    let (alpha, beta) = unsafe { (*alpha.cast::<f32>(), *beta.cast::<f32>()) };
    let sizes = ProductSizes {
        rows,
        columns,
        depth,
        a_row,
        a_depth,
        b_depth,
        b_column,
        c_column: c_stride as u64,
        next_a: next_a as u64,
        next_b: next_b as u64,
        next_c: next_c as u64,
        alpha,
        beta,
    };
    // SAFETY: handles come from `create`.
    let stream = unsafe { (*handle.cast::<ProductHandle>()).stream };
    launch(types, [a, b, c.cast_const()], sizes, batch, stream)
}

fn kernel_name(
    operands: blas::cudaDataType,
    result: blas::cudaDataType,
) -> Option<[&'static CStr; 2]> {
    use blas::cudaDataType_t::{CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
    Some(match (operands, result) {
        (CUDA_R_32F, CUDA_R_32F) => [c"product_f32", c"product_of_few_f32"],
        (CUDA_R_16F, CUDA_R_16F) => [c"product_f16", c"product_of_few_f16"],
        (CUDA_R_16BF, CUDA_R_16BF) => [c"product_bf16", c"product_of_few_bf16"],
        (CUDA_R_16F, CUDA_R_32F) => [c"product_f16_f32", c"product_of_few_f16_f32"],
        (CUDA_R_16BF, CUDA_R_32F) => [c"product_bf16_f32", c"product_of_few_bf16_f32"],
        _ => return None,
    })
}

fn sums_in_f32(compute: blas::cublasComputeType_t) -> bool {
    use blas::cublasComputeType_t::{
        CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_16F,
        CUBLAS_COMPUTE_32F_FAST_TF32,
    };
    matches!(
        compute,
        CUBLAS_COMPUTE_32F
            | CUBLAS_COMPUTE_32F_FAST_16BF
            | CUBLAS_COMPUTE_32F_FAST_16F
            | CUBLAS_COMPUTE_32F_FAST_TF32
    )
}

fn launch(
    [tiled, few]: [&'static CStr; 2],
    operands: [*const c_void; 3],
    sizes: ProductSizes,
    batch: u32,
    stream: sys::CUstream,
) -> blas::cublasStatus_t {
    let (name, grid) = match sizes.columns <= FEW {
        true => (few, [sizes.rows.div_ceil(THREADS / WARP), 1]),
        false => (
            tiled,
            [sizes.rows.div_ceil(TILE), sizes.columns.div_ceil(TILE)],
        ),
    };
    let Some(function) = function(name) else {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    };
    let mut arguments = [
        (&raw const operands[0]).cast_mut().cast(),
        (&raw const operands[1]).cast_mut().cast(),
        (&raw const operands[2]).cast_mut().cast(),
        (&raw const sizes).cast_mut().cast(),
    ];
    // SAFETY: the kernel's parameters are these, and its indices stay within the sizes that the caller gives.
    let launched = unsafe {
        sys::cuLaunchKernel(
            function,
            grid[0],
            grid[1],
            batch,
            THREADS,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    match launched {
        sys::CUresult::CUDA_SUCCESS => CUBLAS_STATUS_SUCCESS,
        _ => CUBLAS_STATUS_EXECUTION_FAILED,
    }
}

/// The module of a CUDA context, and its functions loaded so far. Contexts live as long as the process.
struct ContextProgram {
    context: usize,
    program: usize,
    functions: Vec<(&'static CStr, usize)>,
}

/// A function in the context that this thread works in.
fn function(name: &'static CStr) -> Option<sys::CUfunction> {
    static LOADED: Mutex<Vec<ContextProgram>> = Mutex::new(Vec::new());
    let mut context = ptr::null_mut();
    // SAFETY: it writes which context is current.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }
        .result()
        .ok()?;
    let context = context as usize;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = match loaded.iter().position(|known| known.context == context) {
        Some(at) => at,
        None => {
            let mut program = ptr::null_mut();
            // SAFETY: a file that holds code for several GPUs.
            unsafe { sys::cuModuleLoadData(&raw mut program, PROGRAM.as_ptr().cast()) }
                .result()
                .ok()?;
            loaded.push(ContextProgram {
                context,
                program: program as usize,
                functions: Vec::new(),
            });
            loaded.len() - 1
        }
    };
    let of_context = &mut loaded[at];
    if let Some((_, known)) = of_context
        .functions
        .iter()
        .find(|(known, _)| *known == name)
    {
        return Some(*known as sys::CUfunction);
    }
    let mut found = ptr::null_mut();
    // SAFETY: the module is loaded, and the name ends with a zero.
    unsafe {
        sys::cuModuleGetFunction(
            &raw mut found,
            of_context.program as sys::CUmodule,
            name.as_ptr(),
        )
    }
    .result()
    .ok()?;
    of_context.functions.push((name, found as usize));
    Some(found)
}
