// SPDX-License-Identifier: Apache-2.0
// Many runs of one convolution: with the threads of either backend, at other addresses each time,
// and with other work beside it.
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// A fault in one of a hundred runs passes in one of thirteen cases of this many runs.
constexpr int kRuns = 256;
// Of the runs, the last half is with load.
constexpr int kLoaded = kRuns / 2;

// Keeps a core busy as long as it lives.
class Load {
 public:
  Load()
      : thread_([this] {
          while (!done_.load(std::memory_order_relaxed)) {
          }
        }) {}
  ~Load() {
    done_ = true;
    thread_.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

Outcome RunMany(const Environment& environment, const Dataflow& dataflow, const CaseShape& shape,
                const Problem& problem) {
  // Values whose sums depend on their order.
  ConvData data{.c_in = shape.c_in, .c_out = shape.c_out};
  data.features = Values(static_cast<int64_t>(problem.inputs.size()) * shape.c_in, 41);
  data.weights = Values(problem.geometry.num_offsets() * shape.c_in * shape.c_out, 42);
  std::vector<float> first;
  std::unique_ptr<Load> load;
  for (int i = 0; i < kRuns; ++i) {
    if (i == kLoaded) load = std::make_unique<Load>();
    Backend& backend = i % 2 == 0 ? *environment.serial : *environment.parallel;
    const ExecutionContext context = ContextOf(backend);
    // Moves what is allocated after it.
    const absl::StatusOr<Buffer> spacer = backend.Allocate(int64_t{256} * (i % 7), *context.stream);
    if (!spacer.ok()) return Outcome::From(spacer.status());
    const absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    const auto output = Convolve(dataflow, *map, data, shape.precision, context);
    if (!output.ok()) return Outcome::From(output.status());
    if (first.empty()) first = *output;
    if (output->size() != first.size() ||
        std::memcmp(output->data(), first.data(), first.size() * sizeof(float)) != 0) {
      return Outcome::Failed(absl::StrCat("run ", i, " of ", kRuns, " on ", backend.DeviceName(),
                                          " differs bitwise from the first"));
    }
  }
  return Outcome::Passed();
}

}  // namespace

void AddStressCases(Environment& environment, std::vector<Case>& cases) {
  const Problem* problem = environment.problems.Get(GeometryNamed("submanifold_k3"), Scenes()[1]);
  const auto add = [&](const std::string& spec, const CaseShape& shape) {
    cases.push_back(
        {absl::StrCat("repeat/conv/", spec, "/", ShapeName(shape), "/", problem->id, "/many"),
         [&environment, spec, shape, problem] {
           return WithDataflow(
               environment, spec, shape, problem->geometry, [&](const Dataflow& dataflow) {
                 const ConvShape layer =
                     ShapeOfLayer(problem->geometry, shape.c_in, shape.c_out, shape.precision);
                 if (!dataflow.CapabilityOf(Pass::kForward, layer).deterministic) {
                   return Outcome::Skipped("does not claim to be deterministic");
                 }
                 return RunMany(environment, dataflow, shape, *problem);
               });
         }});
  };
  ForEachClaimedShape(environment, {{16, 16}}, add);
}

}  // namespace voxconv::verify
