// SPDX-License-Identifier: Apache-2.0
// A complete mapping plugin: coordinates are looked up in a balanced binary tree (std::map).
// Simple and slow, O(log N) cache misses a lookup; meant to be copied and replaced part by part.
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/plugin_api.h"

namespace {

using voxconv::Coordinate;
using voxconv::Int3;

// What DoBuildIndex makes and DoQuery reads.
class BinaryTreeIndex final : public voxconv::MapIndex {
 public:
  explicit BinaryTreeIndex(absl::Span<const Coordinate> rows) {
    for (size_t row = 0; row < rows.size(); ++row) {
      row_of_.emplace(rows[row], static_cast<int32_t>(row));
    }
  }

  // The row of voxel `p`, or -1.
  int32_t Find(const Coordinate& p) const {
    auto it = row_of_.find(p);
    return it == row_of_.end() ? -1 : it->second;
  }

  // A node holds its entry, three links and a colour.
  int64_t bytes() const override {
    return static_cast<int64_t>(row_of_.size() * (sizeof(*row_of_.begin()) + 4 * sizeof(void*)));
  }

 private:
  std::map<Coordinate, int32_t> row_of_;
};

// The mapping on the CPU. Callers use Mapping::BuildIndex and Mapping::Query, which time both
// stages, record the size of the index and check the map.
class BinaryTreeMapping final : public voxconv::Mapping {
 public:
  explicit BinaryTreeMapping(voxconv::Options options)
      : options_(std::move(options)), symmetric_(options_.GetBool("symmetric")) {}

  const voxconv::Options& options() const override { return options_; }

  // A geometry that does not run is refused here, with the reason.
  voxconv::Support DoSupports(const voxconv::ConvGeometry&) const override {
    return voxconv::Support::Yes();
  }

 protected:
  absl::StatusOr<std::unique_ptr<voxconv::MapIndex>> DoBuildIndex(
      const voxconv::CoordinateSet& inputs, const voxconv::ExecutionContext&) const override {
    return std::make_unique<BinaryTreeIndex>(inputs.rows().host());
  }

  absl::StatusOr<voxconv::KernelMap> DoQuery(
      const voxconv::MapIndex& index, const voxconv::MapProblem& problem,
      const voxconv::ExecutionContext& context) const override {
    const auto& tree = static_cast<const BinaryTreeIndex&>(index);
    const absl::Span<const Coordinate> outputs = problem.outputs.rows().host();

    // The one question a mapping answers: which output rows of [begin, end) have an input at
    // q + InputOffset(k), and in which row? CollectPairs asks it from several threads.
    auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const Int3& offset = problem.geometry.InputOffset(k);
      int64_t pairs = 0;
      for (int64_t q = begin; q < end; ++q) {
        const Coordinate& at = outputs[q];
        const int32_t p = tree.Find({at.b, at.x + offset.x, at.y + offset.y, at.z + offset.z});
        if (p < 0) continue;
        in[pairs] = p;
        out[pairs++] = static_cast<int32_t>(q);
      }
      return pairs;
    };
    return voxconv::CollectPairs(problem, symmetric_ && problem.geometry.symmetric(), probe,
                                 context);
  }

 private:
  voxconv::Options options_;
  bool symmetric_;
};

// A plugin for CUDA too would add registry.mappings().Implement("binary_tree", kCuda, ...).
absl::Status RegisterBinaryTree(voxconv::Registry& registry) {
  voxconv::OptionSchema options;
  options.Bool("symmetric", false,
               "where the geometry is symmetric, look up half of the offsets and mirror the rest");
  return registry.mappings().Register(
      {.name = "binary_tree",
       .summary = "balanced binary tree (std::map) over the input coordinates",
       .source = "the plugin guide's example",
       .options = std::move(options)},
      voxconv::BackendKind::kCpu,
      [](voxconv::Options values) -> absl::StatusOr<std::unique_ptr<const voxconv::Mapping>> {
        return std::make_unique<BinaryTreeMapping>(std::move(values));
      });
}

}  // namespace

VOXCONV_PLUGIN(binary_tree, RegisterBinaryTree)
