#include "measure/ab/gate.h"

#include "verify/gate.h"

namespace voxconv::ab {

absl::StatusOr<verify::CropReference> MakeCropReference(const LayerShape& shape,
                                                        absl::Span<const Coordinate> rows,
                                                        int64_t crop_voxels) {
  return verify::CropReference::Create(shape.geometry, {shape.c_in, shape.c_out, DType::kF32}, rows,
                                       crop_voxels);
}

absl::StatusOr<verify::CropCheck> CheckAgainst(const verify::CropReference& reference,
                                               const measure::Configuration& configuration,
                                               const Registry& registry,
                                               const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                           registry.mappings().Create(configuration.choice.mapping));
  VOXCONV_ASSIGN_OR_RETURN(const auto output_coords,
                           registry.output_coords().Create(configuration.choice.output_coords));
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           registry.dataflows().Create(configuration.choice.dataflow));
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
