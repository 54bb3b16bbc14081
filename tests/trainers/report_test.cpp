#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace tandem {
namespace {

using Json = nlohmann::json;

PlanReport a_plan() {
  PlanReport p;
  p.id = 7;
  p.guard = "float32 [32, 20], int64 [32]";
  p.active = true;
  p.replay = "full";
  p.replay_reason = "a hook";
  p.replay_us = 30.5;
  p.guard_us = 4.5;
  p.host_ops = 22;
  p.run_time_numbers = 3;
  p.breaks = {{"node 9", "cut", "f() at a.cpp:3"}};
  p.steps = 50;
  p.nodes_forward = 11;
  p.nodes_backward = 12;
  p.nodes_update = 13;
  p.nodes_folded = 14;
  p.nodes_skipped = 15;
  p.groups = 16;
  p.kernels = 17;
  p.launches = 18;
  p.library_calls = 19;
  p.barriers = 20;
  p.saved_bytes = 2048;
  p.recomputed_nodes = 21;
  p.recomputed_bytes = 4096;
  p.arena_bytes = 8192;
  p.compiler = "clang";
  p.record_ms = 1.25;
  p.compile_ms = 2.5;
  p.check_ms = 5;
  p.eager_peak_bytes = 3 << 20;
  p.compiled_peak_bytes = 2 << 20;
  p.check_peak_bytes = 4 << 20;
  p.eager_memory = {0, 10, 0};
  p.compiled_memory = {0, 5, 0};
  p.nodes = {{"%3 = mm", "forward", 1.5}};
  return p;
}

Report a_report() {
  Report r;
  r.active = true;
  r.optimizer = "Adam, its update is part of the plan";
  r.steps = 60;
  r.eager_steps = 4;
  r.compiled_steps = 50;
  r.shadow_steps = 6;
  r.recompiles = 1;
  r.first_step_ms = 9;
  r.eager_ms = 3;
  r.compiled_ms = 2;
  r.plans = {a_plan()};
  r.events = {{3, "activated", "plan 7 is bit-equal to eager"}};
  r.problems = {"problem one"};
  r.curves = {{"loss", "eager", {1, 2}, {0.5, 0.25}}};
  return r;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// Writes the report's page to a file of the test's own and returns its text.
std::string page_of(const Report& r) {
  const auto name = std::string("tandem_report_") + testing::UnitTest::GetInstance()->current_test_info()->name() + ".html";
  const auto path = std::filesystem::temp_directory_path() / name;
  r.write_html(path.string());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  return text.str();
}

/// What a browser hands to JSON.parse: the text up to the first end tag.
std::string json_in(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"report\">";
  const std::size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script", begin) - begin);
}

TEST(ReportText, SaysThatItIsActiveWithCountsTimesAndRatio) {
  const std::string text = a_report().to_string();
  EXPECT_TRUE(has(text, ": active\n")) << text;
  EXPECT_TRUE(has(text, "60 (4 eager, 50 compiled, 6 shadow), 1 recompile\n")) << text;
  EXPECT_TRUE(has(text, "eager 3.000 ms, compiled 2.000 ms, eager/compiled 1.500; first step 9.000 ms")) << text;
}

TEST(ReportText, NamesEachPlanWithGuardPeaksAndCheck) {
  const std::string text = a_report().to_string();
  EXPECT_TRUE(has(text, "plan 7 (float32 [32, 20], int64 [32]): active, 50 steps")) << text;
  EXPECT_TRUE(has(text, "peak eager 3.00 MiB, compiled 2.00 MiB, check 4.00 MiB")) << text;
  EXPECT_TRUE(has(text, "bit-equal to eager\n")) << text;
}

TEST(ReportText, NamesKernelsCallsBarriersAndWhatIsRecomputed) {
  const std::string text = a_report().to_string();
  EXPECT_TRUE(has(text, "17 generated kernels in 18 launches, 19 library calls, 20 barriers; by clang\n")) << text;
  EXPECT_TRUE(has(text, "saved for backward 2.0 KiB, recomputed 4.0 KiB (21 nodes); arena 8.0 KiB")) << text;
}

TEST(ReportText, GivesTheReasonsOfAStepAndAPlanThatAreNotActive) {
  Report r = a_report();
  r.active = r.plans[0].active = false;
  r.reason = "the model has hooks";
  r.plans[0].reason = "gradient of weight differs";
  r.plans[0].max_error_ratio = 3.5;
  const std::string text = r.to_string();
  EXPECT_TRUE(has(text, ": not active: the model has hooks\n")) << text;
  EXPECT_TRUE(has(text, "plan 7 (float32 [32, 20], int64 [32]): not active: gradient of weight differs\n")) << text;
  EXPECT_TRUE(has(text, "largest error 3.5 of the allowed one")) << text;
}

TEST(ReportText, APlanThatIsNotActiveClaimsNoEquality) {
  Report r = a_report();
  r.plans[0].active = false;
  r.events.clear();
  EXPECT_FALSE(has(r.to_string(), "bit-equal")) << r.to_string();
}

TEST(ReportText, ATimeThatWasNotMeasuredIsNotShownAsZero) {
  const std::string text = Report().to_string();
  EXPECT_TRUE(has(text, "eager not measured, compiled not measured; first step not measured")) << text;
}

TEST(ReportText, ListsEvents) { EXPECT_TRUE(has(a_report().to_string(), "activated    plan 7 is bit-equal to eager")); }

TEST(ReportJson, HasEachFieldOfTheReport) {
  Json expected = Json::parse(R"({
    "active": true, "reason": "", "optimizer": "Adam, its update is part of the plan",
    "steps": 60, "eager_steps": 4, "compiled_steps": 50, "shadow_steps": 6, "recompiles": 1,
    "first_step_ms": 9.0, "eager_ms": 3.0, "compiled_ms": 2.0,
    "events": [{"step": 3, "kind": "activated", "sentence": "plan 7 is bit-equal to eager"}],
    "problems": ["problem one"],
    "curves": [{"chart": "loss", "name": "eager", "x": [1.0, 2.0], "y": [0.5, 0.25]}]})");
  expected["tandem"] = version();
  Json j = Json::parse(a_report().to_json());
  j.erase("plans");
  EXPECT_EQ(j, expected) << j.dump(1);
}

TEST(ReportJson, HasEachFieldOfAPlan) {
  const Json j = Json::parse(a_report().to_json())["plans"];
  const Json expected = Json::parse(R"([{
    "id": 7, "guard": "float32 [32, 20], int64 [32]", "active": true, "reason": "", "replay": "full", "replay_reason": "a hook", "replay_us": 30.5, "guard_us": 4.5, "host_ops": 22,
    "run_time_numbers": 3, "breaks": [{"node": "node 9", "sentence": "cut", "place": "f() at a.cpp:3"}], "steps": 50,
    "nodes_forward": 11, "nodes_backward": 12, "nodes_update": 13, "nodes_folded": 14, "nodes_skipped": 15, "groups": 16,
    "kernels": 17, "launches": 18, "library_calls": 19, "barriers": 20,
    "saved_bytes": 2048, "recomputed_nodes": 21, "recomputed_bytes": 4096, "arena_bytes": 8192, "compiler": "clang", "max_error_ratio": 0.0, "record_ms": 1.25, "compile_ms": 2.5, "check_ms": 5.0,
    "eager_peak_bytes": 3145728, "compiled_peak_bytes": 2097152, "check_peak_bytes": 4194304,
    "eager_memory": [0.0, 10.0, 0.0], "compiled_memory": [0.0, 5.0, 0.0],
    "nodes": [{"node": "%3 = mm", "side": "forward", "us": 1.5}]}])");
  EXPECT_EQ(j, expected) << j.dump(1);
}

