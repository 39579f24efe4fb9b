// SPDX-License-Identifier: Apache-2.0
// A right dataflow with a fault around it. This file and wrapped_mapping.h are the only ones of
// this folder that know the interfaces of plugins.
#ifndef VOXCONV_TESTS_SABOTEURS_WRAPPED_DATAFLOW_H_
#define VOXCONV_TESTS_SABOTEURS_WRAPPED_DATAFLOW_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv::testing {

inline constexpr int64_t kStaleBytes = 256;

// One call of the right dataflow, as a fault sees it.
struct ConvCall {
  ConstTensorView input, weights;
  TensorView output;
  // What the right dataflow reads. A layout may keep no arrays; PreparedMap::ToPairs reads the
  // pairs off it.
  const PreparedMap* map = nullptr;
  // A fault may put a map here, in either form, that the right dataflow runs with instead.
  const KernelMap* other_map = nullptr;
  // kStaleBytes of the workspace, in the backend's memory: what was there before is still there.
  void* stale = nullptr;
  ExecutionContext context;
  std::function<absl::Status(const ConvCall&)> right;

  // What the right dataflow does with these arguments.
  absl::Status RunRight() const { return right(*this); }
  int num_offsets() const { return map->map().num_offsets(); }
};

// Runs instead of the right dataflow, and may call it. One fault serves every precision and
// backend.
using DataflowFault = std::function<absl::Status(ConvCall)>;

// One call of a gradient or of a pooling of the right dataflow, as a fault sees it.
struct GradCall {
  enum class What { kInputGrad, kWeightGrad, kPool, kUnpool };
  What what = What::kInputGrad;
  ConstTensorView weights;  // of kInputGrad
  int num_offsets = 0;
  TensorView result;
  ExecutionContext context;
  // What the right dataflow does, with other weights if those here are changed.
  std::function<absl::Status(const GradCall&)> right;

  absl::Status RunRight() const { return right(*this); }
};
using GradFault = std::function<absl::Status(GradCall)>;

// Registers the dataflow `name`: the one of `right` that `inner` names, with `fault` around it. On
// the CPU it supports every precision: it rounds the operands, runs `inner` in f32 and rounds the
// result, and gradients likewise. `right` must outlive the registry. Poolings are those of `inner`,
// if it pools itself.
absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const DataflowFault& fault,
                             Registry& registry);
// The same with a fault around gradients and poolings alone.
absl::Status RegisterWrapped(const std::string& name, const Registry& right,
                             const std::string& inner, const GradFault& fault, Registry& registry);

// `values` rounded to the view's dtype, [view.rows, view.channels], in place of what `view` held.
// Synchronises the stream.
absl::Status Overwrite(const TensorView& view, const std::vector<float>& values,
                       const ExecutionContext& context);

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_SABOTEURS_WRAPPED_DATAFLOW_H_
