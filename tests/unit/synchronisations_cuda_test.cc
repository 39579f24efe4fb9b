// SPDX-License-Identifier: Apache-2.0
// How often the host waits for the device in a frame. The linker leads the project's calls of the
// CUDA runtime to the functions below (--wrap), which count them. Not counted are calls inside
// cuBLASLt, and waits of the driver when it loads kernels, makes graphs or grows a pool.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"
#include "voxconv/mapping/grid/register.h"
#include "voxconv/mapping/hash/register.h"
#include "voxconv/mapping/octree/register.h"
#include "voxconv/mapping/output_coords/register.h"
#include "voxconv/mapping/perfect_hash/register.h"
#include "voxconv/mapping/sorted_search/register.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/training/data/dataset.h"
#include "voxconv/training/run/training_run.h"
#include "voxconv/training/trainer.h"

namespace {

// Waits for a stream or for the whole device. Waits for an event. Calls that may wait, because they
// take or give back memory or copy memory that is not page-locked.
int64_t stream_waits = 0, event_waits = 0, perhaps = 0;

bool IsPageable(const void* memory) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  return error != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

// The linker's names.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {

#define VOXCONV_WRAP(name, count, parameters, ...) \
  cudaError_t __real_##name parameters;            \
  cudaError_t __wrap_##name parameters {           \
    count;                                         \
    return __real_##name(__VA_ARGS__);             \
  }

VOXCONV_WRAP(cudaStreamSynchronize, ++stream_waits, (cudaStream_t stream), stream)
VOXCONV_WRAP(cudaDeviceSynchronize, ++stream_waits, ())
VOXCONV_WRAP(cudaEventSynchronize, ++event_waits, (cudaEvent_t event), event)
VOXCONV_WRAP(cudaMalloc, ++perhaps, (void** memory, size_t bytes), memory, bytes)
VOXCONV_WRAP(cudaFree, ++perhaps, (void* memory), memory)
VOXCONV_WRAP(cudaMallocHost, ++perhaps, (void** memory, size_t bytes), memory, bytes)
VOXCONV_WRAP(cudaHostAlloc, ++perhaps, (void** memory, size_t bytes, unsigned flags), memory, bytes,
             flags)
VOXCONV_WRAP(cudaFreeHost, ++perhaps, (void* memory), memory)
VOXCONV_WRAP(cudaMemcpy, ++perhaps, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
             to, from, bytes, kind)
VOXCONV_WRAP(cudaMemcpyAsync, perhaps += IsPageable(to) || IsPageable(from),
             (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
             to, from, bytes, kind, stream)

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
         {RegisterGridMapping, RegisterGridMappingCuda, RegisterHashMapping,
          RegisterHashMappingCuda, RegisterOctreeMapping, RegisterOctreeMappingCuda,
          RegisterPerfectHashMapping, RegisterPerfectHashMappingCuda, RegisterSortedSearchMapping,
          RegisterSortedSearchMappingCuda, RegisterOutputCoords, RegisterOutputCoordsCuda,
          RegisterFetchOnDemand, RegisterFetchOnDemandCuda, RegisterGatherGemmScatter,
          RegisterGatherGemmScatterCuda, RegisterImplicitGemm, RegisterImplicitGemmCuda}) {
      ASSERT_TRUE(add(registry_).ok());
    }
  }

  std::unique_ptr<NetworkRunner> Runner(const std::string& network, const LayerChoice& choice,
                                        bool keep_maps) {
    NetworkGraph graph = *MakeModel(network, {.width = 0.5});
    InitializeParameters(graph, 5);
    const RunConfig config{.planner = std::make_shared<FixedPlanner>(choice),
                           .precision = Precision::kF16,
                           .fold_batch_norm = true,
                           .keep_maps = keep_maps,
                           .profile_stages = false};
    return *NetworkRunner::Create(std::move(graph), config, registry_, *cuda_->backend);
  }

  // Of a network whose steps have strides, inverse convolutions and batch norms.
  std::unique_ptr<Trainer> MakeTrainer() {
    NetworkGraph graph = *MakeTrainable("minkunet42", {.width = 0.5, .classes = 5});
    InitializeParameters(graph, 5);
    TrainingConfig config;
    config.run.planner =
        std::make_shared<FixedPlanner>(LayerChoice{"hash", "implicit_gemm", "fused"});
    config.run.precision = Precision::kF16;
    return *Trainer::Create(std::move(graph), config, registry_, *cuda_->backend);
  }

  // The first of the scene's rows, a `divisor`-th of them, and features for them.
  SparseTensor MakeInput(size_t divisor, int64_t channels) {
    const std::vector<Coordinate> all = Scene();
    const auto rows = absl::MakeConstSpan(all).first(all.size() / divisor);
    const std::vector<float> ones(rows.size() * channels, 1.0f);
    return *SparseTensor::Create(rows, {1, 1, 1}, ones, channels, cuda_->context);
  }

  // What the runtime saw of a call, and what the backend says.
  struct Seen {
    int64_t stream_waits, event_waits, perhaps, counted;
  };
  template <typename Call>
  Seen Watch(const Call& call) {
    EXPECT_TRUE(cuda_->context.stream->Synchronize().ok());
    const Seen before{stream_waits, event_waits, perhaps, cuda_->backend->synchronisations()};
    call();
    const Seen seen{stream_waits - before.stream_waits, event_waits - before.event_waits,
                    perhaps - before.perhaps, cuda_->backend->synchronisations() - before.counted};
    EXPECT_TRUE(cuda_->context.stream->Synchronize().ok());
    return seen;
  }
  Seen Frame(NetworkRunner& runner, const SparseTensor& input) {
    absl::StatusOr<RunResult> result;
    const Seen seen = Watch([&] { result = runner.Run(input.view()); });
    EXPECT_TRUE(result.ok()) << result.status();
    return seen;
  }

  std::unique_ptr<UnitCuda> cuda_;
  Registry registry_;
};