TEST(ReportJson, NumbersThatJsonLacksBecomeNull) {
  Report r = a_report();
  r.eager_ms = std::numeric_limits<double>::quiet_NaN();
  r.curves[0].y = {std::numeric_limits<double>::infinity(), 1};
  r.plans[0].max_error_ratio = std::numeric_limits<double>::infinity();
  const Json j = Json::parse(r.to_json());
  EXPECT_TRUE(j["eager_ms"].is_null());
  EXPECT_TRUE(j["curves"][0]["y"][0].is_null());
  EXPECT_EQ(j["curves"][0]["y"][1], 1);
  EXPECT_TRUE(j["plans"][0]["max_error_ratio"].is_null());
}

TEST(ReportJson, BytesThatAreNotUtf8AreReplaced) {
  Report r;
  r.reason = "caf\xe9";
  EXPECT_EQ(Json::parse(r.to_json())["reason"], "caf\xef\xbf\xbd");
}

TEST(ReportPage, CarriesTheReportUnchanged) {
  const Report r = a_report();
  EXPECT_EQ(Json::parse(json_in(page_of(r))), Json::parse(r.to_json()));
}

TEST(ReportPage, TextOfTheReportCannotEndTheScript) {
  Report r = a_report();
  r.events[0].sentence = "</script><script>alert(1)</script><!-- & \"quoted\"";
  const std::string page = page_of(r);
  EXPECT_EQ(count_of(page, "</script"), count_of(page_of(a_report()), "</script"));
  EXPECT_EQ(Json::parse(json_in(page))["events"][0]["sentence"], r.events[0].sentence);
}

TEST(ReportPage, TextThatLooksLikeAMarkOfTheTemplateStaysText) {
  Report r = a_report();
  r.reason = "{{chart_js}}{{report_json}}";
  EXPECT_EQ(Json::parse(json_in(page_of(r)))["reason"], r.reason);
}

TEST(ReportPage, HoldsChartJsAndLoadsNothing) {
  const std::string page = page_of(a_report());
  EXPECT_TRUE(has(page, "Chart.js v"));
  EXPECT_EQ(count_of(page, "{{"), 0U);
  EXPECT_EQ(count_of(page, " src="), 0U);
  EXPECT_EQ(count_of(page, "href=\"http"), 0U);
  EXPECT_EQ(count_of(page, "@import"), 0U);
}

std::string write_error(const std::string& path) {
  try {
    a_report().write_html(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ReportPage, AMissingFolderIsAnErrorWithTheSystemsReason) {
  EXPECT_EQ(write_error("/no/such/folder/x.html"),
            "write_html: expected a writable path, found '/no/such/folder/x.html': No such file or directory");
}

TEST(ReportPage, AFullDiskIsAnError) {
  EXPECT_EQ(write_error("/dev/full"), "write_html: expected a writable path, found '/dev/full': No space left on device");
}

}  // namespace
}  // namespace tandem
