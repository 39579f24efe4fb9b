// SPDX-License-Identifier: Apache-2.0
#include "training_norm.h"

#include <cstdint>
#include <optional>

#include "array.h"
#include "engine.h"
#include "passes.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/training_ops.h"

namespace voxconv::python {
namespace {

// An array of voxconv.torch that may be None.
std::optional<InArray> Optional(const char* name, nb::handle object, Giver giver) {
  if (object.is_none()) return std::nullopt;
  return InArray(name, object, giver);
}

// The mean and the inverse deviation of a batch, one after the other.
float* Statistics(nb::handle object, int64_t channels, Engine& engine) {
  return FloatColumn("statistics", object, 2 * channels, engine);
}

void TrainingNorm(nb::handle x_object, nb::handle gamma, nb::handle beta, nb::handle running_mean,
                  nb::handle running_variance, double momentum, double epsilon,
                  nb::handle residual_object, bool relu, nb::handle statistics_object,
                  nb::handle y_object) {
  const InArray features("features", x_object, Giver::kModule);
  const InArray result("y", y_object, Giver::kModuleInPlace);
  const std::optional<InArray> residual = Optional("residual", residual_object, Giver::kModule);
  features.CheckRank(2, "[N, C]");
  Engine& engine = *features.engine();
  const ConstTensorView x = features.Matrix();
  const TensorView y = Writable(MatrixLike(result, features));
  std::optional<ConstTensorView> added;
  if (residual.has_value()) added = MatrixLike(*residual, features);
  const int64_t channels = x.channels;
  float* const mean = Statistics(statistics_object, channels, engine);
  BatchNormBatch batch{
      .channels = channels,
      .rows = x.rows,
      .mean = mean,
      .gamma = FloatColumn("weight", gamma, channels, engine),
      .beta = FloatColumn("bias", beta, channels, engine),
      .epsilon = epsilon,
      .momentum = momentum,
      .inverse_std = mean + channels,
      .running_mean = FloatColumn("running_mean", running_mean, channels, engine),
      .running_variance = FloatColumn("running_var", running_variance, channels, engine)};
  RunOn(engine, [&](const ExecutionContext& context) -> absl::Status {
    TensorOps& ops = context.backend->tensor_ops();
    TrainingOps& training = *context.backend->training_ops();
    VOXCONV_ASSIGN_OR_RETURN(Array<float> own, AllocateArray<float>(3 * channels, context));
    float* const deviation = own.data();
    batch.deviation = deviation;
    batch.scale = deviation + channels;
    batch.shift = batch.scale + channels;
    VOXCONV_RETURN_IF_ERROR(training.ChannelMoments(x, mean, deviation, context));
    VOXCONV_RETURN_IF_ERROR(training.BatchNormScale(batch, context));
    const bool ends = relu && !added.has_value();
    VOXCONV_RETURN_IF_ERROR(ops.ScaleShift(x, batch.scale, batch.shift, ends, y, context));
    return added.has_value() ? ops.Add(y, *added, relu, y, context) : absl::OkStatus();
  });
}

void TrainingNormGrad(nb::handle dy_object, nb::handle x_object, nb::handle y_object,
                      nb::handle gamma, nb::handle statistics_object, nb::handle sums_object,
                      nb::handle masked_object, nb::handle dx_object) {
  const InArray features("features", x_object, Giver::kModule);
  const InArray gradient("grad", dy_object, Giver::kModule);
  const InArray dx("dx", dx_object, Giver::kModuleInPlace);
  const std::optional<InArray> result = Optional("y", y_object, Giver::kModule);
  const std::optional<InArray> masked = Optional("masked", masked_object, Giver::kModuleInPlace);
  features.CheckRank(2, "[N, C]");
  Engine& engine = *features.engine();
  const ConstTensorView x = features.Matrix();
  const int64_t channels = x.channels;
  const float* const mean = Statistics(statistics_object, channels, engine);
  float* const sums = FloatColumn("sums", sums_object, 2 * channels, engine);
  BatchNormGradArgs args{.x = x,
                         .dy = MatrixLike(gradient, features),
                         .mean = mean,
                         .inverse_std = mean + channels,
                         .gamma = FloatColumn("weight", gamma, channels, engine),
                         .sum_dy = sums,
                         .sum_dy_x = sums + channels,
                         .rows = x.rows};
  if (result.has_value()) args.y = MatrixLike(*result, features);
  std::optional<TensorView> cut;
  if (masked.has_value()) cut = Writable(MatrixLike(*masked, features));
  const TensorView to = Writable(MatrixLike(dx, features));
  RunOn(engine, [&](const ExecutionContext& context) -> absl::Status {
    TrainingOps& training = *context.backend->training_ops();
    if (cut.has_value()) {
      VOXCONV_RETURN_IF_ERROR(training.ReluGrad(args.y, args.dy, *cut, context));
      args.dy = *cut;
      args.y = {};
    }
    VOXCONV_RETURN_IF_ERROR(training.BatchNormGradSums(args, context));
    return training.BatchNormInputGrad(args, to, context);
  });
}

}  // namespace

void DefineTrainingNorm(nb::module_& module) {
  module.def("_training_norm", &TrainingNorm, nb::arg("features").none(), nb::arg("weight").none(),
             nb::arg("bias").none(), nb::arg("running_mean").none(), nb::arg("running_var").none(),
             nb::arg("momentum"), nb::arg("eps"), nb::arg("residual").none(), nb::arg("relu"),
             nb::arg("statistics").none(), nb::arg("y").none(),
             "Batch norm of a batch, `residual` added unless it is None, and max(y, 0) if `relu`. "
             "Updates the running statistics. `statistics`: float32 [2 C], for "
             "_training_norm_grad. `y`: [N, C]. Does not wait for the device.");
  module.def("_training_norm_grad", &TrainingNormGrad, nb::arg("grad").none(),
             nb::arg("features").none(), nb::arg("y").none(), nb::arg("weight").none(),
             nb::arg("statistics").none(), nb::arg("sums").none(), nb::arg("masked").none(),
             nb::arg("dx").none(),
             "Its gradient. `y`: the result, or None without a ReLU. `sums`: float32 [2 C], the "
             "gradients of bias and weight. `masked`: [N, C], receives the gradient of a residual "
             "with a ReLU behind it; or None. `dx`: [N, C]. Does not wait for the device.");
}

}  // namespace voxconv::python
