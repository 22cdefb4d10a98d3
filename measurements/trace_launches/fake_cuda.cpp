// A CUDA runtime and a cuBLAS without a GPU: they write down what they are asked to run, with every
// argument, and claim that it ran. trace_launches.py links the kernels of two builds with them.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

std::string recorded;
std::map<const void*, std::string> kernel_names;
std::map<std::string, std::string> parameter_sizes;  // by kernel: bytes, separated by commas
int math_mode = 0;
int multiprocessors = 132;
int compute_major = 9;

template <typename... Values>
void record(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof(line), format, values...);
  recorded += line;
}

// Records a launch: the kernel, its grid and block, and the bytes of its parameters.
cudaError_t record_launch(const char* how, const void* kernel, dim3 grid, dim3 block,
                          size_t shared_bytes, void** arguments) {
  const std::string& name = kernel_names[kernel];
  record("%s %s g%u,%u,%u b%u,%u,%u s%zu", how, name.c_str(), grid.x, grid.y, grid.z, block.x,
         block.y, block.z, shared_bytes);
  const char* sizes = parameter_sizes[name].c_str();
  for (int index = 0; *sizes != '\0'; ++index) {
    char* end = nullptr;
    const long bytes = std::strtol(sizes, &end, 10);
    sizes = *end == ',' ? end + 1 : end;
    record(" ");
    const auto* data = static_cast<const unsigned char*>(arguments[index]);
    for (long byte = 0; byte < bytes; ++byte) record("%02x", data[byte]);
  }
  record("\n");
  return cudaSuccess;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  void* stream;
};
thread_local Configuration pushed;

}  // namespace

extern "C" {

// For trace_launches.py.
void fake_describe_device(int mode, int major) {
  math_mode = mode;
  compute_major = major;
}
void fake_set_parameters(const char* kernel, const char* sizes) { parameter_sizes[kernel] = sizes; }
const char* fake_recorded() { return recorded.c_str(); }
void fake_forget() { recorded.clear(); }

// What nvcc's code calls.
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  kernel_names[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  pushed = {grid, block, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared_bytes = pushed.shared_bytes;
  *static_cast<void**>(stream) = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t) {
  return record_launch("launch", kernel, grid, block, shared_bytes, arguments);
}

// The runtime: an H100, or a device of another compute capability with its sizes.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  record("attributes %u:%d ", config->numAttrs,
         config->numAttrs > 0 ? static_cast<int>(config->attrs[0].id) : -1);
  return record_launch("launch", kernel, config->gridDim, config->blockDim,
                       config->dynamicSmemBytes, arguments);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t) {
  return record_launch("cooperative", kernel, grid, block, shared_bytes, arguments);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  record("memset %p %d %zu\n", to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  record("memcpy %p %p %zu\n", to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<cudaDeviceAttr, int> values = {
      {cudaDevAttrMultiProcessorCount, multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrL2CacheSize, 50 << 20},
  };
  const auto entry = values.find(attribute);
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? compute_major
           : entry != values.end()                        ? entry->second
                                                          : 1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = 10 * compute_major;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "none"; }
const char* cudaGetErrorString(cudaError_t) { return "none"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                          size_t shared_bytes) {
  *blocks = shared_bytes > 116'000 ? 1 : 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*,
                                           const cudaLaunchConfig_t* config) {
  *clusters = multiprocessors / static_cast<int>(config->gridDim.x);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

// cuBLAS.
int cublasGetMathMode(void*, int* mode) {
  *mode = math_mode;
  return 0;
}
int cublasSetMathMode(void*, int mode) {
  record("mode %d\n", mode);
  return 0;
}
int cublasGemmStridedBatchedEx(void*, int left, int right, int m, int n, int k, const void*,
                               const void* a, int a_type, int lda, long long a_plane, const void* b,
                               int b_type, int ldb, long long b_plane, const void* beta, void* c,
                               int c_type, int ldc, long long c_plane, int planes, int compute,
                               int algorithm) {
  constexpr int kCompute64 = 70;
  const double scale =
      compute == kCompute64 ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  record("gemm %d %d %d %d %d", left, right, m, n, k);
  record(" %p %d %d %lld", a, a_type, lda, a_plane);
  record(" %p %d %d %lld", b, b_type, ldb, b_plane);
  record(" %g %p %d %d %lld", scale, c, c_type, ldc, c_plane);
  record(" %d %d %d\n", planes, compute, algorithm);
  return 0;
}
int cublasGemmEx(void* handle, int left, int right, int m, int n, int k, const void* alpha,
                 const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                 const void* beta, void* c, int c_type, int ldc, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, left, right, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
