// SPDX-License-Identifier: Apache-2.0
// Several frames of a network at a time on one device.
#ifndef VOXCONV_MEASURE_BENCH_FRAMES_IN_FLIGHT_H_
#define VOXCONV_MEASURE_BENCH_FRAMES_IN_FLIGHT_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/networks/executor.h"

namespace voxconv::bench {

// Lanes that run frames beside each other. Each lane has a thread, a backend, and with it a stream
// and memory, of its own. They share the device alone.
class FramesInFlight {
 public:
  struct Lane {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<NetworkRunner> runner;  // on `backend`
    SparseTensor input;                     // in its memory
    RunResult result;                       // of the last frame

    ExecutionContext Context() const { return {backend.get(), &backend->main_stream(), nullptr}; }
  };

  // Makes `lanes` lanes by `make`.
  static absl::StatusOr<FramesInFlight> Create(int lanes,
                                               const std::function<absl::StatusOr<Lane>()>& make);

  // Each lane runs `frames` frames, one after the other, and waits for the end of each. Returns the
  // milliseconds of wall time until the last lane has finished. The error of the first lane that
  // fails.
  absl::StatusOr<double> Run(int frames);

  const std::vector<Lane>& lanes() const { return lanes_; }

 private:
  explicit FramesInFlight(std::vector<Lane> lanes) : lanes_(std::move(lanes)) {}

  std::vector<Lane> lanes_;
};

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_FRAMES_IN_FLIGHT_H_
