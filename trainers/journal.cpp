#include "trainers/journal.h"

#include <algorithm>

namespace tandem {
namespace {
constexpr std::size_t max_events = 1000, max_times = 256;
}

void Journal::say(const std::string& kind, const std::string& sentence) {
  events_.push_back({steps, kind, sentence});
  if (events_.size() > max_events) events_.pop_front();
}

void Latest::add(double value) {
  values_.push_back(value);
  if (values_.size() > max_times) values_.pop_front();
}

double Latest::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted(values_.begin(), values_.end());
  std::nth_element(sorted.begin(), sorted.begin() + std::ptrdiff_t(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2];
}

void Journal::fill(Report& report) const {
  report.steps = steps;
  report.eager_steps = eager_steps;
  report.compiled_steps = compiled_steps;
  report.shadow_steps = shadow_steps;
  report.recompiles = recompiles;
  report.first_step_ms = first_step_ms;
  report.eager_ms = eager_.median();
  report.compiled_ms = compiled_.median();
  report.events.assign(events_.begin(), events_.end());
  report.problems = problems;
}

}  // namespace tandem
