#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "core/coordinate_rows.h"
#include "mapping/hash/hash_table_cpu.h"
#include "mapping/hash/hash_table_cuda.h"
#include "mapping/hash/register.h"

namespace voxconv {
namespace {

constexpr double kDefaultLoadFactor = 0.5;

class HashMapping final : public Mapping {
 public:
  explicit HashMapping(Options options)
      : options_(std::move(options)),
        symmetric_(options_.GetBool("symmetric")),
        planar_(PlanarCoords(options_)) {}

  static absl::StatusOr<std::unique_ptr<const Mapping>> Create(Options options) {
    const std::string& variant = options.GetEnum("variant");
    if (variant == "open3d" && !HaveOpen3d()) {
      return absl::UnimplementedError("variant=open3d: this build has no Open3D");
    }
    if (PlanarCoords(options) && variant != "open_addressing") {
      return absl::InvalidArgumentError(
          absl::StrCat("coords=planar: variant=", variant,
                       " reads interleaved rows only; allowed with open_addressing"));
    }
    const double load_factor = options.GetFloat("load_factor");
    if (load_factor != kDefaultLoadFactor && (variant == "open3d" || variant == "std")) {
      return absl::InvalidArgumentError(
          absl::StrCat("load_factor=", load_factor, ": variant=", variant,
                       " has none; allowed with open_addressing, cuckoo and bucketed"));
    }
    return std::make_unique<HashMapping>(std::move(options));
  }

  const Options& options() const override { return options_; }

  Support Supports(const ConvGeometry&, BackendKind backend) const override {
    const std::string& variant = options_.GetEnum("variant");
    const bool on_cpu = backend == BackendKind::kCpu;
    if (on_cpu ? variant == "bucketed" : variant == "open3d" || variant == "std") {
      return Support::No(absl::StrCat("hash: variant=", variant, " has no ",
                                      on_cpu ? "CPU" : "CUDA", " implementation"));
    }
    return CpuAndCuda("hash", backend);
  }

  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kIndexBuild);
    CoordinateRows rows(inputs);
    if (planar_) {
      VOXCONV_ASSIGN_OR_RETURN(rows, CoordinateRows::Split(inputs, context));
    }
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> table, BuildTable(rows, context));
    auto index = std::make_unique<IndexOfRows>(std::move(rows), std::move(table));
    if (Counters* counters = context.counters()) {
      counters->index_bytes = std::max(counters->index_bytes, index->bytes());
    }
    return index;
  }

  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override {
    const auto& built = static_cast<const IndexOfRows&>(index);
    VOXCONV_ASSIGN_OR_RETURN(const CoordinateRows outputs, built.RowsOf(problem.outputs, context));
    const StageScope stage(context, Stage::kMapQuery);
    const bool symmetric = symmetric_ && problem.geometry.symmetric();
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        const auto& table = static_cast<const HashTableCuda&>(built.index());
        return table.Query(problem, outputs, symmetric, context);
      }
    }
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    const auto& table = static_cast<const HashTableCpu&>(built.index());
    return QueryHashTableCpu(table, problem, outputs, symmetric, context);
  }

 private:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildTable(const CoordinateRows& inputs,
                                                       const ExecutionContext& context) const {
    const std::string& variant = options_.GetEnum("variant");
    const double load_factor = options_.GetFloat("load_factor");
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        if (variant == "cuckoo") return BuildCuckooCuda(inputs.set(), load_factor, context);
        if (variant == "bucketed") return BuildBucketedCuda(inputs.set(), load_factor, context);
        VOXCONV_CHECK(variant == "open_addressing");
        return BuildOpenAddressingCuda(inputs, load_factor, context);
      }
    }
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu && variant != "bucketed");
    if (variant == "cuckoo") return BuildCuckooCpu(inputs.set(), load_factor, context);
    if (variant == "open3d") return BuildOpen3dCpu(inputs.set(), context);
    if (variant == "std") return BuildStdCpu(inputs.set(), context);
    return BuildOpenAddressingCpu(inputs, load_factor, context);
  }

  Options options_;
  bool symmetric_;
  bool planar_;
};

PluginDescription Describe() {
  PluginDescription description;
  description.name = "hash";
  description.summary = "input coordinates in a hash table, one lookup an output row and offset";
  description.source =
      "TorchSparse 4.2.1 (hash map), SpConv, Open3D, Luo & Lai (planar coordinates)";
  description.options.Enum(
      "variant", {"open_addressing", "cuckoo", "bucketed", "open3d", "std"}, "open_addressing",
      "the table: linear probing, two-choice buckets, chains of slabs (CUDA only), "
      "open3d::core::HashMap and std::unordered_map (CPU only)");
  AddCoordsOption(description.options)
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Float("load_factor", kDefaultLoadFactor, 0.05, 0.95,
             "fill of the table at most, of bucketed its chains' first slabs; not open3d and std");
  description.extra_variants = {"variant=open_addressing,load_factor=0.9",
                                "variant=cuckoo,load_factor=0.95",
                                "variant=bucketed,load_factor=0.95"};
  return description;
}

}  // namespace

absl::Status RegisterHashMapping(Registry& registry) {
  return registry.mappings().Register(Describe(), HashMapping::Create);
}

}  // namespace voxconv
