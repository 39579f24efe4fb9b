// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/sgemm.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>

#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {
namespace {

// Rows of C a task computes: enough to amortise OpenBLAS's packing of B.
constexpr int64_t kRowsPerTask = 1024;

// OpenBLAS must not start threads of its own below ours.
void UseOneBlasThread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace

void SgemmSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta,
                 float* c) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == 0) std::fill(c, c + m * n, 0.0f);
    return;
  }
  UseOneBlasThread();
  // Row counts past 2^31 do not fit BLAS's int.
  constexpr int64_t kMaxRows = int64_t{1} << 24;
  for (int64_t row = 0; row < m; row += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, m - row);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(rows),
                static_cast<int>(n), static_cast<int>(k), 1.0f, a + row * k, static_cast<int>(k), b,
                static_cast<int>(n), beta, c + row * n, static_cast<int>(n));
  }
}

void SgemmTransposedSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                           float beta, float* c) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == 0) std::fill(c, c + m * n, 0.0f);
    return;
  }
  UseOneBlasThread();
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), 1.0f, a, static_cast<int>(m), b, static_cast<int>(n), beta, c,
              static_cast<int>(n));
}

void Sgemm(const ExecutionContext& context, int64_t m, int64_t n, int64_t k, const float* a,
           const float* b, float beta, float* c) {
  ParallelRanges(context, m, kRowsPerTask, [&](int64_t begin, int64_t end) {
    SgemmSerial(end - begin, n, k, a + begin * k, b, beta, c + begin * n);
  });
}

}  // namespace voxconv
