// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxWorkspace = int64_t{32} << 20;

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF32:
      break;
  }
  return CUDA_R_32F;
}

// The largest power of two up to `most`, a power of two itself, that divides the address.
uint32_t AlignmentOf(const void* pointer, uintptr_t most) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer) | most;
  return static_cast<uint32_t>(address & (~address + 1));
}

// The number of rows changes with every frame, and the heuristic's answer hardly does. So the
// heuristic is asked about the number rounded up to its four leading bits. What is asked about is
// as even as the true number, since kernels may move several rows at once.
int64_t RowBucket(int64_t m) {
  constexpr int64_t kEvenness = 8;
  const int shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(m))) - 4;
  const int64_t step = int64_t{1} << std::max(0, shift);
  if (step < kEvenness) return m;
  const int64_t evenness = (m | kEvenness) & -(m | kEvenness);
  return (m + step - 1) / step * step + evenness % kEvenness;
}

absl::Status CheckArgs(const GemmArgs& args) {
  if (args.m < 0 || args.n < 0 || args.k < 0 || args.batch < 0 || args.batch > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gemm: m ", args.m, ", n ", args.n, ", k ", args.k, ", batch ", args.batch,
        "; none may be negative, and there are at most ", INT32_MAX, " products in a batch"));
  }
  const int64_t a_length = args.transpose_a ? args.m : args.k;
  if (args.lda < a_length || args.ldb < args.n || args.ldc < args.n) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: row lengths ", args.lda, ", ", args.ldb,
                                                   ", ", args.ldc, "; a, b and c need ", a_length,
                                                   ", ", args.n, ", ", args.n, " at least"));
  }
  const DType operands = StorageOf(args.precision);
  if (args.c_dtype != DType::kF32 && args.c_dtype != operands) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: c of ", ToString(args.c_dtype),
                                                   " for operands of ", ToString(operands),
                                                   "; allowed are these and f32"));
  }
  return absl::OkStatus();
}

// What the heuristic is asked about. m is the number of rows of features, and k is where A is
// transposed.
GemmArgs Rounded(GemmArgs args) {
  int64_t& rows = args.transpose_a ? args.k : args.m;
  rows = RowBucket(rows);
  return args;
}

// The row-major product as cuBLASLt's column-major one: C' [n, m] = B' [n, k] A' [k, m], where a
// row-major matrix and the transposed column-major one are the same memory. Descriptors live on the
// stack: nothing is allocated or freed.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  absl::Status Initialise(const GemmArgs& args) {
    const cublasComputeType_t compute =
        args.precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const DType operands = StorageOf(args.precision);
    VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulDescInit(&operation, compute, CUDA_R_32F));
    int64_t a_rows = args.k, a_columns = args.m;
    if (args.transpose_a) {
      std::swap(a_rows, a_columns);
      const cublasOperation_t transposed = CUBLAS_OP_T;  // A is cuBLASLt's B
      VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulDescSetAttribute(
          &operation, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof(transposed)));
    }
    VOXCONV_RETURN_IF_ERROR(Layout(args, operands, a_rows, a_columns,
                                   std::max<int64_t>(1, args.lda), args.stride_a, a));
    VOXCONV_RETURN_IF_ERROR(Layout(args, operands, args.n, args.k, args.ldb, args.stride_b, b));
    return Layout(args, args.c_dtype, args.n, args.m, args.ldc, args.stride_c, c);
  }

 private:
  static absl::Status Layout(const GemmArgs& args, DType dtype, int64_t rows, int64_t columns,
                             int64_t leading, int64_t stride,
                             cublasLtMatrixLayoutOpaque_t& layout) {
    VOXCONV_RETURN_IF_CUBLAS_ERROR(
        cublasLtMatrixLayoutInit(&layout, CudaType(dtype), rows, columns, leading));
    if (args.batch == 1) return absl::OkStatus();
    const int32_t batch = static_cast<int32_t>(args.batch);
    VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtMatrixLayoutSetAttribute(
        &layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)));
    VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtMatrixLayoutSetAttribute(
        &layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
    return absl::OkStatus();
  }
};

class CublasLtGemm final : public CudaGemm {
 public:
  ~CublasLtGemm() override {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  absl::Status Initialise() {
    VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtCreate(&handle_));
    return absl::OkStatus();
  }

