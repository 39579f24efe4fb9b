// SPDX-License-Identifier: Apache-2.0
// The operators that only training needs: gradients of dense operators, losses, and steps of
// optimisers. Each backend that can train implements them once.
//
// Tensors are row-major and contiguous, in the backend's memory. All tensors of a call have the
// same dtype unless the operator says otherwise. The dtype is f32 on the CPU, and f32, f16 or bf16
// on CUDA. Arrays [C] are f32 in the backend's memory. Values are computed in f32 and rounded once.
// Results are overwritten, and are bitwise the same in every run and with every number of threads.
// A result may not overlap an argument unless the operator says so. Work is queued on the context's
// stream. No operator synchronises the stream. kInvalidArgument for arguments that do not fit
// (core/training_checks.h). kResourceExhausted if the temporary memory does not suffice.
#ifndef VOXCONV_CORE_TRAINING_OPS_H_
#define VOXCONV_CORE_TRAINING_OPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/buffer.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/types.h"

namespace voxconv {

// From the moments of a batch to what a batch norm multiplies and adds (Ioffe and Szegedy, 2015,
// Algorithm 1). All arrays are [channels].
struct BatchNormBatch {
  int64_t channels = 0;
  int64_t rows = 0;  // that the moments are of; 0: the batch is empty
  // The same in the backend's memory, if processes share the batch; `rows` is then not read.
  const double* shared_rows = nullptr;
  const float* mean = nullptr;       // ChannelMoments
  const float* deviation = nullptr;  // ChannelMoments
  const float* gamma = nullptr;
  const float* beta = nullptr;
  double epsilon = 1e-5;  // added to the variance
  double momentum = 0.1;  // running = (1 - momentum) * running + momentum * batch
  // Results. y = x * scale + shift. inverse_std is 1 / sqrt(deviation / rows + epsilon).
  float* inverse_std = nullptr;
  float* scale = nullptr;
  float* shift = nullptr;
  // Updated, unless they are null or the batch is empty. The running variance takes the unbiased
  // variance, deviation / (rows - 1); with one row it takes deviation / rows.
  float* running_mean = nullptr;
  float* running_variance = nullptr;
};

// The backward pass of y = max(0, batch norm of x), or of the batch norm alone.
struct BatchNormGradArgs {
  ConstTensorView x;   // [N, C]
  ConstTensorView dy;  // [N, C]
  // [N, C], the result of the forward pass, if it ended with a ReLU: dy counts as 0 where y <= 0.
  // Null data: there was no ReLU.
  ConstTensorView y;
  const float* mean = nullptr;         // [C]
  const float* inverse_std = nullptr;  // [C]
  const float* gamma = nullptr;        // [C]; BatchNormInputGrad only
  // The sums over all rows: of dy, and of dy * (x - mean) * inverse_std. BatchNormGradSums writes
  // them. They are the gradients of beta and gamma. [C] each.
  float* sum_dy = nullptr;
  float* sum_dy_x = nullptr;
  int64_t rows = 0;  // that the moments and the sums are of: N, or more if processes share a batch
  // The same in the backend's memory; `rows` is then not read.
  const double* shared_rows = nullptr;
};

// A classification loss over the rows whose label is not `ignored`.
struct CrossEntropyArgs {
  ConstTensorView logits;                 // [N, classes]
  const int32_t* labels = nullptr;        // [N] in the backend's memory
  const float* class_weights = nullptr;   // [classes]; null: all are 1
  int32_t ignored = -1;                   // rows with this label count for nothing
  double smoothing = 0;                   // in [0, 1): this part of a label goes to all classes
  const float* gradient_scale = nullptr;  // one value in the backend's memory; null: 1
};

// The Lovász-softmax loss over the rows whose label is not `ignored`.
struct LovaszArgs {
  ConstTensorView logits;                 // [N, classes]; N is below 2^31
  const int32_t* labels = nullptr;        // [N] in the backend's memory
  int32_t ignored = -1;                   // rows with this label count for nothing
  const float* gradient_scale = nullptr;  // one value in the backend's memory; null: 1
  // Whether the loss and its gradient are added to those that `result` and `gradient` hold. The
  // result's other values then stay.
  bool adds = false;
};

// What a loss gives, in the backend's memory.
struct LossResult {
  // Of cross-entropy the mean over the rows that count, weighted by the class of the label. Of
  // Lovász-softmax the mean over the classes that are the label of at least one counted row.
  double loss = 0;
  double weight = 0;    // the sum of the rows' weights, or the number of these classes
  int64_t rows = 0;     // rows that count
  int64_t correct = 0;  // of these: rows whose largest logit, the first of equals, is the label's
  int64_t bad_labels = 0;  // rows whose label is no class and not `ignored`; they count for nothing
};

// What all steps of an optimiser share. It lies in the backend's memory, so that the host need not
// wait for a norm. PrepareStep writes it, and the steps read it.
struct StepState {
  float loss_scale = 1;    // what the gradients are multiplied by
  float coefficient = 1;   // what a step multiplies them by: unscales, and clips
  int32_t skipped = 0;     // 1: a gradient is not finite, and this step changes nothing
  int32_t good_steps = 0;  // since the loss scale changed, or a step was skipped
  int64_t steps = 0;       // that changed the parameters
  int64_t skipped_steps = 0;
  double norm = 0;  // of the unscaled gradients
};

struct StepRule {
  double max_norm = 0;  // gradients are scaled down to this norm; 0: no limit
  // Dynamic loss scaling (Micikevicius et al., 2018): the scale is halved when a step is skipped,
  // and doubled after so many good steps, within [min_scale, max_scale]. 0: the scale stays.
  int32_t growth_interval = 0;
  float min_scale = 1.0f, max_scale = 16777216.0f;
};

// A flat range of f32 parameters, [size] in the backend's memory.
struct ParameterRange {
  int64_t size = 0;
  float* values = nullptr;
  const float* gradients = nullptr;
};

// Sutskever et al., 2013, as PyTorch writes it: v = momentum * v + g + weight_decay * w; w -= rate
// * v, or rate * (g + weight_decay * w + momentum * v) with Nesterov's rule. g is the gradient
// times StepState::coefficient.
struct SgdStep {
  double rate = 0, momentum = 0, weight_decay = 0;
  // The rate in the backend's memory, so that recorded work may change it; `rate` is then not read.
  const double* shared_rate = nullptr;
  bool nesterov = false;
  float* velocity = nullptr;  // [size]
};

// Loshchilov and Hutter, 2019. The weight decay is not a part of the gradient. Bias correction goes
// by StepState::steps, which counts this step already.
struct AdamWStep {
  double rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  const double* shared_rate = nullptr;  // as SgdStep's
  float* first = nullptr;               // [size], the running mean of g
  float* second = nullptr;              // [size], the running mean of g * g
};

// What a dropout's choice depends on.
struct DropoutKey {
  // NOLINTNEXTLINE(google-explicit-constructor): most callers have a seed on the host
  DropoutKey(uint64_t seed, const uint64_t* shared_seed = nullptr)
      : seed(seed), shared_seed(shared_seed) {}
  uint64_t seed;
  // The seed in the backend's memory, so that recorded work may change it; `seed` is then not read.
  const uint64_t* shared_seed;
};

class TrainingOps {
 public:
  virtual ~TrainingOps() = default;

