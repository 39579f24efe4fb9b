// How often the host waits for the device in a frame, counted where the CUDA runtime is called: the
// linker leads these calls to the functions below (--wrap).
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dataflows/gather_gemm_scatter/register.h"
#include "dataflows/implicit_gemm/register.h"
#include "gtest/gtest.h"
#include "mapping/grid/register.h"
#include "mapping/hash/register.h"
#include "mapping/output_coords/register.h"
#include "mapping/sorted_search/register.h"
#include "networks/executor.h"
#include "networks/initialize.h"
#include "networks/models.h"
#include "unit_cuda.h"

namespace {

// Calls that return when the device has come to some point, and those that may: copies whose host
// memory the driver must copy itself, and page-locking.
int64_t waits = 0, perhaps = 0;

bool IsPageable(const void* memory) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  return error != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

// The linker's names.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {

cudaError_t __real_cudaStreamSynchronize(cudaStream_t stream);
cudaError_t __real_cudaEventSynchronize(cudaEvent_t event);
cudaError_t __real_cudaDeviceSynchronize();
cudaError_t __real_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream);
cudaError_t __real_cudaMallocHost(void** memory, size_t bytes);

cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  ++waits;
  return __real_cudaStreamSynchronize(stream);
}

cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  ++waits;
  return __real_cudaEventSynchronize(event);
}

cudaError_t __wrap_cudaDeviceSynchronize() {
  ++waits;
  return __real_cudaDeviceSynchronize();
}

cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  if (IsPageable(to) || IsPageable(from)) ++perhaps;
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}

cudaError_t __wrap_cudaMallocHost(void** memory, size_t bytes) {
  ++perhaps;
  return __real_cudaMallocHost(memory, bytes);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace voxconv {
namespace {

// A wavy surface.
std::vector<Coordinate> Scene() {
  std::set<Coordinate> rows;
  for (int x = 0; x < 96; ++x) {
    for (int y = 0; y < 96; ++y) {
      rows.insert({0, x - 48, y, static_cast<int>(5 * std::sin(0.4 * x) + 3 * std::cos(0.7 * y))});
    }
  }
  return {rows.begin(), rows.end()};
}

class SynchronisationsCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_ = UnitCuda::Create();
    if (cuda_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    for (const auto& add :
         {RegisterGridMapping, RegisterHashMapping, RegisterSortedSearchMapping,
          RegisterOutputCoords, RegisterGatherGemmScatter, RegisterImplicitGemm}) {
      ASSERT_TRUE(add(registry_).ok());
    }
  }

  std::unique_ptr<NetworkRunner> Runner(const std::string& network, const LayerChoice& choice,
                                        bool keep_maps) {
    NetworkGraph graph = *MakeModel(network, {.width = 0.5});
    InitializeParameters(graph, 5);
    const RunConfig config{.planner = std::make_shared<FixedPlanner>(choice),
                           .dtype = DType::kF16,
                           .fold_batch_norm = true,
                           .keep_maps = keep_maps,
                           .profile_stages = false};
    return *NetworkRunner::Create(std::move(graph), config, registry_, *cuda_->backend);
  }

  // The rows that are a multiple of `divisor` after each other, and features for them.
  struct Input {
    CoordinateSetPtr coordinates;
    Tensor features;
  };
  Input MakeInput(size_t divisor, int64_t channels) {
    const std::vector<Coordinate> all = Scene();
    const auto rows = absl::MakeConstSpan(all).first(all.size() / divisor);
    const auto size = static_cast<int64_t>(rows.size());
    Input input;
    input.coordinates = *CoordinateSet::Create(rows, {1, 1, 1}, cuda_->context);
    const std::vector<float> ones(size * channels, 1.0f);
    input.features = *Tensor::FromHost(ones, size, channels, cuda_->context);
    return input;
  }

  // What the runtime saw of one frame.
  struct Seen {
    int64_t waits, perhaps, reported;
  };
  Seen Frame(NetworkRunner& runner, const Input& input) {
    EXPECT_TRUE(cuda_->context.stream->Synchronize().ok());
    const int64_t waits_before = waits, perhaps_before = perhaps;
    const auto result = runner.Run(input.coordinates, input.features.view());
    const Seen seen{waits - waits_before, perhaps - perhaps_before,
                    result.ok() ? result->report.synchronisations : -1};
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(cuda_->context.stream->Synchronize().ok());
    return seen;
  }

  std::unique_ptr<UnitCuda> cuda_;
  Registry registry_;
};

// Every map is built anew; frames change their sizes.
TEST_F(SynchronisationsCudaTest, OneAFrame) {
  for (const char* network : {"minkunet42", "sparseresnet21"}) {
    for (const char* mapping : {"hash", "sorted_search", "grid:storage=bitmap"}) {
      for (const char* dataflow : {"implicit_gemm", "implicit_gemm:mask_sort=rarest"}) {
        const auto runner = Runner(network, {mapping, dataflow, "fused"}, false);
        bool first = true;
        for (const size_t divisor : {1, 1, 3, 2, 1}) {
          SCOPED_TRACE(absl::StrCat(network, " ", mapping, " ", dataflow, " ", divisor));
          const Seen seen = Frame(*runner, MakeInput(divisor, runner->graph().in_channels()));
          EXPECT_EQ(seen.waits, 1);
          EXPECT_EQ(seen.reported, seen.waits);
          EXPECT_TRUE(first || seen.perhaps == 0) << seen.perhaps;
          first = false;
        }
      }
    }
  }
}

TEST_F(SynchronisationsCudaTest, NoneWithKeptMapsOrInAReplay) {
  const auto runner = Runner("minkunet42", {"hash", "implicit_gemm", "fused"}, true);
  const Input input = MakeInput(1, runner->graph().in_channels());
  EXPECT_EQ(Frame(*runner, input).waits, 1);
  for (int i = 0; i < 2; ++i) {
    const Seen seen = Frame(*runner, input);
    EXPECT_EQ(seen.waits, 0);
    EXPECT_EQ(seen.perhaps, 0);
    EXPECT_EQ(seen.reported, 0);
  }
  const auto frame = *runner->Record(input.coordinates, input.features.view());
  const int64_t waits_before = waits, perhaps_before = perhaps;
  EXPECT_TRUE(frame->Replay().ok());
  EXPECT_EQ(waits - waits_before, 0);
  EXPECT_EQ(perhaps - perhaps_before, 0);
  EXPECT_TRUE(cuda_->context.stream->Synchronize().ok());
}

// Those that must know sizes on the host say how often they waited.
TEST_F(SynchronisationsCudaTest, EveryWaitIsReported) {
  const auto runner = Runner("minkunet42", {"hash", "gather_gemm_scatter", "fused"}, false);
  const Input input = MakeInput(1, runner->graph().in_channels());
  for (const bool profile : {false, true}) {
    runner->set_profile_stages(profile);
    const Seen seen = Frame(*runner, input);
    EXPECT_GT(seen.waits, 1);
    // Times of stages are one wait by then, whatever their number.
    EXPECT_TRUE(profile || seen.reported == seen.waits) << seen.reported;
    EXPECT_GT(seen.reported, 1);
  }
}

}  // namespace
}  // namespace voxconv
