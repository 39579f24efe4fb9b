#include "mapping/perfect_hash/perfect_hash_mapping.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/pair_collector.h"
#include "core/backend_support.h"
#include "mapping/perfect_hash/psh_cpu.h"
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
  return CpuOnly("perfect_hash", backend);
}

absl::StatusOr<std::unique_ptr<MapIndex>> PerfectHashMapping::BuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kIndexBuild);
  const PshOptions options{options_.GetFloat("load"), options_.GetInt("max_retries")};
  VOXCONV_ASSIGN_OR_RETURN(SuperPsh psh, SuperPsh::Build(inputs, options, context));
  auto index = std::make_unique<PshIndexCpu>(std::move(psh));
  if (Counters* counters = context.counters()) {
    counters->index_bytes = std::max(counters->index_bytes, index->bytes());
  }
  return index;
}

absl::StatusOr<KernelMap> PerfectHashMapping::Query(const MapIndex& index,
                                                    const MapProblem& problem,
                                                    const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kMapQuery);
  const SuperPsh& psh = static_cast<const PshIndexCpu&>(index).psh();
  const Coordinate* rows = problem.outputs.rows().data();
  return psh.WithTags([&](const auto* tags) {
    const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const Int3 d = problem.geometry.InputOffset(k);
      int64_t count = 0;
      for (int64_t row = begin; row < end; ++row) {
        const Coordinate& q = rows[row];
        const int32_t found = psh.FindWith(tags, q.b, {q.x + d.x, q.y + d.y, q.z + d.z});
        in[count] = found;
        out[count] = static_cast<int32_t>(row);
        count += found >= 0;
      }
      return count;
    };
    return CollectPairs(problem, symmetric_ && problem.geometry.symmetric(), probe, context);
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
