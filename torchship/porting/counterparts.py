"""What an extension uses of torch, and its counterpart in torch's stable ABI: the one table.

Names stand without their first namespace, `at::`, `c10::` or `torch::`. The operators that only
torch's dispatcher can call stand in `operators.json`. `tests/torchship/porting` holds both against
torch.
"""

import json
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Status(Enum):
    """What a port does with a use of torch."""

    #: It is part of the stable ABI, or of torch's header-only headers.
    STABLE = "stable"
    #: The stable ABI has a counterpart.
    COUNTERPART = "counterpart"
    #: Torch's dispatcher calls the operator: `torch_call_dispatcher("aten::NAME", OVERLOAD, ...)`.
    DISPATCHER = "dispatcher"
    #: There is no counterpart. The advice is the workaround.
    WORKAROUND = "workaround"
    #: There is no counterpart, and the table knows no workaround.
    UNKNOWN = "unknown"


class Counterpart(NamedTuple):
    """A row of the table."""

    #: The name in ATen, c10 or torch. A name that ends in `*` stands for all that begin so.
    name: str
    #: The counterpart; "" if there is none.
    stable: str = ""
    #: The oldest torch that runs the counterpart.
    torch: str = "2.9"
    #: The oldest torch whose headers have the counterpart, if a younger one than that.
    headers: str = ""
    #: What to mind; if there is no counterpart, the workaround.
    advice: str = ""
    status: Status = Status.COUNTERPART

    @property
    def built_with(self) -> str:
        """The oldest torch whose headers have the counterpart."""
        return self.headers or self.torch


def _way_round(name: str, advice: str) -> Counterpart:
    return Counterpart(name=name, torch="", advice=advice, status=Status.WORKAROUND)


#: Macros of c10 and ATen that torch's header-only headers define since the stable ABI is there.
_SAME_MACROS = (
    "C10_ALWAYS_INLINE",
    "C10_API",
    "C10_CLANG_DIAGNOSTIC_POP",
    "C10_CLANG_DIAGNOSTIC_PUSH",
    "C10_CLANG_DIAGNOSTIC_IGNORE",
    "C10_CONCATENATE",
    "C10_DEVICE",
    "C10_DIAGNOSTIC_*",
    "C10_EXPORT",
    "C10_HAS_CPP_ATTRIBUTE",
    "C10_HIDDEN",
    "C10_HOST",
    "C10_HOST_DEVICE",
    "C10_LAUNCH_BOUNDS_0",
    "C10_LAUNCH_BOUNDS_1",
    "C10_LAUNCH_BOUNDS_2",
    "C10_LIKELY",
    "C10_MAX_THREADS_PER_BLOCK",
    "C10_MIN_BLOCKS_PER_SM",
    "C10_NOINLINE",
    "C10_RESTRICT",
    "C10_STRINGIZE",
    "C10_UID",
    "C10_UNLIKELY",
    "C10_UNUSED",
    "C10_WARP_SIZE",
    "CUDA_KERNEL_ASSERT",
    "TORCH_API",
)


def _same(*names: str, torch: str = "2.9", headers: str = "") -> tuple[Counterpart, ...]:
    """Macros that torch's header-only headers define as well."""
    return tuple(
        Counterpart(name=name, stable=name, torch=torch, headers=headers, status=Status.STABLE)
        for name in names
    )


_GRADIENT = (
    "write the derivative in Python: torch.autograd.Function, or torch.library.register_autograd"
)
_RANDOM = (
    "draw in Python and pass the numbers, or pass seed and offset as tensors; "
    "an operator like aten::rand can be called through the dispatcher"
)
_OPTIONS = "pass dtype, layout and device one by one to torch::stable::empty or new_empty"
_SCALAR = "take a double, an int64_t or a bool; write float, int or bool in the schema"
_ACCESSOR = "make it from data pointer, sizes and strides"
_GUARD = "takes the index of a device: tensor.get_device_index()"
_CUDA_RUNTIME = "call the CUDA runtime itself"
_NAMES_THE_TYPE = "in a message, torch::headeronly::toString(tensor.scalar_type())"
_STABLE_LIBRARY = "the function boxed with TORCH_BOX; schemas with Scalar cannot be boxed"
_BELOW_AUTOGRAD = "leave it out: a kernel registered for CPU or CUDA runs below autograd"
_PYBIND = "register an operator with a schema, call it as torch.ops.NAMESPACE.NAME from Python"

