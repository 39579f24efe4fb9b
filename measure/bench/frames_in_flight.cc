// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/frames_in_flight.h"

#include <barrier>
#include <chrono>
#include <thread>
#include <utility>

#include "voxconv/core/status_macros.h"
#include "voxconv/measure/network_frame.h"

namespace voxconv::bench {
namespace {

absl::Status RunFrames(FramesInFlight::Lane& lane, int frames) {
  for (int i = 0; i < frames; ++i) {
    VOXCONV_RETURN_IF_ERROR(
        measure::TimeFrame(*lane.runner, lane.input.view(), lane.Context(), lane.result).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FramesInFlight> FramesInFlight::Create(
    int lanes, const std::function<absl::StatusOr<Lane>()>& make) {
  std::vector<Lane> made;
  for (int i = 0; i < lanes; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(Lane lane, make());
    made.push_back(std::move(lane));
  }
  return FramesInFlight(std::move(made));
}

absl::StatusOr<double> FramesInFlight::Run(int frames) {
  std::vector<absl::Status> statuses(lanes_.size());
  std::vector<std::thread> threads;
  // The lanes start together, when all threads are there.
  std::barrier start(static_cast<std::ptrdiff_t>(lanes_.size()) + 1);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      statuses[i] = RunFrames(lanes_[i], frames);
    });
  }
  start.arrive_and_wait();
  const auto begin = std::chrono::steady_clock::now();
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
  for (const absl::Status& status : statuses) VOXCONV_RETURN_IF_ERROR(status);
  return wall.count();
}

}  // namespace voxconv::bench
