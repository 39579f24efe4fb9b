// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/gate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::tune {
namespace {

// Of the reference on one core: about a tenth of a second.
constexpr double kReferenceProducts = 5e7;

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

absl::StatusOr<LayerData> LayerData::Create(int64_t num_inputs, const ConvShape& shape,
                                            const ExecutionContext& context) {
  LayerData data;
  data.shape_ = shape;
  const auto rounded = [&](std::vector<float> values) {
    return verify::RoundedTo(shape.types.precision, std::move(values));
  };
  VOXCONV_ASSIGN_OR_RETURN(data.features_,
                           Tensor::FromHost(rounded(verify::Values(num_inputs * shape.c_in, 31)),
                                            num_inputs, shape.c_in, context, shape.types.input));
  VOXCONV_ASSIGN_OR_RETURN(data.weights_,
                           Tensor::FromHost(rounded(Weights(shape)), shape.num_offsets * shape.c_in,
                                            shape.c_out, context, shape.types.weights));
  const std::vector<float> shift = Scaled(verify::Values(shape.c_out, 33), 0.1);
  VOXCONV_ASSIGN_OR_RETURN(data.shift_, CopyToBackend<float>(shift, context));
  // `shift` ends here: the copy may still be queued.
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

absl::StatusOr<std::vector<float>> LayerData::Output(const Dataflow& dataflow, const KernelMap& map,
                                                     const PreparedWeights* weights,
                                                     Workspace& workspace,
                                                     const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor output,
      verify::ConvolveOntoNan(
          dataflow, map, features_.view(), weights_.view(), shape_.types.precision, workspace,
          context, {.shift = shift_.data(), .residual = {}, .relu = true}, {.weights = weights}));
  return output.ToHost(context);
}

absl::Status CheckOnCrop(const Mapping& mapping, const Dataflow& dataflow,
                         const GeometryParams& params, absl::Span<const Coordinate> rows,
                         const Int3& tensor_stride, const ConvShape& shape,
                         const ExecutionContext& context) {
  GeometryParams at_stride_one = params;
  at_stride_one.input_tensor_stride = {1, 1, 1};
  const double products = static_cast<double>(shape.c_in * shape.c_out) * params.kernel.x *
                          params.kernel.y * params.kernel.z;
  const auto limit = std::clamp(static_cast<int64_t>(kReferenceProducts / products), int64_t{50},
                                verify::kCropVoxels);
  VOXCONV_ASSIGN_OR_RETURN(
      const auto reference,
      verify::CropReference::Create(at_stride_one, shape, Divided(rows, tensor_stride), limit));
  return verify::CheckOnCrop(reference, mapping, /*output_coords=*/nullptr, dataflow, context)
      .status();
}

}  // namespace voxconv::tune
