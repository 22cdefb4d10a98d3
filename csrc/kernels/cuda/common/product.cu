// Matrix products by the cuBLAS that torch has loaded into the process, with torch's handle. Calls
// through torch's operators would take the host longer than many products take the device.
#include <dlfcn.h>

#include <cstdio>
#include <type_traits>

#include "launch.h"
#include "product.h"

namespace lltm {
namespace {

// Values of enumerators of cuBLAS, repeated here since the build may lack its headers.
constexpr int kNormal = 0;
constexpr int kTransposed = 1;
constexpr int kDefaultAlgorithm = -1;
constexpr int kCompute32 = 68;
constexpr int kCompute64 = 70;
constexpr int kDefaultMath = 0;
constexpr int kTf32Math = 3;
constexpr int kTypes[] = {2, 0, 1, 14};  // cudaDataType by lltm_dtype_index

struct Library {
  int (*get_mode)(void* handle, int* mode);
  int (*set_mode)(void* handle, int mode);
  int (*gemm)(void* handle, int, int, int m, int n, int k, const void* alpha, const void* a, int,
              int lda, const void* b, int, int ldb, const void* beta, void* c, int, int ldc,
              int compute, int algorithm);
  int (*gemms)(void* handle, int, int, int m, int n, int k, const void* alpha, const void* a, int,
               int lda, long long, const void* b, int, int ldb, long long, const void* beta,
               void* c, int, int ldc, long long, int batch, int compute, int algorithm);
};

// The functions of cuBLAS, or NULL pointers if no cuBLAS of this CUDA major version is loaded.
const Library& library() {
  static const Library loaded = [] {
    char name[32];
    std::snprintf(name, sizeof(name), "libcublas.so.%d", CUDART_VERSION / 1000);
    void* const object = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    Library functions = {};
    if (object == nullptr) return functions;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(object, symbol));
    };
    find(functions.get_mode, "cublasGetMathMode");
    find(functions.set_mode, "cublasSetMathMode");
    find(functions.gemm, "cublasGemmEx");
    find(functions.gemms, "cublasGemmStridedBatchedEx");
    return functions;
  }();
  return loaded;
}

}  // namespace

bool can_multiply(const lltm_execution& execution) {
  return execution.blas_handle != nullptr && library().gemm != nullptr;
}

bool torch_allows_tf32(const lltm_execution& execution) {
  if (!can_multiply(execution)) return false;
  void* const handle = execution.blas_handle();
  int mode = kDefaultMath;
  return handle != nullptr && library().get_mode(handle, &mode) == 0 && mode == kTf32Math;
}

const char* cuda_product(lltm_dtype dtype, const lltm_product_arguments* arguments,
                         const lltm_execution*) {
  return product_to(dtype, dtype, *arguments);
}

const char* product_to(lltm_dtype dtype, lltm_dtype to_dtype, const lltm_product_arguments& a) {
  if (a.blas_handle == nullptr) return "lltm: torch gave no cuBLAS handle";
  const Library& blas = library();
  const int type = kTypes[lltm_dtype_index(dtype)];
  const int to_type = kTypes[lltm_dtype_index(to_dtype)];
  const bool wide = dtype == LLTM_FLOAT64;
  const float one32 = 1.0f;
  const float sum32 = a.adds != 0 ? 1.0f : 0.0f;
  const double one64 = 1.0;
  const double sum64 = sum32;
  const void* const one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* const sum = wide ? static_cast<const void*>(&sum64) : &sum32;
  const auto number = [](int64_t size) { return static_cast<int>(size); };
  // cuBLAS stores matrices by columns, so its matrices are ours transposed, and left and right
  // change places.
  const int of_right = a.right_transposed != 0 ? kTransposed : kNormal;
  const int of_left = a.left_transposed != 0 ? kTransposed : kNormal;
  const int m = number(a.columns);
  const int n = number(a.rows);
  const int k = number(a.depth);
  const int compute = wide ? kCompute64 : kCompute32;
  int status = 0;
  if (dtype == LLTM_FLOAT32) {  // not reset: torch sets the mode whenever it takes the handle
    status = blas.set_mode(a.blas_handle, a.allow_tf32 != 0 ? kTf32Math : kDefaultMath);
  }
  if (status == 0 && a.planes == 1) {
    status = blas.gemm(a.blas_handle, of_right, of_left, m, n, k, one, a.right, type,
                       number(a.right_stride), a.left, type, number(a.left_stride), sum, a.to,
                       to_type, number(a.to_stride), compute, kDefaultAlgorithm);
  } else if (status == 0) {
    status = blas.gemms(a.blas_handle, of_right, of_left, m, n, k, one, a.right, type,
                        number(a.right_stride), a.right_plane, a.left, type, number(a.left_stride),
                        a.left_plane, sum, a.to, to_type, number(a.to_stride), a.to_plane,
                        number(a.planes), compute, kDefaultAlgorithm);
  }
  if (status == 0) return nullptr;
  thread_local char message[96];
  std::snprintf(message, sizeof(message),
                "lltm: cuBLAS failed in the product of a step, with status %d", status);
  return message;
}

}  // namespace lltm
