// All nodes of a small graph as one generated kernel: lowered, compiled, run on memory of its own, compared with the interpreter.
#pragma once

#include "autograd/interpret.h"
#include "codegen/emit.h"
#include "codegen/jit/jit.h"
#include "codegen/lower.h"
#include "codegen/prelude.h"
#include "partitioner/nest.h"
#include "tests/support/graph_maker.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::test {

/// Whether the graph's results hold the storage: an output, or memory that exists outside.
inline bool is_wanted(const Graph& g, StorageId s) {
  if (g.storages[static_cast<std::size_t>(s)].role != Role::internal) return true;
  return std::any_of(g.outputs.begin(), g.outputs.end(), [&](ValueId v) { return g.values[static_cast<std::size_t>(v)].storage == s; });
}

inline std::vector<Member> members_of(const Graph& g) {
  std::vector<Member> members;
  for (const Node& n : g.nodes) {
    if (n.op == "aten::view" || n.op == "aten::t" || n.op == "aten::unsqueeze") continue;
    std::string why;
    auto nest = nest_of(g, n, &why);
    if (!nest) throw std::runtime_error(why);
    members.push_back({&n, *nest});
  }
  return members;
}

inline Lowered lower_all(const Graph& g) {
  return lower(g, members_of(g), [&](StorageId s, std::int32_t) { return is_wanted(g, s); });
}

inline at::Tensor copy_of(const at::Tensor& t) {
  auto out = at::empty_strided(t.sizes(), t.strides(), t.options());
  std::memcpy(out.data_ptr(), t.data_ptr(), t.storage().nbytes());
  return out;
}

/// The memory that a run works on: copies of the inputs, everything else filled with a pattern that is no sensible number.
inline RunInputs memory_for(const Graph& g, const std::map<ValueId, at::Tensor>& inputs, const std::vector<double>& scalars,
                            bool internal) {
  RunInputs in;
  in.scalars = scalars;
  in.storages.resize(g.storages.size());
  for (const auto& [v, t] : inputs)
    in.storages[static_cast<std::size_t>(g.values[static_cast<std::size_t>(v)].storage)].storage = copy_of(t).storage();
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (in.storages[s].storage || !internal) continue;
    auto raw = at::empty({std::max<std::int64_t>(g.storages[s].bytes, 1)}, at::kByte);
    raw.fill_(0xcd);
    in.storages[s].storage = raw.storage();
  }
  return in;
}

class Fused {
 public:
  explicit Fused(const Graph& g, const jit::Settings& settings = {}) : graph(g), lowered(lower_all(g)), emitted(emit(lowered.loop, "k")) {
    module = jit::compile(std::string(c_prelude()) + emitted.source, settings);
    kernel_ = reinterpret_cast<void (*)(void* const*, const double*, long, long, long)>(module->find("k"));
    finish_ = reinterpret_cast<void (*)(void* const*, const double*, long)>(module->find("k_finish"));
  }

  /// Chunks run in the order of the list, each in one call; without totals every `piece` units are a call.
  RunInputs run(const std::map<ValueId, at::Tensor>& inputs, const std::vector<double>& scalars = {}, std::int64_t chunks = 0,
                bool backwards = false, std::int64_t piece = 0) {
    RunInputs memory = memory_for(graph, inputs, scalars, true);
    std::vector<void*> p;
    for (ValueId v : lowered.operands) {
      const Value& value = graph.values[static_cast<std::size_t>(v)];
      p.push_back(static_cast<char*>(memory.storages[static_cast<std::size_t>(value.storage)].storage.mutable_data()) +
                  value.offset * static_cast<std::int64_t>(c10::elementSize(value.dtype)));
    }
    std::vector<double> s;
    for (std::int32_t k : lowered.scalars) s.push_back(scalars.at(static_cast<std::size_t>(k)));
    if (chunks == 0) chunks = lowered.chunks;
    std::vector<char> work(static_cast<std::size_t>(emitted.partial_bytes * chunks + 64), static_cast<char>(0xcd));
    const auto aligned = (reinterpret_cast<std::uintptr_t>(work.data()) + 63) / 64 * 64;
    p.push_back(reinterpret_cast<void*>(aligned));
    const std::int64_t units = lowered.units;
    if (emitted.partial_bytes == 0) {
      if (piece == 0) piece = units;
      for (std::int64_t at = 0; at < units; at += piece) kernel_(p.data(), s.data(), at, std::min(at + piece, units), 0);
      return memory;
    }
    for (std::int64_t k = 0; k < chunks; ++k) {
      const std::int64_t c = backwards ? chunks - 1 - k : k;
      kernel_(p.data(), s.data(), units * c / chunks, units * (c + 1) / chunks, c);
    }
    finish_(p.data(), s.data(), chunks);
    return memory;
  }

  at::Tensor value(const RunInputs& memory, ValueId v) const {
    const Value& value = graph.values[static_cast<std::size_t>(v)];
    return make_tensor(value, memory.storages[static_cast<std::size_t>(value.storage)].storage);
  }

  Graph graph;
  Lowered lowered;
  Emitted emitted;
  std::shared_ptr<const jit::Module> module;

 private:
  void (*kernel_)(void* const*, const double*, long, long, long) = nullptr;
  void (*finish_)(void* const*, const double*, long) = nullptr;
};

/// What eager's kernels make of the same graph.
class Eager {
 public:
  Eager(const Graph& g, const std::map<ValueId, at::Tensor>& inputs, const std::vector<double>& scalars = {}) : interpreter_(g) {
    interpreter_.run(memory_for(g, inputs, scalars, false));
  }
  at::Tensor value(ValueId v) { return interpreter_.value(v); }

 private:
  Interpreter interpreter_;
};

}  // namespace tandem::test
