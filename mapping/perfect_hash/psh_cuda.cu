// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/perfect_hash/neighbour_question.h"
#include "voxconv/mapping/perfect_hash/psh_cpu.h"
#include "voxconv/mapping/perfect_hash/psh_cuda.h"

namespace voxconv {
namespace {

template <typename Tag>
struct PshLookup {
  PshView<Tag> view;
  __device__ int32_t operator()(const Coordinate& position, uint64_t) const {
    return view.Find(position);
  }
};

// Calls run(PshLookup<Tag>) with the lookup in `psh`.
template <typename Run>
auto WithLookup(const PshCuda& psh, const Run& run) {
  return std::visit(
      [&](const auto& tags) {
        using Tag = std::remove_cvref_t<decltype(*tags.data())>;
        return run(PshLookup<Tag>{PshView<Tag>{psh.samples.data(),
                                               static_cast<int32_t>(psh.samples.size()), psh.stride,
                                               psh.phi.data(), tags.data(), psh.h.data()}});
      },
      psh.tags);
}

// H-CNN Algorithm 1: the lookups of some output rows.
class PshNeighboursCuda final : public NeighbourLookup {
 public:
  PshNeighboursCuda(std::shared_ptr<const PshCuda> psh, NeighbourQuestion question)
      : psh_(std::move(psh)), question_(std::move(question)) {}

  absl::Status Find(int64_t first, int64_t count, int32_t* table,
                    const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kMapQuery);
    return WithLookup(*psh_, [&](const auto& lookup) {
      return FindNeighbourRows(lookup, question_.outputs.data() + first, count, question_.offsets,
                               question_.may_leave_range, table, context);
    });
  }
  int64_t bytes() const override { return psh_->bytes() + question_.outputs.bytes(); }

 private:
  std::shared_ptr<const PshCuda> psh_;
  NeighbourQuestion question_;
};

class Index final : public PshIndexCuda {
 public:
  explicit Index(PshCuda psh) : psh_(std::make_shared<const PshCuda>(std::move(psh))) {}

  int64_t bytes() const override { return psh_->bytes(); }

  absl::StatusOr<KernelMap> Query(const MapProblem& problem, bool symmetric,
                                  const ExecutionContext& context) const override {
    return WithLookup(*psh_, [&](const auto& lookup) {
      return QueryNeighbours(lookup, problem, symmetric, context);
    });
  }

  absl::StatusOr<KernelMap> Lookup(const MapProblem& problem,
                                   const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(NeighbourQuestion question, NeighbourQuestion::Copy(problem, context));
    return MapOnDemand(problem,
                       std::make_shared<const PshNeighboursCuda>(psh_, std::move(question)));
  }

 private:
  std::shared_ptr<const PshCuda> psh_;
};

absl::StatusOr<PshCuda> Upload(const SuperPsh& psh, const Int3& stride,
                               const ExecutionContext& context) {
  PshCuda result;
  result.stride = stride;
  VOXCONV_ASSIGN_OR_RETURN(result.samples, CopyToBackend<PshSample>(psh.samples(), context));
  VOXCONV_ASSIGN_OR_RETURN(result.h, CopyToBackend(psh.h().host(), context));
  VOXCONV_ASSIGN_OR_RETURN(result.phi, CopyToBackend(psh.phi().host(), context));
  VOXCONV_RETURN_IF_ERROR(std::visit(
      [&](const auto& tags) -> absl::Status {
        VOXCONV_ASSIGN_OR_RETURN(result.tags, CopyToBackend(tags.host(), context));
        return absl::OkStatus();
      },
      psh.tags()));
  return result;
}

}  // namespace

absl::StatusOr<PshCuda> BuildPshOnHost(const CoordinateSet& voxels, const PshOptions& options,
                                       const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows, CopyToHost(voxels.rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<CpuBackend> cpu, CpuBackend::Create({}));
  const ExecutionContext host{cpu.get(), &cpu->main_stream(), nullptr};
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> copy, CopyToBackend<Coordinate>(rows, host));
  const CoordinateSetPtr set =
      CoordinateSet::Adopt(std::move(copy), voxels.tensor_stride(), voxels.bounds(),
                           voxels.num_batches(), voxels.sorted());
  VOXCONV_ASSIGN_OR_RETURN(const SuperPsh psh, SuperPsh::Build(*set, options, host));
  return Upload(psh, voxels.tensor_stride(), context);
}

std::unique_ptr<PshIndexCuda> MakePshIndexCuda(PshCuda psh) {
  return std::make_unique<Index>(std::move(psh));
}

}  // namespace voxconv
