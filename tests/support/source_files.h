// The project's own files, for tests that read them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem {

struct SourceFile {
  std::string path;  // from the root, e.g. "autograd/graph.h"
  std::vector<std::string> lines;
};

inline const std::vector<std::string>& layer_names() {
  static const std::vector<std::string> names{"autograd", "partitioner", "codegen", "runtime", "trainers"};
  return names;
}

/// All sources and headers below the given folders, in the order of their paths.
inline std::vector<SourceFile> source_files(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  const fs::path root = TANDEM_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h" && extension != ".def") continue;
      SourceFile file{entry.path().lexically_relative(root).generic_string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace tandem