TYPES = (
    Counterpart("Tensor", "torch::stable::Tensor"),
    Counterpart("Half", "torch::headeronly::Half"),
    Counterpart("BFloat16", "torch::headeronly::BFloat16"),
    Counterpart("Float8_e4m3fn", "torch::headeronly::Float8_e4m3fn"),
    Counterpart("Float8_e4m3fnuz", "torch::headeronly::Float8_e4m3fnuz"),
    Counterpart("Float8_e5m2", "torch::headeronly::Float8_e5m2"),
    Counterpart("Float8_e5m2fnuz", "torch::headeronly::Float8_e5m2fnuz"),
    Counterpart("Float8_e8m0fnu", "torch::headeronly::Float8_e8m0fnu"),
    Counterpart("complex", "torch::headeronly::complex"),
    Counterpart("ScalarType", "torch::headeronly::ScalarType"),
    Counterpart("Device", "torch::stable::Device", headers="2.10"),
    Counterpart("DeviceType", "torch::headeronly::DeviceType", headers="2.10"),
    Counterpart("DeviceIndex", "torch::stable::accelerator::DeviceIndex"),
    Counterpart("Layout", "torch::headeronly::Layout", headers="2.10"),
    Counterpart("MemoryFormat", "torch::headeronly::MemoryFormat", headers="2.10"),
    Counterpart("IntArrayRef", "torch::headeronly::IntHeaderOnlyArrayRef", headers="2.10"),
    Counterpart("ArrayRef", "torch::headeronly::HeaderOnlyArrayRef", headers="2.10"),
    Counterpart("OptionalIntArrayRef", "torch::headeronly::IntHeaderOnlyArrayRef", headers="2.10"),
    Counterpart("OptionalArrayRef", "torch::headeronly::HeaderOnlyArrayRef", headers="2.10"),
    Counterpart(
        "TensorAccessor",
        "torch::headeronly::HeaderOnlyTensorAccessor",
        headers="2.10",
        advice=_ACCESSOR,
    ),
    *(
        Counterpart(
            name,
            "torch::headeronly::HeaderOnlyGenericPackedTensorAccessor",
            headers="2.10",
            advice=_ACCESSOR,
        )
        for name in (
            "GenericPackedTensorAccessor",
            "PackedTensorAccessor",
            "PackedTensorAccessor32",
            "PackedTensorAccessor64",
            "RestrictPtrTraits",
            "DefaultPtrTraits",
        )
    ),
    Counterpart(
        "Generator",
        "torch::stable::Generator",
        torch="2.13",
        advice="a handle alone, which an operator can be given; it holds no seed. " + _RANDOM,
    ),
    Counterpart("Library", "torch::stable::detail::StableLibrary"),
    Counterpart("Tag", "torch::headeronly::Tag", torch="2.12"),
    Counterpart("Stream", "torch::stable::accelerator::Stream"),
    Counterpart("CppTypeToScalarType", "torch::headeronly::CppTypeToScalarType", headers="2.10"),
    Counterpart(
        "impl::ScalarTypeToCPPType",
        "torch::headeronly::impl::ScalarTypeToCPPTypeT",
        headers="2.10",
    ),
)

#: Types of ATen that C++17 has.
_STANDARD = (
    Counterpart("optional", "std::optional"),
    Counterpart("nullopt", "std::nullopt"),
    Counterpart("nullopt_t", "std::nullopt_t"),
    Counterpart("make_optional", "std::make_optional"),
    Counterpart("in_place", "std::in_place"),
    Counterpart("string_view", "std::string_view"),
    Counterpart("variant", "std::variant"),
    Counterpart("SmallVector", "std::vector"),
    Counterpart("SymInt", "int64_t"),
    Counterpart("SymIntArrayRef", "torch::headeronly::IntHeaderOnlyArrayRef", headers="2.10"),
    Counterpart("TensorList", "std::vector<torch::stable::Tensor>", torch="2.10"),
    Counterpart("ITensorListRef", "std::vector<torch::stable::Tensor>", torch="2.10"),
    Counterpart("List", "std::vector", torch="2.10"),
    Counterpart("OptionalTensorRef", "std::optional<torch::stable::Tensor>"),
    Counterpart("MaybeOwned", "std::optional<torch::stable::Tensor>"),
)

_TYPES_WITHOUT = (
    _way_round("Scalar", _SCALAR),
    _way_round("TensorOptions", _OPTIONS),
    _way_round("autograd::*", _GRADIENT),
    _way_round("PhiloxCudaState", _RANDOM),
    _way_round("CUDAGeneratorImpl", _RANDOM),
    _way_round("CPUGeneratorImpl", _RANDOM),
    _way_round("Philox4_32", _RANDOM),
    _way_round("mt19937", _RANDOM),
    _way_round("cuda::philox::*", _RANDOM),
    _way_round("cuda::detail::getDefaultCUDAGenerator", _RANDOM),
    _way_round("detail::getDefaultCPUGenerator", _RANDOM),
    _way_round("get_generator_or_default", _RANDOM),
    _way_round("check_generator", _RANDOM),
    _way_round("NoGradGuard", _BELOW_AUTOGRAD + "; or aoti_torch_grad_mode_set_enabled"),
    _way_round("AutoGradMode", _BELOW_AUTOGRAD + "; or aoti_torch_grad_mode_set_enabled"),
    _way_round("GradMode", _BELOW_AUTOGRAD + "; or aoti_torch_grad_mode_set_enabled"),
    _way_round("InferenceMode", _BELOW_AUTOGRAD),
    _way_round("AutoDispatchBelow*", _BELOW_AUTOGRAD),
    _way_round("AutoNonVariableTypeMode", _BELOW_AUTOGRAD),
    _way_round("Dispatcher", "torch_call_dispatcher (torch 2.10) calls an operator by its name"),
    _way_round("DispatchKey", "name the key in STABLE_TORCH_LIBRARY_IMPL"),
    _way_round("DispatchKeySet", "name the key in STABLE_TORCH_LIBRARY_IMPL"),
    _way_round("impl::ExcludeDispatchKeyGuard", "name the key in STABLE_TORCH_LIBRARY_IMPL"),
    _way_round("impl::IncludeDispatchKeyGuard", "name the key in STABLE_TORCH_LIBRARY_IMPL"),
    _way_round(
        "autocast::*",
        "kAutocast in torchship's list of operators, or torch.library.register_autocast",
    ),
    _way_round("TensorIterator*", "loop over the data yourself, by sizes and strides"),
    _way_round("Storage", "the tensor's data pointer; torch_has_storage (2.14) says if it has one"),
    _way_round("DataPtr", "allocate a tensor: torch::stable::empty"),
    _way_round("Allocator", "allocate a tensor: torch::stable::empty"),
    _way_round("TensorImpl", "keep the torch::stable::Tensor"),
    _way_round("intrusive_ptr*", "std::shared_ptr; a custom class has no counterpart"),
    _way_round("make_intrusive", "std::shared_ptr; a custom class has no counterpart"),
    _way_round("CustomClassHolder", "keep the state in Python, pass tensors and numbers"),
    _way_round("class_", "keep the state in Python, pass tensors and numbers"),
    _way_round("IValue", "StableIValue, with torch::stable::detail::from and to"),
    _way_round("Dict", "pass lists; a dictionary has no conversion"),
    _way_round("nn::*", "call the operator beneath, for example aten::conv2d"),
    _way_round("jit::*", "keep it in Python"),
    _way_round("serialize::*", "keep it in Python"),
    _way_round("python::*", _PYBIND),
    _way_round("OpMathType", "a trait of your own: float for Half and BFloat16"),
    _way_round("opmath_type", "a trait of your own: float for Half and BFloat16"),
    _way_round("acc_type*", "a trait of your own: float for Half and BFloat16"),
    _way_round("toOpMathType", "a function of your own: Float for Half and BFloat16"),
    _way_round("toAccumulateType", "a function of your own: Float for Half and BFloat16"),
    _way_round("TypeMeta", "tensor.scalar_type()"),
    _way_round("TensorArg", "check with STD_TORCH_CHECK"),
    _way_round("checkAll*", "check with STD_TORCH_CHECK"),
    _way_round("checkSame*", "check with STD_TORCH_CHECK"),
    _way_round("checkDim", "check with STD_TORCH_CHECK"),
    _way_round("CheckedFrom", "check with STD_TORCH_CHECK"),
    _way_round("Error", "throw std::runtime_error, or STD_TORCH_CHECK"),
    _way_round("IndexError", "throw std::runtime_error, or STD_TORCH_CHECK"),
    _way_round("indexing::*", "torch::stable::select and narrow"),
    _way_round("symint::*", "call the function without SymInt"),
    _way_round("native::*", "call the public operator instead"),
    _way_round("vec::*", "a loop for the compiler to vectorise, or the processor's intrinsics"),
    _way_round("ForcedUnroll", "a loop with #pragma unroll"),
    _way_round("SymFloat", "take a double"),
    _way_round("SymBool", "take a bool"),
    _way_round("FunctionSchema", "a string: m.def takes the schema's text"),
    _way_round("StorageImpl", "keep the torch::stable::Tensor"),
)

