#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "mapping/hash/hash_table_cpu.h"
#include "mapping/hash/register.h"

namespace voxconv {
namespace {

constexpr double kDefaultLoadFactor = 0.5;

class HashMapping final : public Mapping {
 public:
  explicit HashMapping(Options options)
      : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {}

  static absl::StatusOr<std::unique_ptr<const Mapping>> Create(Options options) {
    const std::string& variant = options.GetEnum("variant");
    if (variant == "open3d" && !HaveOpen3d()) {
      return absl::UnimplementedError("variant=open3d: this build has no Open3D");
    }
    const double load_factor = options.GetFloat("load_factor");
    if (load_factor != kDefaultLoadFactor && variant != "open_addressing" && variant != "cuckoo") {
      return absl::InvalidArgumentError(
          absl::StrCat("load_factor=", load_factor, ": variant=", variant,
                       " has none; allowed with open_addressing and cuckoo"));
    }
    return std::make_unique<HashMapping>(std::move(options));
  }

  const Options& options() const override { return options_; }

  Support Supports(const ConvGeometry&, BackendKind backend) const override {
    return CpuOnly("hash", backend);
  }

  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    const StageScope stage(context, Stage::kIndexBuild);
    VOXCONV_ASSIGN_OR_RETURN(HashTableCpuPtr table, BuildTable(inputs, context));
    if (Counters* counters = context.counters()) {
      counters->index_bytes = std::max(counters->index_bytes, table->bytes());
    }
    return table;
  }

  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override {
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    const StageScope stage(context, Stage::kMapQuery);
    return QueryHashTableCpu(static_cast<const HashTableCpu&>(index), problem,
                             symmetric_ && problem.geometry.symmetric(), context);
  }

 private:
  absl::StatusOr<HashTableCpuPtr> BuildTable(const CoordinateSet& inputs,
                                             const ExecutionContext& context) const {
    const std::string& variant = options_.GetEnum("variant");
    const double load_factor = options_.GetFloat("load_factor");
    if (variant == "cuckoo") return BuildCuckooCpu(inputs, load_factor, context);
    if (variant == "open3d") return BuildOpen3dCpu(inputs, context);
    if (variant == "std") return BuildStdCpu(inputs, context);
    return BuildOpenAddressingCpu(inputs, load_factor, context);
  }

  Options options_;
  bool symmetric_;
};

PluginDescription Describe() {
  PluginDescription description;
  description.name = "hash";
  description.summary = "input coordinates in a hash table, one lookup an output row and offset";
  description.source = "TorchSparse 4.2.1 (hash map), SpConv, Open3D";
  description.options
      .Enum("variant", {"open_addressing", "cuckoo", "open3d", "std"}, "open_addressing",
            "the table: linear probing, two-choice buckets, open3d::core::HashMap, "
            "std::unordered_map")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Float("load_factor", kDefaultLoadFactor, 0.05, 0.95,
             "fill of the table at most; open_addressing and cuckoo");
  description.extra_variants = {"variant=open_addressing,load_factor=0.9",
                                "variant=cuckoo,load_factor=0.95"};
  return description;
}

}  // namespace

absl::Status RegisterHashMapping(Registry& registry) {
  return registry.mappings().Register(Describe(), HashMapping::Create);
}

}  // namespace voxconv
