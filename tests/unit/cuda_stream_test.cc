// SPDX-License-Identifier: Apache-2.0
// Streams that collect what is queued, against the same work queued one by one. Streams that
// somebody else owns.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cuda/split_coordinates.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

class CudaStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    context_ = {unit_->backend.get(), &unit_->backend->main_stream(), nullptr};
  }

  absl::StatusOr<Array<uint8_t>> Bytes(int64_t size) {
    return AllocateArray<uint8_t>(size, context_);
  }
  absl::Status Fill(Array<uint8_t>& array, uint8_t value) {
    return context_.backend->FillBytes(array.data(), value, array.bytes(), *context_.stream);
  }
  absl::Status Copy(Array<uint8_t>& to, const Array<uint8_t>& from) {
    return context_.backend->Copy(to.data(), to.space(), from.data(), from.space(), from.bytes(),
                                  *context_.stream);
  }

  // a = value, b = a, a = 0, all on the device; what b holds then.
  absl::StatusOr<std::vector<uint8_t>> FillAndCopy(int64_t size, uint8_t value) {
    VOXCONV_RETURN_IF_ERROR(context_.stream->Collect());
    VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> a, Bytes(size));
    VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> b, Bytes(size));
    VOXCONV_RETURN_IF_ERROR(Fill(a, value));
    VOXCONV_RETURN_IF_ERROR(Copy(b, a));
    VOXCONV_RETURN_IF_ERROR(Fill(a, 0));
    return CopyToHost(b, context_);
  }

  std::unique_ptr<UnitCuda> unit_;
  ExecutionContext context_;
};

// The first round takes memory from the pool, later ones update the graph of an earlier one with
// other sizes, values and addresses.
TEST_F(CudaStreamTest, SameResultsForOtherSizesAndValues) {
  for (const int64_t size : {1000, 1000, 300, 1000, 70'000, 301, 70'000}) {
    for (const int value : {7, 200}) {
      const auto bytes = FillAndCopy(size, static_cast<uint8_t>(value));
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(*bytes, std::vector<uint8_t>(size, static_cast<uint8_t>(value)));
    }
  }
}

TEST_F(CudaStreamTest, OtherWorkOfTheSameStreamBetween) {
  Array<uint8_t> a = *Bytes(64), b = *Bytes(64);
  for (int round = 0; round < 3; ++round) {
    for (int steps = 1; steps < 5; ++steps) {
      ASSERT_TRUE(context_.stream->Collect().ok());
      for (int step = 0; step < steps; ++step) {
        ASSERT_TRUE(Fill(a, static_cast<uint8_t>(10 * round + step)).ok());
        if (step % 2 == 1) {
          ASSERT_TRUE(Copy(b, a).ok());
        }
      }
      ASSERT_TRUE(context_.stream->Submit().ok());
      ASSERT_TRUE(Copy(b, a).ok());
      EXPECT_EQ(CopyToHost(b, context_)->front(), 10 * round + steps - 1);
    }
  }
}

TEST_F(CudaStreamTest, CollectTwiceAndSubmitTwiceAreOnce) {
  Array<uint8_t> a = *Bytes(16);
  ASSERT_TRUE(context_.stream->Submit().ok());
  ASSERT_TRUE(context_.stream->Collect().ok());
  ASSERT_TRUE(context_.stream->Collect().ok());
  ASSERT_TRUE(Fill(a, 3).ok());
  ASSERT_TRUE(context_.stream->Submit().ok());
  ASSERT_TRUE(context_.stream->Submit().ok());
  ASSERT_TRUE(context_.stream->Collect().ok());  // and nothing queued
  ASSERT_TRUE(context_.stream->Synchronize().ok());
  EXPECT_EQ(CopyToHost(a, context_)->front(), 3);
}