_CUDA = (
    Counterpart(
        "cuda::getCurrentCUDAStream",
        "aoti_torch_get_current_cuda_stream",
        advice="define USE_CUDA; it is in libtorch_cuda alone. From 2.13 on, "
        "torch::stable::accelerator::getCurrentStream(index).nativeHandle()",
    ),
    Counterpart(
        "cuda::getStreamFromPool",
        "torch_get_cuda_stream_from_pool",
        torch="2.10",
        advice="USE_CUDA",
    ),
    Counterpart(
        "cuda::setCurrentCUDAStream",
        "torch_set_current_cuda_stream",
        torch="2.10",
        advice="USE_CUDA",
    ),
    Counterpart(
        "cuda::getCurrentCUDABlasHandle",
        "torch_get_current_cuda_blas_handle",
        torch="2.10",
        advice="USE_CUDA",
    ),
    Counterpart("cuda::CUDAGuard", "torch::stable::accelerator::DeviceGuard", advice=_GUARD),
    Counterpart(
        "cuda::OptionalCUDAGuard", "torch::stable::accelerator::DeviceGuard", advice=_GUARD
    ),
    Counterpart("DeviceGuard", "torch::stable::accelerator::DeviceGuard", advice=_GUARD),
    Counterpart("OptionalDeviceGuard", "torch::stable::accelerator::DeviceGuard", advice=_GUARD),
    Counterpart("device_of", "torch::stable::Tensor::get_device_index", advice=_GUARD),
    Counterpart("cuda::CUDAStreamGuard", "aoti_torch_create_cuda_stream_guard", advice="USE_CUDA"),
    Counterpart(
        "cuda::CUDAStream",
        "aoti_torch_get_current_cuda_stream",
        advice="pass a cudaStream_t",
    ),
    Counterpart("cuda::current_device", "torch::stable::accelerator::getCurrentDeviceIndex"),
    Counterpart(
        "cuda::CUDACachingAllocator::*",
        "aoti_torch_cuda_caching_allocator_raw_alloc",
        torch="2.10",
        advice="or allocate a tensor: torch::stable::empty",
    ),
    _way_round("cuda::CUDAEvent", "cudaEvent_t. " + _CUDA_RUNTIME),
    _way_round("cuda::getDefaultCUDAStream", "the stream 0, or pass the stream from Python"),
    _way_round("cuda::device_count", "cudaGetDeviceCount. " + _CUDA_RUNTIME),
    _way_round("cuda::set_device", "torch::stable::accelerator::DeviceGuard"),
    _way_round("cuda::getCurrentDeviceProperties", "cudaGetDeviceProperties. " + _CUDA_RUNTIME),
    _way_round("cuda::getDeviceProperties", "cudaGetDeviceProperties. " + _CUDA_RUNTIME),
    _way_round("cuda::warp_size", "cudaDeviceGetAttribute. " + _CUDA_RUNTIME),
    _way_round("cuda::detail::*", "write it yourself; pointers, sizes and strides are there"),
    _way_round("cuda::blas::*", "call cuBLAS with torch_get_current_cuda_blas_handle"),
    _way_round("cuda::getCurrentCUDASparseHandle", "make a handle of your own"),
    _way_round("cuda::getCurrentCUDASolverDnHandle", "make a handle of your own"),
    _way_round("cuda::getCUDADeviceAllocator", "allocate a tensor: torch::stable::empty"),
    _way_round("cuda::stream_synchronize", "torch_cuda_stream_synchronize (torch 2.10)"),
    _way_round("hip::*", "the cuda:: functions, which torch's hipify turns into these"),
)

