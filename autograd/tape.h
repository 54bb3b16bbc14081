// A recorded step as the host sees it: its calls in order, made ready to be compared with the host's own and to be answered.
#pragma once

#include "autograd/capture.h"
#include "autograd/numbers.h"
#include "autograd/stops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace tandem {

class Tape {
 public:
  enum class Is : std::uint8_t { none, flag, whole, other, number, wrapped, wrapped_constant, tensor, tensors, optional_tensors };
  struct Arg {
    Is is = Is::none;
    std::int64_t whole = 0;    // flag, whole
    std::int32_t number = -1;  // number, wrapped: its place in numbers_of()
    const Argument* argument = nullptr;
  };
  struct Result {
    Is is = Is::none;            // tensor, tensors or none (undefined, or read by the host)
    std::int32_t returned = -1;  // the argument whose tensor object the op returns
    const Argument* argument = nullptr;
  };
  struct Call {
    c10::OperatorHandle op;
    std::vector<Arg> args;
    std::vector<Result> results;
    bool random = false, host_read = false;
    std::int32_t stop = -1;  // its place in parts().stops: the step must have run up to here before it is answered
    std::int32_t first_number = 0;
  };
  /// What is needed to make a placeholder of a value.
  struct Shape {
    c10::DispatchKeySet keys;
    caffe2::TypeMeta type;
  };

  /// The recording must outlive the tape. `length`: calls that the host makes; all of them where backward and update are replayed too.
  Tape(const Recording& recorded, std::size_t length, Parts parts);

  const Recording& recorded() const { return *recorded_; }
  const Graph& graph() const { return recorded_->graph; }
  std::size_t length() const { return length_; }
  const std::vector<Call>& calls() const { return calls_; }
  const Parts& parts() const { return parts_; }
  /// How many parts have run when the step stands before this call.
  std::size_t parts_before(std::size_t position) const;
  /// Whether the plan delivers the storage at a stop.
  bool delivers(std::int32_t stop, StorageId s) const { return delivered_[std::size_t(stop)][std::size_t(s)]; }
  bool writes(StorageId s) const { return written_[std::size_t(s)]; }
  const Shape& shape(ValueId v) const { return shapes_[std::size_t(v)]; }

  const std::vector<NumberPlace>& numbers() const { return numbers_; }
  double recorded_number(std::size_t i) const { return values_[i]; }
  bool is_free(std::size_t i) const { return free_[i] >= 0; }       // may be another in each step
  std::int32_t scalar_of(std::size_t i) const { return free_[i]; }  // its run-time scalar, or -1

 private:
  const Recording* recorded_;
  std::size_t length_;
  Parts parts_;
  std::vector<std::vector<char>> delivered_;  // per stop, by StorageId
  std::vector<Call> calls_;
  std::vector<Shape> shapes_;
  std::vector<char> written_;  // by StorageId
  std::vector<NumberPlace> numbers_;
  std::vector<double> values_;
  std::vector<std::int32_t> free_;
};

/// How many of the first calls of two tapes are the same but for their numbers, so that a step that follows one follows the other as far.
std::size_t common_calls(const Tape& a, const Tape& b);

}  // namespace tandem
