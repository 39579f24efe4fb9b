// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/gate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "tbb/parallel_for.h"
#include "voxconv/core/convolution.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::tune {
namespace {

// Of the reference on one core: about a tenth of a second.
constexpr double kReferenceProducts = 5e7;
constexpr int64_t kFeatureValues = 4194301;

std::vector<float> Scaled(std::vector<float> values, double factor) {
  for (float& value : values) value = static_cast<float>(value * factor);
  return values;
}

std::vector<float> Weights(const ConvShape& shape) {
  const auto reduction = static_cast<double>(shape.num_offsets * shape.c_in);
  return Scaled(verify::Values(shape.num_offsets * shape.c_in * shape.c_out, 32),
                1 / std::sqrt(std::max(reduction, 1.0)));
}

// In units of the tensor stride, so that the layer lies at tensor stride 1 as the verify problems.
std::vector<Coordinate> Divided(absl::Span<const Coordinate> rows, const Int3& stride) {
  std::vector<Coordinate> divided;
  divided.reserve(rows.size());
  for (const Coordinate& c : rows) {
    divided.push_back({c.b, c.x / stride.x, c.y / stride.y, c.z / stride.z});
  }
  return divided;
}

}  // namespace

absl::StatusOr<FeatureValues> FeatureValues::Create(Precision precision,
                                                    const ExecutionContext& context) {
  const std::vector<float> rounded =
      verify::RoundedTo(precision, verify::Values(kFeatureValues, 31));
  FeatureValues values;
  VOXCONV_ASSIGN_OR_RETURN(values.values_, Tensor::FromHost(rounded, 1, kFeatureValues, context,
                                                            ConvTypes::Of(precision).input));
  // `rounded` ends here: the copy may still be queued.
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return values;
}

absl::StatusOr<Tensor> FeatureValues::Matrix(int64_t rows, int64_t channels,
                                             const ExecutionContext& context) const {
  const TensorView& from = values_.view();
  VOXCONV_ASSIGN_OR_RETURN(Tensor matrix, Tensor::Create(rows, channels, from.dtype, context));
  const TensorView& to = matrix.view();
  for (int64_t done = 0; done < to.bytes(); done += from.bytes()) {
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(
        static_cast<char*>(to.data) + done, to.device.space, from.data, from.device.space,
        std::min(from.bytes(), to.bytes() - done), *context.stream));
  }
  return matrix;
}

absl::StatusOr<LayerData> LayerData::Create(int64_t num_inputs, const ConvShape& shape,
                                            const FeatureValues& values,
                                            const ExecutionContext& context) {
  LayerData data;
  data.shape_ = shape;
  VOXCONV_ASSIGN_OR_RETURN(data.features_, values.Matrix(num_inputs, shape.c_in, context));
  const std::vector<float> weights = verify::RoundedTo(shape.types.precision, Weights(shape));
  VOXCONV_ASSIGN_OR_RETURN(
      data.weights_, Tensor::FromHost(weights, shape.num_offsets * shape.c_in, shape.c_out, context,
                                      shape.types.weights));
  const std::vector<float> shift = Scaled(verify::Values(shape.c_out, 33), 0.1);
  VOXCONV_ASSIGN_OR_RETURN(data.shift_, CopyToBackend<float>(shift, context));
  // `weights` and `shift` end here: the copies may still be queued.
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return data;
}

absl::StatusOr<std::unique_ptr<const PreparedWeights>> LayerData::PrepareWeights(
    const Dataflow& dataflow, const ExecutionContext& context) const {
  return dataflow.PrepareWeights(shape_, weights_.view(), context);
}

absl::StatusOr<Tensor> LayerData::Run(const Dataflow& dataflow, const DataflowPlan& plan,
                                      const PreparedMap& map, const PreparedWeights* weights,
                                      Workspace& workspace, const ExecutionContext& context) const {
  return RunPlannedConvolution(dataflow, plan, map, features_.view(), weights_.view(), workspace,
                               context, {.shift = shift_.data(), .residual = {}, .relu = true},
                               /*settled=*/false, weights);
}

absl::StatusOr<Tensor> LayerData::Output(const Dataflow& dataflow, const KernelMap& map,
                                         const PreparedWeights* weights, Workspace& workspace,
                                         const ExecutionContext& context) const {
  return verify::ConvolveOntoNan(
      dataflow, map, features_.view(), weights_.view(), shape_.types.precision, workspace, context,
      {.shift = shift_.data(), .residual = {}, .relu = true}, {.weights = weights});
}

absl::StatusOr<std::vector<verify::CropReference>> CropReferences(
    absl::Span<const CropLayer> layers, absl::Span<const Coordinate> rows,
    const Int3& tensor_stride) {
  const std::vector<Coordinate> divided = Divided(rows, tensor_stride);
  std::vector<absl::StatusOr<verify::CropReference>> made(layers.size());
  tbb::parallel_for(size_t{0}, layers.size(), [&](size_t i) {
    GeometryParams params = layers[i].params;
    params.input_tensor_stride = {1, 1, 1};
    const ConvShape& shape = layers[i].shape;
    const double products = static_cast<double>(shape.c_in * shape.c_out) * params.kernel.x *
                            params.kernel.y * params.kernel.z;
    const auto limit = std::clamp(static_cast<int64_t>(kReferenceProducts / products), int64_t{50},
                                  verify::kCropVoxels);
    made[i] = verify::CropReference::Create(params, shape, divided, limit);
  });
  std::vector<verify::CropReference> references;
  for (absl::StatusOr<verify::CropReference>& one : made) {
    VOXCONV_RETURN_IF_ERROR(one.status());
    references.push_back(*std::move(one));
  }
  return references;
}

}  // namespace voxconv::tune
