// SPDX-License-Identifier: Apache-2.0
// A covering array over channels, kernels, samples and threads: every number of channels from 1 to
// 260 as input and as output, and every pair of kernel, number of samples and number of threads.
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tbb/global_control.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

constexpr int kMaxChannels = 260;
constexpr int kMaxBatches = 16;
constexpr int kMaxThreads = 16;  // also more than there are cores
constexpr std::array<Int3, 16> kKernels = {{{1, 1, 1},
                                            {2, 2, 2},
                                            {3, 3, 3},
                                            {4, 4, 4},
                                            {5, 5, 5},
                                            {6, 6, 6},
                                            {7, 7, 7},
                                            {1, 1, 3},
                                            {1, 3, 1},
                                            {3, 1, 1},
                                            {3, 3, 1},
                                            {1, 5, 3},
                                            {2, 3, 4},
                                            {7, 1, 1},
                                            {1, 7, 2},
                                            {4, 1, 6}}};

struct Row {
  int64_t c_in, c_out;
  Int3 kernel;
  int batches, threads;

  std::string problem() const { return absl::StrCat("k", ToString(kernel), "_b", batches); }
  std::string name() const { return absl::StrCat(problem(), "_t", threads); }
};

// Row i of the array. Kernel, samples and threads are a Latin square of order 16: each pair of
// their values is in one of the first 256 rows. 97 and 260 have no common factor.
Row RowOf(int i) {
  const int kernel = i % 16, batches = i / 16 % kMaxBatches;
  const int64_t c_in = 1 + i * 97 % kMaxChannels;
  return {.c_in = c_in,
          .c_out = kMaxChannels + 1 - c_in,
          .kernel = kKernels[kernel],
          .batches = 1 + batches,
          .threads = 1 + (kernel + batches) % kMaxThreads};
}

// Eight voxels a sample: half of them close together, half of them as far as a kernel of 7 reaches.
Scene SceneOf(int batches) {
  Scene scene{.name = absl::StrCat("b", batches)};
  for (int32_t b = 0; b < batches; ++b) {
    for (int32_t i = 0; i < 4; ++i) scene.rows.push_back({b, i / 2, i % 2, (i + b) % 2});
    for (int32_t i = 0; i < 4; ++i) scene.rows.push_back({b, 2 + i, (3 * i + b) % 7, (i * i) % 5});
  }
  return scene;
}

// What the cases share. The data of the last row alone is kept: neighbours in the order of the
// cases ask for the same row.
class Rows {
 public:
  explicit Rows(Environment& environment) : environment_(&environment) {}

  const Problem& Get(const Row& row) {
    return *problems_.Get({absl::StrCat("k", ToString(row.kernel)),
                           {.kind = ConvKind::kSubmanifold, .kernel = row.kernel}},
                          SceneOf(row.batches));
  }
  const ConvData& Data(const Row& row) {
    const std::string key = absl::StrCat(row.c_in, "/", row.name());
    if (key != last_) data_ = WholeNumbers(Get(row), row.c_in, row.c_out);
    last_ = key;
    return data_;
  }
  // One with the row's number of threads, on the CPU.
  absl::StatusOr<Backend*> BackendOf(const Row& row) {
    if (environment_->backend->kind() != BackendKind::kCpu) return environment_->backend;
    if (threads_ == nullptr) {
      threads_ = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                       kMaxThreads);
    }
    std::unique_ptr<Backend>& backend = backends_[row.threads];
    if (backend == nullptr) {
      VOXCONV_ASSIGN_OR_RETURN(backend, MakeBackend({.threads = row.threads}));
    }
    return backend.get();
  }

 private:
  Environment* environment_;
  ProblemCache problems_;
  // By itself TBB has no more threads than there are cores.
  std::unique_ptr<tbb::global_control> threads_;
  std::map<int, std::unique_ptr<Backend>> backends_;
  std::string last_;
  ConvData data_;
};

Outcome RunCoveringMapCase(const Environment& environment, const std::string& spec, Rows& rows,
                           const Row& row) {
  const Problem& problem = rows.Get(row);
  return WithMapping(environment, spec, problem.geometry, [&](const Mapping& mapping) {
    const absl::StatusOr<Backend*> backend = rows.BackendOf(row);
    if (!backend.ok()) return Outcome::From(backend.status());
    const absl::StatusOr<KernelMap> map = QueryValidMap(mapping, problem, ContextOf(**backend));
    if (!map.ok()) return Outcome::From(map.status());
    return Outcome::From(CompareMaps(*map, problem, ContextOf(**backend)));
  });
}

Outcome RunConvCase(const Environment& environment, const std::string& spec, Precision precision,
                    Rows& rows, const Row& row) {
  return WithDataflow(
      environment, spec, {row.c_in, row.c_out, precision}, rows.Get(row).geometry,
      [&](const Dataflow& dataflow) {
        const absl::StatusOr<Backend*> backend = rows.BackendOf(row);
        if (!backend.ok()) return Outcome::From(backend.status());
        const ExecutionContext context = ContextOf(**backend);
        const absl::StatusOr<KernelMap> map = UploadReferenceMap(rows.Get(row), context);
        if (!map.ok()) return Outcome::From(map.status());
        const ConvData& data = rows.Data(row);
        const auto output = Convolve(dataflow, *map, data, precision, context);
        if (!output.ok()) return Outcome::From(output.status());
        const LayerData layer = LayerDataOf(rows.Get(row), data);
        return Outcome::From(CompareExactly(*output, data.output, data.c_out, &layer));
      });
}

}  // namespace

void AddCoveringCases(Environment& environment, std::vector<Case>& cases) {
  const auto rows = std::make_shared<Rows>(environment);
  const std::vector<std::string> mappings =
      environment.registry->mappings().Variants(environment.backend->kind());
  const std::vector<std::string> dataflows =
      environment.registry->dataflows().EnumVariants(environment.backend->kind());
  for (int i = 0; i < kMaxChannels; ++i) {
    const Row row = RowOf(i);
    for (const std::string& spec : mappings) {
      if (i >= kMaxBatches * static_cast<int>(kKernels.size())) break;  // no map is new
      cases.push_back(
          {absl::StrCat("cover/map/", spec, "/", row.name()), [&environment, rows, spec, row] {
             return RunCoveringMapCase(environment, spec, *rows, row);
           }});
    }
    for (const std::string& spec : dataflows) {
      ForEachClaimedPrecision(environment, spec, row.c_in, row.c_out, [&](Precision precision) {
        const std::string shape = ShapeName({row.c_in, row.c_out, precision});
        cases.push_back({absl::StrCat("cover/conv/", spec, "/", shape, "/", row.name()),
                         [&environment, rows, spec, row, precision] {
                           return RunConvCase(environment, spec, precision, *rows, row);
                         }});
      });
    }
  }
}

}  // namespace voxconv::verify
