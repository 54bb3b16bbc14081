// What happened so far: counts, times, sentences. The source of Report.
#pragma once

#include "tandem/tandem.h"

#include <chrono>
#include <deque>
#include <string>

namespace tandem {

class Stopwatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The latest values of a quantity.
class Latest {
 public:
  void add(double value);
  double median() const;  // 0 without values

 private:
  std::deque<double> values_;
};

class Journal {
 public:
  void say(const std::string& kind, const std::string& sentence);
  void next_step() { steps++; }

  std::int64_t steps = 0, eager_steps = 0, compiled_steps = 0, shadow_steps = 0, recompiles = 0;
  double first_step_ms = 0;
  std::vector<std::string> problems;

  void eager_time(double ms) { eager_.add(ms); }
  void compiled_time(double ms) { compiled_.add(ms); }
  void fill(Report& report) const;

 private:
  std::deque<Event> events_;
  Latest eager_, compiled_;
};

}  // namespace tandem
