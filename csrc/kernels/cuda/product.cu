// The products of a sequence's steps, by cuBLAS as torch has loaded it into the process. The way to
// it through torch takes the host longer than many a step takes the device.
#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <vector>

#include "cell.h"
#include "launch.h"

namespace lltm {
namespace {

// cublas_api.h, which a compiler without the library lacks. The numbers are its enumerations'.
constexpr int kNormal = 0;
constexpr int kTransposed = 1;
constexpr int kDefaultAlgorithm = -1;
constexpr int kCompute32 = 68;
constexpr int kCompute64 = 70;
constexpr int kComputeTf32 = 77;
constexpr int kTypes[] = {0, 1, 2, 14};  // of an lltm_dtype

struct Library {
  int (*create)(void** handle);
  int (*set_stream)(void* handle, cudaStream_t);
  int (*set_workspace)(void* handle, void* workspace, size_t bytes);
  int (*gemm)(void* handle, int, int, int m, int n, int k, const void* alpha, const void* a, int,
              int lda, long long, const void* b, int, int ldb, long long, const void* beta, void* c,
              int, int ldc, long long, int batch, int compute, int algorithm);
};

// NULL where torch has loaded none of this CUDA major.
const Library* library() {
  static const Library* const found = []() -> const Library* {
    char name[32];
    std::snprintf(name, sizeof(name), "libcublas.so.%d", CUDART_VERSION / 1000);
    void* const object = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) return nullptr;
    static Library functions;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(object, symbol));
      return function != nullptr;
    };
    const bool all = find(functions.create, "cublasCreate_v2") &&
                     find(functions.set_stream, "cublasSetStream_v2") &&
                     find(functions.set_workspace, "cublasSetWorkspace_v2") &&
                     find(functions.gemm, "cublasGemmStridedBatchedEx");
    return all ? &functions : nullptr;
  }();
  return found;
}

// Handles that no thread uses. They live as long as the process: at its end CUDA may be gone first.
struct Pool {
  std::mutex mutex;
  std::vector<std::vector<void*>> free;  // by device

  static Pool& get() {
    static Pool* const pool = new Pool;
    return *pool;
  }
  std::vector<void*>& of(int32_t device_index) {
    if (free.size() <= static_cast<size_t>(device_index)) free.resize(device_index + 1);
    return free[device_index];
  }
};

// What the products of any step may need.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

// A handle for a stream, which goes back to the pool at the end.
class Handle {
 public:
  Handle(const lltm_execution& execution, void* workspace) : device_index_(execution.device_index) {
    {
      const std::lock_guard<std::mutex> lock(Pool::get().mutex);
      auto& free = Pool::get().of(device_index_);
      if (!free.empty()) {
        handle_ = free.back();
        free.pop_back();
      }
    }
    if (handle_ == nullptr) status_ = library()->create(&handle_);
    const auto stream = static_cast<cudaStream_t>(execution.stream);
    if (status_ == 0) status_ = library()->set_stream(handle_, stream);
    if (status_ == 0) status_ = library()->set_workspace(handle_, workspace, kWorkspaceBytes);
  }
  ~Handle() {
    if (handle_ == nullptr) return;
    const std::lock_guard<std::mutex> lock(Pool::get().mutex);
    Pool::get().of(device_index_).push_back(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void* get() const { return handle_; }
  int status() const { return status_; }

 private:
  int32_t device_index_;
  void* handle_ = nullptr;
  int status_ = 0;
};

}  // namespace

int64_t cuda_product_workspace(const lltm_execution* execution) {
  if (library() == nullptr) return 0;
  {
    const std::lock_guard<std::mutex> lock(Pool::get().mutex);
    if (!Pool::get().of(execution->device_index).empty()) return kWorkspaceBytes;
  }
  // A handle must not be made while a graph is being captured.
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const auto stream = static_cast<cudaStream_t>(execution->stream);
  const cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && capture == cudaStreamCaptureStatusNone ? kWorkspaceBytes : 0;
}

const char* cuda_product(lltm_dtype dtype, const lltm_product_arguments* arguments,
                         const lltm_execution* execution) {
  const lltm_product_arguments& a = *arguments;
  const Handle handle(*execution, a.workspace);
  int status = handle.status();
  if (status == 0) {
    const int type = kTypes[dtype];
    const bool wide = dtype == LLTM_FLOAT64;
    const bool rounds = dtype == LLTM_FLOAT32 && a.allow_tf32 != 0;
    const float one32 = 1.0f;
    const float sum32 = a.adds != 0 ? 1.0f : 0.0f;
    const double one64 = 1.0;
    const double sum64 = sum32;
    const void* const one = wide ? static_cast<const void*>(&one64) : &one32;
    const void* const sum = wide ? static_cast<const void*>(&sum64) : &sum32;
    const auto number = [](int64_t size) { return static_cast<int>(size); };
    // It counts by columns: its matrices are ours transposed, so left and right change places.
    status = library()->gemm(handle.get(), a.right_transposed != 0 ? kTransposed : kNormal, kNormal,
                             number(a.columns), number(a.rows), number(a.depth), one, a.right, type,
                             number(a.right_stride), a.right_plane, a.left, type,
                             number(a.left_stride), a.left_plane, sum, a.to, type,
                             number(a.to_stride), a.to_plane, number(a.planes),
                             wide     ? kCompute64
                             : rounds ? kComputeTf32
                                      : kCompute32,
                             kDefaultAlgorithm);
  }
  if (status == 0) return nullptr;
  thread_local char text[96];
  std::snprintf(text, sizeof(text), "lltm: cuBLAS failed in a step of a layer, with status %d",
                status);
  return text;
}

}  // namespace lltm
