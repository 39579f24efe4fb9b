// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/ab/gate.h"

#include "voxconv/verify/gate.h"

namespace voxconv::ab {

absl::StatusOr<verify::CropReference> MakeCropReference(const LayerShape& shape,
                                                        absl::Span<const Coordinate> rows,
                                                        int64_t crop_voxels) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry,
                           ConvGeometry::Create(verify::PlacedGeometry(shape.geometry)));
  return verify::CropReference::Create(
      shape.geometry, ShapeOfLayer(geometry, shape.c_in, shape.c_out, Precision::kF32), rows,
      crop_voxels);
}

absl::StatusOr<verify::CropCheck> CheckAgainst(const verify::CropReference& reference,
                                               const measure::Configuration& configuration,
                                               const Registry& registry,
                                               const ExecutionContext& context) {
  const BackendKind backend = context.backend->kind();
  const LayerChoice& choice = configuration.choice;
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping, registry.mappings().Create(choice.mapping, backend));
  VOXCONV_ASSIGN_OR_RETURN(const auto output_coords,
                           registry.output_coords().Create(choice.output_coords, backend));
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           registry.dataflows().Create(choice.dataflow, backend));
  return verify::CheckOnCrop(reference, *mapping, output_coords.get(), *dataflow, context);
}

absl::StatusOr<double> CompareOutputs(const Work& work) {
  VOXCONV_RETURN_IF_ERROR(work.a.run().status());
  VOXCONV_RETURN_IF_ERROR(work.b.run().status());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> a, work.a.output());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> b, work.b.output());
  return verify::CompareOutputs(a, b, work.bound, "the other side");
}

}  // namespace voxconv::ab
