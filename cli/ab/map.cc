#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/ab/work.h"
#include "core/convolution.h"
#include "experiments/harness/layer_work.h"

namespace voxconv::ab {
namespace {

// One side's plugins with the coordinates that both share.
class MapRunner {
 public:
  static absl::StatusOr<std::shared_ptr<MapRunner>> Create(
      const harness::LayerProblem& problem, const harness::Configuration& configuration,
      const Registry& registry, const ExecutionContext& context) {
    std::shared_ptr<MapRunner> runner(new MapRunner(problem.geometry, context));
    VOXCONV_ASSIGN_OR_RETURN(runner->mapping_,
                             registry.mappings().Create(configuration.choice.mapping));
    VOXCONV_ASSIGN_OR_RETURN(runner->output_coords_,
                             registry.output_coords().Create(configuration.choice.output_coords));
    const BackendKind backend = context.backend->kind();
    if (const Support support = runner->mapping_->Supports(problem.geometry, backend);
        !support.ok) {
      return absl::UnimplementedError(absl::StrCat("mapping: ", support.reason));
    }
    VOXCONV_ASSIGN_OR_RETURN(
        runner->inputs_,
        CoordinateSet::Create(problem.inputs, problem.geometry.input_tensor_stride(), context));
    if (problem.geometry.kind() == ConvKind::kInverse) {
      VOXCONV_ASSIGN_OR_RETURN(
          runner->outputs_,
          CoordinateSet::Create(problem.outputs, problem.geometry.output_tensor_stride(), context));
    }
    VOXCONV_RETURN_IF_ERROR(runner->Build(context));
    return runner;
  }

  absl::StatusOr<harness::Measurement> Run() {
    harness::Measurement measurement;
    ExecutionContext context = context_;
    context.profile = &measurement.profile;
    const auto start = std::chrono::steady_clock::now();
    VOXCONV_RETURN_IF_ERROR(Build(context));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    measurement.wall_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    VOXCONV_RETURN_IF_ERROR(context.backend->FlushStages());
    return measurement;
  }

  absl::StatusOr<KernelMap> Pairs() const {
    return context_.backend->ConvertKernelMap(map_, {}, context_);
  }
  absl::StatusOr<std::vector<float>> PairsPerOffset() const {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, Pairs());
    std::vector<float> counts;
    counts.reserve(pairs.num_offsets());
    for (int k = 0; k < pairs.num_offsets(); ++k) {
      counts.push_back(static_cast<float>(pairs.num_pairs(k)));
    }
    return counts;
  }

  const CoordinateSet& inputs() const { return *inputs_; }
  const CoordinateSet& outputs() const { return *outputs_; }

 private:
  MapRunner(ConvGeometry geometry, const ExecutionContext& context)
      : geometry_(std::move(geometry)), context_(context) {}

  absl::Status Build(const ExecutionContext& context) {
    if (geometry_.keeps_coordinates()) {
      outputs_ = inputs_;
    } else if (geometry_.kind() != ConvKind::kInverse) {
      VOXCONV_ASSIGN_OR_RETURN(outputs_, output_coords_->Compute(*inputs_, geometry_, context));
    }
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<MapIndex> index,
                             mapping_->BuildIndex(*inputs_, context));
    VOXCONV_ASSIGN_OR_RETURN(map_,
                             mapping_->Query(*index, {*inputs_, *outputs_, geometry_}, context));
    return absl::OkStatus();
  }

  ConvGeometry geometry_;
  ExecutionContext context_;
  std::unique_ptr<const Mapping> mapping_;
  std::unique_ptr<const OutputCoords> output_coords_;
  CoordinateSetPtr inputs_, outputs_;
  KernelMap map_;
};

Side MakeSide(const std::shared_ptr<MapRunner>& runner) {
  return {[runner] { return runner->Run(); }, [runner] { return runner->PairsPerOffset(); }};
}

}  // namespace

absl::StatusOr<Work> MakeMapWork(const Request& request, const GeometryParams& geometry,
                                 const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto output_coords,
                           registry.output_coords().Create(request.a.choice.output_coords));
  VOXCONV_ASSIGN_OR_RETURN(
      const harness::LayerProblem problem,
      harness::MakeLayerProblem(geometry, RowsOf(request.cloud), *output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(auto a, MapRunner::Create(problem, request.a, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(auto b, MapRunner::Create(problem, request.b, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, a->Pairs());
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_b, b->Pairs());
  VOXCONV_RETURN_IF_ERROR(harness::ComparePairs(pairs, pairs_b, context));

  Work work;
  work.bound = 0;
  // Wide enough for any dataflow that a configuration names, narrow enough for the reference.
  work.layers_to_check = {{geometry, 16, 16}};
  work.title = absl::StrCat("map of ", problem.geometry.ToString(), ", ", a->inputs().size(),
                            " -> ", a->outputs().size(), " voxels, ", pairs.num_pairs(), " pairs");
  work.description = {{"map", problem.geometry.ToString()},
                      {"n_in", a->inputs().size()},
                      {"n_out", a->outputs().size()},
                      {"pairs", pairs.num_pairs()}};
  work.a = MakeSide(a);
  work.b = MakeSide(b);
  return work;
}

}  // namespace voxconv::ab
