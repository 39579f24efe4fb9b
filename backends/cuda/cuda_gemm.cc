#include "backends/cuda/cuda_gemm.h"

#include "backends/cuda/cuda_backend.h"

namespace voxconv {
namespace {

class CublasLtGemm final : public CudaGemm {
 public:
  absl::Status Run(const GemmArgs&, const ExecutionContext&) override {
    return absl::UnimplementedError("gemm");
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaGemm>> MakeCudaGemm() {
  return std::make_unique<CublasLtGemm>();
}

}  // namespace voxconv
