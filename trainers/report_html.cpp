// The report as one page that opens without a network: the template, Chart.js and the report's JSON in one file.
#include "tandem/tandem.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace tandem {

// Made by the build from report_page.html and the system's chart.min.js, see report_assets.cmake.
extern const std::string_view report_page, chart_js;

namespace {

/// JSON inside <script>: no byte of it may end the element or open a comment. These characters occur in JSON within strings only.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    switch (c) {
      case '<': out += "\\u003c"; break;
      case '>': out += "\\u003e"; break;
      case '&': out += "\\u0026"; break;
      default: out += c;
    }
  }
  return out;
}

struct Slot {
  std::string_view mark, text;
};

/// Fills each mark once, in the order of the template; what is filled in is never searched for marks.
std::string fill(std::string_view page, std::initializer_list<Slot> slots) {
  std::string out;
  for (const Slot& slot : slots) {
    const std::size_t at = page.find(slot.mark);
    if (at == std::string_view::npos) continue;
    out.append(page.substr(0, at)).append(slot.text);
    page.remove_prefix(at + slot.mark.size());
  }
  return out.append(page);
}

}  // namespace

void Report::write_html(const std::string& path) const {
  const std::string json = script_safe(to_json());
  const std::string page = fill(report_page, {{"{{report_json}}", json}, {"{{chart_js}}", chart_js}});
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) file.write(page.data(), static_cast<std::streamsize>(page.size()));
  if (file) file.close();  // a full disk shows here
  if (!file) {
    const int code = errno;
    throw Error("write_html: expected a writable path, found '" + path + "': " + (code != 0 ? std::strerror(code) : "unknown reason"));
  }
}

}  // namespace tandem
