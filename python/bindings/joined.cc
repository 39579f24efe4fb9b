// SPDX-License-Identifier: Apache-2.0
#include "joined.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "kernel_map.h"
#include "passes.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/core/version.h"
#if VOXCONV_HAVE_CUDA
#include "voxconv/backends/cuda/cuda_batch_norm.h"
#endif

namespace voxconv::python {
namespace {

// The arrays of a batch norm [C_out] with running statistics, in float32 or as the features are.
class NormColumns {
 public:
  NormColumns(nb::handle mean, nb::handle variance, nb::handle gamma, nb::handle beta,
              double epsilon, int64_t channels, DType dtype, Engine& engine)
      : mean_("running_mean", mean, Giver::kModule),
        variance_("running_var", variance, Giver::kModule),
        gamma_("weight", gamma, Giver::kModule),
        beta_("bias", beta, Giver::kModule),
        epsilon_(epsilon),
        channels_(channels) {
    for (const InArray* array : {&mean_, &variance_, &gamma_, &beta_}) {
      CheckColumn(*array, channels, dtype, engine);
    }
  }

  int64_t channels() const { return channels_; }
  // The norm, whose scale and shift go to these arrays.
#if VOXCONV_HAVE_CUDA
  RunningNorm AsGiven(float* scale, float* shift) const {
    return {.mean = mean_.Matrix(),
            .variance = variance_.Matrix(),
            .gamma = gamma_.Matrix(),
            .beta = beta_.Matrix(),
            .epsilon = epsilon_,
            .scale = scale,
            .shift = shift};
  }
#endif
  // The same on the CPU. `unused`: [channels].
  BatchNormBatch AsFloats(float* unused, float* scale, float* shift) const {
    const auto floats = [](const InArray& array) {
      return static_cast<const float*>(array.data());  // CheckColumn allows nothing else there
    };
    return {.channels = channels_,
            .rows = 1,  // the running variance is a deviation of one row
            .mean = floats(mean_),
            .deviation = floats(variance_),
            .gamma = floats(gamma_),
            .beta = floats(beta_),
            .epsilon = epsilon_,
            .inverse_std = unused,
            .scale = scale,
            .shift = shift};
  }

 private:
  InArray mean_, variance_, gamma_, beta_;
  double epsilon_;
  int64_t channels_;
};

// What norms multiply and add, in memory of its own, which must outlive the run. One launch on
// CUDA.
class NormScales {
 public:
  static absl::StatusOr<NormScales> Make(const std::vector<const NormColumns*>& norms,
                                         const ExecutionContext& context) {
    NormScales scales;
    int64_t most = 0;
    for (const NormColumns* norm : norms) most = std::max(most, norm->channels());
    scales.room_ = (most + 63) / 64 * 64;  // so that each row is aligned
    const auto rows = static_cast<int64_t>(2 * norms.size() + 1);
    VOXCONV_ASSIGN_OR_RETURN(scales.own_, Tensor::Create(rows, scales.room_, DType::kF32, context));
#if VOXCONV_HAVE_CUDA
    if (context.backend->kind() == BackendKind::kCuda) {
      std::vector<RunningNorm> given;
      for (size_t i = 0; i < norms.size(); ++i) {
        given.push_back(norms[i]->AsGiven(scales.scale(i), scales.shift(i)));
      }
      VOXCONV_RETURN_IF_ERROR(CudaRunningScales(given, context));
      return scales;
    }
#endif
    for (size_t i = 0; i < norms.size(); ++i) {
      VOXCONV_RETURN_IF_ERROR(context.backend->training_ops()->BatchNormScale(
          norms[i]->AsFloats(scales.Row(rows - 1), scales.scale(i), scales.shift(i)), context));
    }
    return scales;
  }

  float* scale(size_t norm) { return Row(static_cast<int64_t>(2 * norm)); }
  float* shift(size_t norm) { return Row(static_cast<int64_t>(2 * norm + 1)); }
  void Set(size_t norm, Epilogue& epilogue) {
    epilogue.scale = scale(norm);
    epilogue.shift = shift(norm);
  }

 private:
  float* Row(int64_t row) { return own_.view().f32() + row * room_; }

