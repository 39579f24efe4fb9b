// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/mapping/perfect_hash/neighbour_question.h"
#include "voxconv/mapping/perfect_hash/perfect_hash_mapping.h"
#include "voxconv/mapping/perfect_hash/psh_cpu.h"
#include "voxconv/mapping/perfect_hash/register.h"

namespace voxconv {
namespace {

class PshIndexCpu final : public MapIndex {
 public:
  explicit PshIndexCpu(SuperPsh psh) : psh_(std::make_shared<const SuperPsh>(std::move(psh))) {}
  int64_t bytes() const override { return psh_->bytes(); }
  const std::shared_ptr<const SuperPsh>& psh() const { return psh_; }

 private:
  std::shared_ptr<const SuperPsh> psh_;
};

// H-CNN Algorithm 1: the lookups of some output rows.
class PshNeighbours final : public NeighbourLookup {
 public:
  PshNeighbours(std::shared_ptr<const SuperPsh> psh, NeighbourQuestion question)
      : psh_(std::move(psh)), question_(std::move(question)) {}

  absl::Status Find(int64_t first, int64_t count, int32_t* table,
                    const ExecutionContext& context) const override {
    constexpr int64_t kRowsPerTask = 256;
    const StageScope stage(context, Stage::kMapQuery);
    const Coordinate* rows = question_.outputs.data() + first;
    const auto num_offsets = static_cast<int64_t>(question_.offsets.size());
    psh_->WithView([&](const auto& view) {
      ParallelRanges(context, count, kRowsPerTask, [&](int64_t begin, int64_t end) {
        int32_t* to = table + begin * num_offsets;
        for (int64_t row = begin; row < end; ++row) {
          const Coordinate& q = rows[row];
          for (const Int3& d : question_.offsets) {
            *to++ = view.Find({q.b, q.x + d.x, q.y + d.y, q.z + d.z});
          }
        }
      });
    });
    if (Counters* counters = context.counters()) counters->queries += count * num_offsets;
    return absl::OkStatus();
  }
  int64_t bytes() const override { return psh_->bytes() + question_.outputs.bytes(); }

 private:
  std::shared_ptr<const SuperPsh> psh_;
  NeighbourQuestion question_;
};

class PerfectHashCpu final : public PerfectHashMapping {
 public:
  explicit PerfectHashCpu(Options options) : PerfectHashMapping(std::move(options)) {}

  Support DoSupports(const ConvGeometry&) const override {
    if (!builds_on_device()) return Support::Yes();
    return Support::No("perfect_hash: build=device has no CPU implementation");
  }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    VOXCONV_CHECK(!builds_on_device());
    VOXCONV_ASSIGN_OR_RETURN(SuperPsh psh, SuperPsh::Build(inputs, psh_options(), context));
    return std::make_unique<PshIndexCpu>(std::move(psh));
  }

  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    const std::shared_ptr<const SuperPsh>& psh = static_cast<const PshIndexCpu&>(index).psh();
    if (on_demand()) {
      VOXCONV_ASSIGN_OR_RETURN(NeighbourQuestion question,
                               NeighbourQuestion::Copy(problem, context));
      return MapOnDemand(problem, std::make_shared<const PshNeighbours>(psh, std::move(question)));
    }
    const Coordinate* rows = problem.outputs.rows().data();
    return psh->WithView([&](const auto& view) {
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
      return CollectPairs(problem, Mirrors(problem), probe, context);
    });
  }
};

}  // namespace

absl::Status RegisterPerfectHashMapping(Registry& registry) {
  return registry.mappings().Register(
      PerfectHashMapping::Describe(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(PerfectHashMapping::Check(options));
        return std::make_unique<const PerfectHashCpu>(std::move(options));
      });
}

}  // namespace voxconv
