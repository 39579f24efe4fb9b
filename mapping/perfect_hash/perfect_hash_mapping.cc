#include "mapping/perfect_hash/perfect_hash_mapping.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/pair_collector.h"
#include "core/backend_support.h"
#include "mapping/perfect_hash/psh_cpu.h"
#include "mapping/perfect_hash/psh_cuda.h"
#include "mapping/perfect_hash/register.h"

namespace voxconv {
namespace {

class PshIndexCpu final : public MapIndex {
 public:
  explicit PshIndexCpu(SuperPsh psh) : psh_(std::move(psh)) {}
  int64_t bytes() const override { return psh_.bytes(); }
  const SuperPsh& psh() const { return psh_; }

 private:
  SuperPsh psh_;
};

}  // namespace

OptionSchema PerfectHashMapping::Schema() {
  OptionSchema schema;
  schema
      .Enum("build", {"host", "device"}, "host",
            "where the tables are constructed: one bucket after the other as in the paper, or many "
            "at once (CUDA only)")
      .Float("load", 1, 0.1, 1,
             "voxels per slot to aim at; 1 takes the least table that holds a sample's voxels")
      .Int("max_retries", 24, 0, 1000,
           "further tries with larger tables where the construction fails")
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs");
  return schema;
}

PerfectHashMapping::PerfectHashMapping(Options options)
    : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {}

Support PerfectHashMapping::Supports(const ConvGeometry&, BackendKind backend) const {
  if (backend == BackendKind::kCpu && options_.GetEnum("build") == "device") {
    return Support::No("perfect_hash: build=device has no CPU implementation");
  }
  return CpuAndCuda("perfect_hash", backend);
}

absl::StatusOr<std::unique_ptr<MapIndex>> PerfectHashMapping::MakeIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const PshOptions options{options_.GetFloat("load"), options_.GetInt("max_retries")};
  const bool on_device = options_.GetEnum("build") == "device";
  if constexpr (kHaveCuda) {
    if (context.backend->kind() == BackendKind::kCuda) {
      VOXCONV_ASSIGN_OR_RETURN(PshCuda psh, on_device ? BuildPshOnDevice(inputs, options, context)
                                                      : BuildPshOnHost(inputs, options, context));
      return MakePshIndexCuda(std::move(psh));
    }
  }
  VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu && !on_device);
  VOXCONV_ASSIGN_OR_RETURN(SuperPsh psh, SuperPsh::Build(inputs, options, context));
  return std::make_unique<PshIndexCpu>(std::move(psh));
}

absl::StatusOr<std::unique_ptr<MapIndex>> PerfectHashMapping::BuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kIndexBuild);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index, MakeIndex(inputs, context));
  if (Counters* counters = context.counters()) {
    counters->index_bytes = std::max(counters->index_bytes, index->bytes());
  }
  return index;
}

absl::StatusOr<KernelMap> PerfectHashMapping::Query(const MapIndex& index,
                                                    const MapProblem& problem,
                                                    const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kMapQuery);
  const bool symmetric = symmetric_ && problem.geometry.symmetric();
  if constexpr (kHaveCuda) {
    if (context.backend->kind() == BackendKind::kCuda) {
      return static_cast<const PshIndexCuda&>(index).Query(problem, symmetric, context);
    }
  }
  const SuperPsh& psh = static_cast<const PshIndexCpu&>(index).psh();
  const Coordinate* rows = problem.outputs.rows().data();
  return psh.WithView([&](const auto& view) {
    const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const Int3 d = problem.geometry.InputOffset(k);
      int64_t count = 0;
      for (int64_t row = begin; row < end; ++row) {
        const Coordinate& q = rows[row];
        const int32_t found = view.Find({q.b, q.x + d.x, q.y + d.y, q.z + d.z});
        in[count] = found;
        out[count] = static_cast<int32_t>(row);
        count += found >= 0;
      }
      return count;
    };
    return CollectPairs(problem, symmetric, probe, context);
  });
}

absl::Status RegisterPerfectHashMapping(Registry& registry) {
  return registry.mappings().Register(
      {.name = "perfect_hash",
       .summary = "perfect spatial hashing: tables H, Phi, T without collisions",
       .source = "H-CNN, Section 3; construction after Lefebvre and Hoppe (2006)",
       .options = PerfectHashMapping::Schema(),
       .extra_variants = {"load=0.5"}},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        return std::make_unique<const PerfectHashMapping>(std::move(options));
      });
}

}  // namespace voxconv
