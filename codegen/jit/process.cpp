#include "codegen/jit/process.h"

#include "autograd/support/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>

namespace tandem::jit {

namespace {

/// This process's environment, with messages in English: their first error is looked for.
std::vector<char*> environment_of_child() {
  static char locale[] = "LC_ALL=C";
  std::vector<char*> result{locale};
  for (char** entry = environ; *entry; ++entry) {
    if (std::string_view(*entry).substr(0, 7) != "LC_ALL=") result.push_back(*entry);
  }
  result.push_back(nullptr);
  return result;
}

struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnSettings(const std::string& printed_to) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, printed_to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);  // what the calling thread blocks or ignores is no matter of the child's
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

/// Folders in use. Never destroyed: a thread may still compile while the process ends.
struct Folders {
  std::mutex mutex;
  std::set<std::string> paths;
};

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

Folders& folders() {
  static Folders* const result = [] {
    std::atexit([] {
      std::lock_guard lock(folders().mutex);
      for (const std::string& path : folders().paths) remove_folder(path);
    });
    return new Folders;
  }();
  return *result;
}

}  // namespace

bool run_program(const std::vector<std::string>& arguments, const std::string& printed_to) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const SpawnSettings settings(printed_to);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &settings.files, &settings.attributes, argv.data(), environment_of_child().data());
  if (error != 0) throw Error(fmt::format("jit: expected to run {}, found: {}", arguments[0], std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == ECHILD) return true;  // the program ignores SIGCHLD, so the status is lost: the child's files tell
    if (errno != EINTR) throw Error(fmt::format("jit: expected the end of {}, found: {}", arguments[0], std::strerror(errno)));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TemporaryFolder::TemporaryFolder() {
  const char* root = std::getenv("TMPDIR");
  path_ = std::string(root && *root ? root : "/tmp") + "/tandem-XXXXXX";
  if (!mkdtemp(path_.data())) throw Error(fmt::format("jit: expected to make a folder {}, found: {}", path_, std::strerror(errno)));
  std::lock_guard lock(folders().mutex);
  folders().paths.insert(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::lock_guard lock(folders().mutex);
  if (folders().paths.erase(path_)) remove_folder(path_);
}

}  // namespace tandem::jit
