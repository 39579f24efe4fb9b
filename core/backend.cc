// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/backend.h"

namespace voxconv {
namespace {

// For backends of one stream.
class BranchesInTrunk final : public Branches {
 public:
  explicit BranchesInTrunk(const ExecutionContext& trunk) : trunk_(trunk) {}

  absl::Status Follow(int) override { return absl::OkStatus(); }
  absl::StatusOr<int> Run(int, const Work& work) override {
    VOXCONV_RETURN_IF_ERROR(work(trunk_));
    return 0;
  }
  absl::Status Wait(int) override { return absl::OkStatus(); }
  absl::Status Join() override { return absl::OkStatus(); }

 private:
  ExecutionContext trunk_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Branches>> Backend::OpenBranches(const ExecutionContext& context) {
  return std::make_unique<BranchesInTrunk>(context);
}

}  // namespace voxconv