_WITH_WRAPPER_BEFORE_2_10 = (
    "empty_like",
    "fill_",
    "narrow",
    "new_empty",
    "new_zeros",
    "pad",
    "amax",
    "transpose",
    "zero_",
)
#: Since 2.9 by torch's own word, but its headers have them from 2.10 on.
_WITH_WRAPPER_IN_2_10 = (
    "copy_",
    "clone",
    "flatten",
    "unsqueeze",
    "squeeze",
    "select",
    "matmul",
)
_WITH_WRAPPER_SINCE_2_10 = (
    "empty",
    "reshape",
    "view",
    "to",
    "contiguous",
    "sum",
    "sum_out",
    "full",
    "get_num_threads",
    "parallel_for",
)
#: They call the dispatcher as torch 2.10 has it, but only headers of 2.14 have them.
_WITH_WRAPPER_IN_2_14 = (
    "bitwise_and",
    "bitwise_or",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "permute",
    "index_select",
    "floor_divide",
    "is_pinned",
    "sort",
)
_NO_ALPHA = "takes tensors and a double: self - alpha * other; with alpha=-1 it adds"

#: Functions and methods of tensors that are operators.
OPERATORS = (
    *(Counterpart(name, f"torch::stable::{name}") for name in _WITH_WRAPPER_BEFORE_2_10),
    *(
        Counterpart(name, f"torch::stable::{name}", headers="2.10")
        for name in _WITH_WRAPPER_IN_2_10
    ),
    *(
        Counterpart(name, f"torch::stable::{name}", torch="2.10")
        for name in _WITH_WRAPPER_SINCE_2_10
    ),
    *(
        Counterpart(
            name=name,
            stable=f"torch::stable::{name}",
            torch="2.10",
            headers="2.14",
            advice=f'with older headers torch_call_dispatcher("aten::{name}", ...)',
        )
        for name in _WITH_WRAPPER_IN_2_14
    ),
    Counterpart(
        "from_blob",
        "torch::stable::from_blob",
        torch="2.10",
        advice="with a deleter from torch 2.11 on; takes sizes and strides",
    ),
    Counterpart("subtract", "torch::stable::subtract", torch="2.10", advice=_NO_ALPHA),
    Counterpart("sub", "torch::stable::subtract", torch="2.10", advice=_NO_ALPHA),
    Counterpart("add", "torch::stable::subtract", torch="2.10", advice=_NO_ALPHA),
    Counterpart(
        "add_",
        "torch::stable::subtract",
        torch="2.10",
        advice=_NO_ALPHA + "; then torch::stable::copy_",
    ),
    Counterpart(
        "sub_",
        "torch::stable::subtract",
        torch="2.10",
        advice=_NO_ALPHA + "; then torch::stable::copy_",
    ),
    Counterpart("zeros", "torch::stable::new_zeros", advice="takes a tensor for dtype and device"),
    Counterpart("zeros_like", "torch::stable::new_zeros", advice="of the tensor, with its sizes"),
    Counterpart("ones", "torch::stable::full", torch="2.10"),
    Counterpart("ones_like", "torch::stable::full", torch="2.10"),
    Counterpart("full_like", "torch::stable::full", torch="2.10"),
    Counterpart("new_full", "torch::stable::full", torch="2.10"),
    Counterpart("new_ones", "torch::stable::full", torch="2.10"),
    Counterpart("empty_strided", "aoti_torch_empty_strided"),
    Counterpart("as_strided", "aoti_torch_as_strided"),
    Counterpart("slice", "torch::stable::narrow", advice="for a step of 1"),
    Counterpart(
        "item",
        "aoti_torch_item_float32",
        advice="or the one of another type; it waits for the GPU",
    ),
    Counterpart("cpu", "torch::stable::to", torch="2.10"),
    Counterpart("cuda", "torch::stable::to", torch="2.10"),
    Counterpart("toType", "torch::stable::to", torch="2.10"),
    Counterpart("type_as", "torch::stable::to", torch="2.10"),
    Counterpart("tensor", "torch::stable::full", torch="2.10", advice="for one number"),
    Counterpart("scalar_tensor", "torch::stable::full", torch="2.10", advice="of no dimension"),
)