// Every map is built anew, frames have different sizes, and the first frame waits as often as the
// others.
TEST_F(SynchronisationsCudaTest, OneAFrame) {
  for (const char* network : {"minkunet42", "sparseresnet21"}) {
    for (const char* mapping : {"hash", "sorted_search", "grid:storage=bitmap"}) {
      for (const char* dataflow : {"implicit_gemm", "implicit_gemm:mask_sort=rarest"}) {
        const auto runner = Runner(network, {mapping, dataflow, "fused"}, false);
        for (const size_t divisor : {3, 2, 1, 3, 1}) {
          SCOPED_TRACE(absl::StrCat(network, " ", mapping, " ", dataflow, " ", divisor));
          const Seen seen = Frame(*runner, MakeInput(divisor, runner->graph().in_channels()));
          EXPECT_EQ(seen.stream_waits, 1);
          EXPECT_EQ(seen.event_waits, 0);
          EXPECT_EQ(seen.perhaps, 0);
          EXPECT_EQ(seen.counted, 1);
        }
      }
    }
  }
}

TEST_F(SynchronisationsCudaTest, NoneWithKeptMapsOrInAReplay) {
  const auto runner = Runner("minkunet42", {"hash", "implicit_gemm", "fused"}, true);
  const SparseTensor input = MakeInput(1, runner->graph().in_channels());
  EXPECT_EQ(Frame(*runner, input).stream_waits, 1);
  const auto expect_none = [](const Seen& seen) {
    EXPECT_EQ(seen.stream_waits + seen.event_waits + seen.perhaps, 0);
    EXPECT_EQ(seen.counted, 0);
  };
  for (int i = 0; i < 2; ++i) expect_none(Frame(*runner, input));
  std::unique_ptr<RecordedFrame> frame;
  const Seen recorded = Watch([&] { frame = *runner->Record(input.view()); });
  EXPECT_GT(recorded.stream_waits, 0);
  EXPECT_EQ(recorded.counted, recorded.stream_waits);
  for (int i = 0; i < 2; ++i) expect_none(Watch([&] { EXPECT_TRUE(frame->Replay().ok()); }));
}

// A step that was not announced makes its coordinate sets and maps anew. The host waits for the
// sizes of the sets, and in Finish for the result. The pairs that the backward pass needs are
// counted as soon as maps are made, so that one wait more comes only where other programs keep the
// device busy (Trainer::Queue). `perhaps` is the copy of the labels, before anything is queued.
TEST_F(SynchronisationsCudaTest, OneATrainingStep) {
  const std::unique_ptr<Trainer> trainer = MakeTrainer();
  for (const size_t divisor : {1, 1, 3, 2, 1}) {
    const SparseTensor input = MakeInput(divisor, trainer->graph().in_channels());
    const std::vector<int32_t> labels(input.features().rows(), 3);
    const Seen queued = Watch([&] { EXPECT_TRUE(trainer->Queue(input.view(), labels, 0.1).ok()); });
    const Seen finished = Watch([&] { EXPECT_TRUE(trainer->Finish().ok()); });
    SCOPED_TRACE(divisor);
    EXPECT_EQ(finished.counted, 1);
    EXPECT_EQ(finished.stream_waits, 1);
    EXPECT_EQ(finished.event_waits + finished.perhaps, 0);
    EXPECT_GE(queued.stream_waits, 1);
    EXPECT_LE(queued.stream_waits, 2);
    EXPECT_EQ(queued.event_waits, 0);
    EXPECT_EQ(queued.perhaps, 1);
    EXPECT_EQ(queued.counted, queued.stream_waits);
  }
}