  // mean[c] is the mean of column c of x, and deviation[c] the sum of (x - mean[c])^2 over its
  // rows. Without rows both are 0. x: [N, C]. O(N * C).
  virtual absl::Status ChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                                      const ExecutionContext& context) = 0;
  // What processes that share a batch add up, [1 + 2 * channels]: the rows, the columns' sums, and
  // the sums of their squares. They are f64, so that the squares lose nothing against a variance.
  // O(C).
  virtual absl::Status SumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                                     int64_t channels, double* sums,
                                     const ExecutionContext& context) = 0;
  // The moments of all rows from these sums. O(C).
  virtual absl::Status MomentsOfSums(const double* sums, int64_t channels, float* mean,
                                     float* deviation, const ExecutionContext& context) = 0;
  // O(C).
  virtual absl::Status BatchNormScale(const BatchNormBatch& batch,
                                      const ExecutionContext& context) = 0;
  // Writes args.sum_dy and args.sum_dy_x. O(N * C).
  virtual absl::Status BatchNormGradSums(const BatchNormGradArgs& args,
                                         const ExecutionContext& context) = 0;
  // dx = gamma * inverse_std * (dy - sum_dy / rows - x' * sum_dy_x / rows) for the normalised x' =
  // (x - mean) * inverse_std. `dx`: [N, C]; may be dy. O(N * C).
  virtual absl::Status BatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                          const ExecutionContext& context) = 0;

  // dx = dy where y > 0, else 0. y, dy, dx: [N, C]. `dx` may be dy. O(N * C).
  virtual absl::Status ReluGrad(const ConstTensorView& y, const ConstTensorView& dy,
                                const TensorView& dx, const ExecutionContext& context) = 0;
  // The transpose of TensorOps::Concat: row i of y is row i of a, then row i of b. y: [N, C_a +
  // C_b], a: [N, C_a], b: [N, C_b]. O(N * C).
  virtual absl::Status Split(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                             const ExecutionContext& context) = 0;
  // sums[c] is the sum of column c of x. x: [N, C]. The gradient of a bias. O(N * C).
  virtual absl::Status ColumnSums(const ConstTensorView& x, float* sums,
                                  const ExecutionContext& context) = 0;
  // gradient = transposed(x) * dy. x: [N, C_in], dy: [N, C_out], gradient: [C_in, C_out] in the
  // dtype of x and dy or in f32. Products are computed in `precision`, as in TensorOps::Linear.
  // O(N * C_in * C_out).
  virtual absl::Status LinearWeightGradient(const ConstTensorView& x, const ConstTensorView& dy,
                                            Precision precision, const TensorView& gradient,
                                            const ExecutionContext& context) = 0;
  // The gradient of a max unpooling: y[q, c] = x[switches[q, c], c], or 0 where the switch is -1.
  // x: [N_in, C], y and switches: [N_out, C]. O(N_out * C).
  virtual absl::Status Select(const ConstTensorView& x, const int32_t* switches,
                              const TensorView& y, const ExecutionContext& context) = 0;
  // The gradient of TensorOps::GlobalPool. `rows`: the coordinates of the rows of x. x, dx: [N, C],
  // y, dy: [samples, C]. With kMax the gradient goes to the first row of the sample whose value is
  // y's. Rows of samples that dy does not have get 0. O(N * C).
  virtual absl::Status GlobalPoolGrad(const Array<Coordinate>& rows, PoolMode mode,
                                      const ConstTensorView& x, const ConstTensorView& y,
                                      const ConstTensorView& dy, const TensorView& dx,
                                      const ExecutionContext& context) = 0;
  // Dropout (Srivastava et al., 2014): y = x / (1 - rate) for elements that stay, else 0. Which
  // elements stay depends on the key's seed and on the position of the element alone, on every
  // backend and in every dtype. So the same call is also its gradient. `rate` in [0, 1) is the
  // share that goes. x, y: [N, C]. `y` may be x.
  virtual absl::Status Dropout(const ConstTensorView& x, double rate, const DropoutKey& key,
                               const TensorView& y, const ExecutionContext& context) = 0;

  // Softmax cross-entropy, as torch.nn.CrossEntropyLoss defines it. `gradient`: [N, classes], the
  // gradient of the loss times args.gradient_scale; rows that do not count are 0. A row whose loss
  // is not finite has NaN in all of its gradient, so that no step is made with it. `result`: one
  // value in the backend's memory. Without rows that count, the loss is 0. O(N * classes).
  virtual absl::Status CrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                                    LossResult* result, const ExecutionContext& context) = 0;

  // Lovász-softmax (Berman et al., "The Lovász-Softmax loss", 2018, equations 9 and 11), over all
  // rows of the batch at once and the classes that are present in it. With p = softmax(logits), the
  // error of a row in class c is 1 - p[c] if c is its label, else p[c]. The loss of a class is the
  // Lovász extension of the Jaccard loss, 1 - intersection / union, at its errors. Rows of equal
  // errors count in their order. `gradient` and `result` are as in CrossEntropy, besides
  // args.adds. O(N * classes * log N).
  virtual absl::Status LovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                                     LossResult* result, const ExecutionContext& context) = 0;

  // *norm is the sum of the squares of `size` values, in f64. It is not finite if a value is not.
  virtual absl::Status SquaredNorm(const float* values, int64_t size, double* norm,
                                   const ExecutionContext& context) = 0;
  // Begins a step from the squared norm of all its gradients, which are scaled by
  // state->loss_scale. The change of the loss scale holds from the next step on.
  virtual absl::Status PrepareStep(const StepRule& rule, const double* squared_norm,
                                   StepState* state, const ExecutionContext& context) = 0;
  // These change the parameters and the optimiser's arrays in place, unless state->skipped.
  virtual absl::Status Step(const SgdStep& step, const ParameterRange& parameters,
                            const StepState* state, const ExecutionContext& context) = 0;
  virtual absl::Status Step(const AdamWStep& step, const ParameterRange& parameters,
                            const StepState* state, const ExecutionContext& context) = 0;

  // Allocates `bytes` bytes of host memory, which results of a step are copied to. Backend::Copy to
  // it does not wait. The copy is complete after Stream::Synchronize, and must be before the memory
  // is freed. The memory must not outlive the backend. On CUDA it is page-locked. Locking may wait
  // for the device, so callers keep the memory for many steps. kResourceExhausted if it fails.
  virtual absl::StatusOr<Buffer> HostMemory(int64_t bytes, const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_TRAINING_OPS_H_