_FUNCTIONS = (
    Counterpart("toString", "torch::headeronly::toString", headers="2.10"),
    Counterpart("isQIntType", "torch::headeronly::isQIntType", headers="2.10"),
    Counterpart("bit_cast", "torch::headeronly::bit_cast"),
    Counterpart("polar", "torch::headeronly::polar"),
    Counterpart("get_thread_num", "torch_get_thread_idx", torch="2.10"),
    Counterpart("elementSize", "aoti_torch_dtype_element_size"),
    _way_round("set_num_threads", "torch.set_num_threads in Python"),
    _way_round("get_num_interop_threads", "torch.get_num_interop_threads in Python"),
    _way_round("in_parallel_region", "keep a thread_local flag of your own"),
    _way_round("globalContext", "ask in Python, and pass the answer as an argument"),
    _way_round("detail::getCUDAHooks", "ask in Python, and pass the answer as an argument"),
    _way_round("isFloatingType", "compare with the types you serve"),
    _way_round("isIntegralType", "compare with the types you serve"),
    _way_round("isComplexType", "compare with the types you serve"),
    _way_round("isReducedFloatingType", "compare with the types you serve"),
    _way_round("typeMetaToScalarType", "tensor.scalar_type()"),
    _way_round("promoteTypes", "do it in Python: torch.promote_types"),
    _way_round("promote_types", "do it in Python: torch.promote_types"),
    _way_round("result_type", "do it in Python: torch.result_type"),
    _way_round("dtype", "name the torch::headeronly::ScalarType"),
    _way_round("device", "make a torch::stable::Device"),
    _way_round("layout", "name the torch::headeronly::Layout"),
    _way_round("requires_grad", "leave it out; gradients are Python's"),
    _way_round("ceil_div", "a line of your own"),
    _way_round("divup", "a line of your own"),
    _way_round("irange", "a plain loop"),
    _way_round("str", "std::to_string and std::string"),
    _way_round("isTensorSubclassLike", "ask in Python"),
    _way_round("CppFunction", "box with TORCH_BOX"),
    _way_round("borrow_from_optional_tensor", "std::optional<torch::stable::Tensor>"),
    _way_round("value_or_else", "std::optional::value_or"),
    _way_round("infer_size", "a loop of your own"),
    _way_round("multiply_integers", "std::accumulate"),
    _way_round("maybe_wrap_dim", "a line of your own"),
    _way_round("checkIntrusivePtr*", "keep the torch::stable::Tensor"),
    _way_round("ScalarTypeToTypeMeta", "tensor.scalar_type()"),
    _way_round("OpaqueTensorImpl", "keep the torch::stable::Tensor"),
    _way_round("schema", "a string: m.def takes the schema's text"),
)

_DTYPES = {
    "kByte": "Byte",
    "kUInt8": "Byte",
    "kChar": "Char",
    "kInt8": "Char",
    "kShort": "Short",
    "kInt16": "Short",
    "kInt": "Int",
    "kInt32": "Int",
    "kLong": "Long",
    "kInt64": "Long",
    "kHalf": "Half",
    "kFloat16": "Half",
    "kFloat": "Float",
    "kFloat32": "Float",
    "kDouble": "Double",
    "kFloat64": "Double",
    "kBool": "Bool",
    "kBFloat16": "BFloat16",
    "kComplexHalf": "ComplexHalf",
    "kComplexFloat": "ComplexFloat",
    "kComplexDouble": "ComplexDouble",
    "kFloat8_e4m3fn": "Float8_e4m3fn",
    "kFloat8_e5m2": "Float8_e5m2",
    "kFloat8_e4m3fnuz": "Float8_e4m3fnuz",
    "kFloat8_e5m2fnuz": "Float8_e5m2fnuz",
    "kFloat8_e8m0fnu": "Float8_e8m0fnu",
    "kFloat4_e2m1fn_x2": "Float4_e2m1fn_x2",
    "kUInt16": "UInt16",
    "kUInt32": "UInt32",
    "kUInt64": "UInt64",
}
CONSTANTS = (
    *(
        Counterpart(name, f"torch::headeronly::ScalarType::{value}")
        for name, value in _DTYPES.items()
    ),
    *(
        Counterpart(name, f"torch::headeronly::{name}", headers="2.10")
        for name in ("kCPU", "kCUDA", "kHIP", "kXPU", "kMPS", "kMeta")
    ),
    *(
        Counterpart(f"k{layout}", f"torch::headeronly::Layout::{layout}", headers="2.10")
        for layout in ("Strided", "Sparse", "SparseCsr", "Jagged")
    ),
)

