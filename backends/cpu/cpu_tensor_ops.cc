#include "backends/cpu/cpu_tensor_ops.h"

namespace voxconv {
namespace {

class CpuTensorOps final : public TensorOps {
 public:
  absl::Status ScaleShift(const TensorView&, const float*, const float*, bool, const TensorView&,
                          const ExecutionContext&) override {
    return absl::UnimplementedError("ScaleShift");
  }
  absl::Status Add(const TensorView&, const TensorView&, bool, const TensorView&,
                   const ExecutionContext&) override {
    return absl::UnimplementedError("Add");
  }
  absl::Status Concat(const TensorView&, const TensorView&, const TensorView&,
                      const ExecutionContext&) override {
    return absl::UnimplementedError("Concat");
  }
  absl::Status Linear(const TensorView&, const TensorView&, const float*, const TensorView&,
                      const ExecutionContext&) override {
    return absl::UnimplementedError("Linear");
  }
  absl::Status Pool(const KernelMap&, PoolMode, const TensorView&, const TensorView&, int32_t*,
                    const ExecutionContext&) override {
    return absl::UnimplementedError("Pool");
  }
  absl::Status Unpool(const KernelMap&, PoolMode, const TensorView&, const int32_t*,
                      const TensorView&, const ExecutionContext&) override {
    return absl::UnimplementedError("Unpool");
  }
  absl::Status GlobalPool(const Array<Coordinate>&, PoolMode, const TensorView&, const TensorView&,
                          const ExecutionContext&) override {
    return absl::UnimplementedError("GlobalPool");
  }
};

}  // namespace

std::unique_ptr<TensorOps> MakeCpuTensorOps() { return std::make_unique<CpuTensorOps>(); }

}  // namespace voxconv
