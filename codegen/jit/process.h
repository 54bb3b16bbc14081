// A program as a child process, without a shell, and a folder for its files.
#pragma once

#include <string>
#include <vector>

namespace tandem::jit {

/// Runs arguments[0] (a path) to its end with empty input; what it prints goes to a file. True when it succeeded. Throws Error when it
/// cannot be started.
bool run_program(const std::vector<std::string>& arguments, const std::string& printed_to);

/// A folder of its own under $TMPDIR, removed with all it holds at the end of its life, or of the process if that is sooner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tandem::jit
