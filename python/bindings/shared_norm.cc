// SPDX-License-Identifier: Apache-2.0
#include "shared_norm.h"

#include "voxconv/core/version.h"

#if VOXCONV_HAVE_CUDA
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "array.h"
#include "engine.h"
#include "passes.h"
#include "voxconv/backends/cuda/cuda_batch_norm.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv::python {
namespace {

// The memory of the processes, and how often this one has used it.
class PyBatchPeers {
 public:
  PyBatchPeers(const std::vector<uintptr_t>& memory, int rank, int64_t channels) {
    if (memory.empty() || memory.size() > BatchPeers::kMost) {
      ThrowValueError(absl::StrCat("memory: of ", memory.size(), " processes; allowed are 1 to ",
                                   BatchPeers::kMost));
    }
    peers_.rank = rank;
    peers_.count = static_cast<int>(memory.size());
    peers_.channels = channels;
    for (size_t i = 0; i < memory.size(); ++i) {
      peers_.memory[i] = reinterpret_cast<void*>(memory[i]);  // NOLINT(performance-no-int-to-ptr)
    }
  }

  // Makes the next call by `call(peers)`. A call that is refused does not count as a turn.
  template <typename Call>
  absl::Status Take(const Call& call) {
    BatchPeers next = peers_;
    if (++next.turn == 0) next.turn = 2;  // 0 is what the memory begins with
    VOXCONV_RETURN_IF_ERROR(call(next));
    peers_ = next;
    return absl::OkStatus();
  }

 private:
  BatchPeers peers_;
};

// What the backward pass needs of the forward pass, in one array.
struct Statistics {
  float *mean, *inverse_std;
  double* rows;

  static int64_t Size(int64_t channels) { return 2 * channels + 2; }
  Statistics(nb::handle object, int64_t channels, Engine& engine)
      : mean(FloatColumn("statistics", object, Size(channels), engine)),
        inverse_std(mean + channels),
        rows(reinterpret_cast<double*>(mean + 2 * channels)) {}
};

void SharedNorm(PyBatchPeers& peers, nb::handle x_object, nb::handle gamma, nb::handle beta,
                nb::handle running_mean, nb::handle running_variance, double momentum,
                double epsilon, nb::handle statistics_object, nb::handle y_object) {
  const InArray features("features", x_object), result("y", y_object);
  features.CheckRank(2, "[N, C]");
  Engine& engine = *features.engine();
  const ConstTensorView x = features.Matrix();
  const TensorView y = Writable(MatrixLike(result, features));
  const int64_t channels = x.channels;
  const Statistics statistics(statistics_object, channels, engine);
  BatchNormBatch batch{
      .gamma = FloatColumn("weight", gamma, channels, engine),
      .beta = FloatColumn("bias", beta, channels, engine),
      .epsilon = epsilon,
      .momentum = momentum,
      .inverse_std = statistics.inverse_std,
      .running_mean = FloatColumn("running_mean", running_mean, channels, engine),
      .running_variance = FloatColumn("running_var", running_variance, channels, engine)};
  RunOn(engine, [&](const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(Array<float> scale, AllocateArray<float>(2 * channels, context));
    batch.scale = scale.data();
    batch.shift = scale.data() + channels;
    VOXCONV_RETURN_IF_ERROR(peers.Take([&](const BatchPeers& turn) {
      return CudaSharedMoments(x, batch, turn, statistics.mean, statistics.rows, context);
    }));
    return context.backend->tensor_ops().ScaleShift(x, batch.scale, batch.shift, /*relu=*/false, y,
                                                    context);
  });
}

void SharedNormGrad(PyBatchPeers& peers, nb::handle dy_object, nb::handle x_object,
                    nb::handle gamma, nb::handle statistics_object, nb::handle sums_object,
                    nb::handle dx_object) {
  const InArray features("features", x_object), gradient("grad", dy_object);
  features.CheckRank(2, "[N, C]");
  Engine& engine = *features.engine();
  const ConstTensorView x = features.Matrix();
  const int64_t channels = x.channels;
  const Statistics statistics(statistics_object, channels, engine);
  float* const own = FloatColumn("sums", sums_object, 2 * channels, engine);
  BatchNormGradArgs args{.x = x,
                         .dy = MatrixLike(gradient, features),
                         .mean = statistics.mean,
                         .inverse_std = statistics.inverse_std,
                         .gamma = FloatColumn("weight", gamma, channels, engine),
                         .sum_dy = own,
                         .sum_dy_x = own + channels,
                         .shared_rows = statistics.rows};
  TensorView dx;
  if (!dx_object.is_none()) dx = Writable(MatrixLike(InArray("dx", dx_object), features));
  RunOn(engine, [&](const ExecutionContext& context) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(Array<float> all, AllocateArray<float>(2 * channels, context));
    VOXCONV_RETURN_IF_ERROR(peers.Take([&](const BatchPeers& turn) {
      return CudaSharedGradSums(args, turn, all.data(), all.data() + channels, context);
    }));
    if (dx_object.is_none()) return absl::OkStatus();
    args.sum_dy = all.data();
    args.sum_dy_x = all.data() + channels;
    return context.backend->training_ops()->BatchNormInputGrad(args, dx, context);
  });
}

}  // namespace

void DefineSharedNorm(nb::module_& module) {
  nb::class_<PyBatchPeers>(module, "_BatchPeers", "Memory of processes that share batches.")
      .def(nb::init<const std::vector<uintptr_t>&, int, int64_t>(), nb::arg("memory"),
           nb::arg("rank"), nb::arg("channels"))
      .def_static("bytes", &BatchPeers::Bytes, nb::arg("count"), nb::arg("channels"),
                  "The bytes of each process's memory for batches of up to so many channels.")
      .def_prop_ro_static("most", [](nb::handle) { return BatchPeers::kMost; })
      .def_prop_ro_static("most_channels", [](nb::handle) { return BatchPeers::kMostChannels; });
  module.def("_shared_norm", &SharedNorm, nb::arg("peers"), nb::arg("features").none(),
             nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("running_mean").none(),
             nb::arg("running_var").none(), nb::arg("momentum"), nb::arg("eps"),
             nb::arg("statistics").none(), nb::arg("y").none(),
             "Batch norm with the statistics of all processes' rows. `statistics`: float32 "
             "[2 C + 2], for _shared_norm_grad. Does not wait for the device.");
  module.def("_shared_norm_grad", &SharedNormGrad, nb::arg("peers"), nb::arg("grad").none(),
             nb::arg("features").none(), nb::arg("weight").none(), nb::arg("statistics").none(),
             nb::arg("sums").none(), nb::arg("dx").none(),
             "Its gradient. `sums`: float32 [2 C], the gradients of bias and weight over this "
             "process's rows. `dx`: [N, C], or None. Does not wait for the device.");
}

}  // namespace voxconv::python
#else
namespace voxconv::python {
void DefineSharedNorm(nb::module_&) {}
}  // namespace voxconv::python
#endif