MACROS = (
    Counterpart("TORCH_CHECK", "STD_TORCH_CHECK"),
    Counterpart("TORCH_CHECK_*", "STD_TORCH_CHECK", advice="throws a RuntimeError"),
    Counterpart("TORCH_INTERNAL_ASSERT", "STD_TORCH_CHECK"),
    Counterpart("TORCH_INTERNAL_ASSERT_DEBUG_ONLY", "STD_TORCH_CHECK"),
    Counterpart("AT_ASSERT", "STD_TORCH_CHECK"),
    Counterpart("AT_ASSERTM", "STD_TORCH_CHECK"),
    Counterpart("AT_CHECK", "STD_TORCH_CHECK"),
    Counterpart("AT_ERROR", "STD_TORCH_CHECK", advice="STD_TORCH_CHECK(false, ...)"),
    Counterpart("TORCH_WARN", "aoti_torch_warn"),
    Counterpart("TORCH_WARN_ONCE", "aoti_torch_warn", advice="with a static flag of your own"),
    Counterpart("C10_CUDA_CHECK", "STD_CUDA_CHECK", torch="2.10"),
    Counterpart("AT_CUDA_CHECK", "STD_CUDA_CHECK", torch="2.10"),
    Counterpart("C10_CUDA_KERNEL_LAUNCH_CHECK", "STD_CUDA_KERNEL_LAUNCH_CHECK", torch="2.10"),
    Counterpart("TORCH_LIBRARY", "STABLE_TORCH_LIBRARY", advice=_STABLE_LIBRARY),
    Counterpart("TORCH_LIBRARY_FRAGMENT", "STABLE_TORCH_LIBRARY_FRAGMENT", advice=_STABLE_LIBRARY),
    Counterpart("TORCH_LIBRARY_IMPL", "STABLE_TORCH_LIBRARY_IMPL", advice=_STABLE_LIBRARY),
    Counterpart("TORCH_FN", "TORCH_BOX", headers="2.10"),
    Counterpart(
        "AT_DISPATCH_*",
        "THO_DISPATCH_V2",
        headers="2.10",
        advice="names types one by one, or by AT_EXPAND(AT_FLOATING_TYPES); header-only, "
        "so it runs on any torch. A switch of your own does as well",
    ),
    Counterpart("PYBIND11_MODULE", "STABLE_TORCH_LIBRARY", advice=_PYBIND),
    Counterpart("TORCH_EXTENSION_NAME", "STABLE_TORCH_LIBRARY", advice=_PYBIND),
    _way_round("TORCH_SELECTIVE_*", "write the name as a string"),
    _way_round("TORCH_CUDABLAS_CHECK", "check the status with STD_TORCH_CHECK"),
    _way_round("TORCH_CUSPARSE_CHECK", "check the status with STD_TORCH_CHECK"),
    _way_round("TORCH_CUSOLVER_CHECK", "check the status with STD_TORCH_CHECK"),
    _way_round("AT_CUDA_DRIVER_CHECK", "check the status with STD_TORCH_CHECK"),
    _way_round("C10_CUDA_DRIVER_CHECK", "check the status with STD_TORCH_CHECK"),
    _way_round("CUDA_KERNEL_LOOP", "a loop of your own over the grid's stride"),
    _way_round("CUDA_KERNEL_LOOP_TYPE", "a loop of your own over the grid's stride"),
    _way_round("CUDA_1D_KERNEL_LOOP*", "a loop of your own over the grid's stride"),
    _way_round("RECORD_FUNCTION", "torch.profiler.record_function in Python"),
    _way_round("C10_LOG_API_USAGE_ONCE", "leave it out"),
    _way_round("C10_DEFINE_*", "a variable of your own"),
    _way_round("C10_THROW_ERROR", "throw std::runtime_error"),
    _way_round("REGISTER_*DISPATCH", "STABLE_TORCH_LIBRARY_IMPL"),
    _way_round("TORCH_MODULE", "write the module in Python"),
    _way_round(
        "AT_PRIVATE_*", "THO_DISPATCH_SWITCH and THO_DISPATCH_CASE, or a switch of your own"
    ),
    _way_round("AT_PER_OPERATOR_HEADERS", "leave it out"),
    _way_round("AT_PARALLEL_*", "leave it out"),
    *_same(*_SAME_MACROS),
    *_same("TORCH_VERSION_MAJOR", "TORCH_VERSION_MINOR", "TORCH_VERSION_PATCH", headers="2.10"),
    *_same("TORCH_VERSION", headers="2.10"),
    *_same("AT_WRAP", "AT_EXPAND", headers="2.10"),
    *_same("AT_FLOATING_TYPES", "AT_INTEGRAL_TYPES", "AT_COMPLEX_TYPES", headers="2.10"),
    *_same("AT_ALL_TYPES", "AT_ALL_TYPES_AND_COMPLEX", "AT_INTEGRAL_TYPES_V2", headers="2.10"),
    *_same("AT_FORALL_*", headers="2.10"),
)

_POINTER = "or const_data_ptr<T>(); data_ptr() without a type is there as well"


def _method(
    name: str, stable: str = "", *, torch: str = "2.9", headers: str = "", advice: str = ""
) -> Counterpart:
    return Counterpart(
        name=name,
        stable=f"torch::stable::Tensor::{stable or name}",
        torch=torch,
        headers=headers,
        advice=advice,
    )


#: Methods of a tensor that are no operators.
METHODS = (
    *(
        _method(name)
        for name in (
            "dim",
            "numel",
            "size",
            "stride",
            "get_device",
            "is_cuda",
            "is_cpu",
            "defined",
            "scalar_type",
        )
    ),
    *(
        _method(name, headers="2.10")
        for name in ("sizes", "strides", "storage_offset", "element_size", "device", "layout")
    ),
    _method("is_contiguous", advice="takes no memory format"),
    _method("data_ptr"),
    _method("data_ptr<>", "mutable_data_ptr", torch="2.10", advice=_POINTER),
    _method("data<>", "mutable_data_ptr", torch="2.10", advice=_POINTER),
    _method("mutable_data_ptr", torch="2.10"),
    _method("const_data_ptr", torch="2.10"),
    _method("set_requires_grad", torch="2.10"),
    _method("requires_grad_", "set_requires_grad", torch="2.10"),
    _method("has_storage", torch="2.14"),
    _method("ndimension", "dim"),
    _method("itemsize", "element_size", headers="2.10"),
    _method("nbytes", "numel", advice="times element_size()"),
    _method("dtype", "scalar_type", advice="of type torch::headeronly::ScalarType"),
    _method("type", "scalar_type", advice="of type torch::headeronly::ScalarType"),
    _method("sym_size", "size"),
    _method("sym_sizes", "sizes", headers="2.10"),
    _method("sym_stride", "stride"),
    _method("sym_strides", "strides", headers="2.10"),
    _method("sym_numel", "numel"),
    Counterpart(
        "accessor",
        "torch::headeronly::HeaderOnlyTensorAccessor",
        headers="2.10",
        advice=_ACCESSOR,
    ),
    *(
        Counterpart(
            name,
            "torch::headeronly::HeaderOnlyGenericPackedTensorAccessor",
            headers="2.10",
            advice=_ACCESSOR,
        )
        for name in ("packed_accessor", "packed_accessor32", "packed_accessor64")
    ),
    _way_round("options", _OPTIONS),
    _way_round("toString", _NAMES_THE_TYPE),
    _way_round("storage", "the data pointer and storage_offset()"),
    _way_round("unsafeGetTensorImpl", "keep the torch::stable::Tensor"),
    _way_round("getIntrusivePtr", "keep the torch::stable::Tensor"),
    _way_round("unsafeReleaseTensorImpl", "keep the torch::stable::Tensor"),
    _way_round("use_count", "leave it out"),
    _way_round("is_same", "compare the data pointers"),
    _way_round("is_alias_of", "compare the data pointers"),
    _way_round("requires_grad", "ask in Python; gradients are Python's"),
    _way_round("grad", _GRADIENT),
    _way_round("mutable_grad", _GRADIENT),
    _way_round("backward", _GRADIENT),
    _way_round("is_floating_point", "compare scalar_type() with the types you serve"),
    _way_round("is_complex", "compare scalar_type() with the types you serve"),
    _way_round("is_sparse", "compare layout()"),
    _way_round("is_sparse_csr", "compare layout()"),
    _way_round("is_quantized", "ask in Python"),
    _way_round("is_nested", "compare layout() with Jagged"),
    _way_round("is_non_overlapping_and_dense", "compare the strides"),
    _way_round("is_meta", "compare device().type()"),
    _way_round("is_xpu", "compare device().type()"),
    _way_round("is_mps", "compare device().type()"),
    _way_round("is_hip", "is_cuda(), which holds with ROCm too"),
    _way_round("suggest_memory_format", "compare the strides"),
    _way_round("key_set", "name the key in STABLE_TORCH_LIBRARY_IMPL"),
    _way_round("reset", "assign torch::stable::Tensor()"),
    _way_round("record_stream", "record the stream in Python: Tensor.record_stream"),
)

