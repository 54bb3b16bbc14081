// Which compiler is taken, what is said when one is missing, and which modules are shared.
#include "tests/codegen/jit_samples.h"
#include "tests/support/environment.h"

#include <csignal>
#include <filesystem>
#include <fstream>

namespace tandem::jit {
namespace {

using namespace test;
using tandem::test::Variable;

constexpr const char* nowhere = "/nowhere/at/all";

Settings without_plugin() {
  Settings settings;
  settings.plugin = nowhere;
  return settings;
}

Settings without_any() {
  Settings settings = without_plugin();
  settings.cc = nowhere;
  return settings;
}

TEST(JitChoice, ThePluginIsTakenFirst) {
  if (!absent(plugin).empty()) GTEST_SKIP() << absent(plugin);
  EXPECT_NE(compile(multiply_add)->compiled_by.find(" in process, "), std::string::npos) << compile(multiply_add)->compiled_by;
}

TEST(JitChoice, WithoutThePluginTheSystemsCompilerIsTakenAndTheReasonIsSaid) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  const std::string words = compile(multiply_add, without_plugin())->compiled_by;
  EXPECT_NE(words.find("not in process: expected the plug-in tandem_jit.so, found none of /nowhere/at/all"), std::string::npos) << words;
}

TEST(JitChoice, WithoutAnyCompilerTheSentenceNamesBoth) {
  EXPECT_EQ(
      message_of(multiply_add, without_any()),
      "jit: expected the plug-in tandem_jit.so, found none of /nowhere/at/all; and instead of it a C compiler on PATH or in $TANDEM_CC, "
      "found none of /nowhere/at/all");
}

TEST(JitChoice, OnlyTheCompilerThatIsAskedForIsTaken) {
  Settings settings = without_plugin();
  settings.compiler = Compiler::plugin;
  EXPECT_EQ(message_of(multiply_add, settings), "jit: expected the plug-in tandem_jit.so, found none of /nowhere/at/all");
  settings = without_any();
  settings.compiler = Compiler::system;
  EXPECT_EQ(message_of(multiply_add, settings), "jit: expected a C compiler on PATH or in $TANDEM_CC, found none of /nowhere/at/all");
}

TEST(JitChoice, AnotherLibraryIsNoPlugin) {
  Settings settings;
  settings.compiler = Compiler::plugin;
  settings.plugin = "/lib/x86_64-linux-gnu/libm.so.6";
  if (access(settings.plugin.c_str(), R_OK) != 0) GTEST_SKIP() << "no " << settings.plugin;
  EXPECT_EQ(message_of(multiply_add, settings), "jit: expected Tandem's plug-in, found another library in /lib/x86_64-linux-gnu/libm.so.6");
}

TEST(JitChoice, AFileThatIsNoLibraryIsNoPlugin) {
  Settings settings;
  settings.compiler = Compiler::plugin;
  settings.plugin = testing::TempDir() + "not_a_plugin.so";
  std::ofstream(settings.plugin) << "text";
  const std::string message = message_of(multiply_add, settings);
  EXPECT_EQ(message.find("jit: expected a plug-in that can be loaded, found: "), 0U) << message;
}

TEST(JitChoice, TheEnvironmentNamesThePluginAndTheCompiler) {
  const Variable no_plugin("TANDEM_JIT_PLUGIN", nowhere), no_cc("TANDEM_CC", "/nowhere/else");
  const std::string message = message_of(multiply_add, {});
  EXPECT_NE(message.find(nowhere), std::string::npos) << message;
  EXPECT_NE(message.find("/nowhere/else"), std::string::npos) << message;
}

TEST(JitChoice, ACompilerThatCannotRunIsRefused) {
  Settings settings;
  settings.compiler = Compiler::system;
  settings.cc = testing::TempDir() + "broken_cc";
  std::ofstream(settings.cc) << "#!/nowhere/interpreter\n";
  std::filesystem::permissions(settings.cc, std::filesystem::perms::owner_all);
  const std::string message = message_of(multiply_add, settings);
  EXPECT_EQ(message.find("jit: expected to run " + settings.cc), 0U) << message;
}

TEST(JitChoice, ACompilerThatMakesNothingIsRefused) {
  Settings settings;
  settings.compiler = Compiler::system;
  settings.cc = "/bin/true";
  EXPECT_EQ(message_of(multiply_add, settings), "jit: expected C text that /bin/true accepts, found no object and no message");
}

TEST(JitChoice, TheSystemsCompilerLeavesNoFiles) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  const std::string folder = testing::TempDir() + "jit_files";
  std::filesystem::create_directories(folder);
  const Variable temporary("TMPDIR", folder.c_str());
  EXPECT_FALSE(compile_to_object(multiply_add, settings_of(gcc)).empty());
  EXPECT_NE(message_of("int k(", settings_of(gcc)), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(JitChoice, TheSystemsCompilerWorksWhereChildrenAreIgnored) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  const auto old = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(message_of("int k(void) { return 1; } // orphan", settings_of(gcc)), "");
  EXPECT_NE(message_of("int k(", settings_of(gcc)), "");
  std::signal(SIGCHLD, old);
}

TEST(JitCache, EqualTextAndSettingsShareAModule) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  const auto first = compile(multiply_add, settings_of(gcc));
  EXPECT_EQ(compile(multiply_add, settings_of(gcc)), first);
}

TEST(JitCache, OtherTextOrSettingsDoNot) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  const auto first = compile(multiply_add, settings_of(gcc));
  EXPECT_NE(compile(multiply_add + " ", settings_of(gcc)), first);
  EXPECT_NE(compile(multiply_add, settings_of(gcc, "haswell")), first);
  Settings narrow = settings_of(gcc);
  narrow.target.vector_bits = 128;
  EXPECT_NE(compile(multiply_add, narrow), first);
}

TEST(JitCache, AModuleGoesWithItsLastUser) {
  if (!absent(gcc).empty()) GTEST_SKIP() << absent(gcc);
  std::weak_ptr<const Module> seen = compile(multiply_add + "// short-lived\n", settings_of(gcc));
  EXPECT_TRUE(seen.expired());
  EXPECT_NE(compile(multiply_add + "// short-lived\n", settings_of(gcc)), nullptr);
}

TEST(JitCache, AModuleOutlivesManyOthers) {
  if (!absent(plugin).empty()) GTEST_SKIP() << absent(plugin);
  const auto kept = compile("int k(void) { return 42; }", settings_of(plugin));
  for (int i = 0; i < 50; ++i) compile("int k(void) { return " + std::to_string(i) + "; }", settings_of(plugin));
  EXPECT_EQ(reinterpret_cast<int (*)()>(kept->find("k"))(), 42);
  EXPECT_EQ(compile("int k(void) { return 42; }", settings_of(plugin)), kept);
}

}  // namespace
}  // namespace tandem::jit
