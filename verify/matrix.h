// SPDX-License-Identifier: Apache-2.0
// The verify matrix: every combination of what is registered, each checked against the reference.
#ifndef VOXCONV_VERIFY_MATRIX_H_
#define VOXCONV_VERIFY_MATRIX_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// What the cases run on. Nothing is owned but the problems. `backend` has the session's number of
// threads. `serial` and `parallel`, for the cases on determinism, differ only in the number of
// threads.
struct Environment {
  const Registry* registry;
  Backend* backend;
  Backend* serial;
  Backend* parallel;
  ProblemCache problems;
};

enum class Verdict { kPassed, kFailed, kSkipped };

struct Outcome {
  Verdict verdict = Verdict::kPassed;
  std::string detail;  // why it failed or was skipped

  static Outcome Passed() { return {}; }
  static Outcome Failed(std::string why) { return {Verdict::kFailed, std::move(why)}; }
  static Outcome Skipped(std::string why) { return {Verdict::kSkipped, std::move(why)}; }
  // Of a plugin that does not run the case: a skip with its reason, after "`what`: " if there is
  // one. A plugin that threw when it was asked fails.
  static Outcome Unsupported(const Support& support, absl::string_view what = "") {
    if (support.failed) return Failed(support.reason);
    return Skipped(what.empty() ? support.reason : absl::StrCat(what, ": ", support.reason));
  }
  static Outcome From(const absl::Status& status) {
    return status.ok() ? Passed() : Failed(std::string(status.message()));
  }
  // The same, except that a refusal for lack of memory is a skip if the problem has huge bounds.
  static Outcome From(const absl::Status& status, const Problem& problem) {
    if (problem.huge_bounds && absl::IsResourceExhausted(status)) {
      return Skipped("the index over the bounds of this scene is past the memory limit");
    }
    return From(status);
  }
};

struct Case {
  std::string id;  // "map/<mapping>/<geometry>/<scene>", ...
  std::function<Outcome()> run;
  bool always = false;  // also among the quick ones
};

// Runs the case. An exception of a plugin fails the case. The detail is one line.
Outcome RunCase(const Case& test);

struct Selection {
  // "NAME": only variants of this plugin. "NAME:OPTIONS": only this variant; "NAME:" is the default
  // one. "": all.
  std::string mapping;
  std::string dataflow;
  std::string filter;  // an id or part of one; "*" matches any text
  bool quick = false;  // about one case in twenty, the same cases every time
};

// Cases in a fixed order. `environment` must outlive them.
//   coords/<output_coords>/<problem>     output coordinates, row by row
//   map/<mapping>/<problem>              the canonical pairs, exactly; the problem `reused_index`
//                                        queries one index with two geometries
//   form/<form>/<problem>                a map in that form, there and back, and transposed
//   layout/conv/<dataflow>/<problem>     the layout that a dataflow makes, read back as pairs
//   grad/conv/<dataflow>/<channels>/input|weight|adjoint/<problem>   gradients
//   grad_large/conv/<dataflow>/<channels>/<pass>/<problem>   gradients of 64 .. 256 channels on a
//                                        large scene, at sampled rows and entries
//   grad/op/<operator>/<dtype>           gradients of the other operators, and of losses: `add` is
//                                        also the sum where two layers read a tensor, `bias` that
//                                        of columns. Poolings by dataflows and in all geometries
//                                        are in pool/...: unpooling is the gradient of pooling,
//                                        and pooling that of unpooling
//   step/<optimiser>, step/clip|skip     steps of optimisers, of clipped gradients too
//   conv/<mapping>/<dataflow>/<channels>/<problem>   forward, every element and
//                                        norm-wise (verify/bounds.h); the mapping `reference`
//                                        stands for the oracle's own map
//   repeat/...                           bitwise equality over repeats and thread counts, of
//                                        gradients too
//   exact/map|conv/<plugin>/...          2^16 + 1 voxels; whole numbers, bit by bit
//   cover/map|conv/<plugin>/...          a covering array over channels, kernels, samples, threads
//   value/conv/<dataflow>/...            large, tiny, denormal, zero, NaN and infinite values
//   guard/conv/<dataflow>/...            nothing is written but the output; nothing stale is read
//                                        (.../large: in several passes of small buffers too)
//   counters/conv/<dataflow>/...         what a run counts, against the map and the tensors
//   pool/<mode>/<problem>                pooling and unpooling by the backend's operators; each is
//                                        the gradient of the other
//   pool/conv/<dataflow>/<channels>/<mode>/<problem>   the same by a dataflow that pools itself
// If the factory of a plugin refuses all variants, the plugin has one case with the factory's
// message: map/<mapping>/factory, coords/..., conv/reference/<dataflow>/... The case is skipped if
// the error is kUnimplemented, and fails otherwise.
std::vector<Case> MakeCases(Environment& environment, const Selection& selection);

// The selected ones of `cases`, in their order. If the filter is the id of a case, only that case.
std::vector<Case> SelectCases(std::vector<Case> cases, const Selection& selection);

// One "<plugin spec> | <geometry kind or shape> | <reason>" line for each refusal, sorted: the
// support table. If `selection` names plugins, of these alone. Its other members have no effect.
std::vector<std::string> SupportTable(const Registry& registry, BackendKind backend,
                                      const Selection& selection = {});

// The parts of MakeCases, in the files of the same names.
void AddCoordsCases(Environment& environment, std::vector<Case>& cases);
void AddMapCases(Environment& environment, std::vector<Case>& cases);
void AddLayoutCases(Environment& environment, std::vector<Case>& cases);
void AddConvCases(Environment& environment, std::vector<Case>& cases);
void AddRepeatCases(Environment& environment, std::vector<Case>& cases);
void AddGradOperatorCases(Environment& environment, std::vector<Case>& cases);
void AddPoolCases(Environment& environment, std::vector<Case>& cases);
void AddGradCases(Environment& environment, std::vector<Case>& cases);
void AddLargeGradCases(Environment& environment, std::vector<Case>& cases);
void AddStepCases(Environment& environment, std::vector<Case>& cases);
void AddLargeCases(Environment& environment, std::vector<Case>& cases);
void AddCoveringCases(Environment& environment, std::vector<Case>& cases);
void AddValueCases(Environment& environment, std::vector<Case>& cases);
void AddGuardCases(Environment& environment, std::vector<Case>& cases);
void AddStressCases(Environment& environment, std::vector<Case>& cases);

// Deterministic values in [-1, 1), without a zero among the first few thousand.
std::vector<float> Values(int64_t count, uint64_t seed);

// The oracle's map of the problem, in the backend's memory.
absl::StatusOr<KernelMap> UploadReferenceMap(const Problem& problem,
                                             const ExecutionContext& context);

// The mapping's map of the problem, as pairs in the backend's memory. The map is validated in the
// form that the mapping makes. Synchronises the stream. The second function queries an index that
// was built over `inputs` before.
absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const Problem& problem,
                                        const ExecutionContext& context);
absl::StatusOr<KernelMap> QueryValidMap(const Mapping& mapping, const MapIndex& index,
                                        const CoordinateSetPtr& inputs, const Problem& problem,
                                        const ExecutionContext& context);

inline ExecutionContext ContextOf(Backend& backend) { return {&backend, &backend.main_stream()}; }

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_MATRIX_H_