#: The torch whose stable ABI calls any operator of the dispatcher.
FIRST_DISPATCHER = (2, 10)

#: The stable ABI's C functions, by the torch that has them first. Those that begin with
#: `aoti_torch_` are as old as the stable ABI.
SHIMS = {
    "2.10": (
        "torch_c10_cuda_check_msg torch_c10_cuda_free_error_msg torch_call_dispatcher "
        "torch_cuda_stream_synchronize torch_delete_list torch_delete_string "
        "torch_get_const_data_ptr torch_get_cuda_stream_from_pool "
        "torch_get_current_cuda_blas_handle torch_get_mutable_data_ptr torch_get_num_threads "
        "torch_get_thread_idx torch_library_impl torch_list_get_item torch_list_push_back "
        "torch_list_set_item torch_list_size torch_new_list_reserve_size torch_new_string_handle "
        "torch_parallel_for torch_parse_device_string torch_set_current_cuda_stream "
        "torch_set_requires_grad torch_string_c_str torch_string_length"
    ),
    "2.11": "torch_dtype_float4_e2m1fn_x2 torch_dtype_float8_e8m0fnu torch_from_blob",
    "2.12": "torch_library_def_with_tags",
    "2.13": (
        "torch_delete_generator torch_delete_stable_ivalue torch_exception_get_what "
        "torch_exception_get_what_without_backtrace torch_generator_get_device "
        "torch_library_set_python_module torch_new_generator_handle torch_new_stable_ivalue "
        "torch_stream_native_handle"
    ),
    "2.14": (
        "torch_has_storage torch_mps_set_arg_bytes torch_tensor_from_pyobject "
        "torch_tensor_to_pyobject"
    ),
    "2.15": (
        "torch_device_from_pyobject torch_device_to_pyobject torch_dtype_from_pyobject "
        "torch_dtype_to_pyobject torch_is_tensor_pyobject"
    ),
}
_SHIM_VERSIONS = {name: torch for torch, names in SHIMS.items() for name in names.split()}

#: Headers of torch, by the beginning of their paths, and what takes their place.
HEADERS = {
    "torch/extension.h": "torch/csrc/stable/{library,tensor,ops}.h",
    "torch/all.h": "torch/csrc/stable/{library,tensor,ops}.h",
    "torch/torch.h": "torch/csrc/stable/{library,tensor,ops}.h",
    "torch/types.h": "torch/csrc/stable/{tensor,ops}.h",
    "torch/script.h": "torch/csrc/stable/library.h",
    "torch/library.h": "torch/csrc/stable/library.h",
    "torch/python.h": "torch/csrc/stable/library.h",
    "torch/csrc/autograd/": "none; derivatives are Python's",
    "c10/cuda/CUDAGuard.h": "torch/csrc/stable/accelerator.h",
    "c10/core/DeviceGuard.h": "torch/csrc/stable/accelerator.h",
    "c10/cuda/CUDAException.h": "torch/csrc/stable/macros.h",
    "c10/util/Exception.h": "torch/headeronly/util/Exception.h",
    "c10/util/Half.h": "torch/headeronly/util/Half.h",
    "c10/util/BFloat16.h": "torch/headeronly/util/BFloat16.h",
    "c10/util/complex.h": "torch/headeronly/util/complex.h",
    "c10/core/ScalarType.h": "torch/headeronly/core/ScalarType.h",
    "c10/util/ArrayRef.h": "torch/headeronly/util/HeaderOnlyArrayRef.h",
    "c10/util/Float8": "torch/headeronly/util/Float8_*.h",
    "c10/util/Optional.h": "<optional>",
    "c10/util/string_view.h": "<string_view>",
    "c10/core/Device.h": "torch/csrc/stable/device.h",
    "c10/core/Layout.h": "torch/headeronly/core/Layout.h",
    "c10/core/MemoryFormat.h": "torch/headeronly/core/MemoryFormat.h",
    "ATen/native/": "none",
    "ATen/cpu/": "none",
    "ATen/Context.h": "none; ask in Python",
    "c10/macros/": "torch/headeronly/macros/Macros.h",
    "c10/cuda/": "torch/csrc/inductor/aoti_torch/c/shim.h, with USE_CUDA defined",
    "ATen/cuda/": "torch/csrc/inductor/aoti_torch/c/shim.h, with USE_CUDA defined",
    "ATen/Dispatch": "torch/headeronly/core/Dispatch_v2.h",
    "ATen/Parallel.h": "torch/csrc/stable/ops.h",
    "ATen/": "torch/csrc/stable/{tensor,ops}.h",
    "c10/": "torch/headeronly/, or none",
    "caffe2/": "none",
    "torch/": "none",
}
STABLE_HEADERS = (
    "torch/csrc/stable/",
    "torch/headeronly/",
    "torch/csrc/inductor/aoti_torch/c/",
    "torch/csrc/inductor/aoti_torch/generated/",
)


