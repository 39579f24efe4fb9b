// SPDX-License-Identifier: Apache-2.0
// Batch norm of processes that share a batch, each on a stream of its own here: against one process
// with all rows, on the CPU.
#include <string>
#include <utility>

#include "cuda_training_test_util.h"
#include "voxconv/backends/cuda/cuda_batch_norm.h"

namespace voxconv {
namespace {

class CudaBatchPeersTest : public CudaTrainingTest {
 protected:
  // The rows of each process.
  using Shares = std::vector<int64_t>;

  // A process: its stream, its memory for the others, and what it computes with.
  struct Process {
    std::unique_ptr<Stream> stream;
    ExecutionContext context;
    BatchPeers peers;
    TensorView x, dy, dx;
    Array<float> results;  // [8, C]
    Array<double> rows;

    float* result(int64_t i, int64_t channels) { return results.data() + i * channels; }
  };

  void SetUp() override {
    CudaTrainingTest::SetUp();
    if (unit_ == nullptr) return;
    memory_.clear();
  }

  // `room`: the channels that the memory is for.
  std::vector<Process> Start(const Shares& shares, const Tensor& x, const Tensor& dy,
                             const Tensor& dx, int64_t room) {
    const int count = static_cast<int>(shares.size());
    std::vector<Process> processes(shares.size());
    memory_.clear();
    for (int i = 0; i < count; ++i) {
      memory_.push_back(*AllocateArray<double>(BatchPeers::Bytes(count, room) / 8, cuda_));
      ExpectOk(unit_->backend->FillBytes(memory_.back().data(), 0, BatchPeers::Bytes(count, room),
                                         *cuda_.stream));
    }
    int64_t first = 0;
    for (int i = 0; i < count; ++i) {
      Process& process = processes[i];
      process.stream = *unit_->backend->MakeStream();
      process.context = {unit_->backend.get(), process.stream.get(), nullptr};
      process.peers = {.rank = i, .count = count, .channels = room};
      for (int other = 0; other < count; ++other) {
        process.peers.memory[other] = memory_[other].data();
      }
      process.x = Rows(x, first, shares[i]);
      process.dy = Rows(dy, first, shares[i]);
      process.dx = Rows(dx, first, shares[i]);
      process.results = *AllocateArray<float>(8 * x.channels(), process.context);
      process.rows = *AllocateArray<double>(1, process.context);
      ExpectOk(process.stream->Synchronize());
      first += shares[i];
    }
    ExpectOk(cuda_.stream->Synchronize());
    return processes;
  }

  static TensorView Rows(const Tensor& tensor, int64_t first, int64_t rows) {
    TensorView view = tensor.view();
    view.data = rows == 0
                    ? nullptr
                    : static_cast<char*>(view.data) + first * view.channels * SizeOf(view.dtype);
    view.rows = rows;
    return view;
  }

  // The batch of one process: results 0 to 4 are the inverse deviation, the scale, the shift, and
  // the running mean and variance.
  static BatchNormBatch Batch(Process& process, const float* gamma, const float* beta,
                              int64_t channels) {
    return {.gamma = gamma,
            .beta = beta,
            .epsilon = 1e-3,
            .momentum = 0.25,
            .inverse_std = process.result(0, channels),
            .scale = process.result(1, channels),
            .shift = process.result(2, channels),
            .running_mean = process.result(3, channels),
            .running_variance = process.result(4, channels)};
  }

  std::vector<float> Result(Process& process, int64_t i, int64_t channels) {
    std::vector<float> values(channels);
    ExpectOk(unit_->backend->Copy(values.data(), MemorySpace::kHost, process.result(i, channels),
                                  MemorySpace::kDevice, channels * 4, *process.stream));
    ExpectOk(process.stream->Synchronize());
    return values;
  }

