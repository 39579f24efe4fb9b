// SPDX-License-Identifier: Apache-2.0
// Gradients of layers that are cut into many tiles and ranges of pairs, with random values: against
// the fp64 oracle at sampled rows and entries, and bit by bit over repeats. Weight gradients are
// stored in f32, as training stores them; the small cases store them as the weights.
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gradients.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/sampled_rows.h"

namespace voxconv::verify {
namespace {

// A layer of the large scene, with as many channels out as in.
struct LargeLayer {
  const char* geometry;
  int64_t channels;
  bool all_variants;  // of the dataflows; else each with its default options
};
constexpr LargeLayer kCudaLayers[] = {{"submanifold_k3", 64, false},
                                      {"submanifold_k3", 128, true},
                                      {"submanifold_k3", 256, false},
                                      {"quantize_k3_s2", 128, false}};
constexpr LargeLayer kCpuLayers[] = {
    {"submanifold_k3", 64, true}, {"submanifold_k3", 128, false}, {"submanifold_k3", 256, false}};
constexpr int64_t kCpuVoxels = 5000;

// On the CPU the first voxels of the large scene, which are a strip of it: several tasks for each
// thread.
Scene SceneOn(BackendKind backend) {
  Scene scene = verify::LargeScene();
  if (backend == BackendKind::kCuda) return scene;
  scene.name = "strip";
  scene.rows.resize(kCpuVoxels);
  return scene;
}

// All offsets of a weight gradient, at some rows and columns of their matrices.
class WeightSample {
 public:
  explicit WeightSample(const GradProblem& grad)
      : sizes_(grad.sizes),
        offsets_(grad.problem->map.num_offsets),
        in_(SpreadRows(grad.sizes.c_in, kEntries)),
        out_(SpreadRows(grad.sizes.c_out, kEntries)) {
    reference::ConvShape sizes = sizes_;
    sizes.c_in = static_cast<int64_t>(in_.size());
    sizes.c_out = static_cast<int64_t>(out_.size());
    const std::vector<float> x = Columns(grad.x, sizes_.c_in, in_);
    const std::vector<float> dy = Columns(grad.dy, sizes_.c_out, out_);
    expected_ = ExpectedWeightGrad(
        {grad.problem->map, sizes, grad.shape.precision, /*stored=*/Precision::kF32, x, dy});
  }

  // `gradient`: [K * C_in, C_out].
  absl::Status Check(const std::vector<float>& gradient) const {
    std::vector<float> sampled;
    for (int64_t k = 0; k < offsets_; ++k) {
      for (const int64_t i : in_) {
        for (const int64_t o : out_) {
          sampled.push_back(gradient[(k * sizes_.c_in + i) * sizes_.c_out + o]);
        }
      }
    }
    return CheckOutput(sampled, expected_);
  }

 private:
  static constexpr int64_t kEntries = 16;  // of the rows, and of the columns

  static std::vector<float> Columns(const std::vector<float>& values, int64_t channels,
                                    const std::vector<int64_t>& columns) {
    std::vector<float> some;
    for (size_t row = 0; row < values.size(); row += channels) {
      for (const int64_t column : columns) some.push_back(values[row + column]);
    }
    return some;
  }

  reference::ConvShape sizes_;
  int64_t offsets_;
  std::vector<int64_t> in_, out_;
  Expected expected_;
};

// The layer of the cases that follow each other: what it is computed of, and the exact gradients.
// They are made if one of these cases runs.
class LastLayer {
 public:
  explicit LastLayer(Environment& environment)
      : problems_(environment.problems), scene_(SceneOn(environment.backend->kind())) {}

  const GradProblem& Get(const char* geometry, const CaseShape& shape) {
    std::string key = absl::StrCat(geometry, "/", ShapeName(shape));
    if (key == key_) return grad_;
    grad_ = MakeGradProblem(*problems_.Get(GeometryNamed(geometry), scene_), shape);
    input_grad_.reset();
    weight_grad_.reset();
    key_ = std::move(key);
    return grad_;
  }
  // Of the layer that Get returned last.
  const RowSample& input_grad() {
    if (input_grad_ == nullptr) {
      input_grad_ = std::make_unique<RowSample>(grad_.transposed, InputGradOperands(grad_));
    }
    return *input_grad_;
  }
  const WeightSample& weight_grad() {
    if (weight_grad_ == nullptr) weight_grad_ = std::make_unique<WeightSample>(grad_);
    return *weight_grad_;
  }
  const std::string& scene() const { return scene_.name; }

