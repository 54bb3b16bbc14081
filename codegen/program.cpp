#include "codegen/program.h"

#include "autograd/support/error.h"
#include "codegen/emit.h"
#include "codegen/lower.h"
#include "codegen/prelude.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <unordered_map>

namespace tandem {
namespace {

/// Who reads which storage, at which version, from where.
class Readers {
 public:
  Readers(const Graph& graph, const Partition& partition) : reads_(graph.storages.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) nodes_[graph.nodes[i].id] = &graph.nodes[i];
    for (std::size_t g = 0; g < partition.groups.size(); ++g) {
      if (partition.groups[g].kind == Group::Kind::view) continue;  // who reads the view's result reads the storage
      for (NodeId n : partition.groups[g].nodes)
        for_each_value(node(n).args, [&](ValueId v) { add(graph, v, static_cast<std::int64_t>(g)); });
    }
    add(graph, graph.loss, end);
    add(graph, graph.grad_norm, end);
    for (ValueId v : graph.outputs) add(graph, v, end);
    for (const Gradient& g : graph.gradients) {
      add(graph, g.value, end);
      add(graph, g.before, end);
    }
    for (std::size_t s = 0; s < reads_.size(); ++s)
      if (graph.storages[s].role != Role::internal) reads_[s].push_back({end, std::numeric_limits<std::int32_t>::max()});
  }

  const Node& node(NodeId id) const { return *nodes_.at(id); }

  bool outside(std::size_t group, StorageId storage, std::int32_t version) const {
    for (const Read& r : reads_[static_cast<std::size_t>(storage)])
      if (r.group != static_cast<std::int64_t>(group) && r.version >= version) return true;
    return false;
  }

 private:
  static constexpr std::int64_t end = -1;  // of the step

  struct Read {
    std::int64_t group;
    std::int32_t version;
  };

  void add(const Graph& graph, ValueId v, std::int64_t group) {
    if (v < 0) return;
    const Value& value = graph.values[static_cast<std::size_t>(v)];
    reads_[static_cast<std::size_t>(value.storage)].push_back({group, value.version});
  }

  std::vector<std::vector<Read>> reads_;
  std::unordered_map<NodeId, const Node*> nodes_;
};

Call::Kind kind_of(Group::Kind kind) {
  switch (kind) {
    case Group::Kind::library: return Call::Kind::library;
    case Group::Kind::view: return Call::Kind::view;
    case Group::Kind::once: return Call::Kind::once;
    case Group::Kind::kernel: return Call::Kind::kernel;
  }
  throw InternalError(fmt::format("a group has the unknown kind {}", static_cast<int>(kind)));
}

/// "mul.Tensor add_.Tensor", shortened after a few.
std::string covered(const std::vector<Member>& members) {
  constexpr std::size_t most = 12;
  std::string out;
  for (std::size_t i = 0; i < members.size() && i < most; ++i) {
    const std::string& op = members[i].node->op;
    const std::size_t scope = op.rfind("::");
    out += (i > 0 ? " " : "") + (scope == std::string::npos ? op : op.substr(scope + 2));
  }
  if (members.size() > most) out += fmt::format(" and {} more", members.size() - most);
  for (char& c : out)
    if (c == '\n' || c == '\r' || c == '\\') c = ' ';  // the comment stays on its line
  return out;
}

class Generator {
 public:
  Generator(const Graph& graph, const Partition& partition) : graph_(graph), partition_(partition), readers_(graph, partition) {}

  Program run() {
    program_.calls.reserve(graph_.nodes.size());
    for (std::size_t g = 0; g < partition_.groups.size(); ++g) {
      const Group& group = partition_.groups[g];
      if (group.kind == Group::Kind::kernel) {
        kernel(group, g);
        continue;
      }
      for (NodeId node : group.nodes) {
        Call& call = program_.calls.emplace_back();
        call.kind = kind_of(group.kind);
        call.node = node;
      }
    }
    return std::move(program_);
  }

 private:
  void kernel(const Group& group, std::size_t g) {
    std::vector<Member> members;
    std::vector<const Node*> nodes;
    for (NodeId id : group.nodes) nodes.push_back(&readers_.node(id));
    std::string why;
    auto nests = nests_of(graph_, nodes, &why);
    if (!nests) throw InternalError(why);
    for (std::size_t i = 0; i < nodes.size(); ++i) members.push_back({nodes[i], std::move((*nests)[i])});
    Lowered lowered = lower(graph_, members, [&](StorageId s, std::int32_t version) { return readers_.outside(g, s, version); });
    Launch launch;
    launch.kernel = kernel_of(lowered.loop, members);
    launch.units = lowered.units;
    launch.chunks = lowered.chunks;
    launch.operands = std::move(lowered.operands);
    launch.scalars = std::move(lowered.scalars);
    launch.nodes = group.nodes;
    if (!group.joined || program_.calls.empty() || program_.calls.back().kind != Call::Kind::kernel)
      program_.calls.emplace_back().kind = Call::Kind::kernel;
    program_.calls.back().node = group.nodes.back();
    program_.calls.back().launches.push_back(std::move(launch));
  }

  /// Equal loops have equal sources but for the name.
  std::int32_t kernel_of(const Loop& loop, const std::vector<Member>& members) {
    std::string text = print(loop);
    const auto number = static_cast<std::int32_t>(program_.kernels.size());
    const auto [at, fresh] = known_.try_emplace(text, number);
    if (!fresh) return at->second;
    Kernel& kernel = program_.kernels.emplace_back();
    kernel.name = fmt::format("k{}", number);
    Emitted emitted = emit(loop, kernel.name);
    kernel.loop = std::move(text);
    kernel.source = fmt::format("// {}\n{}", covered(members), emitted.source);
    kernel.unit_elements = emitted.unit_elements;
    kernel.partial_bytes = emitted.partial_bytes;
    return number;
  }

  const Graph& graph_;
  const Partition& partition_;
  const Readers readers_;
  std::map<std::string, std::int32_t> known_;  // by the text of the loop
  Program program_;
};

}  // namespace

Program generate(const Graph& graph, const Partition& partition) {
  if (std::string broken = validate(graph, partition); !broken.empty())
    throw InternalError(fmt::format("the partition does not hold: {}", broken));
  return Generator(graph, partition).run();
}

std::string c_source(const Program& program) {
  std::string out(c_prelude());
  for (const Kernel& k : program.kernels) out += "\n" + k.source;
  return out;
}

}  // namespace tandem
