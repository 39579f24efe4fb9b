// Convolutions against the fp64 oracle, and bitwise equality over repeats and threads.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "reference_cpu/convolution.h"
#include "reference_cpu/layers.h"
#include "verify/matrix.h"

namespace voxconv::verify {
namespace {

struct Channels {
  int64_t in, out;
  std::string name() const { return absl::StrCat(in, "x", out); }
};

// Every width once as input and once as output: one, below a vector, a vector, one past two
// vectors, a full tile.
constexpr Channels kChannels[] = {{1, 3}, {3, 16}, {16, 33}, {33, 64}, {64, 1}};
// What GPU kernels have paths of their own for: the networks' widths.
constexpr Channels kNetworkChannels[] = {{4, 16},   {4, 32},    {16, 16},  {32, 32},   {32, 64},
                                         {64, 64},  {96, 96},   {96, 128}, {128, 128}, {24, 40},
                                         {72, 136}, {256, 256}, {8, 24},   {16, 8},    {64, 32}};
constexpr DType kDTypes[] = {DType::kF32, DType::kTf32, DType::kF16, DType::kBF16};

struct Expected {
  std::vector<float> features, weights;
  std::vector<double> output;
  int64_t reduction = 0;
};

// Shared by the conv and repeat cases of one matrix; filled on first use.
class Oracle {
 public:
  const Expected& Get(const Problem& problem, const Channels& channels) {
    auto [it, inserted] = expected_.try_emplace(absl::StrCat(problem.id, "/", channels.name()));
    if (inserted) it->second = std::make_unique<Expected>(Compute(problem, channels));
    return *it->second;
  }

 private:
  static Expected Compute(const Problem& problem, const Channels& channels) {
    const int64_t inputs = problem.inputs.size(), outputs = problem.outputs.size();
    Expected expected;
    expected.features = Values(inputs * channels.in, 11);
    expected.weights = Values(problem.geometry.num_offsets() * channels.in * channels.out, 12);
    expected.output =
        reference::Convolution(problem.map, {inputs, outputs, channels.in, channels.out},
                               expected.features, expected.weights);
    expected.reduction = reference::ReductionLength(problem.map, outputs, channels.in);
    return expected;
  }

  absl::flat_hash_map<std::string, std::unique_ptr<Expected>> expected_;
};

// RunConvolution onto an output of NaN: a row that Forward leaves out shows.
absl::StatusOr<Tensor> RunOntoNan(const Dataflow& dataflow, const KernelMap& map,
                                  const TensorView& input, const TensorView& weights,
                                  const ExecutionContext& context, const Epilogue& epilogue = {}) {
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor output, Tensor::Create(map.num_outputs(), weights.channels, input.dtype, context));
  const TensorView& view = output.view();
  // All bits set is NaN in every dtype.
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(view.data, 0xff, view.bytes(), *context.stream));
  Workspace workspace;
  VOXCONV_RETURN_IF_ERROR(
      RunConvolutionOnto(dataflow, map, input, weights, view, workspace, context, epilogue));
  return output;
}

absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const Channels& channels, DType dtype,
                                            const std::vector<float>& features,
                                            const std::vector<float>& weights,
                                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor input, Tensor::FromHost(features, map.num_inputs(), channels.in, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor weight, Tensor::FromHost(weights, map.num_offsets() * channels.in,
                                                           channels.out, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor output,
                           RunOntoNan(dataflow, map, input.view(), weight.view(), context));
  return output.ToHost(context);
}

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
  DType dtype = DType::kF32;
  bool epilogue = false;  // with scale, shift, residual and ReLU fused

  std::string id() const {
    return absl::StrCat("conv/", mapping, "/", dataflow, "/", channels.name(),
                        dtype == DType::kF32 ? "" : absl::StrCat("-", ToString(dtype)),
                        epilogue ? "-epilogue" : "", "/", problem->id);
  }
};

// y = max(y * scale + shift + residual, 0), as core/dataflow.h has it.
struct HostEpilogue {
  std::vector<float> scale, shift, residual;

  HostEpilogue(int64_t rows, int64_t channels)
      : scale(Values(channels, 13)),
        shift(Values(channels, 14)),
        residual(Values(rows * channels, 15)) {}

  std::vector<double> Applied(std::vector<double> y) const {
    const size_t channels = scale.size();
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = std::max(0.0, y[i] * scale[i % channels] + shift[i % channels] + residual[i]);
    }
    return y;
  }
};