TEST_F(CudaStreamTest, OutOfMemoryIsAStatusAfterWhichWorkGoesOn) {
  const auto backend = *CudaBackend::Create({.memory_limit = 1 << 20});
  const ExecutionContext small{backend.get(), &backend->main_stream(), nullptr};
  {
    ASSERT_TRUE(small.stream->Collect().ok());
    const auto kept = AllocateArray<uint8_t>(1000, small);
    ASSERT_TRUE(kept.ok()) << kept.status();
    const absl::Status status = AllocateArray<uint8_t>(2 << 20, small).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("2097152 bytes asked for, 1000 in use, 1047576 left of the "
                                     "limit of 1048576"));
    const auto more = AllocateArray<uint8_t>(512 << 10, small);
    EXPECT_TRUE(more.ok()) << more.status();
  }
  EXPECT_TRUE(small.stream->Synchronize().ok());
  EXPECT_EQ(backend->BytesInUse(), 0);
}

TEST_F(CudaStreamTest, FreedBlocksCountAsTheLimitSays) {
  constexpr int64_t kMiB = 1 << 20, kLimit = 64 * kMiB;
  const auto backend = *CudaBackend::Create({.memory_limit = kLimit});
  const ExecutionContext small{backend.get(), &backend->main_stream(), nullptr};
  for (const int64_t mib : {60, 40, 50, 8, 7, 6, 64, 1}) {
    const auto array = AllocateArray<uint8_t>(mib * kMiB, small);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_LE(backend->BytesInUse() + backend->CachedBytes(), kLimit + kLimit / 8) << mib;
  }
}

