// Helpers for kernel launches: they select the device and report errors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "../../project.h"

namespace PROJECT_NAMESPACE {

// Makes `device_index` current for the scope. The glue has set it in torch's CUDA runtime, but this
// object has its own, statically linked runtime, whose current device may be another one.
class DeviceScope {
 public:
  explicit DeviceScope(int32_t device_index) {
    error_ = cudaGetDevice(&previous_);
    if (error_ == cudaSuccess && previous_ != device_index) {
      error_ = cudaSetDevice(device_index);
      changed_ = error_ == cudaSuccess;
    }
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
  cudaError_t error_ = cudaSuccess;
};

// NULL for success, else a text that names the kernel and CUDA's error.
inline const char* error_text(const char* kernel, cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // clears the error: the check of the next launch must not find it again
  thread_local char text[256];
  std::snprintf(text, sizeof(text), PROJECT_NAME " CUDA kernel %s: %s (%s)", kernel,
                cudaGetErrorString(error), cudaGetErrorName(error));
  return text;
}

}  // namespace PROJECT_NAMESPACE
