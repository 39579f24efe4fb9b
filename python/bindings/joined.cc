// SPDX-License-Identifier: Apache-2.0
#include "joined.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>

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

  // Sets scale and shift. `own` receives their memory, and must outlive the run.
  absl::Status SetScale(Epilogue& epilogue, Tensor& own, const ExecutionContext& context) const {
    const int64_t room = (channels_ + 63) / 64 * 64;  // so that each row is aligned
    VOXCONV_ASSIGN_OR_RETURN(own, Tensor::Create(3, room, DType::kF32, context));
    float* const scale = own.view().f32();
    float* const shift = scale + room;
    epilogue.scale = scale;
    epilogue.shift = shift;
#if VOXCONV_HAVE_CUDA
    if (context.backend->kind() == BackendKind::kCuda) {
      return CudaRunningScale({.mean = mean_.Matrix(),
                               .variance = variance_.Matrix(),
                               .gamma = gamma_.Matrix(),
                               .beta = beta_.Matrix(),
                               .epsilon = epsilon_},
                              scale, shift, context);
    }
#endif
    const auto floats = [](const InArray& array) {
      return static_cast<const float*>(array.data());  // CheckColumn allows nothing else here
    };
    return context.backend->training_ops()->BatchNormScale(
        {.channels = channels_,
         .rows = 1,  // the running variance is a deviation of one row
         .mean = floats(mean_),
         .deviation = floats(variance_),
         .gamma = floats(gamma_),
         .beta = floats(beta_),
         .epsilon = epsilon_,
         .inverse_std = shift + room,
         .scale = scale,
         .shift = shift},
        context);
  }

 private:
  InArray mean_, variance_, gamma_, beta_;
  double epsilon_;
  int64_t channels_;
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
                   Tensor own;
                   VOXCONV_RETURN_IF_ERROR(norm.SetScale(epilogue, own, context));
                   return RunConvolutionOnto(plugin, map.map(), x, w, PrecisionOf(x.dtype), y,
                                             workspace, context, epilogue, kept);
                 });
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
  return RunInto(
      engine, {x.rows, w.channels}, x.dtype, nb::none(), features.object(), {},
      [&](const TensorView& y, Workspace& /*workspace*/,
          const ExecutionContext& context) -> absl::Status {
        TensorOps& ops = context.backend->tensor_ops();
        Epilogue epilogue;
        Tensor own;
        VOXCONV_RETURN_IF_ERROR(norm.SetScale(epilogue, own, context));
        VOXCONV_RETURN_IF_ERROR(ops.Linear(x, w, nullptr, PrecisionOf(x.dtype), y, context));
        return ops.ScaleShift(y, epilogue.scale, epilogue.shift, relu, y, context);
      });
}

}  // namespace

void DefineJoined(nb::module_& module) {
  module.def("_convolve_norm", &ConvolveNorm, nb::arg("map").none(), nb::arg("features").none(),
             nb::arg("weights").none(), nb::arg("running_mean").none(),
             nb::arg("running_var").none(), nb::arg("weight").none(), nb::arg("bias").none(),
             nb::arg("eps"), nb::arg("residual").none(), nb::arg("relu"), nb::arg("dataflow"),
             "convolve, then batch norm with running statistics, `residual` added unless it is "
             "None, and max(y, 0) if `relu`; rounded once. Does not wait for the device.");
  module.def("_multiply_norm", &MultiplyNorm, nb::arg("features").none(), nb::arg("weights").none(),
             nb::arg("running_mean").none(), nb::arg("running_var").none(),
             nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"), nb::arg("relu"),
             "The same of a kernel of 1, whose products are rounded, too. Arrays of both may "
             "require gradients, which are not passed on. Does not wait for the device.");
}

}  // namespace voxconv::python
