// The products by W_h in steps of a sequence that no family of the kernels runs. The kernels'
// `product` makes them if the plan says calls_product and torch gives a cuBLAS handle; else torch
// makes them.
#pragma once

#include <algorithm>

#include "operands.h"
#include "parts.h"

namespace lltm {

template <typename Torch, Device device>
class StepProducts {
 public:
  using Tensor = typename Torch::Tensor;

  StepProducts(const LayerSizes& sizes, const lltm_step_plan& plan, const lltm_execution& where)
      : sizes_(sizes),
        where_(where),
        handle_(plan.calls_product != 0 ? where.blas_handle() : nullptr),
        planes_(handle_ != nullptr ? std::max(plan.split_k, 1) : 1) {}

  // The most planes (B, S) that d_h may have in `of_gates`; 1 if torch multiplies.
  int32_t planes() const { return planes_; }

  // Adds old_h W_h^T to plane `t` of gates (T, B, 3S), where old_h is plane `index` of `h`.
  void add_h(const Tensor& gates, int64_t t, const Tensor& h, int64_t index,
             const Tensor& weights) const {
    const int64_t rows = 3 * sizes_.state;
    if (handle_ == nullptr) {
      const Tensor sum = View::rows(gates, t * sizes_.batch, sizes_.batch, rows);
      const Tensor old_h = View::rows(h, index * sizes_.batch, sizes_.batch, sizes_.state);
      Torch::addmm_out(sum, sum, old_h,
                       Torch::strided(weights, {sizes_.state, rows}, {1, sizes_.columns()}, 0));
      return;
    }
    lltm_product_arguments product = {};
    product.planes = 1;
    product.columns = rows;
    product.depth = sizes_.state;
    product.left = sizes_.at(Torch::data(h), index * sizes_.plane());
    product.left_stride = sizes_.state;
    product.right_transposed = 1;
    product.to = sizes_.at(Torch::data(gates), 3 * t * sizes_.plane());
    product.to_stride = rows;
    product.adds = 1;
    run(product, weights);
  }

  // Computes d_h = d_z W_h, where d_z is plane `t` of d_gates (T, B, 3S). If d_h has several
  // planes, each holds the product over a part of the depth 3S, and their sum is d_z W_h.
  void of_gates(const Tensor& d_h, int64_t planes, const Tensor& d_gates, int64_t t,
                const Tensor& weights) const {
    const int64_t depth = 3 * sizes_.state / planes;
    if (handle_ == nullptr) {
      Torch::mm_out(View::rows(d_h, 0, sizes_.batch, sizes_.state),
                    View::rows(d_gates, t * sizes_.batch, sizes_.batch, depth),
                    View::h_columns(weights, sizes_));
      return;
    }
    lltm_product_arguments product = {};
    product.planes = planes;
    product.columns = sizes_.state;
    product.depth = depth;
    product.left = sizes_.at(Torch::data(d_gates), 3 * t * sizes_.plane());
    product.left_stride = 3 * sizes_.state;
    product.left_plane = depth;
    product.right_plane = depth * sizes_.columns();
    product.to = Torch::data(d_h);
    product.to_stride = sizes_.state;
    product.to_plane = sizes_.plane();
    run(product, weights);
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using View = Views<Torch>;

  void run(lltm_product_arguments& product, const Tensor& weights) const {
    product.rows = sizes_.batch;
    product.right = Torch::data(weights);
    product.right_stride = sizes_.columns();
    product.allow_tf32 = sizes_.allow_tf32;
    product.blas_handle = handle_;
    Calls::check(Calls::kernels().product(sizes_.dtype, &product, &where_));
  }

  const LayerSizes& sizes_;
  const lltm_execution& where_;
  void* const handle_;  // of cuBLAS; NULL if torch multiplies
  const int32_t planes_;
};

}  // namespace lltm