  Tensor own_;
  int64_t room_ = 0;
};

// A convolution, the batch norm behind it, `residual` added to that unless it is None, and a ReLU.
nb::object ConvolveNorm(nb::handle map_object, nb::handle features_object,
                        nb::handle weights_object, nb::handle mean, nb::handle variance,
                        nb::handle gamma, nb::handle beta, double epsilon,
                        nb::handle residual_object, bool relu, const std::string& dataflow) {
  const auto& map = As<PyKernelMap>("map", map_object, "KernelMap");
  const InArray features("features", features_object, Giver::kModule);
  const InArray weights("weights", weights_object, Giver::kModule);
  const ConstTensorView x = SideMatrix(features, *map.engine(), map.map().num_inputs(), "inputs");
  const ConstTensorView w =
      WeightMatrix(weights, *map.engine(), map.map().num_offsets(), x.channels, x.dtype);
  const NormColumns norm(mean, variance, gamma, beta, epsilon, w.channels, x.dtype, *map.engine());
  std::optional<InArray> residual;
  Epilogue epilogue;
  epilogue.relu = relu;
  if (!residual_object.is_none()) {
    residual.emplace("residual", residual_object, Giver::kModule);
    epilogue.residual = SideMatrix(*residual, *map.engine(), map.map().num_outputs(), "outputs");
    if (epilogue.residual.channels != w.channels || epilogue.residual.dtype != x.dtype) {
      ThrowValueError(absl::StrCat("residual: ", residual->DTypeText(), " ", residual->ShapeText(),
                                   "; ", ToString(x.dtype), " [", map.map().num_outputs(), ", ",
                                   w.channels, "] is needed"));
    }
  }
  return RunPass(map, dataflow, {map.map().num_outputs(), w.channels}, x.dtype, nb::none(),
                 features.object(), {},
                 [&](const Dataflow& plugin, const KeptPasses& kept, const TensorView& y,
                     Workspace& workspace, const ExecutionContext& context) -> absl::Status {
                   VOXCONV_ASSIGN_OR_RETURN(NormScales scales, NormScales::Make({&norm}, context));
                   scales.Set(0, epilogue);
                   return RunConvolutionOnto(plugin, map.map(), x, w, PrecisionOf(x.dtype), y,
                                             workspace, context, epilogue, kept);
                 });
}

// y = the norm of x * w, max(y, 0) if `relu`.
absl::Status MultiplyOnto(const ConstTensorView& x, const ConstTensorView& w, const float* scale,
                          const float* shift, bool relu, const TensorView& y,
                          const ExecutionContext& context) {
  TensorOps& ops = context.backend->tensor_ops();
  VOXCONV_RETURN_IF_ERROR(ops.Linear(x, w, nullptr, PrecisionOf(x.dtype), y, context));
  return ops.ScaleShift(y, scale, shift, relu, y, context);
}

// The same of a kernel of 1, which needs no map: [N, C_in] by [1, C_in, C_out].
nb::object MultiplyNorm(nb::handle features_object, nb::handle weights_object, nb::handle mean,
                        nb::handle variance, nb::handle gamma, nb::handle beta, double epsilon,
                        bool relu) {
  const InArray features("features", features_object, Giver::kModule);
  const InArray weights("weights", weights_object, Giver::kModule);
  features.CheckRank(2, "[N, C]");
  const EnginePtr& engine = features.engine();
  const ConstTensorView x = features.Matrix();
  const ConstTensorView w = WeightMatrix(weights, *engine, 1, x.channels, x.dtype);
  const NormColumns norm(mean, variance, gamma, beta, epsilon, w.channels, x.dtype, *engine);
  return RunInto(engine, {x.rows, w.channels}, x.dtype, nb::none(), features.object(), {},
                 [&](const TensorView& y, Workspace& /*workspace*/,
                     const ExecutionContext& context) -> absl::Status {
                   VOXCONV_ASSIGN_OR_RETURN(NormScales scales, NormScales::Make({&norm}, context));
                   return MultiplyOnto(x, w, scales.scale(0), scales.shift(0), relu, y, context);
                 });
}

// A convolution and its batch norm: (weights, running_mean, running_var, weight, bias, eps).
struct JoinedLayer {
  JoinedLayer(const nb::tuple& layer, int64_t offsets, int64_t c_in, DType dtype, Engine& engine)
      : weights("weights", layer[0], Giver::kModule),
        w(WeightMatrix(weights, engine, offsets, c_in, dtype)),
        norm(layer[1], layer[2], layer[3], layer[4], nb::cast<double>(layer[5]), w.channels, dtype,
             engine) {}

