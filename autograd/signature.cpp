#include "autograd/signature.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <mutex>

namespace tandem {
namespace {

std::vector<Parameter> look_up(std::string_view op) {
  const auto dot = op.find('.');
  const std::string overload(dot == std::string_view::npos ? "" : op.substr(dot + 1));
  const auto handle = c10::Dispatcher::singleton().findSchema({std::string(op.substr(0, dot)), overload});
  std::vector<Parameter> parameters;
  if (!handle) return parameters;
  for (const c10::Argument& a : handle->schema().arguments())
    parameters.push_back({a.name(), a.type()->kind() == c10::TypeKind::OptionalType});
  return parameters;
}

}  // namespace

const std::vector<Parameter>& parameters_of(std::string_view op) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<Parameter>, std::less<>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(op);
  if (found == known.end()) found = known.emplace(op, look_up(op)).first;
  return found->second;
}

const Argument* argument_of(const Node& node, std::string_view name) {
  const auto& parameters = parameters_of(node.op);
  if (parameters.size() != node.args.size()) return nullptr;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == name) return &node.args[i];
  return nullptr;
}

}  // namespace tandem