// The sizes of the next step's coordinate sets come with the result: one wait a step, of different
// sizes each. Before the first step they are asked for. Steps that were not announced give the same
// bits.
TEST_F(SynchronisationsCudaTest, OneATrainingStepThatWasAnnounced) {
  const std::unique_ptr<Trainer> trainer = MakeTrainer(), plain = MakeTrainer();
  std::vector<SparseTensor> inputs;
  for (const size_t divisor : {1, 1, 3, 2, 1}) {
    inputs.push_back(MakeInput(divisor, trainer->graph().in_channels()));
  }
  const Seen first = Watch([&] { EXPECT_TRUE(trainer->Announce(inputs[0].view()).ok()); });
  EXPECT_EQ(first.stream_waits, 1);
  int64_t least = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<int32_t> labels(inputs[i].features().rows(), 3);
    const Seen queued =
        Watch([&] { EXPECT_TRUE(trainer->Queue(inputs[i].view(), labels, 0.1).ok()); });
    absl::StatusOr<StepResult> result;
    const Seen finished = Watch([&] {
      const size_t next = std::min(i + 1, inputs.size() - 1);
      EXPECT_TRUE(trainer->Announce(inputs[next].view()).ok());
      result = trainer->Finish();
    });
    SCOPED_TRACE(i);
    const auto expected = plain->Step(inputs[i].view(), labels, 0.1);
    ASSERT_TRUE(result.ok() && expected.ok());
    EXPECT_EQ(result->loss.loss, expected->loss.loss);
    EXPECT_EQ(result->gradient_norm, expected->gradient_norm);
    // A second wait comes only where other programs keep the device busy, so not in every step.
    EXPECT_LE(queued.counted, 1);
    least = std::min(least, queued.counted);
    EXPECT_EQ(queued.counted, queued.stream_waits);
    EXPECT_EQ(finished.counted, 1);
    EXPECT_EQ(finished.stream_waits, 1);
    EXPECT_EQ(finished.event_waits + finished.perhaps, 0);
  }
  EXPECT_EQ(least, 0);
}

// Clouds of the scene's points, each with one label, of the cloud or of each point.
class SceneSet final : public Dataset {
 public:
  explicit SceneSet(LabelKind kind) : kind_(kind) {}
  int64_t size() const override { return 5; }
  LabelKind label_kind() const override { return kind_; }
  int64_t classes() const override { return 5; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string NameOf(int64_t index) const override { return absl::StrCat(index); }
  absl::StatusOr<std::string> ContentHash() const override { return "scene"; }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    LabelledCloud cloud;
    for (const Coordinate& row : Scene()) {
      if (row.y % 5 == index) continue;
      for (const int32_t value : {row.x, row.y, row.z}) {
        cloud.cloud.xyz.push_back(static_cast<float>(value));
      }
      cloud.labels.push_back(static_cast<int32_t>(index));
    }
    if (kind_ == LabelKind::kCloud) cloud.labels.resize(1);
    return cloud;
  }

 private:
  const LabelKind kind_;
  const std::vector<std::string> names_ = {"a", "b", "c", "d", "e"};
};