 private:
  ProblemCache& problems_;
  const Scene scene_;
  std::string key_;
  GradProblem grad_;
  std::unique_ptr<RowSample> input_grad_;
  std::unique_ptr<WeightSample> weight_grad_;
};

// One case: a pass of a dataflow on a layer.
struct LargeCase {
  std::string spec;
  Pass pass;
  const char* geometry;
  CaseShape shape;
};

absl::Status CheckLarge(const LargeCase& test, const Dataflow& dataflow,
                        const Capability& capability, LastLayer& layer,
                        const ExecutionContext& context) {
  const GradProblem& grad = layer.Get(test.geometry, test.shape);
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, UploadReferenceMap(*grad.problem, context));
  VOXCONV_ASSIGN_OR_RETURN(const GradTensors tensors, GradTensors::Create(grad, context));
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor gradient,
      RunGradient(test.pass, dataflow, map, tensors, test.shape.precision, DType::kF32, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, gradient.ToHost(context));
  if (test.pass == Pass::kWeightGrad) return layer.weight_grad().Check(values);
  return layer.input_grad()
      .Check({.rounds_partial_sums = capability.rounds_partial_sums}, values)
      .status();
}

absl::StatusOr<std::vector<std::byte>> BytesOf(const Tensor& tensor,
                                               const ExecutionContext& context) {
  std::vector<std::byte> bytes(tensor.view().bytes());
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(
      bytes.data(), MemorySpace::kHost, tensor.view().data, tensor.view().device.space,
      static_cast<int64_t>(bytes.size()), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return bytes;
}

// 20 runs on CUDA. On the CPU one on one thread, and two on several.
absl::Status RepeatLarge(const Environment& environment, const LargeCase& test,
                         const Dataflow& dataflow, const GradProblem& grad) {
  const bool is_cuda = environment.backend->kind() == BackendKind::kCuda;
  const std::pair<Backend*, int> runs[] = {{environment.serial, 1},
                                           {environment.parallel, is_cuda ? 19 : 2}};
  std::vector<std::byte> first;
  for (const auto& [backend, repeats] : runs) {
    const ExecutionContext context = ContextOf(*backend);
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, UploadReferenceMap(*grad.problem, context));
    VOXCONV_ASSIGN_OR_RETURN(const GradTensors tensors, GradTensors::Create(grad, context));
    for (int i = 0; i < repeats; ++i) {
      VOXCONV_ASSIGN_OR_RETURN(const Tensor gradient,
                               RunGradient(test.pass, dataflow, map, tensors, test.shape.precision,
                                           DType::kF32, context));
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, BytesOf(gradient, context));
      if (first.empty()) first = bytes;
      if (std::memcmp(bytes.data(), first.data(), first.size()) != 0) {
        return absl::InternalError(absl::StrCat("run ", i, " on ", backend->DeviceName(),
                                                " differs bitwise from the first"));
      }
    }
  }
  return absl::OkStatus();
}

Outcome RunLargeCase(const Environment& environment, const LargeCase& test, bool repeats,
                     LastLayer& layer) {
  const auto dataflow =
      environment.registry->dataflows().Create(test.spec, environment.backend->kind());
  if (!dataflow.ok()) return Outcome::From(dataflow.status());
  const ConvGeometry geometry = *ConvGeometry::Create(GeometryNamed(test.geometry).params);
  const CaseShape& channels = test.shape;
  ConvShape shape = ShapeOfLayer(geometry, channels.c_in, channels.c_out, channels.precision);
  if (test.pass == Pass::kWeightGrad) shape.types.weights = DType::kF32;
  const Capability capability = (*dataflow)->CapabilityOf(test.pass, shape);
  if (!capability.support.ok) {
    return Outcome::Unsupported(capability.support, ToString(test.pass));
  }
  if (!repeats) {
    return Outcome::From(
        CheckLarge(test, **dataflow, capability, layer, ContextOf(*environment.backend)));
  }
  if (!capability.deterministic) return Outcome::Skipped("does not claim to be deterministic");
  return Outcome::From(
      RepeatLarge(environment, test, **dataflow, layer.Get(test.geometry, channels)));
}

// The specs that have cases of the layer, by precision: cases of the same values follow each other.
std::map<Precision, std::vector<std::string>> SpecsOf(const Environment& environment,
                                                      const LargeLayer& layer) {
  std::map<Precision, std::vector<std::string>> specs;
  for (const std::string& spec :
       environment.registry->dataflows().Variants(environment.backend->kind())) {
    if (!layer.all_variants && absl::StrContains(spec, ':')) continue;
    ForEachClaimedPrecision(environment, spec, layer.channels, layer.channels,
                            [&](Precision precision) { specs[precision].push_back(spec); });
  }
  return specs;
}

}  // namespace

void AddLargeGradCases(Environment& environment, std::vector<Case>& cases) {
  const BackendKind backend = environment.backend->kind();
  const auto last = std::make_shared<LastLayer>(environment);
  const auto add = [&](const LargeLayer& layer, Precision precision, const std::string& spec) {
    for (const Pass pass : {Pass::kInputGrad, Pass::kWeightGrad}) {
      const LargeCase test{spec, pass, layer.geometry, {layer.channels, layer.channels, precision}};
      const std::string rest = absl::StrCat(spec, "/", ShapeName(test.shape), "/", ToString(pass),
                                            "/", layer.geometry, "/", last->scene());
      for (const bool repeats : {false, true}) {
        cases.push_back({absl::StrCat(repeats ? "repeat/conv/" : "grad_large/conv/", rest),
                         [&environment, last, test, repeats] {
                           return RunLargeCase(environment, test, repeats, *last);
                         }});
      }
    }
  };
  const auto add_all = [&](const LargeLayer& layer) {
    for (const auto& [precision, specs] : SpecsOf(environment, layer)) {
      for (const std::string& spec : specs) add(layer, precision, spec);
    }
  };
  if (backend == BackendKind::kCuda) {
    for (const LargeLayer& layer : kCudaLayers) add_all(layer);
  } else {
    for (const LargeLayer& layer : kCpuLayers) add_all(layer);
  }
}

}  // namespace voxconv::verify