// Two backends of one thread, and one of them in another thread.
TEST_F(CudaStreamTest, EachBackendHasItsDevice) {
  auto other = CudaBackend::Create({.device = 1});
  if (!other.ok()) GTEST_SKIP() << other.status().message();
  const ExecutionContext second{other->get(), &(*other)->main_stream(), nullptr};
  const auto sorts = [](const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(
        const auto rows, CopyToBackend<Coordinate>(std::vector<Coordinate>{{0, 3, 4, 5}}, context));
    VOXCONV_ASSIGN_OR_RETURN(const auto axes, SplitCoordinatesCuda(rows, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> host, CopyToHost(axes, context));
    EXPECT_EQ(host, (std::vector<int32_t>{0, 3, 4, 5}));
    return context.stream->Synchronize();
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(sorts(context_), absl::OkStatus());
    EXPECT_EQ(sorts(second), absl::OkStatus());
  }
  std::thread([&] { EXPECT_EQ(sorts(second), absl::OkStatus()); }).join();
  std::thread([&] { EXPECT_EQ(sorts(context_), absl::OkStatus()); }).join();
}

// A lane inside a lane's work, both and the trunk collecting.
TEST_F(CudaStreamTest, BranchesAfterWhatTheirWorkHasQueued) {
  Backend& backend = *context_.backend;
  Array<uint8_t> trunk = *Bytes(1 << 20), first = *Bytes(1 << 20), second = *Bytes(1 << 20);
  for (int round = 1; round < 6; ++round) {
    const auto value = static_cast<uint8_t>(round);
    ASSERT_TRUE(context_.stream->Collect().ok());
    ASSERT_TRUE(Fill(trunk, value).ok());
    auto branches = *backend.OpenBranches(context_);
    int inner = -1;
    const auto outer = branches->Run(0, [&](const ExecutionContext& lane) -> absl::Status {
      VOXCONV_RETURN_IF_ERROR(backend.Copy(first.data(), first.space(), trunk.data(), trunk.space(),
                                           trunk.bytes(), *lane.stream));
      VOXCONV_ASSIGN_OR_RETURN(inner, branches->Run(1, [&](const ExecutionContext& other) {
        return backend.Copy(second.data(), second.space(), trunk.data(), trunk.space(),
                            trunk.bytes(), *other.stream);
      }));
      return backend.FillBytes(first.data(), 99, 1, *lane.stream);
    });
    ASSERT_TRUE(outer.ok()) << outer.status();
    ASSERT_TRUE(context_.stream->Collect().ok());
    ASSERT_TRUE(branches->Wait(inner).ok());
    ASSERT_TRUE(branches->Wait(*outer).ok());
    ASSERT_TRUE(Fill(trunk, 0).ok());
    branches = nullptr;
    const std::vector<uint8_t> one = *CopyToHost(first, context_),
                               two = *CopyToHost(second, context_);
    EXPECT_EQ(one.front(), 99);
    EXPECT_EQ(one.back(), value);
    EXPECT_EQ(two, std::vector<uint8_t>(two.size(), value));
    EXPECT_EQ(CopyToHost(trunk, context_)->back(), 0);
  }
}

// A stream that the test owns, of the current device.
class OwnedStream {
 public:
  OwnedStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~OwnedStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The owner's work and the backend's take turns, without a wait between them.
TEST_F(CudaStreamTest, AnAdoptedStreamOrdersTheOwnersWork) {
  const OwnedStream owned;
  constexpr int64_t kBytes = 16 << 20;
  for (cudaStream_t const stream : {owned.get(), cudaStreamLegacy}) {
    const auto backend = CudaBackend::Create({.stream = stream});
    ASSERT_TRUE(backend.ok()) << backend.status();
    context_ = {backend->get(), &(*backend)->main_stream(), nullptr};
    ASSERT_EQ(CudaStreamOf(context_), stream);
    Array<uint8_t> a = *Bytes(kBytes), b = *Bytes(kBytes), c = *Bytes(kBytes);
    for (int value = 10; value < 13; ++value) {
      ASSERT_EQ(cudaMemsetAsync(a.data(), value, kBytes, stream), cudaSuccess);
      ASSERT_TRUE(context_.stream->Collect().ok());
      ASSERT_TRUE(Copy(b, a).ok());
      ASSERT_TRUE(Fill(a, 1).ok());
      ASSERT_TRUE(context_.stream->Submit().ok());
      ASSERT_EQ(cudaMemcpyAsync(c.data(), b.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
                cudaSuccess);
      ASSERT_TRUE(Fill(b, 2).ok());
      EXPECT_TRUE(*CopyToHost(c, context_) ==
                  std::vector<uint8_t>(kBytes, static_cast<uint8_t>(value)));
      EXPECT_EQ(CopyToHost(a, context_)->back(), 1);
      EXPECT_EQ(CopyToHost(b, context_)->back(), 2);
    }
  }
}

TEST_F(CudaStreamTest, AnAdoptedStreamOutlivesTheBackend) {
  const OwnedStream stream;
  constexpr int64_t kBytes = 64 << 20;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  {
    const auto backend = CudaBackend::Create({.stream = stream.get()});
    ASSERT_TRUE(backend.ok()) << backend.status();
    Stream& main = (*backend)->main_stream();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE((*backend)->FillBytes(memory, static_cast<uint8_t>(i), kBytes, main).ok());
    }
  }
  // The backend has waited for its work, and the owner can go on.
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 5, 1, stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CudaStreamTest, AdoptsTheDefaultStreamsOfWhichTheLegacyOneIsNotCaptured) {
  EXPECT_TRUE(CudaBackend::Create({.stream = cudaStreamPerThread}).ok());
  const auto backend = CudaBackend::Create({.stream = cudaStreamLegacy});
  ASSERT_TRUE(backend.ok()) << backend.status();
  context_ = {backend->get(), &(*backend)->main_stream(), nullptr};
  ASSERT_TRUE(context_.stream->Collect().ok());
  EXPECT_FALSE(CudaBackend::IsCollecting(*context_.stream));
  const auto recorded = (*backend)->recorder()->Record(
      context_, [](const ExecutionContext&) { return absl::OkStatus(); });
  EXPECT_EQ(recorded.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaStreamTest, RefusesAStreamOfAnotherDevice) {
  if (CUDART_VERSION < 12080) GTEST_SKIP() << "this CUDA cannot tell the device of a stream";
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) GTEST_SKIP() << "this machine has one CUDA device";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const OwnedStream stream;
  const absl::Status status = CudaBackend::Create({.device = 1, .stream = stream.get()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "stream: a stream of device 0; it must be of device 1");
}

}  // namespace
}  // namespace voxconv