  static void ExpectClose(const std::vector<float>& got, const std::vector<float>& want,
                          double bound, double magnitude, const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], bound * std::max<double>(magnitude, std::abs(want[i])))
          << what << ", channel " << i;
    }
  }

  // Three turns of forward and backward, so that each set of letters is used again.
  void Compare(const Shares& shares, int64_t channels, DType dtype) {
    int64_t rows = 0;
    for (const int64_t share : shares) rows += share;
    const Both x = Make(rows, channels, dtype, 2, 4), dy = Make(rows, channels, dtype);
    const Both dx = Make(rows, channels, dtype), gamma = MakeVector(channels, 0.5, 1.5);
    const Both beta = MakeVector(channels), mean = MakeVector(channels);
    const Both deviation = MakeVector(channels), expected = Make(5, channels, DType::kF32, 0, 0);
    const Both sums = Make(2, channels, DType::kF32);
    // Kernels are loaded by a process that is alone, because loading may wait for kernels that run.
    std::vector<Process> alone = Start({rows}, x.cuda, dy.cuda, dx.cuda, channels);
    Run(alone, gamma, beta, channels);
    std::vector<Process> processes = Start(shares, x.cuda, dy.cuda, dx.cuda, channels + 3);
    for (Process& process : processes) {
      ExpectOk(
          unit_->backend->FillBytes(process.results.data(), 0, 8 * channels * 4, *process.stream));
    }
    for (int turn = 0; turn < 3; ++turn) {
      Run(processes, gamma, beta, channels);
      const auto array = [&](int64_t i) { return OnCpu(expected) + i * channels; };
      ExpectOk(cpu_ops().ChannelMoments(x.cpu.view(), OnCpu(mean), OnCpu(deviation), cpu_));
      ExpectOk(cpu_ops().BatchNormScale({.channels = channels,
                                         .rows = rows,
                                         .mean = OnCpu(mean),
                                         .deviation = OnCpu(deviation),
                                         .gamma = OnCpu(gamma),
                                         .beta = OnCpu(beta),
                                         .epsilon = 1e-3,
                                         .momentum = 0.25,
                                         .inverse_std = array(0),
                                         .scale = array(1),
                                         .shift = array(2),
                                         .running_mean = array(3),
                                         .running_variance = array(4)},
                                        cpu_));
      BatchNormGradArgs args{.x = x.cpu.view(),
                             .dy = dy.cpu.view(),
                             .mean = OnCpu(mean),
                             .inverse_std = array(0),
                             .gamma = OnCpu(gamma),
                             .sum_dy = OnCpu(sums),
                             .sum_dy_x = OnCpu(sums) + channels,
                             .rows = rows};
      ExpectOk(cpu_ops().BatchNormGradSums(args, cpu_));
      ExpectOk(cpu_ops().BatchNormInputGrad(args, dx.cpu.view(), cpu_));
      for (Process& process : processes) {
        for (int64_t i = 0; i < 5; ++i) {
          const float* from = array(i);
          ExpectClose(Result(process, i, channels), {from, from + channels}, 2e-6, 1,
                      "result " + std::to_string(i));
          ASSERT_EQ(Result(process, i, channels), Result(processes[0], i, channels));
        }
        const std::vector<double> counted = *CopyToHost(process.rows, process.context);
        EXPECT_EQ(counted[0], static_cast<double>(rows));
        for (int64_t i = 0; i < 2; ++i) {
          const float* from = OnCpu(sums) + i * channels;
          ExpectClose(Result(process, 6 + i, channels), {from, from + channels},
                      2e-5 * std::sqrt(static_cast<double>(rows) + 1), 1, "sums of gradients");
        }
      }
      ExpectRounded(dx, 8);
    }
  }

  static void Wait(const std::vector<Process>& processes) {
    for (const Process& process : processes) ExpectOk(process.stream->Synchronize());
  }

  // One turn of all processes. Results 5 to 7: the mean, and the sums of all gradients. Here the
  // processes share a GPU. A kernel that starts early could take the places of those that the
  // kernel before it waits for. So nothing is queued behind an exchange before it has ended.
  void Run(std::vector<Process>& processes, const Both& gamma, const Both& beta, int64_t channels) {
    for (Process& process : processes) {
      ++process.peers.turn;
      ExpectOk(CudaSharedMoments(process.x, Batch(process, OnCuda(gamma), OnCuda(beta), channels),
                                 process.peers, process.result(5, channels), process.rows.data(),
                                 process.context));
    }
    Wait(processes);
    std::vector<Array<float>> own;
    own.reserve(processes.size());
    for (Process& process : processes) {
      own.push_back(*AllocateArray<float>(2 * channels, process.context));
    }
    std::vector<BatchNormGradArgs> gradients;
    gradients.reserve(processes.size());
    for (size_t i = 0; i < processes.size(); ++i) {
      Process& process = processes[i];
      ++process.peers.turn;
      gradients.push_back({.x = process.x,
                           .dy = process.dy,
                           .mean = process.result(5, channels),
                           .inverse_std = process.result(0, channels),
                           .gamma = OnCuda(gamma),
                           .sum_dy = own[i].data(),
                           .sum_dy_x = own[i].data() + channels,
                           .shared_rows = process.rows.data()});
      ExpectOk(CudaSharedGradSums(gradients[i], process.peers, process.result(6, channels),
                                  process.result(7, channels), process.context));
    }
    Wait(processes);
    for (size_t i = 0; i < processes.size(); ++i) {
      Process& process = processes[i];
      gradients[i].sum_dy = process.result(6, channels);
      gradients[i].sum_dy_x = process.result(7, channels);
      ExpectOk(ops().BatchNormInputGrad(gradients[i], process.dx, process.context));
    }
    Wait(processes);
  }

  std::vector<Array<double>> memory_;
};

TEST_F(CudaBatchPeersTest, OneProcess) { Compare({700}, 33, DType::kF32); }

TEST_F(CudaBatchPeersTest, TwoProcesses) {
  for (const DType dtype : kDTypes) {
    for (const int64_t channels : {1, 32, 96, 1024}) {
      SCOPED_TRACE(testing::Message() << channels << " channels, " << ToString(dtype));
      Compare({900, 1100}, channels, dtype);
    }
  }
}

TEST_F(CudaBatchPeersTest, ThreeProcessesOfWhichOneHasNoRows) {
  Compare({500, 0, 300}, 24, DType::kF32);
  Compare({0, 0, 77}, 24, DType::kF32);
  Compare({1, 0, 0}, 5, DType::kF32);
}

TEST_F(CudaBatchPeersTest, WhatDoesNotFitIsRefused) {
  const Both x = Make(10, 8, DType::kF32), gamma = MakeVector(8);
  std::vector<Process> processes = Start({10}, x.cuda, x.cuda, x.cuda, 8);
  Process& process = processes[0];
  const auto refused = [&](const std::function<void(BatchPeers&)>& change) {
    BatchPeers peers = process.peers;
    peers.turn = 1;
    change(peers);
    return CudaSharedMoments(process.x, Batch(process, OnCuda(gamma), OnCuda(gamma), 8), peers,
                             process.result(5, 8), process.rows.data(), process.context)
               .code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](BatchPeers&) {}));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.turn = 0; }));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.rank = 1; }));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.count = 0; }));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.count = BatchPeers::kMost + 1; }));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.channels = 7; }));
  EXPECT_TRUE(refused([](BatchPeers& peers) { peers.memory[0] = nullptr; }));
}

}  // namespace
}  // namespace voxconv
