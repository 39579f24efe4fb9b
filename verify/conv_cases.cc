// SPDX-License-Identifier: Apache-2.0
// Convolutions against the fp64 oracle, and bitwise equality over repeats and threads.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "voxconv/networks/models.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/oracle.h"

namespace voxconv::verify {
namespace {

struct Channels {
  int64_t in, out;
  std::string name() const { return absl::StrCat(in, "x", out); }
  friend auto operator<=>(const Channels&, const Channels&) = default;
};

// Every width once as input and once as output: one, below a vector, a vector, one past two
// vectors, a full tile.
constexpr Channels kChannels[] = {{1, 3}, {3, 16}, {16, 33}, {33, 64}, {64, 1}};
// What GPU kernels have paths of their own for, beside the networks' widths.
constexpr Channels kKernelChannels[] = {{24, 40}, {72, 136}, {256, 256}, {8, 24}, {16, 8}};
// One past a full tile of the reduction, and of the output.
constexpr Channels kOddChannels[] = {{257, 64}, {64, 257}};
constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};

reference::ConvShape SizesOf(const Problem& problem, const Channels& channels) {
  return {static_cast<int64_t>(problem.inputs.size()), static_cast<int64_t>(problem.outputs.size()),
          channels.in, channels.out};
}

ConvShape LayerShapeOf(const Problem& problem, const Channels& channels, Precision precision) {
  return ShapeOfLayer(problem.geometry, channels.in, channels.out, precision);
}

Operands OperandsOf(const Problem& problem, const Channels& channels, Precision precision,
                    uint64_t seed) {
  const reference::ConvShape shape = SizesOf(problem, channels);
  return RoundedOperands(
      shape, precision, Values(shape.num_inputs * channels.in, seed),
      Values(problem.geometry.num_offsets() * channels.in * channels.out, seed + 1));
}

// Shared by the cases of one matrix; filled on first use. Of the large answers, whose cases follow
// each other, only the last is kept.
class Oracle {
 public:
  const ExactConvolution& Get(const Problem& problem, const Channels& channels,
                              Precision precision) {
    constexpr int64_t kLarge = int64_t{1} << 12;  // products of channels
    const std::string key =
        absl::StrCat(problem.id, "/", channels.name(), "/", ToString(precision));
    if (channels.in * channels.out < kLarge) {
      auto [it, inserted] = small_.try_emplace(key);
      if (inserted) it->second = Compute(problem, channels, precision);
      return *it->second;
    }
    if (large_key_ != key) {
      large_ = Compute(problem, channels, precision);
      large_key_ = key;
    }
    return *large_;
  }

 private:
  static std::unique_ptr<const ExactConvolution> Compute(const Problem& problem,
                                                         const Channels& channels,
                                                         Precision precision) {
    return std::make_unique<const ExactConvolution>(problem.map,
                                                    OperandsOf(problem, channels, precision, 11));
  }

  absl::flat_hash_map<std::string, std::unique_ptr<const ExactConvolution>> small_;
  std::unique_ptr<const ExactConvolution> large_;
  std::string large_key_;
};

// The name under which the cases take the oracle's map instead of a mapping's.
constexpr char kReferenceMap[] = "reference";

// The kernel map of the last (mapping, problem): cases run in that order, so each map is built
// once for all dataflows and channels.
struct LastMap {
  std::string key;
  KernelMap map;
};

struct ConvCase {
  std::string mapping, dataflow;
  Channels channels;
  const Problem* problem;
  Precision precision = Precision::kF32;
  bool epilogue = false;  // with scale, shift, residual and ReLU fused