  absl::Status Run(const GemmArgs& given, const ExecutionContext& context) override {
    GemmArgs args = given;
    if (args.lda == 0) args.lda = args.transpose_a ? args.m : args.k;
    if (args.ldb == 0) args.ldb = args.n;
    if (args.ldc == 0) args.ldc = args.n;
    VOXCONV_RETURN_IF_ERROR(CheckArgs(args));
    if (args.m == 0 || args.n == 0 || args.batch == 0) return absl::OkStatus();
    return args.k == 0 ? ScaleOnly(args, context) : Multiply(args, context);
  }

 private:
  // All that the choice of an algorithm depends on.
  using Key = std::array<int64_t, 17>;
  struct Choice {
    cublasLtMatmulAlgo_t algorithm;
    int64_t workspace;
  };

  absl::Status Multiply(const GemmArgs& args, const ExecutionContext& context) {
    // Memory checkers do not see what cuBLASLt stores by TMA, and would call it undefined.
    if (args.beta == 0.0f && AsCuda(context).helps_checkers()) {
      VOXCONV_RETURN_IF_ERROR(Clear(args, context));
    }
    VOXCONV_ASSIGN_OR_RETURN(const Choice* choice, Choose(args, Rounded(args)));
    VOXCONV_ASSIGN_OR_RETURN(cublasStatus_t status, Try(*choice, args, context));
    // An algorithm that was chosen for more rows may need more workspace for the true number. Those
    // that split the products of their last tiles do.
    if (status == CUBLAS_STATUS_INVALID_VALUE) {
      VOXCONV_ASSIGN_OR_RETURN(const int64_t needed, WorkspaceFor(*choice, args));
      if (needed > kMaxWorkspace) {
        status = CUBLAS_STATUS_NOT_SUPPORTED;
      } else if (needed > choice->workspace) {
        VOXCONV_ASSIGN_OR_RETURN(status, Try({choice->algorithm, needed}, args, context));
      }
    }
    // Or it does not support the true number at all.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      VOXCONV_ASSIGN_OR_RETURN(choice, Choose(args, args));
      VOXCONV_ASSIGN_OR_RETURN(status, Try(*choice, args, context));
    }
    VOXCONV_RETURN_IF_CUBLAS_ERROR(status);
    if (Counters* counters = context.counters()) ++counters->launches;
    return absl::OkStatus();
  }

  // Queues the product.
  absl::StatusOr<cublasStatus_t> Try(const Choice& choice, const GemmArgs& args,
                                     const ExecutionContext& context) {
    AsCuda(context).MakeCurrent();
    Problem problem;
    VOXCONV_RETURN_IF_ERROR(problem.Initialise(args));
    // Each call has its own, since products may run on several streams.
    VOXCONV_ASSIGN_OR_RETURN(Buffer workspace,
                             context.backend->Allocate(choice.workspace, *context.stream));
    if (AsCuda(context).helps_checkers()) {  // partial sums are stored by TMA too
      VOXCONV_RETURN_IF_ERROR(
          context.backend->FillBytes(workspace.data(), 0, choice.workspace, *context.stream));
    }
    const float alpha = 1.0f;
    AsCuda(context).NoteLaunch(*context.stream, this);
    return cublasLtMatmul(handle_, &problem.operation, &alpha, args.b, &problem.b, args.a,
                          &problem.a, &args.beta, args.c, &problem.c, args.c, &problem.c,
                          &choice.algorithm, workspace.data(),
                          static_cast<size_t>(choice.workspace), CudaStreamOf(context));
  }

  // Bytes of workspace that the algorithm needs for the product. If cuBLASLt refuses the product,
  // the bytes that it was chosen with.
  absl::StatusOr<int64_t> WorkspaceFor(const Choice& choice, const GemmArgs& args) {
    Problem problem;
    VOXCONV_RETURN_IF_ERROR(problem.Initialise(args));
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle_, &problem.operation, &problem.b, &problem.a, &problem.c,
                                &problem.c, &choice.algorithm, &result);
    return status == CUBLAS_STATUS_SUCCESS ? static_cast<int64_t>(result.workspaceSize)
                                           : choice.workspace;
  }

  // The algorithm for `asked`, which is `args` or Rounded(args).
  absl::StatusOr<const Choice*> Choose(const GemmArgs& args, const GemmArgs& asked) {
    // Kernels can make use of 256 bytes. Products with a transposed A read pieces that begin at any
    // row, so that their alignment changes from product to product. A vector's is enough for them.
    const uintptr_t most = args.transpose_a ? 16 : 256;
    const uint32_t align_a = AlignmentOf(args.a, most), align_b = AlignmentOf(args.b, most),
                   align_c = AlignmentOf(args.c, most);
    const Key key = {asked.m,
                     args.n,
                     asked.k,
                     args.transpose_a,
                     args.lda,
                     args.ldb,
                     args.ldc,
                     static_cast<int64_t>(args.precision),
                     static_cast<int64_t>(args.c_dtype),
                     args.beta == 0,
                     args.batch,
                     args.stride_a,
                     args.stride_b,
                     args.stride_c,
                     align_a,
                     align_b,
                     align_c};
    if (const auto it = choices_.find(key); it != choices_.end()) return &it->second;
    return Ask(args, asked, {align_b, align_a, align_c}, key);
  }

  // `alignments`: of cuBLASLt's A, of its B, and of its C and D.
  absl::StatusOr<const Choice*> Ask(const GemmArgs& args, const GemmArgs& asked,
                                    const std::array<uint32_t, 3>& alignments, const Key& key) {
    Problem problem;
    VOXCONV_RETURN_IF_ERROR(problem.Initialise(asked));
    cublasLtMatmulPreferenceOpaque_t preference;
    VOXCONV_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceInit(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      VOXCONV_RETURN_IF_CUBLAS_ERROR(
          cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
      return absl::OkStatus();
    };
    // Partial sums of a split k may be added in the workspace, in f32 and in order. They must not
    // be added in C.
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    VOXCONV_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    VOXCONV_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMaxWorkspace)));
    VOXCONV_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]));
    VOXCONV_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]));
    VOXCONV_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]));
    VOXCONV_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]));
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    VOXCONV_RETURN_IF_CUBLAS_ERROR(
        cublasLtMatmulAlgoGetHeuristic(handle_, &problem.operation, &problem.b, &problem.a,
                                       &problem.c, &problem.c, &preference, 1, &found, &count));
    if (count == 0) {
      return absl::UnimplementedError(absl::StrCat("gemm: cuBLASLt has no kernel for ", args.m,
                                                   " x ", args.n, " x ", args.k, " of ",
                                                   ToString(args.precision)));
    }
    const Choice choice{found.algo, static_cast<int64_t>(found.workspaceSize)};
    return &choices_.insert_or_assign(key, choice).first->second;
  }

  // C = 0. Leaves what lies between its rows and between its matrices.
  absl::Status Clear(const GemmArgs& args, const ExecutionContext& context) {
    const int64_t element = SizeOf(args.c_dtype);
    // Memory checkers follow a plain fill far faster than one with a pitch.
    if (args.ldc == args.n && (args.batch == 1 || args.stride_c == args.m * args.n)) {
      return context.backend->FillBytes(args.c, 0, args.batch * args.m * args.n * element,
                                        *context.stream);
    }
    AsCuda(context).NoteLaunch(*context.stream, this);
    for (int64_t i = 0; i < args.batch; ++i) {
      VOXCONV_RETURN_IF_CUDA_ERROR(cudaMemset2DAsync(
          static_cast<char*>(args.c) + i * args.stride_c * element, args.ldc * element, 0,
          args.n * element, args.m, CudaStreamOf(context)));
    }
    return absl::OkStatus();
  }

  // C = beta C.
  absl::Status ScaleOnly(GemmArgs args, const ExecutionContext& context) {
    if (args.beta == 1.0f) return absl::OkStatus();
    if (args.beta == 0.0f) return Clear(args, context);
    // Adds a product of zeros with k = 1.
    const int64_t bytes = std::max(args.m, args.n) * SizeOf(StorageOf(args.precision));
    VOXCONV_ASSIGN_OR_RETURN(Buffer zeros, context.backend->Allocate(bytes, *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(zeros.data(), 0, bytes, *context.stream));
    args.transpose_a = false;
    args.k = args.lda = 1;
    args.ldb = args.n;
    args.a = args.b = zeros.data();
    args.stride_a = args.stride_b = 0;
    return Multiply(args, context);
  }

  cublasLtHandle_t handle_ = nullptr;
  absl::flat_hash_map<Key, Choice> choices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaGemm>> MakeCudaGemm() {
  auto gemm = std::make_unique<CublasLtGemm>();
  VOXCONV_RETURN_IF_ERROR(gemm->Initialise());
  return gemm;
}

}  // namespace voxconv