  InArray weights;
  ConstTensorView w;
  NormColumns norm;
};

// Two convolutions on one map of a submanifold layer, and the input added to their result. A
// shortcut, unless it is None, is a kernel of 1 that the input goes through first.
nb::object ResidualNorm(nb::handle map_object, nb::handle features_object, const nb::tuple& first,
                        const nb::tuple& second, nb::handle shortcut_object,
                        const std::string& dataflow) {
  const auto& map = As<PyKernelMap>("map", map_object, "KernelMap");
  Engine& engine = *map.engine();
  const InArray features("features", features_object, Giver::kModule);
  const ConstTensorView x = SideMatrix(features, engine, map.map().num_inputs(), "inputs");
  const int64_t offsets = map.map().num_offsets(), rows = map.map().num_outputs();
  const JoinedLayer one(first, offsets, x.channels, x.dtype, engine);
  const JoinedLayer two(second, offsets, one.w.channels, x.dtype, engine);
  std::optional<JoinedLayer> shortcut;
  std::vector<const NormColumns*> norms = {&one.norm, &two.norm};
  if (!shortcut_object.is_none()) {
    shortcut.emplace(nb::cast<nb::tuple>(shortcut_object), 1, x.channels, x.dtype, engine);
    norms.push_back(&shortcut->norm);
  }
  const int64_t added = shortcut.has_value() ? shortcut->w.channels : x.channels;
  if (added != two.w.channels || map.map().num_inputs() != rows) {
    ThrowValueError(absl::StrCat("residual: ", map.map().num_inputs(), " rows of ", added,
                                 " channels; the sum has ", rows, " of ", two.w.channels));
  }
  const auto work = [&](const Dataflow& plugin, const KeptPasses& kept, const TensorView& y,
                        Workspace& workspace, const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(NormScales scales, NormScales::Make(norms, context));
    VOXCONV_ASSIGN_OR_RETURN(Tensor middle, Tensor::Create(rows, one.w.channels, x.dtype, context));
    const auto convolve = [&](const ConstTensorView& from, const JoinedLayer& layer, size_t norm,
                              const ConstTensorView& residual, const TensorView& to) {
      Epilogue epilogue;
      epilogue.relu = true;
      epilogue.residual = residual;
      scales.Set(norm, epilogue);
      return RunConvolutionOnto(plugin, map.map(), from, layer.w, PrecisionOf(x.dtype), to,
                                workspace, context, epilogue, kept);
    };
    VOXCONV_RETURN_IF_ERROR(convolve(x, one, 0, {}, middle.view()));
    if (!shortcut.has_value()) return convolve(middle.view(), two, 1, x, y);
    VOXCONV_ASSIGN_OR_RETURN(Tensor other,
                             Tensor::Create(rows, shortcut->w.channels, x.dtype, context));
    VOXCONV_RETURN_IF_ERROR(MultiplyOnto(x, shortcut->w, scales.scale(2), scales.shift(2),
                                         /*relu=*/false, other.view(), context));
    return convolve(middle.view(), two, 1, other.view(), y);
  };
  return RunPass(map, dataflow, {rows, two.w.channels}, x.dtype, nb::none(), features.object(), {},
                 work);
}

}  // namespace

void DefineJoined(nb::module_& module) {
  module.def("_convolve_norm", &ConvolveNorm, nb::arg("map").none(), nb::arg("features").none(),
             nb::arg("weights").none(), nb::arg("running_mean").none(),
             nb::arg("running_var").none(), nb::arg("weight").none(), nb::arg("bias").none(),
             nb::arg("eps"), nb::arg("residual").none(), nb::arg("relu"), nb::arg("dataflow"),
             "convolve, then batch norm with running statistics, `residual` added unless it is "
             "None, and max(y, 0) if `relu`; rounded once. Does not wait for the device.");
  module.def("_residual_norm", &ResidualNorm, nb::arg("map").none(), nb::arg("features").none(),
             nb::arg("first"), nb::arg("second"), nb::arg("shortcut").none(), nb::arg("dataflow"),
             "max(norm(convolve(z)) + r, 0) for z = max(norm(convolve(features)), 0). r are the "
             "features, or their _multiply_norm by `shortcut` unless it is None. Each layer: "
             "(weights, running_mean, running_var, weight, bias, eps).");
  module.def("_multiply_norm", &MultiplyNorm, nb::arg("features").none(), nb::arg("weights").none(),
             nb::arg("running_mean").none(), nb::arg("running_var").none(),
             nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"), nb::arg("relu"),
             "The same of a kernel of 1, whose products are rounded, too. Arrays of both may "
             "require gradients, which are not passed on. Does not wait for the device.");
}

}  // namespace voxconv::python
