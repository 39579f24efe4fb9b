// SPDX-License-Identifier: Apache-2.0
// What a dataflow must leave alone: its input, its weights, its map and the memory around them; and
// what it must not depend on: what its workspace and its output held before. With its counters.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/verify/exact.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::verify {
namespace {

// NaN in every dtype: a read past the end of a matrix that counts shows in the output.
constexpr uint8_t kMarginByte = 0xff;
// Keeps the alignment of whole buffers.
constexpr int64_t kMargin = 512;
// NaN, zero, and large finite numbers (1.3e7, 14.6 in f16).
constexpr uint8_t kStaleBytes[] = {0xff, 0x00, 0x4b};

// A matrix with a margin before and after it, and `gap` elements that are NaN behind each row.
class GuardedMatrix {
 public:
  // Rounded to `precision`.
  static absl::StatusOr<GuardedMatrix> Create(const std::vector<float>& values, int64_t rows,
                                              int64_t channels, int64_t gap, Precision precision,
                                              const ExecutionContext& context) {
    Backend& backend = *context.backend;
    std::vector<float> wide(rows * (channels + gap), std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = 0; i < rows * channels; ++i) wide[i + i / channels * gap] = values[i];
    VOXCONV_ASSIGN_OR_RETURN(
        Tensor tensor, Tensor::FromHost(wide, rows, channels + gap, context, StorageOf(precision)));
    GuardedMatrix matrix;
    matrix.view_ = tensor.view();
    matrix.view_.channels = channels;
    const int64_t bytes = tensor.view().bytes();
    VOXCONV_ASSIGN_OR_RETURN(matrix.buffer_,
                             backend.Allocate(bytes + 2 * kMargin, *context.stream));
    VOXCONV_RETURN_IF_ERROR(backend.FillBytes(matrix.buffer_.data(), kMarginByte,
                                              matrix.buffer_.bytes(), *context.stream));
    matrix.view_.data = static_cast<char*>(matrix.buffer_.data()) + kMargin;
    VOXCONV_RETURN_IF_ERROR(backend.Copy(matrix.view_.data, matrix.view_.device.space,
                                         tensor.view().data, tensor.view().device.space, bytes,
                                         *context.stream));
    VOXCONV_ASSIGN_OR_RETURN(matrix.before_, matrix.Bytes(context));
    return matrix;
  }

  const TensorView& view() const { return view_; }

