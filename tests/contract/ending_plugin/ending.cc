// SPDX-License-Identifier: Apache-2.0
// A mapping in a library that is right but for one kind of input, and a wrong dataflow. There it
// ends the process, or throws, or does not end: its option says which. The faults are those that a
// test of the program alone can survive.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/plugin_api.h"
#include "voxconv/core/status_macros.h"

namespace {

using voxconv::Coordinate;

struct Index final : voxconv::MapIndex {
  std::map<Coordinate, int32_t> row_of;
  int64_t bytes() const override { return 1; }
};

// Uses up the stack: `most` is more than it holds.
// NOLINTNEXTLINE(misc-no-recursion)
int Overflow(int depth, int most) {
  std::array<volatile char, 4096> frame;
  frame[depth % frame.size()] = static_cast<char>(depth);
  return depth == most ? 0 : Overflow(depth + 1, most) + frame[depth % frame.size()];
}

void Fail(const std::string& fault) {
  if (fault == "throws") throw std::runtime_error("boom");
  if (fault == "exits") std::exit(0);
  if (fault == "quick_exits") std::quick_exit(0);
  if (fault == "exits_at_once") std::_Exit(0);
  if (fault == "crashes") std::raise(SIGSEGV);
  if (fault == "overflows") std::exit(Overflow(0, std::numeric_limits<int>::max()));
  while (fault == "hangs") std::this_thread::sleep_for(std::chrono::seconds(1));
}

class Ending final : public voxconv::Mapping {
 public:
  explicit Ending(voxconv::Options options) : options_(std::move(options)) {}
  ~Ending() override {
    if (std::getenv("ENDING_CRASHES_LATE") != nullptr) std::raise(SIGSEGV);
  }
  const voxconv::Options& options() const override { return options_; }

 protected:
  voxconv::Support DoSupports(const voxconv::ConvGeometry&) const override {
    return voxconv::Support::Yes();
  }
  absl::StatusOr<std::unique_ptr<voxconv::MapIndex>> DoBuildIndex(
      const voxconv::CoordinateSet& inputs, const voxconv::ExecutionContext&) const override {
    if (options_.GetEnum("fault") == "null") return nullptr;
    auto index = std::make_unique<Index>();
    const absl::Span<const Coordinate> rows = inputs.rows().host();
    for (size_t i = 0; i < rows.size(); ++i) index->row_of.emplace(rows[i], i);
    return index;
  }

  absl::StatusOr<voxconv::KernelMap> DoQuery(
      const voxconv::MapIndex& index, const voxconv::MapProblem& problem,
      const voxconv::ExecutionContext& context) const override {
    const int64_t voxels = options_.GetInt("voxels");
    const int64_t num_inputs = problem.inputs.size();
    if (voxels == 0 || num_inputs == voxels) {
      if (options_.GetEnum("fault") == "cancels") return absl::CancelledError("I gave up");
      Fail(options_.GetEnum("fault"));
    }
    const auto& row_of = static_cast<const Index&>(index).row_of;
    const absl::Span<const Coordinate> outputs = problem.outputs.rows().host();
    const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
      const voxconv::Int3& d = problem.geometry.InputOffset(k);
      int64_t pairs = 0;
      for (int64_t q = begin; q < end; ++q) {
        const Coordinate& at = outputs[q];
        const auto found = row_of.find({at.b, at.x + d.x, at.y + d.y, at.z + d.z});
        if (found == row_of.end()) continue;
        in[pairs] = found->second;
        out[pairs++] = static_cast<int32_t>(q);
      }
      return pairs;
    };
    return voxconv::CollectPairs(problem, /*symmetric=*/false, probe, context);
  }

 private:
  voxconv::Options options_;
};

// Its outputs are zeros.
class Zeros final : public voxconv::Dataflow {
 public:
  explicit Zeros(voxconv::Options options) : options_(std::move(options)) {}
  const voxconv::Options& options() const override { return options_; }

 protected:
  voxconv::Capability DoCapability(voxconv::Pass, const voxconv::ConvShape& shape) const override {
    return {.support = voxconv::F32Only("zeros", shape)};
  }
  voxconv::MapNeed DoNeededMap(voxconv::Pass, const voxconv::ConvShape&) const override {
    return {};
  }
  absl::StatusOr<std::unique_ptr<voxconv::DataflowPlan>> DoPlan(
      voxconv::Pass, const voxconv::PreparedMap&, const voxconv::ConvShape&,
      const voxconv::ExecutionContext&) const override {
    return std::make_unique<voxconv::DataflowPlan>();
  }
  absl::Status DoForward(const voxconv::DataflowPlan&, const voxconv::PreparedMap&,
                         const voxconv::ForwardArgs& args, const voxconv::Workspace&,
                         const voxconv::ExecutionContext&) const override {
    std::fill_n(args.output.f32(), args.output.rows * args.output.channels, 0.0f);
    return absl::OkStatus();
  }

 private:
  voxconv::Options options_;
};

absl::Status RegisterMapping(voxconv::Registry& registry) {
  voxconv::OptionSchema options;
  options
      .Enum("fault",
            {"none", "throws", "null", "exits", "quick_exits", "exits_at_once", "crashes",
             "overflows", "hangs", "cancels"},
            "none", "what it does")
      .Int("voxels", 1, 0, 1 << 20, "number of input voxels for which it does so; 0: all");
  return registry.mappings().Register(
      {.name = "ending", .summary = "for tests", .options = options}, voxconv::BackendKind::kCpu,
      [](voxconv::Options values) -> absl::StatusOr<std::unique_ptr<const voxconv::Mapping>> {
        return std::make_unique<Ending>(std::move(values));
      });
}

absl::Status RegisterEnding(voxconv::Registry& registry) {
  // Where it is asked for: commands that try all dataflows would end with its fault alone.
  if (std::getenv("ENDING_WITH_ZEROS") == nullptr) return RegisterMapping(registry);
  VOXCONV_RETURN_IF_ERROR(registry.dataflows().Register(
      {.name = "zeros", .summary = "for tests"}, voxconv::BackendKind::kCpu,
      [](voxconv::Options values) -> absl::StatusOr<std::unique_ptr<const voxconv::Dataflow>> {
        return std::make_unique<Zeros>(std::move(values));
      }));
  return RegisterMapping(registry);
}

}  // namespace

VOXCONV_PLUGIN(ending, RegisterEnding)