class Operators(NamedTuple):
    """What torch's dispatcher can be asked for through the stable ABI, from `operators.json`."""

    #: The torch whose schemas these are.
    torch: str
    #: The overload to call, by operator.
    callable: dict[str, str]
    #: Those of `callable` with another overload that takes a Scalar.
    partly: frozenset[str]
    #: The type without a conversion and AOTInductor's C function, by operator.
    blocked: dict[str, dict[str, str]]
    #: What torch 2.10 lacks.
    later: frozenset[str]

    @property
    def minor(self) -> str:
        return self.torch.rpartition(".")[0]


@cache
def operators() -> Operators:
    content = (Path(__file__).parent / "operators.json").read_text(encoding="utf-8")
    table = json.loads(content)
    return Operators(
        torch=table["torch"],
        callable=table["callable"],
        partly=frozenset(table["partly"]),
        blocked=table["blocked"],
        later=frozenset(table["later"]),
    )


def _by_name(*groups: tuple[Counterpart, ...]) -> dict[str, Counterpart]:
    return {row.name: row for group in groups for row in group}


_NAMES = _by_name(TYPES, _STANDARD, _TYPES_WITHOUT, _CUDA, OPERATORS, _FUNCTIONS, CONSTANTS)
_MACROS = _by_name(MACROS)
_METHODS = _by_name(OPERATORS, METHODS)
_OPERATOR_NAMES = frozenset(row.name for row in OPERATORS)
_LISTED_NAMES = frozenset([*_NAMES, *_METHODS])


def all_rows() -> list[Counterpart]:
    """Every row once, in the order of the tables."""
    return list(dict.fromkeys([*_NAMES.values(), *_MACROS.values(), *_METHODS.values()]))


def _with_star(rows: dict[str, Counterpart], name: str) -> Counterpart | None:
    """The row of the name; without one, the row of the longest beginning with a star."""
    if name in rows:
        return rows[name]
    stars = [row for row in rows if row.endswith("*") and name.startswith(row[:-1])]
    return rows[max(stars, key=len)] if stars else None


def find_macro(name: str) -> Counterpart | None:
    return _with_star(_MACROS, name)


def find_method(name: str) -> Counterpart | None:
    """The row of a tensor's method; the name of one with a template's arguments ends in `<>`."""
    if name.endswith("<>") and name not in _METHODS:
        name = name.removesuffix("<>")
    return _METHODS.get(name) or find_operator(name)


def find_name(name: str) -> Counterpart | None:
    """The row of a name without its first namespace, or of what the name begins with.

    `ScalarType::Half` has the row of `ScalarType`.
    """
    parts = name.removesuffix("_symint").split("::")
    for count in range(len(parts), 0, -1):
        if row := _with_star(_NAMES, "::".join(parts[:count])):
            rest = "".join(f"::{part}" for part in parts[count:])
            return row._replace(stable=row.stable + rest) if row.stable else row
    return find_operator(parts[0]) if len(parts) == 1 else None


@cache
def find_operator(name: str) -> Counterpart | None:
    """The row of an operator that has no wrapper: what the dispatcher can do with it."""
    table = operators()
    if name in table.callable:
        overload = table.callable[name]
        advice = f'torch_call_dispatcher("aten::{name}", "{overload}", ...)'
        if name in table.partly:
            advice += "; a number as an operand becomes a tensor: torch::stable::full"
        return Counterpart(
            name=name,
            stable="torch_call_dispatcher",
            torch=table.minor if name in table.later else "2.10",
            advice=advice,
            status=Status.DISPATCHER,
        )
    if name in table.blocked:
        hindrance = table.blocked[name]
        ways = "compose it of other operators, or call it in Python"
        if hindrance["shim"]:
            ways = f"{hindrance['shim']} and its like for CUDA take a double; or {ways}"
        return _way_round(name, f"a {hindrance['type']} has no conversion: {ways}")
    return None


def is_operator(row: Counterpart) -> bool:
    """Whether the row is one of ATen's operators, which take and give tensors."""
    if row.name in _OPERATOR_NAMES or row.status is Status.DISPATCHER:
        return True
    return row.name in operators().blocked and row.name not in _LISTED_NAMES


def shim_row(name: str) -> Counterpart | None:
    """The row of one of the stable ABI's C functions; None for any other name."""
    if name in _SHIM_VERSIONS or name.startswith(("aoti_torch_", "torch_tag_")):
        return Counterpart(
            name=name, stable=name, torch=_SHIM_VERSIONS.get(name, "2.9"), status=Status.STABLE
        )
    return None


@cache
def stable_row(name: str) -> Counterpart:
    """The row of what is part of the stable ABI already: `torch::stable::sum`, `.sizes`."""
    spelling = f"torch::stable::Tensor::{name[1:]}" if name.startswith(".") else name
    rows = [row for row in all_rows() if row.stable == spelling]
    oldest = min(rows, key=lambda row: minor(row.torch), default=Counterpart(name=name))
    return Counterpart(
        name=name,
        stable=name,
        torch=oldest.torch,
        headers=oldest.headers,
        status=Status.STABLE,
    )


def minor(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare."""
    return tuple(int(part) for part in version.split("."))
