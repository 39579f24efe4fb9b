// SPDX-License-Identifier: Apache-2.0
// A mapping in a library, right or wrong on purpose: STRANGER_FAULT says how.
//   0  right             1  right, built anew (other bytes)
//   2  input rows past the end     3  negative input rows
//   4  the last pair is lost where there are more voxels than the reference is given
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/plugin_api.h"

namespace {

using voxconv::Coordinate;

constexpr int kFault = STRANGER_FAULT;
constexpr int64_t kManyVoxels = 3000;

struct Index final : voxconv::MapIndex {
  std::map<Coordinate, int32_t> row_of;
  int64_t bytes() const override { return 1 + kFault; }
};

class Stranger final : public voxconv::Mapping {
 public:
  const voxconv::Options& options() const override { return options_; }
  voxconv::Support DoSupports(const voxconv::ConvGeometry&) const override {
    return voxconv::Support::Yes();
  }

 protected:
  absl::StatusOr<std::unique_ptr<voxconv::MapIndex>> DoBuildIndex(
      const voxconv::CoordinateSet& inputs, const voxconv::ExecutionContext&) const override {
    auto index = std::make_unique<Index>();
    const absl::Span<const Coordinate> rows = inputs.rows().host();
    for (size_t i = 0; i < rows.size(); ++i) index->row_of.emplace(rows[i], i);
    return index;
  }

  absl::StatusOr<voxconv::KernelMap> DoQuery(
      const voxconv::MapIndex& index, const voxconv::MapProblem& problem,
      const voxconv::ExecutionContext& context) const override {
    const auto& row_of = static_cast<const Index&>(index).row_of;
    const absl::Span<const Coordinate> outputs = problem.outputs.rows().host();
    const auto num_inputs = static_cast<int32_t>(problem.inputs.size());
    const int last = problem.geometry.num_offsets() - 1;
    auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const voxconv::Int3& d = problem.geometry.InputOffset(k);
      int64_t pairs = 0;
      for (int64_t q = begin; q < end; ++q) {
        const Coordinate& at = outputs[q];
        const auto found = row_of.find({at.b, at.x + d.x, at.y + d.y, at.z + d.z});
        if (found == row_of.end()) continue;
        in[pairs] = found->second;
        if (kFault == 2) in[pairs] += num_inputs;
        if (kFault == 3) in[pairs] -= num_inputs;
        out[pairs++] = static_cast<int32_t>(q);
      }
      const bool loses = kFault == 4 && k == last && num_inputs > kManyVoxels &&
                         end == static_cast<int64_t>(outputs.size());
      return loses && pairs > 0 ? pairs - 1 : pairs;
    };
    return voxconv::CollectPairs(problem, /*symmetric=*/false, probe, context);
  }

 private:
  voxconv::Options options_;
};

absl::Status RegisterStranger(voxconv::Registry& registry) {
  return registry.mappings().Register(
      {.name = "stranger", .summary = "for tests"}, voxconv::BackendKind::kCpu,
      [](voxconv::Options) -> absl::StatusOr<std::unique_ptr<const voxconv::Mapping>> {
        return std::make_unique<Stranger>();
      });
}

}  // namespace

VOXCONV_PLUGIN(stranger, RegisterStranger)
