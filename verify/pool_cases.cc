// SPDX-License-Identifier: Apache-2.0
// Pooling and unpooling against the oracle.
#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

constexpr int64_t kChannels = 5;
constexpr double kBound = 1e-6;

struct NamedMode {
  const char* name;
  PoolMode mode;
};
constexpr NamedMode kModes[] = {{"max", PoolMode::kMax},
                                {"sum", PoolMode::kSum},
                                {"average", PoolMode::kAverage},
                                {"average_present", PoolMode::kAveragePresent}};

reference::Divisor DivisorOf(PoolMode mode) {
  switch (mode) {
    case PoolMode::kAverage:
      return reference::Divisor::kKernelVolume;
    case PoolMode::kAveragePresent:
      return reference::Divisor::kPresent;
    default:
      return reference::Divisor::kOne;
  }
}

absl::Status CheckClose(absl::string_view what, const std::vector<float>& values,
                        const std::vector<double>& expected) {
  const double error = reference::RelativeError(values, expected);
  if (error <= kBound) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": norm-wise error ", error, " is past ", kBound));
}

absl::Status CheckPool(const Problem& problem, PoolMode mode, const ExecutionContext& context) {
  const int64_t inputs = problem.inputs.size(), outputs = problem.outputs.size();
  const reference::PoolShape shape{inputs, outputs, kChannels};
  const std::vector<float> x = Values(inputs * kChannels, 31), g = Values(outputs * kChannels, 32);
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, UploadReferenceMap(problem, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor input, Tensor::FromHost(x, inputs, kChannels, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor grad, Tensor::FromHost(g, outputs, kChannels, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor pooled, Tensor::Create(outputs, kChannels, DType::kF32, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor back, Tensor::Create(inputs, kChannels, DType::kF32, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> switches,
                           AllocateArray<int32_t>(outputs * kChannels, context));
  int32_t* used = mode == PoolMode::kMax ? switches.data() : nullptr;

  TensorOps& ops = context.backend->tensor_ops();
  VOXCONV_RETURN_IF_ERROR(ops.Pool(map, mode, input.view(), pooled.view(), used, context));
  VOXCONV_RETURN_IF_ERROR(ops.Unpool(map, mode, grad.view(), used, back.view(), context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> y, pooled.ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> unpooled, back.ToHost(context));

  if (mode != PoolMode::kMax) {
    const reference::Divisor divisor = DivisorOf(mode);
    VOXCONV_RETURN_IF_ERROR(
        CheckClose("pool", y, reference::SumPool(problem.map, shape, x, divisor)));
    return CheckClose("unpool", unpooled, reference::SumUnpool(problem.map, shape, g, divisor));
  }
  const reference::MaxPooled expected = reference::MaxPool(problem.map, shape, x);
  VOXCONV_RETURN_IF_ERROR(CheckClose("pool", y, expected.y));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> taken, CopyToHost(switches, context));
  if (taken != expected.switches) return absl::InternalError("switches differ");
  return CheckClose("unpool", unpooled, reference::MaxUnpool(expected.switches, shape, g));
}

}  // namespace

void AddPoolCases(Environment& environment, std::vector<Case>& cases) {
  for (const NamedMode& mode : kModes) {
    for (const NamedGeometry& geometry : Geometries()) {
      for (const Scene& scene : Scenes()) {
        const Problem* problem = environment.problems.Get(geometry, scene);
        if (problem == nullptr) continue;
        cases.push_back(
            {absl::StrCat("pool/", mode.name, "/", problem->id), [&environment, mode, problem] {
               return Outcome::From(
                   CheckPool(*problem, mode.mode, ContextOf(*environment.backend)));
             }});
      }
    }
  }
}

}  // namespace voxconv::verify
