// Helpers that select the device of a kernel launch and report errors of CUDA.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "project.h"

namespace PROJECT_NAMESPACE {

// Makes `device_index` the current device as long as the object lives. The glue makes the device
// current only in torch's CUDA runtime; kernels that are linked with another runtime need this.
class DeviceScope {
 public:
  explicit DeviceScope(int32_t device_index) : error_(cudaGetDevice(&previous_)) {
    if (error_ != cudaSuccess || previous_ == device_index) return;
    error_ = cudaSetDevice(device_index);
    changed_ = error_ == cudaSuccess;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int previous_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

// Returns NULL for success, otherwise a text that names the kernel and CUDA's error.
inline const char* error_text(const char* kernel, cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // clears the error; otherwise the next launch would report it
  thread_local char text[256];
  std::snprintf(text, sizeof(text), PROJECT_NAME " CUDA kernel %s: %s (%s)", kernel,
                cudaGetErrorString(error), cudaGetErrorName(error));
  return text;
}

}  // namespace PROJECT_NAMESPACE