  // Whether anything outside the matrix has changed or, with `inside`, anything at all.
  absl::Status CheckUnchanged(absl::string_view name, bool inside,
                              const ExecutionContext& context) const {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<uint8_t> now, Bytes(context));
    const int64_t size = SizeOf(view_.dtype), stride = view_.row_stride * size;
    for (int64_t i = 0; i < static_cast<int64_t>(now.size()); ++i) {
      const int64_t at = i - kMargin;
      const bool is_inside =
          at >= 0 && at < view_.rows * stride && at % stride < view_.channels * size;
      if (now[i] == before_[i] || (is_inside && !inside)) continue;
      return absl::InternalError(absl::StrCat(
          "the dataflow wrote to byte ", at, " of its ", name, ", which has ", view_.rows,
          " rows of ", view_.channels * size, " bytes, ", stride, " bytes apart"));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<uint8_t>> Bytes(const ExecutionContext& context) const {
    std::vector<uint8_t> bytes(buffer_.bytes());
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(bytes.data(), MemorySpace::kHost, buffer_.data(),
                                                  buffer_.space(), buffer_.bytes(),
                                                  *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    return bytes;
  }

  Buffer buffer_;
  TensorView view_;
  std::vector<uint8_t> before_;
};

// Everything that one dataflow is run with, several times.
struct Guarded {
  GuardedMatrix input, weights, output;
  Workspace workspace;
  Precision precision = Precision::kF32;

  // `gap`: elements between the rows of input and output.
  static absl::StatusOr<Guarded> Create(const KernelMap& map, const ConvData& data, int64_t gap,
                                        Precision precision, const ExecutionContext& context) {
    Guarded guarded;
    guarded.precision = precision;
    VOXCONV_ASSIGN_OR_RETURN(
        guarded.input,
        GuardedMatrix::Create(data.features, map.num_inputs(), data.c_in, gap, precision, context));
    VOXCONV_ASSIGN_OR_RETURN(guarded.weights,
                             GuardedMatrix::Create(data.weights, map.num_offsets() * data.c_in,
                                                   data.c_out, /*gap=*/0, precision, context));
    const std::vector<float> nothing(map.num_outputs() * data.c_out,
                                     std::numeric_limits<float>::quiet_NaN());
    VOXCONV_ASSIGN_OR_RETURN(
        guarded.output,
        GuardedMatrix::Create(nothing, map.num_outputs(), data.c_out, gap, precision, context));
    return guarded;
  }

  absl::Status Run(const Dataflow& dataflow, const KernelMap& map,
                   const ExecutionContext& context) {
    return RunConvolutionOnto(dataflow, map, input.view(), weights.view(), precision, output.view(),
                              workspace, context);
  }

  // Fills the `bytes` of workspace that a run has booked, and the output. A grant of no more than
  // the workspace has keeps what is in it.
  absl::Status Fill(uint8_t value, int64_t bytes, const ExecutionContext& context) {
    Backend& backend = *context.backend;
    if (bytes > 0) {
      WorkspaceBooking booking;
      const int slot = booking.Book(bytes);
      VOXCONV_RETURN_IF_ERROR(workspace.Grant(booking, context));
      VOXCONV_RETURN_IF_ERROR(
          backend.FillBytes(workspace.Get<char>(slot), value, bytes, *context.stream));
    }
    return backend.FillBytes(output.view().data, value, output.view().bytes(), *context.stream);
  }
};

// On rows with gaps, for a dataflow that takes them.
absl::Status CheckGaps(const Dataflow& dataflow, const KernelMap& map, const Problem& problem,
                       const ConvData& data, Precision precision, const ExecutionContext& context) {
  ConvShape shape{data.c_in, data.c_out, map.num_offsets(), map.symmetric(),
                  ConvTypes::Of(precision)};
  if (!dataflow.CapabilityOf(Pass::kForward, shape).strides_rows) return absl::OkStatus();
  for (const int64_t gap : {64, 8, 3}) {
    VOXCONV_ASSIGN_OR_RETURN(Guarded guarded, Guarded::Create(map, data, gap, precision, context));
    VOXCONV_RETURN_IF_ERROR(guarded.Run(dataflow, map, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                             ToHost(guarded.output.view(), context));
    const LayerData layer = LayerDataOf(problem, data);
    VOXCONV_RETURN_IF_ERROR(CompareExactly(output, data.output, data.c_out, &layer));
    VOXCONV_RETURN_IF_ERROR(guarded.input.CheckUnchanged("input", true, context));
    VOXCONV_RETURN_IF_ERROR(guarded.output.CheckUnchanged("output", false, context));
  }
  return absl::OkStatus();
}

absl::Status CheckGuarded(const Dataflow& dataflow, const KernelMap& map, const Problem& problem,
                          const ConvData& data, Precision precision,
                          const ExecutionContext& context) {
  Profile profile;
  ExecutionContext counted = context;
  counted.profile = &profile;
  VOXCONV_ASSIGN_OR_RETURN(Guarded guarded,
                           Guarded::Create(map, data, /*gap=*/0, precision, context));
  VOXCONV_RETURN_IF_ERROR(guarded.Run(dataflow, map, counted));
  for (const uint8_t stale : kStaleBytes) {
    VOXCONV_RETURN_IF_ERROR(guarded.Fill(stale, profile.counters.peak_workspace, context));
    VOXCONV_RETURN_IF_ERROR(guarded.Run(dataflow, map, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                             ToHost(guarded.output.view(), context));
    const LayerData layer = LayerDataOf(problem, data);
    const absl::Status same = CompareExactly(output, data.output, data.c_out, &layer);
    if (!same.ok()) {
      return absl::InternalError(
          absl::StrCat("with workspace and output full of the byte ", stale, ": ", same.message()));
    }
  }
  VOXCONV_RETURN_IF_ERROR(guarded.input.CheckUnchanged("input", true, context));
  VOXCONV_RETURN_IF_ERROR(guarded.weights.CheckUnchanged("weights", true, context));
  VOXCONV_RETURN_IF_ERROR(guarded.output.CheckUnchanged("output", false, context));
  VOXCONV_RETURN_IF_ERROR(CheckGaps(dataflow, map, problem, data, precision, context));
  const absl::Status same = CompareMaps(map, problem, context);
  if (same.ok()) return same;
  return absl::InternalError(absl::StrCat("the dataflow wrote to its map: ", same.message()));
}

absl::Status CheckAtLeast(absl::string_view counter, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the counter ", counter, " is ", value, "; the least is ", least));
}

// What holds for every dataflow: true_pairs is the map's number of pairs, every pair is multiplied,
// and every output is written. Runs count alike.
absl::Status CheckCounters(const Dataflow& dataflow, const KernelMap& map, const ConvData& data,
                           Precision precision, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Guarded guarded,
                           Guarded::Create(map, data, /*gap=*/0, precision, context));
  Counters first;
  for (int run = 0; run < 2; ++run) {
    Profile profile;
    ExecutionContext counted = context;
    counted.profile = &profile;
    VOXCONV_RETURN_IF_ERROR(guarded.Run(dataflow, map, counted));
    VOXCONV_RETURN_IF_ERROR(context.backend->FlushStages());
    const Counters& counters = profile.counters;
    if (run == 0) first = counters;
    if (counters.true_pairs != map.num_pairs()) {
      return absl::InternalError(absl::StrCat("the counter true_pairs is ", counters.true_pairs,
                                              "; the map has ", map.num_pairs(), " pairs"));
    }
    VOXCONV_RETURN_IF_ERROR(
        CheckAtLeast("padded_pairs", counters.padded_pairs, counters.true_pairs));
    VOXCONV_RETURN_IF_ERROR(
        CheckAtLeast("bytes_written", counters.bytes_written, guarded.output.view().bytes()));
    VOXCONV_RETURN_IF_ERROR(CheckAtLeast("bytes_read", counters.bytes_read, 1));
    VOXCONV_RETURN_IF_ERROR(CheckAtLeast("launches", counters.launches, 1));
    if (std::memcmp(&counters, &first, sizeof(Counters)) != 0) {
      return absl::InternalError("the counters of two runs differ");
    }
  }
  return absl::OkStatus();
}

Outcome RunCaseOf(const Environment& environment, bool counters, const std::string& spec,
                  const CaseShape& shape, const Problem& problem) {
  return WithDataflow(environment, spec, shape, problem.geometry, [&](const Dataflow& dataflow) {
    const ExecutionContext context = ContextOf(*environment.backend);
    const absl::StatusOr<KernelMap> map = UploadReferenceMap(problem, context);
    if (!map.ok()) return Outcome::From(map.status());
    const ConvData data = WholeNumbers(problem, shape.c_in, shape.c_out);
    return Outcome::From(
        counters ? CheckCounters(dataflow, *map, data, shape.precision, context)
                 : CheckGuarded(dataflow, *map, problem, data, shape.precision, context));
  });
}

// A pass finds in the buffers what the one before has left there.
void AddGuardCasesOfPasses(Environment& environment, std::vector<Case>& cases) {
  const std::string geometry = "submanifold_k3";
  ForEachClaimedShape(
      environment, {{16, 24}}, [&](const std::string& spec, const CaseShape& shape) {
        cases.push_back(
            {absl::StrCat("guard/conv/", spec, "/", ShapeName(shape), "/", geometry, "/large"),
             [&environment, spec, shape, geometry] {
               const Problem* problem =
                   environment.problems.Get(GeometryNamed(geometry), LargeScene());
               return RunCaseOf(environment, /*counters=*/false, spec, shape, *problem);
             }});
      });
}

}  // namespace

void AddGuardCases(Environment& environment, std::vector<Case>& cases) {
  AddGuardCasesOfPasses(environment, cases);
  for (const std::string& geometry : GeometryOfEachKind()) {
    const Problem* problem = environment.problems.Get(GeometryNamed(geometry), Scenes()[1]);
    const auto add = [&](const std::string& spec, const CaseShape& shape) {
      const std::string name = absl::StrCat(spec, "/", ShapeName(shape), "/", problem->id);
      for (const bool counters : {false, true}) {
        cases.push_back({absl::StrCat(counters ? "counters" : "guard", "/conv/", name),
                         [&environment, counters, spec, shape, problem] {
                           return RunCaseOf(environment, counters, spec, shape, *problem);
                         }});
      }
    };
    ForEachClaimedShape(environment, {{16, 24}, {33, 17}}, add);
  }
}

}  // namespace voxconv::verify
