// The report as text and as JSON. The page is in report_html.cpp.
#include "tandem/tandem.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iterator>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;  // fields in the order in which the header declares them

std::string bytes(std::int64_t n) {
  constexpr double kib = 1024, mib = kib * 1024, gib = mib * 1024;
  const auto v = static_cast<double>(n);
  if (v < kib) return fmt::format("{} B", n);
  if (v < mib) return fmt::format("{:.1f} KiB", v / kib);
  if (v < gib) return fmt::format("{:.2f} MiB", v / mib);
  return fmt::format("{:.2f} GiB", v / gib);
}

/// A median of zero means that no step of this kind has run.
std::string milliseconds(double ms) { return ms > 0 ? fmt::format("{:.3f} ms", ms) : "not measured"; }

std::string error_words(double ratio) {
  return ratio == 0 ? std::string("bit-equal to eager") : fmt::format("largest error {:.3g} of the allowed one", ratio);
}

class Text {
 public:
  template <class... T>
  void line(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<T>(values)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void summary_text(Text& t, const Report& r) {
  if (r.active) {
    t.line("tandem {}: active", version());
  } else {
    t.line("tandem {}: not active{}{}", version(), r.reason.empty() ? "" : ": ", r.reason);
  }
  t.line("  optimizer   {}", r.optimizer.empty() ? "not known yet" : r.optimizer);
  t.line("  steps       {} ({} eager, {} compiled, {} shadow), {} recompile{}", r.steps, r.eager_steps, r.compiled_steps, r.shadow_steps,
         r.recompiles, r.recompiles == 1 ? "" : "s");
  std::string ratio;
  if (r.eager_ms > 0 && r.compiled_ms > 0) ratio = fmt::format(", eager/compiled {:.3f}", r.eager_ms / r.compiled_ms);
  t.line("  step time   eager {}, compiled {}{}; first step {}", milliseconds(r.eager_ms), milliseconds(r.compiled_ms), ratio,
         milliseconds(r.first_step_ms));
}

void plan_text(Text& t, const PlanReport& p) {
  if (p.active) {
    t.line("  plan {} ({}): active, {} steps", p.id, p.guard, p.steps);
  } else {
    t.line("  plan {} ({}): not active{}{}", p.id, p.guard, p.reason.empty() ? "" : ": ", p.reason);
  }
  t.line("    nodes     {} forward, {} backward, {} update; {} folded, {} skipped, {} groups", p.nodes_forward, p.nodes_backward,
         p.nodes_update, p.nodes_folded, p.nodes_skipped, p.groups);
  t.line("    calls     {} generated kernels in {} launches, {} library calls, {} barriers{}{}", p.kernels, p.launches, p.library_calls,
         p.barriers, p.compiler.empty() ? "" : "; by ", p.compiler);
  t.line("    memory    saved for backward {}, recomputed {} ({} nodes); arena {}; peak eager {}, compiled {}, check {}",
         bytes(p.saved_bytes), bytes(p.recomputed_bytes), p.recomputed_nodes, bytes(p.arena_bytes), bytes(p.eager_peak_bytes),
         bytes(p.compiled_peak_bytes), bytes(p.check_peak_bytes));
  if (!p.replay.empty())
    t.line("    replay    {}{}{}{}; {} host ops in {:.1f} us, guards {:.1f} us, {} run-time numbers", p.replay,
           p.replay_reason.empty() ? "" : " (", p.replay_reason, p.replay_reason.empty() ? "" : ")", p.host_ops, p.replay_us, p.guard_us,
           p.run_time_numbers);
  for (const GraphBreak& b : p.breaks) t.line("    break     {}{}{}", b.sentence, b.place.empty() ? "" : "; read by ", b.place);
  t.line("    cost      record {:.3f} ms, compile {:.3f} ms, check {:.3f} ms", p.record_ms, p.compile_ms, p.check_ms);
  t.line("    check     {}", p.active || p.max_error_ratio > 0 ? error_words(p.max_error_ratio) : "no figure");
}

Json plan_json(const PlanReport& p) {
  Json nodes = Json::array();
  for (const NodeTime& n : p.nodes) nodes.push_back({{"node", n.node}, {"side", n.side}, {"us", n.us}});
  Json breaks = Json::array();
  for (const GraphBreak& b : p.breaks) breaks.push_back({{"node", b.node}, {"sentence", b.sentence}, {"place", b.place}});
  return {{"id", p.id},
          {"guard", p.guard},
          {"active", p.active},
          {"reason", p.reason},
          {"replay", p.replay},
          {"replay_reason", p.replay_reason},
          {"replay_us", p.replay_us},
          {"guard_us", p.guard_us},
          {"host_ops", p.host_ops},
          {"run_time_numbers", p.run_time_numbers},
          {"breaks", std::move(breaks)},
          {"steps", p.steps},
          {"nodes_forward", p.nodes_forward},
          {"nodes_backward", p.nodes_backward},
          {"nodes_update", p.nodes_update},
          {"nodes_folded", p.nodes_folded},
          {"nodes_skipped", p.nodes_skipped},
          {"groups", p.groups},
          {"kernels", p.kernels},
          {"launches", p.launches},
          {"library_calls", p.library_calls},
          {"barriers", p.barriers},
          {"saved_bytes", p.saved_bytes},
          {"recomputed_nodes", p.recomputed_nodes},
          {"recomputed_bytes", p.recomputed_bytes},
          {"arena_bytes", p.arena_bytes},
          {"compiler", p.compiler},
          {"max_error_ratio", p.max_error_ratio},
          {"record_ms", p.record_ms},
          {"compile_ms", p.compile_ms},
          {"check_ms", p.check_ms},
          {"eager_peak_bytes", p.eager_peak_bytes},
          {"compiled_peak_bytes", p.compiled_peak_bytes},
          {"check_peak_bytes", p.check_peak_bytes},
          {"eager_memory", p.eager_memory},
          {"compiled_memory", p.compiled_memory},
          {"nodes", std::move(nodes)}};
}

}  // namespace

std::string Report::to_string() const {
  Text t;
  summary_text(t, *this);
  for (const PlanReport& p : plans) plan_text(t, p);
  if (!events.empty()) t.line("  events");
  for (const Event& e : events) t.line("    step {:<6} {:<12} {}", e.step, e.kind, e.sentence);
  if (!problems.empty()) t.line("  {} text problem{} of failed checks", problems.size(), problems.size() == 1 ? "" : "s");
  return t.take();
}

std::string Report::to_json() const {
  Json j = {{"tandem", version()},
            {"active", active},
            {"reason", reason},
            {"optimizer", optimizer},
            {"steps", steps},
            {"eager_steps", eager_steps},
            {"compiled_steps", compiled_steps},
            {"shadow_steps", shadow_steps},
            {"recompiles", recompiles},
            {"first_step_ms", first_step_ms},
            {"eager_ms", eager_ms},
            {"compiled_ms", compiled_ms},
            {"plans", Json::array()},
            {"events", Json::array()},
            {"problems", problems},
            {"curves", Json::array()}};
  for (const PlanReport& p : plans) j["plans"].push_back(plan_json(p));
  for (const Event& e : events) j["events"].push_back({{"step", e.step}, {"kind", e.kind}, {"sentence", e.sentence}});
  for (const Curve& c : curves) j["curves"].push_back({{"chart", c.chart}, {"name", c.name}, {"x", c.x}, {"y", c.y}});
  // NaN and infinities become null; bytes that are not UTF-8 (a path, a foreign message) must not make a report throw.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem
