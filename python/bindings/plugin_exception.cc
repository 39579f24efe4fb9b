// SPDX-License-Identifier: Apache-2.0
#include "plugin_exception.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace voxconv::python {
namespace {

struct KeptException {
  std::optional<std::thread::id> thread;  // empty: a worker, which serves any caller
  std::string message;
  nb::object exception;
  bool ends = false;

  bool ConcernsThisThread() const {
    return !thread.has_value() || *thread == std::this_thread::get_id();
  }
};

// Read and written with the GIL. A thread has one exception, and one that ends its call.
std::vector<KeptException>& Kept() {
  static auto* kept = new std::vector<KeptException>;  // the interpreter may outlive statics
  return *kept;
}

// Of threads that ended without taking theirs, the oldest go.
constexpr size_t kMostKept = 32;

template <typename Is>
nb::object Take(const Is& is) {
  std::vector<KeptException>& kept = Kept();
  const auto place = std::find_if(kept.begin(), kept.end(), [&](const KeptException& entry) {
    return entry.ConcernsThisThread() && is(entry);
  });
  if (place == kept.end()) return {};
  nb::object exception = std::move(place->exception);
  kept.erase(place);
  return exception;
}

bool Ends(const KeptException& entry) { return entry.ends; }

absl::StatusCode CodeOf(nb::handle type, const std::string& name) {
  const auto is = [&](PyObject* other) {
    return PyErr_GivenExceptionMatches(type.ptr(), other) != 0;
  };
  if (!is(PyExc_Exception)) return absl::StatusCode::kCancelled;
  if (is(PyExc_NotImplementedError)) return absl::StatusCode::kUnimplemented;
  if (is(PyExc_MemoryError) || name == "OutOfMemoryError") {
    return absl::StatusCode::kResourceExhausted;
  }
  return absl::StatusCode::kInternal;
}

// The frames of the exception, of its cause and of its context.
void ClearFrames(nb::handle exception) {
  constexpr int kMostExceptions = 32;  // a chain may be a circle
  const nb::object clear = nb::module_::import_("traceback").attr("clear_frames");
  std::vector<nb::object> left = {nb::borrow(exception)};
  for (int i = 0; i < kMostExceptions && !left.empty(); ++i) {
    const nb::object next = std::move(left.back());
    left.pop_back();
    clear(next.attr("__traceback__"));
    for (const char* other : {"__cause__", "__context__"}) {
      nb::object linked = next.attr(other);
      if (!linked.is_none()) left.push_back(std::move(linked));
    }
  }
}

}  // namespace

absl::Status StatusOf(const std::string& who, nb::python_error& error, bool is_worker) {
  KeptException entry{.thread = std::nullopt,
                      .message = absl::StrCat(who, ": "),
                      .exception = nb::borrow(error.value())};
  if (!is_worker) entry.thread = std::this_thread::get_id();
  absl::StatusCode code = absl::StatusCode::kInternal;
  try {
    const auto name = nb::cast<std::string>(error.type().attr("__name__"));
    absl::StrAppend(&entry.message, name);
    code = CodeOf(error.type(), name);
    absl::StrAppend(&entry.message, ": ", nb::cast<std::string>(nb::str(entry.exception)));
    ClearFrames(entry.exception);
  } catch (nb::python_error& other) {
    other.discard_as_unraisable("voxconv: the exception of a plugin");
  }
  absl::Status status(code, entry.message);
  entry.ends = absl::IsCancelled(status);
  std::vector<KeptException>& kept = Kept();
  const auto place = std::find_if(kept.begin(), kept.end(), [&](const KeptException& other) {
    return other.thread == entry.thread && other.ends == entry.ends;
  });
  if (place != kept.end()) {
    if (entry.ends) return status;  // the caller gets the first one
    kept.erase(place);
  }
  if (kept.size() == kMostKept) kept.erase(kept.begin());
  kept.push_back(std::move(entry));
  return status;
}

nb::object TakeOriginal(absl::string_view message) {
  return Take([&](const KeptException& entry) {
    return !entry.ends && absl::StrContains(message, entry.message);
  });
}

bool IsEnding() {
  const std::vector<KeptException>& kept = Kept();
  return std::any_of(kept.begin(), kept.end(), [](const KeptException& entry) {
    return entry.ends && entry.ConcernsThisThread();
  });
}

void ThrowIfEnding() {
  const nb::object exception = Take(&Ends);
  if (!exception.is_valid()) return;
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

void ForgetExceptions() { Kept().clear(); }

}  // namespace voxconv::python
