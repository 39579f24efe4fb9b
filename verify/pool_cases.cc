// SPDX-License-Identifier: Apache-2.0
// Pooling and unpooling against the oracle.
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

constexpr int64_t kChannels = 5;

// Norm-wise: sums of f32, and one rounding of the result.
double BoundOf(Precision precision) {
  const DType stored = StorageOf(precision);
  return stored == DType::kF32 ? 1e-6 : stored == DType::kF16 ? 0x1p-11 : 0x1p-8;
}

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
                        const std::vector<double>& expected, double bound) {
  const double error = reference::RelativeError(values, expected);
  if (error <= bound) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": norm-wise error ", error, " is past ", bound));
}

// What pools, and what undoes it.
struct Poolings {
  std::function<absl::Status(const KernelMap& map, const PoolArgs& args)> pool;
  std::function<absl::Status(const KernelMap& map, const UnpoolArgs& args)> unpool;
};

// NaN, so that an element that is not written is seen.
absl::StatusOr<Tensor> NanMatrix(int64_t rows, DType dtype, const ExecutionContext& context) {
  const std::vector<float> nan(rows * kChannels, std::numeric_limits<float>::quiet_NaN());
  return Tensor::FromHost(nan, rows, kChannels, context, dtype);
}

absl::Status CheckPool(const Problem& problem, PoolMode mode, Precision precision,
                       const Poolings& poolings, const ExecutionContext& context) {
  const int64_t inputs = problem.inputs.size(), outputs = problem.outputs.size();
  const reference::PoolShape shape{inputs, outputs, kChannels};
  const DType stored = StorageOf(precision);
  const std::vector<float> x = RoundedTo(precision, Values(inputs * kChannels, 31));
  const std::vector<float> g = RoundedTo(precision, Values(outputs * kChannels, 32));
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, UploadReferenceMap(problem, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor input, Tensor::FromHost(x, inputs, kChannels, context, stored));
  VOXCONV_ASSIGN_OR_RETURN(Tensor grad, Tensor::FromHost(g, outputs, kChannels, context, stored));
  VOXCONV_ASSIGN_OR_RETURN(Tensor pooled, NanMatrix(outputs, stored, context));
  VOXCONV_ASSIGN_OR_RETURN(Tensor back, NanMatrix(inputs, stored, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> switches,
                           AllocateArray<int32_t>(outputs * kChannels, context));
  int32_t* used = mode == PoolMode::kMax ? switches.data() : nullptr;

  VOXCONV_RETURN_IF_ERROR(poolings.pool(map, {mode, input.view(), pooled.view(), used}));
  VOXCONV_RETURN_IF_ERROR(poolings.unpool(map, {mode, grad.view(), back.view(), used}));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> y, pooled.ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> unpooled, back.ToHost(context));

  const double bound = BoundOf(precision);
  if (mode != PoolMode::kMax) {
    const reference::Divisor divisor = DivisorOf(mode);
    VOXCONV_RETURN_IF_ERROR(
        CheckClose("pool", y, reference::SumPool(problem.map, shape, x, divisor), bound));
    return CheckClose("unpool", unpooled, reference::SumUnpool(problem.map, shape, g, divisor),
                      bound);
  }
  const reference::MaxPooled expected = reference::MaxPool(problem.map, shape, x);
  VOXCONV_RETURN_IF_ERROR(CheckClose("pool", y, expected.y, /*bound=*/0));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> taken, CopyToHost(switches, context));
  if (taken != expected.switches) return absl::InternalError("switches differ");
  return CheckClose("unpool", unpooled, reference::MaxUnpool(expected.switches, shape, g), bound);
}

absl::Status CheckOperators(const Problem& problem, PoolMode mode,
                            const ExecutionContext& context) {
  TensorOps& ops = context.backend->tensor_ops();
  const Poolings poolings{
      [&](const KernelMap& map, const PoolArgs& args) {
        return ops.Pool(map, args.mode, args.input, args.output, args.switches, context);
      },
      [&](const KernelMap& map, const UnpoolArgs& args) {
        return ops.Unpool(map, args.mode, args.input, args.switches, args.output, context);
      }};
  return CheckPool(problem, mode, Precision::kF32, poolings, context);
}

Outcome RunDataflowCase(const Environment& environment, const std::string& spec,
                        const CaseShape& shape, PoolMode mode, const Problem& problem) {
  return WithDataflow(environment, spec, shape, problem.geometry, [&](const Dataflow& dataflow) {
    const ExecutionContext context = ContextOf(*environment.backend);
    const Poolings poolings{[&](const KernelMap& map, const PoolArgs& args) {
                              return RunPool(dataflow, map, args, context);
                            },
                            [&](const KernelMap& map, const UnpoolArgs& args) {
                              return RunUnpool(dataflow, map, args, context);
                            }};
    return Outcome::From(CheckPool(problem, mode, shape.precision, poolings, context));
  });
}

// Of dataflows that pool themselves: every problem in f32, those of one scene in the other dtypes.
void AddDataflowCases(Environment& environment, const std::string& spec, const NamedMode& mode,
                      const Problem* problem, bool all_dtypes, std::vector<Case>& cases) {
  const auto add = [&](Precision precision) {
    if (precision == Precision::kTf32) return;  // nothing is multiplied
    if (precision != Precision::kF32 && !all_dtypes) return;
    const CaseShape shape{kChannels, kChannels, precision};
    cases.push_back(
        {absl::StrCat("pool/conv/", spec, "/", ShapeName(shape), "/", mode.name, "/", problem->id),
         [&environment, spec, shape, mode, problem] {
           return RunDataflowCase(environment, spec, shape, mode.mode, *problem);
         }});
  };
  ForEachClaimedPrecision(environment, spec, kChannels, kChannels, add);
}

std::vector<std::string> PoolingDataflows(const Environment& environment) {
  const BackendKind backend = environment.backend->kind();
  std::vector<std::string> specs = environment.registry->dataflows().Variants(backend);
  std::erase_if(specs, [&](const std::string& spec) {
    const auto dataflow = environment.registry->dataflows().Create(spec, backend);
    return !dataflow.ok() || !(*dataflow)->pools();  // other cases say what is wrong
  });
  return specs;
}

}  // namespace

void AddPoolCases(Environment& environment, std::vector<Case>& cases) {
  const std::vector<std::string> dataflows = PoolingDataflows(environment);
  for (const NamedMode& mode : kModes) {
    for (const NamedGeometry& geometry : Geometries()) {
      for (const Scene& scene : Scenes()) {
        const Problem* problem = environment.problems.Get(geometry, scene);
        if (problem == nullptr) continue;
        cases.push_back(
            {absl::StrCat("pool/", mode.name, "/", problem->id), [&environment, mode, problem] {
               return Outcome::From(
                   CheckOperators(*problem, mode.mode, ContextOf(*environment.backend)));
             }});
        for (const std::string& spec : dataflows) {
          AddDataflowCases(environment, spec, mode, problem, &scene == &Scenes()[1], cases);
        }
      }
    }
  }
}

}  // namespace voxconv::verify
