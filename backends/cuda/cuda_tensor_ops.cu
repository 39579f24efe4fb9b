#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/cuda_tensor_ops.h"

namespace voxconv {
namespace {

class CudaTensorOps final : public TensorOps {
 public:
  absl::Status ScaleShift(const TensorView&, const float*, const float*, bool, const TensorView&,
                          const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status Add(const TensorView&, const TensorView&, bool, const TensorView&,
                   const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status Concat(const TensorView&, const TensorView&, const TensorView&,
                      const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status Linear(const TensorView&, const TensorView&, const float*, const TensorView&,
                      const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status Pool(const KernelMap&, PoolMode, const TensorView&, const TensorView&, int32_t*,
                    const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status Unpool(const KernelMap&, PoolMode, const TensorView&, const int32_t*,
                      const TensorView&, const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
  absl::Status GlobalPool(const Array<Coordinate>&, PoolMode, const TensorView&, const TensorView&,
                          const ExecutionContext&) override {
    return absl::UnimplementedError("op");
  }
};

}  // namespace

std::unique_ptr<TensorOps> MakeCudaTensorOps() { return std::make_unique<CudaTensorOps>(); }

}  // namespace voxconv