absl::StatusOr<std::vector<float>> ConvolveWithEpilogue(const Dataflow& dataflow,
                                                        const KernelMap& map, const ConvCase& test,
                                                        const Expected& expected,
                                                        const HostEpilogue& host,
                                                        const ExecutionContext& context) {
  const Channels& c = test.channels;
  VOXCONV_ASSIGN_OR_RETURN(Tensor input, Tensor::FromHost(expected.features, map.num_inputs(), c.in,
                                                          context, test.dtype));
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor weight,
      Tensor::FromHost(expected.weights, map.num_offsets() * c.in, c.out, context, test.dtype));
  VOXCONV_ASSIGN_OR_RETURN(Tensor residual, Tensor::FromHost(host.residual, map.num_outputs(),
                                                             c.out, context, test.dtype));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> scale, CopyToBackend<float>(host.scale, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> shift, CopyToBackend<float>(host.shift, context));
  VOXCONV_ASSIGN_OR_RETURN(
      Tensor output, RunOntoNan(dataflow, map, input.view(), weight.view(), context,
                                {scale.data(), shift.data(), residual.view(), /*relu=*/true}));
  return output.ToHost(context);
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
    const auto mapping = environment.registry->mappings().Create(test.mapping);
    if (!mapping.ok()) return Outcome::From(mapping.status());
    const Support support =
        (*mapping)->Supports(test.problem->geometry, environment.backend->kind());
    if (!support.ok) return Outcome::Skipped(support.reason);
    map = QueryValidMap(**mapping, *test.problem, context);
  }
  if (!map.ok()) return Outcome::From(map.status(), *test.problem);
  last = {key, *std::move(map)};
  return Outcome::Passed();
}

Outcome RunConvCase(const Environment& environment, Oracle& oracle, LastMap& last,
                    const ConvCase& test) {
  const auto dataflow = environment.registry->dataflows().Create(test.dataflow);
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const BackendKind kind = environment.backend->kind();
  const Support support =
      (*dataflow)->Supports({test.channels.in, test.channels.out, test.dtype}, kind);
  if (!support.ok) return Outcome::Skipped(support.reason);
  Outcome prepared = PrepareMap(environment, test, last);
  if (prepared.verdict != Verdict::kPassed) return prepared;
  const Expected& expected = oracle.Get(*test.problem, test.channels);
  const ExecutionContext context = ContextOf(*environment.backend);
  const HostEpilogue epilogue(test.problem->outputs.size(), test.channels.out);
  const auto output =
      test.epilogue ? ConvolveWithEpilogue(**dataflow, last.map, test, expected, epilogue, context)
                    : Convolve(**dataflow, last.map, test.channels, test.dtype, expected.features,
                               expected.weights, context);
  if (!output.ok()) return Outcome::From(output.status());
  const double error = reference::RelativeError(
      *output, test.epilogue ? epilogue.Applied(expected.output) : expected.output);
  const double bound = ErrorBound(test.dtype, expected.reduction);
  if (error <= bound) return Outcome::Passed();
  return Outcome::Failed(absl::StrCat("norm-wise error ", error, " is past ", bound));
}

// On each of two backends. A race on a GPU shows less often than one between two threads.
int Repeats(BackendKind kind) { return kind == BackendKind::kCuda ? 10 : 2; }

// Several of every plugin's tasks, with about as many neighbours a voxel as a LiDAR scan has.
Scene LargeScene() {
  Scene scene{.name = "large"};
  for (int32_t x = 0; x < 150; ++x) {
    for (int32_t y = 0; y < 140; ++y) scene.rows.push_back({0, x, y, (x * 7 + y * 13) % 5});
  }
  return scene;
}

Outcome RunRepeatMapCase(const Environment& environment, const std::string& spec,
                         const Problem& problem) {
  const auto mapping = environment.registry->mappings().Create(spec);
  if (!mapping.ok()) return Outcome::From(mapping.status());
  const Support support = (*mapping)->Supports(problem.geometry, environment.backend->kind());
  if (!support.ok) return Outcome::Skipped(support.reason);
  for (Backend* backend : {environment.serial, environment.parallel}) {
    for (int i = 0; i < Repeats(backend->kind()); ++i) {
      const ExecutionContext context = ContextOf(*backend);
      absl::StatusOr<KernelMap> map = QueryValidMap(**mapping, problem, context);
      if (!map.ok()) return Outcome::From(map.status());
      const absl::Status same = CompareMaps(*map, problem.map, context);
      if (!same.ok()) return Outcome::From(same);
    }
  }
  return Outcome::Passed();
}

Outcome RunRepeatConvCase(const Environment& environment, const std::string& spec,
                          const Channels& channels, DType dtype, const Problem& problem) {
  const auto dataflow = environment.registry->dataflows().Create(spec);
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  if (!(*dataflow)->deterministic(environment.backend->kind()))
    return Outcome::Skipped("does not claim to be deterministic");
  const Support support =
      (*dataflow)->Supports({channels.in, channels.out, dtype}, environment.backend->kind());
  if (!support.ok) return Outcome::Skipped(support.reason);
  const std::vector<float> features = Values(problem.inputs.size() * channels.in, 21);
  const std::vector<float> weights =
      Values(problem.geometry.num_offsets() * channels.in * channels.out, 22);
  std::vector<float> first;
  for (Backend* backend : {environment.serial, environment.parallel}) {
    const ExecutionContext context = ContextOf(*backend);
    absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    for (int i = 0; i < Repeats(backend->kind()); ++i) {
      const auto output = Convolve(**dataflow, *map, channels, dtype, features, weights, context);
      if (!output.ok()) return Outcome::From(output.status());
      if (first.empty()) first = *output;
      if (output->size() != first.size() ||
          std::memcmp(output->data(), first.data(), first.size() * sizeof(float)) != 0) {
        return Outcome::Failed(absl::StrCat("run ", i, " on ", backend->DeviceName(),
                                            " differs bitwise from the first"));
      }
    }
  }
  return Outcome::Passed();
}

