// SPDX-License-Identifier: Apache-2.0
// Both gradients of a layer by a dataflow, and maps for them.
#ifndef VOXCONV_TESTS_UNIT_GRADIENT_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_GRADIENT_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "dataflow_test_util.h"
#include "voxconv/core/convolution.h"
#include "voxconv/reference_cpu/convolution.h"

namespace voxconv {

// A strided 3x3x3 layer (stride 2) over the voxels of a side^3 block of which `density` are
// present.
inline HostMap StridedMap(int side, double density, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution present(density);
  std::vector<reference::Coord> inputs;
  for (int i = 0; i < side * side * side; ++i) {
    if (present(random)) inputs.push_back({0, i / side / side, i / side % side, i % side});
  }
  const reference::Geometry geometry{.kind = reference::Kind::kStrided, .stride = {2, 2, 2}};
  const std::vector<reference::Coord> outputs = reference::OutputCoordinates(inputs, geometry);
  const reference::KernelMap map = reference::BuildKernelMap(inputs, outputs, geometry);
  HostMap host{static_cast<int64_t>(inputs.size()), static_cast<int64_t>(outputs.size()), {}};
  host.pairs.resize(map.num_offsets);
  for (int k = 0; k < map.num_offsets; ++k) {
    for (int64_t i = map.offset_ptr[k]; i < map.offset_ptr[k + 1]; ++i) {
      host.pairs[k].emplace_back(map.in[i], map.out[i]);
    }
  }
  return host;
}

inline reference::KernelMap ReferenceMap(const HostMap& host) {
  reference::KernelMap map{host.num_offsets(), {0}, {}, {}};
  for (const auto& pairs : host.pairs) {
    for (const auto& [p, q] : pairs) {
      map.in.push_back(p);
      map.out.push_back(q);
    }
    map.offset_ptr.push_back(static_cast<int64_t>(map.in.size()));
  }
  return map;
}

struct Gradients {
  std::vector<float> input, weights;
  Counters input_work, weight_work;  // of one pass each
};

// How the tensors are stored.
struct GradientTypes {
  Precision precision = Precision::kF32;
  DType weights_grad = DType::kF32;
};

// Onto memory that holds NaN. The context must have a profile.
inline absl::StatusOr<Gradients> ComputeGradients(const Dataflow& dataflow,
                                                  const ConvProblem& problem,
                                                  const std::vector<float>& output_grad,
                                                  const GradientTypes& types,
                                                  const ExecutionContext& context) {
  const DType dtype = StorageOf(types.precision);
  const KernelMap map = ToKernelMap(problem.map, context);
  const int64_t weight_rows = map.num_offsets() * problem.c_in;
  const auto upload = [&](const std::vector<float>& values, int64_t rows, int64_t channels) {
    return Tensor::FromHost(values, rows, channels, context, dtype);
  };
  VOXCONV_ASSIGN_OR_RETURN(const Tensor x,
                           upload(problem.features, map.num_inputs(), problem.c_in));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor w, upload(problem.weights, weight_rows, problem.c_out));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dy, upload(output_grad, map.num_outputs(), problem.c_out));
  const auto nan = [&](const Tensor& like, DType stored) {
    const std::vector<float> values(like.rows() * like.channels(), NAN);
    return Tensor::FromHost(values, like.rows(), like.channels(), context, stored);
  };
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dx, nan(x, dtype));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor dw, nan(w, types.weights_grad));
  Workspace workspace;
  Gradients gradients;
  *context.counters() = Counters();
  VOXCONV_RETURN_IF_ERROR(RunInputGrad(dataflow, map, {dy.view(), w.view(), dx.view()},
                                       types.precision, workspace, context));
  gradients.input_work = std::exchange(*context.counters(), Counters());
  VOXCONV_RETURN_IF_ERROR(RunWeightGrad(dataflow, map, {x.view(), dy.view(), dw.view()},
                                        types.precision, workspace, context));
  gradients.weight_work = *context.counters();
  VOXCONV_ASSIGN_OR_RETURN(gradients.input, dx.ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(gradients.weights, dw.ToHost(context));
  return gradients;
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_GRADIENT_TEST_UTIL_H_