  std::string id() const {
    return absl::StrCat("conv/", mapping, "/", dataflow, "/", channels.name(),
                        precision == Precision::kF32 ? "" : absl::StrCat("-", ToString(precision)),
                        epilogue ? "-epilogue" : "", "/", problem->id);
  }
};

HostEpilogue EpilogueOf(const ConvCase& test) {
  if (!test.epilogue) return {};
  const auto rows = static_cast<int64_t>(test.problem->outputs.size());
  return {Values(test.channels.out, 13), Values(test.channels.out, 14),
          RoundedTo(test.precision, Values(rows * test.channels.out, 15)), /*relu=*/true};
}

// Fills `last`; a verdict other than passed ends the case.
Outcome PrepareMap(const Environment& environment, const ConvCase& test, LastMap& last) {
  const std::string key = absl::StrCat(test.mapping, "/", test.problem->id);
  if (last.key == key) return Outcome::Passed();
  const ExecutionContext context = ContextOf(*environment.backend);
  absl::StatusOr<KernelMap> map;
  if (test.mapping == kReferenceMap) {
    map = UploadReferenceMap(*test.problem, context);
  } else {
    const auto mapping =
        environment.registry->mappings().Create(test.mapping, environment.backend->kind());
    if (!mapping.ok()) return Outcome::From(mapping.status());
    const Support support = (*mapping)->Supports(test.problem->geometry);
    if (!support.ok) return Outcome::Unsupported(support);
    map = QueryValidMap(**mapping, *test.problem, context);
  }
  if (!map.ok()) return Outcome::From(map.status(), *test.problem);
  last = {key, *std::move(map)};
  return Outcome::Passed();
}

Outcome RunConvCase(const Environment& environment, Oracle& oracle, LastMap& last,
                    const ConvCase& test) {
  const auto dataflow =
      environment.registry->dataflows().Create(test.dataflow, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const Support support = (*dataflow)->Supports(
      Pass::kForward, LayerShapeOf(*test.problem, test.channels, test.precision));
  if (!support.ok) return Outcome::Unsupported(support);
  Outcome prepared = PrepareMap(environment, test, last);
  if (prepared.verdict != Verdict::kPassed) return prepared;
  return Outcome::From(CheckConvolution(
      **dataflow, last.map, oracle.Get(*test.problem, test.channels, test.precision),
      ContextOf(*environment.backend), EpilogueOf(test), test.problem));
}

// On each of two backends. A race on a GPU shows less often than one between two threads.
int Repeats(BackendKind kind) { return kind == BackendKind::kCuda ? 10 : 2; }

Outcome RunRepeatMapCase(const Environment& environment, const std::string& spec,
                         const Problem& problem) {
  const auto mapping = environment.registry->mappings().Create(spec, environment.backend->kind());
  if (!mapping.ok()) return Outcome::From(mapping.status());
  const Support support = (*mapping)->Supports(problem.geometry);
  if (!support.ok) return Outcome::Unsupported(support);
  for (Backend* backend : {environment.serial, environment.parallel}) {
    for (int i = 0; i < Repeats(backend->kind()); ++i) {
      const ExecutionContext context = ContextOf(*backend);
      absl::StatusOr<KernelMap> map = QueryValidMap(**mapping, problem, context);
      if (!map.ok()) return Outcome::From(map.status());
      const absl::Status same = CompareMaps(*map, problem, context);
      if (!same.ok()) return Outcome::From(same);
    }
  }
  return Outcome::Passed();
}

Outcome RunRepeatConvCase(const Environment& environment, const std::string& spec,
                          const Channels& channels, Precision precision, const Problem& problem) {
  const auto dataflow = environment.registry->dataflows().Create(spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const ConvShape shape = LayerShapeOf(problem, channels, precision);
  const Capability capability = (*dataflow)->CapabilityOf(Pass::kForward, shape);
  if (!capability.deterministic) return Outcome::Skipped("does not claim to be deterministic");
  const Support& support = capability.support;
  if (!support.ok) return Outcome::Unsupported(support);
  const Operands operands = OperandsOf(problem, channels, precision, 21);
  std::vector<float> first;
  for (Backend* backend : {environment.serial, environment.parallel}) {
    const ExecutionContext context = ContextOf(*backend);
    absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    for (int i = 0; i < Repeats(backend->kind()); ++i) {
      // Weights that are prepared give the same bits.
      const bool prepares_weights = i % 2 == 1;
      const auto output =
          Convolve(**dataflow, *map, operands, context, /*epilogue=*/{}, prepares_weights);
      if (!output.ok()) return Outcome::From(output.status());
      if (first.empty()) first = *output;
      if (output->size() != first.size() ||
          std::memcmp(output->data(), first.data(), first.size() * sizeof(float)) != 0) {
        return Outcome::Failed(absl::StrCat("run ", i, " on ", backend->DeviceName(),
                                            prepares_weights ? ", with prepared weights," : "",
                                            " differs bitwise from the first"));
      }
    }
  }
  return Outcome::Passed();
}

// Of every layer that a dataflow runs in the models at full width.
std::set<Channels> NetworkChannels() {
  std::set<Channels> channels;
  for (const std::string& name : ModelNames()) {
    const absl::StatusOr<NetworkGraph> graph = MakeModel(name, {});
    VOXCONV_CHECK(graph.ok());
    for (const int id : graph->Convolutions()) {
      const Node& node = graph->node(id);
      if (!IsPointwise(node)) channels.insert({graph->InputChannels(node), node.channels});
    }
  }
  return channels;
}

// Every width that kernels and networks have, in every dtype, alone and with a fused epilogue. On
// the CPU no built-in dataflow claims more than f32, or epilogues; what another one claims is run.
template <typename Add>
void AddChannelCases(Environment& environment, const std::vector<std::string>& dataflows,
                     const Add& add) {
  const BackendKind kind = environment.backend->kind();
  const bool is_cuda = kind == BackendKind::kCuda;
  const std::set<Channels> narrow(std::begin(kChannels), std::end(kChannels));
  std::set<Channels> all = NetworkChannels();
  all.insert(narrow.begin(), narrow.end());
  all.insert(std::begin(kOddChannels), std::end(kOddChannels));
  if (is_cuda) all.insert(std::begin(kKernelChannels), std::end(kKernelChannels));
  std::vector<std::unique_ptr<const Dataflow>> plugins;
  for (const std::string& dataflow : dataflows) {
    auto plugin = environment.registry->dataflows().Create(dataflow, environment.backend->kind());
    plugins.push_back(plugin.ok() ? *std::move(plugin) : nullptr);
  }
  for (const std::string& geometry : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    for (const Channels& c : all) {
      for (const Precision precision : kPrecisions) {
        for (size_t i = 0; i < dataflows.size(); ++i) {
          const Dataflow* plugin = plugins[i].get();
          const Capability capability =
              plugin == nullptr
                  ? Capability{.support = Support::No("it cannot be made")}
                  : plugin->CapabilityOf(Pass::kForward, LayerShapeOf(*problem, c, precision));
          const bool claimed = capability.support.ok;
          if (!is_cuda && precision != Precision::kF32 && !claimed) continue;
          const bool with_mappings = precision == Precision::kF32 && narrow.contains(c);
          if (!with_mappings) add({kReferenceMap, dataflows[i], c, problem, precision});
          if (claimed && capability.fuses_epilogue) {
            add({kReferenceMap, dataflows[i], c, problem, precision, /*epilogue=*/true});
          }
        }
      }
    }
  }
}

}  // namespace

void AddConvCases(Environment& environment, std::vector<Case>& cases) {
  const auto oracle = std::make_shared<Oracle>();
  const auto last = std::make_shared<LastMap>();
  const auto add = [&](const ConvCase& test) {
    cases.push_back({test.id(), [&environment, oracle, last, test] {
                       return RunConvCase(environment, *oracle, *last, test);
                     }});
  };
  const std::vector<std::string> dataflows =
      environment.registry->dataflows().Variants(environment.backend->kind());
  // The map cases hold every variant's pairs against the oracle's, one by one; with dataflows each
  // way of working suffices.
  for (const std::string& mapping :
       environment.registry->mappings().EnumVariants(environment.backend->kind())) {
    for (const std::string& kind : GeometryOfEachKind()) {
      const Problem* problem = environment.problems.Get(GeometryNamed(kind), Scenes()[1]);
      for (const std::string& dataflow : dataflows) {
        for (const Channels& channels : kChannels) add({mapping, dataflow, channels, problem});
      }
    }
  }
  const bool is_cuda = environment.backend->kind() == BackendKind::kCuda;
  // Shapes of the map that the scene above does not have; no mapping needs to find them again.
  for (const NamedGeometry& geometry : Geometries()) {
    for (const Scene& scene : Scenes()) {
      const Problem* problem = environment.problems.Get(geometry, scene);
      if (problem == nullptr) continue;
      for (const std::string& dataflow : dataflows) {
        add({kReferenceMap, dataflow, kChannels[2], problem});
        for (const Precision precision : kPrecisions) {
          if (is_cuda && precision != Precision::kF32) {
            add({kReferenceMap, dataflow, kChannels[2], problem, precision});
          }
        }
      }
    }
  }
  AddChannelCases(environment, dataflows, add);
}

void AddRepeatCases(Environment& environment, std::vector<Case>& cases) {
  // Made only if one of these cases runs.
  const auto problem_of = [&environment](const std::string& geometry) -> const Problem& {
    return *environment.problems.Get(GeometryNamed(geometry), LargeScene());
  };
  for (const std::string geometry : {"submanifold_k3", "quantize_k3_s2"}) {
    for (const std::string& spec :
         environment.registry->mappings().Variants(environment.backend->kind())) {
      cases.push_back({absl::StrCat("repeat/map/", spec, "/", geometry, "/large"),
                       [&environment, problem_of, spec, geometry] {
                         return RunRepeatMapCase(environment, spec, problem_of(geometry));
                       }});
    }
    for (const std::string& spec :
         environment.registry->dataflows().Variants(environment.backend->kind())) {
      const auto add = [&](const Channels& channels, Precision precision) {
        cases.push_back(
            {absl::StrCat(
                 "repeat/conv/", spec, "/", channels.name(),
                 precision == Precision::kF32 ? "" : absl::StrCat("-", ToString(precision)), "/",
                 geometry, "/large"),
             [&environment, problem_of, spec, channels, precision, geometry] {
               return RunRepeatConvCase(environment, spec, channels, precision,
                                        problem_of(geometry));
             }});
      };
      for (const Channels& channels : {Channels{3, 16}, Channels{16, 33}}) {
        add(channels, Precision::kF32);
      }
      if (environment.backend->kind() != BackendKind::kCuda) continue;
      for (const Precision precision : {Precision::kTf32, Precision::kF16}) {
        add({64, 64}, precision);
      }
    }
  }
}

}  // namespace voxconv::verify