// A run of several epochs with tests and checkpoints between: each batch is announced, also the
// first of an epoch and of the run. A second wait comes only where other programs keep the device
// busy.
TEST_F(SynchronisationsCudaTest, OneAStepOfARun) {
  for (const std::string network : {"minkunet42", "hcnn_classifier", "sparseresnet21_classifier"}) {
    SCOPED_TRACE(network);
    const LabelKind kind = network == "minkunet42" ? LabelKind::kPoint : LabelKind::kCloud;
    const SceneSet set(kind);
    NetworkGraph graph = *MakeTrainable(network, {.width = 0.5, .classes = 5});
    InitializeParameters(graph, 5);
    TrainingRunConfig config{.epochs = 3};
    config.test = {.batch = 2, .channels = 4, .unit_sphere = true};
    config.test.voxelize.size = {0.0625, 0.0625, 0.0625};
    config.train = config.test;
    config.train.shuffle = true;
    config.training.run.planner =
        std::make_shared<FixedPlanner>(LayerChoice{"hash", "implicit_gemm", "fused"});
    config.training.run.precision = Precision::kF16;
    std::vector<int64_t> least(9, 9);
    for (int run = 0; run < 3; ++run) {
      config.folder = absl::StrCat(::testing::TempDir(), "/waits_", network, run);
      std::filesystem::remove_all(config.folder);
      int64_t before = 0;
      const TrainingObserver observer{.step = [&](const StepReport& report) {
        least[report.step - 1] = std::min(least[report.step - 1], report.waits);
        // The copy of the labels alone, where there is no unpooling. No epoch ends between these
        // steps.
        const int64_t copies = perhaps - before;
        EXPECT_TRUE(kind == LabelKind::kCloud || report.step_in_epoch == 1 || copies == 1)
            << report.step << ": " << copies;
        before = perhaps;
      }};
      const Seen seen = Watch([&] {
        const auto trained =
            RunTraining(graph, config, set, &set, registry_, *cuda_->backend, observer);
        EXPECT_TRUE(trained.ok()) << trained.status();
      });
      EXPECT_EQ(seen.event_waits, 0);
    }
    EXPECT_LE(*std::max_element(least.begin(), least.end()), 2);
    // Three steps an epoch: the first of an epoch waits no more often than others.
    const int64_t others = std::min({least[1], least[2], least[4], least[5], least[7], least[8]});
    EXPECT_LE(std::min({least[0], least[3], least[6]}), others);
  }
}

// The backend counts the waits of plugins that must know sizes on the host.
TEST_F(SynchronisationsCudaTest, OthersSayHowOften) {
  for (const LayerChoice& choice :
       std::vector<LayerChoice>{{"hash", "gather_gemm_scatter", "fused"},
                                {"hash", "fetch_on_demand", "staged"},
                                {"hash:variant=cuckoo", "implicit_gemm", "sort_unique"},
                                {"octree", "implicit_gemm", "fused"},
                                {"perfect_hash", "implicit_gemm", "fused"}}) {
    SCOPED_TRACE(absl::StrCat(choice.mapping, " ", choice.dataflow, " ", choice.output_coords));
    const auto runner = Runner("minkunet42", choice, false);
    const SparseTensor input = MakeInput(1, runner->graph().in_channels());
    for (const bool profile : {false, true}) {
      runner->set_profile_stages(profile);
      const Seen seen = Frame(*runner, input);
      EXPECT_GT(seen.stream_waits, 1);
      EXPECT_EQ(seen.event_waits > 0, profile);
      // All events of a frame's stages are one wait: after the last there is none.
      EXPECT_EQ(seen.counted, seen.stream_waits + (profile ? 1 : 0));
    }
  }
}

TEST_F(SynchronisationsCudaTest, MemoryThatIsShortIsAWait) {
  cuda_ = UnitCuda::Create(/*memory_limit=*/1 << 20);
  if (cuda_->backend->helps_checkers()) {
    GTEST_SKIP() << "VOXCONV_CUDA_REUSE_BLOCKS=0: no freed block is kept that could be given back";
  }
  const auto allocate = [&](int64_t bytes) {
    EXPECT_TRUE(cuda_->backend->Allocate(bytes, *cuda_->context.stream).ok());
  };
  allocate(600 << 10);
  const Seen seen = Watch([&] { allocate(900 << 10); });
  EXPECT_EQ(seen.stream_waits, 1);
  EXPECT_EQ(seen.counted, 1);
}

// The driver may wait for the device when page-locked memory is taken or given back.
TEST_F(SynchronisationsCudaTest, PageLockedMemoryThatGrowsIsAWait) {
  struct Case {
    int64_t bytes, waits, calls;
  };
  // A block that is larger than all makes a free one go.
  for (const Case& want : std::vector<Case>{
           {64, 0, 0}, {1 << 20, 1, 2}, {1 << 20, 0, 0}, {2 << 20, 1, 2}, {4096, 0, 0}}) {
    SCOPED_TRACE(want.bytes);
    const Seen seen = Watch([&] { EXPECT_TRUE(cuda_->backend->HostBuffer(want.bytes).ok()); });
    EXPECT_EQ(seen.counted, want.waits);
    EXPECT_EQ(seen.perhaps, want.calls);
    EXPECT_EQ(seen.stream_waits, 0);
  }
}

}  // namespace
}  // namespace voxconv