// Every dtype with the widths that kernels are written for, alone and with a fused epilogue.
template <typename Add>
void AddDTypeCases(Environment& environment, const std::vector<std::string>& dataflows,
                   const Add& add) {
  for (const std::string& kind : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(kind), Scenes()[1]);
    for (const std::string& dataflow : dataflows) {
      const auto plugin = environment.registry->dataflows().Create(dataflow);
      const bool fuses = plugin.ok() && (*plugin)->FusesEpilogue(BackendKind::kCuda);
      for (const DType dtype : kDTypes) {
        for (const Channels& channels : kChannels) {
          if (dtype != DType::kF32) add({kReferenceMap, dataflow, channels, problem, dtype});
          if (fuses) add({kReferenceMap, dataflow, channels, problem, dtype, /*epilogue=*/true});
        }
        for (const Channels& channels : kNetworkChannels) {
          add({kReferenceMap, dataflow, channels, problem, dtype});
          if (fuses) add({kReferenceMap, dataflow, channels, problem, dtype, /*epilogue=*/true});
        }
      }
    }
  }
}

// On the CPU no built-in dataflow claims more than f32, or epilogues; what another one does is run.
template <typename Add>
void AddClaimedCases(Environment& environment, const std::vector<std::string>& dataflows,
                     const Add& add) {
  constexpr BackendKind kCpu = BackendKind::kCpu;
  // What throws here is told of by the cases of f32.
  const auto claims = [](const std::function<bool()>& ask) {
    return WithoutExceptions([&]() -> absl::StatusOr<bool> { return ask(); }).value_or(false);
  };
  for (const std::string& kind : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(kind), Scenes()[1]);
    for (const std::string& dataflow : dataflows) {
      const auto plugin = environment.registry->dataflows().Create(dataflow);
      if (!plugin.ok()) continue;
      const bool fuses = claims([&] { return (*plugin)->FusesEpilogue(kCpu); });
      for (const DType dtype : kDTypes) {
        for (const Channels& c : kChannels) {
          if (!claims([&] { return (*plugin)->Supports({c.in, c.out, dtype}, kCpu).ok; })) continue;
          if (dtype != DType::kF32) add({kReferenceMap, dataflow, c, problem, dtype});
          if (fuses) add({kReferenceMap, dataflow, c, problem, dtype, /*epilogue=*/true});
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
  const std::vector<std::string> dataflows = environment.registry->dataflows().Variants();
  // The map cases hold every variant's pairs against the oracle's, one by one; with dataflows each
  // way of working suffices.
  for (const std::string& mapping : environment.registry->mappings().EnumVariants()) {
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
        for (const DType dtype : kDTypes) {
          if (is_cuda && dtype != DType::kF32) {
            add({kReferenceMap, dataflow, kChannels[2], problem, dtype});
          }
        }
      }
    }
  }
  if (is_cuda) {
    AddDTypeCases(environment, dataflows, add);
  } else {
    AddClaimedCases(environment, dataflows, add);
  }
}

void AddRepeatCases(Environment& environment, std::vector<Case>& cases) {
  // Made only if one of these cases runs: the reference takes its time on them.
  const auto scene = std::make_shared<const Scene>(LargeScene());
  const auto problems = std::make_shared<ProblemCache>();
  const auto problem_of = [scene, problems](const std::string& geometry) -> const Problem& {
    return *problems->Get(GeometryNamed(geometry), *scene);
  };
  for (const std::string geometry : {"submanifold_k3", "quantize_k3_s2"}) {
    for (const std::string& spec : environment.registry->mappings().Variants()) {
      cases.push_back({absl::StrCat("repeat/map/", spec, "/", geometry, "/large"),
                       [&environment, problem_of, spec, geometry] {
                         return RunRepeatMapCase(environment, spec, problem_of(geometry));
                       }});
    }
    for (const std::string& spec : environment.registry->dataflows().Variants()) {
      const auto add = [&](const Channels& channels, DType dtype) {
        cases.push_back(
            {absl::StrCat("repeat/conv/", spec, "/", channels.name(),
                          dtype == DType::kF32 ? "" : absl::StrCat("-", ToString(dtype)), "/",
                          geometry, "/large"),
             [&environment, problem_of, spec, channels, dtype, geometry] {
               return RunRepeatConvCase(environment, spec, channels, dtype, problem_of(geometry));
             }});
      };
      for (const Channels& channels : {Channels{3, 16}, Channels{16, 33}}) {
        add(channels, DType::kF32);
      }
      if (environment.backend->kind() != BackendKind::kCuda) continue;
      for (const DType dtype : {DType::kTf32, DType::kF16}) add({64, 64}, dtype);
    }
  }
}

}  // namespace voxconv::verify
