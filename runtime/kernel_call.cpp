#include "runtime/kernel_call.h"

#include "autograd/support/error.h"
#include "runtime/packing.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace tandem {

KernelCall::KernelCall(const Graph& graph, const Program& program, const Call& call, const jit::Module& module, void* workspace) {
  auto* partials = static_cast<char*>(workspace);
  for (const auto& l : call.launches) {
    const auto& kernel = program.kernels[std::size_t(l.kernel)];
    auto& mine = launches_.emplace_back();
    auto function = [&](const std::string& name) {
      if (auto* f = module.find(name)) return f;
      throw Error("jit: expected a function '" + name + "' in the compiled code, found none");
    };
    mine.run = reinterpret_cast<Run>(function(kernel.name));
    mine.units = l.units;
    mine.chunks = l.chunks;
    mine.unit_elements = kernel.unit_elements;
    for (ValueId v : l.operands) {
      const auto& value = graph.values[std::size_t(v)];
      mine.operands.push_back({value.storage, value.offset * std::int64_t(c10::elementSize(value.dtype))});
    }
    mine.scalars = l.scalars;
    mine.p.resize(l.operands.size());
    mine.s.resize(l.scalars.size());
    elements_ += l.units * kernel.unit_elements;
    if (kernel.partial_bytes == 0) continue;
    mine.finish = reinterpret_cast<Finish>(function(kernel.name + "_finish"));
    mine.p.push_back(partials);
    partials += (kernel.partial_bytes * l.chunks + alignment - 1) / alignment * alignment;
  }
  make_tasks();
}

void KernelCall::make_tasks() {
  for (std::size_t i = 0; i < launches_.size(); i++) {
    const auto& l = launches_[i];
    // Without partial sums the split is free: by size only, so that any number of threads finds work.
    const auto parts =
        l.finish ? l.chunks
                 : std::clamp<std::int64_t>(l.units * l.unit_elements / elements_per_thread, 1, std::max<std::int64_t>(l.units, 1));
    for (std::int64_t c = 0; c < parts; c++)
      tasks_.push_back({std::int32_t(i), l.units * c / parts, l.units * (c + 1) / parts, l.finish ? c : 0});
  }
}

void KernelCall::run(const Slots& slots, const std::vector<double>& scalars) {
  for (auto& l : launches_) {
    for (std::size_t i = 0; i < l.operands.size(); i++) l.p[i] = slots.base(l.operands[i].storage) + l.operands[i].byte_offset;
    for (std::size_t i = 0; i < l.scalars.size(); i++) l.s[i] = scalars[std::size_t(l.scalars[i])];
  }
  auto run_tasks = [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; i++) {
      const auto& t = tasks_[std::size_t(i)];
      const auto& l = launches_[std::size_t(t.launch)];
      l.run(l.p.data(), l.s.data(), t.begin, t.end, t.chunk);
    }
  };
  const auto tasks = std::int64_t(tasks_.size());
  if (elements_ < 2 * elements_per_thread || at::get_num_threads() == 1)
    run_tasks(0, tasks);
  else
    at::parallel_for(0, tasks, 1, run_tasks);
  for (const auto& l : launches_)
    if (l.finish) l.finish(l.p.data(), l.s.data(), l.chunks);
}

}  // namespace tandem
