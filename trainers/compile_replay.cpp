#include "trainers/compile_replay.h"

#include "autograd/autograd_graph.h"
#include "autograd/key.h"
#include "autograd/placeholder.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace tandem {
namespace {

std::vector<const Tape*> tapes_of(const std::vector<CallPath*>& paths) {
  std::vector<const Tape*> out;
  for (const auto* p : paths) out.push_back(&p->plan->tape());
  return out;
}

}  // namespace

CallReplay::CallReplay(const RecordRequest& request, const std::vector<CallPath*>& paths, RunInputs known, CallRun& run,
                       bool fail_on_recompile)
    : request_(request), paths_(paths), known_(std::move(known)), call_(request),
      replayer_(
          tapes_of(paths),
          [this, &run](const Tape& tape, RunInputs& out) {
            if (known_.storages.empty())
              run.bind_known(*path_of(tape).plan, out);
            else
              out = std::exchange(known_, {});
          },
          [this, &run](const Tape& tape, std::size_t first, std::size_t last) {
            undo_.keep(tape, first, last, replayer_.inputs());
            run.run_parts(path_of(tape).plan, replayer_, first, last);
          },
          [this, fail_on_recompile](const Tape&, const std::string& why) {
            refused_ = fail_on_recompile;
            if (refused_) throw Error("Options::fail_on_recompile: expected a call that a plan fits, found another: " + why);
            return call_.start(/*audit=*/true, /*data=*/replayer_.parts_run() == 0);
          }) {
  run.put_back_by([this] { put_back(); });
}

CallPath& CallReplay::path_of(const Tape& tape) const {
  return **std::find_if(paths_.begin(), paths_.end(), [&](const CallPath* p) { return &p->plan->tape() == &tape; });
}

void CallReplay::put_back() {
  call_.put_back_versions();
  for (auto c : replayer_.captured())
    if (c.version.enabled()) c.version.set_version(c.version_at_start);
}

bool CallReplay::fits(const Tape& tape, const detail::Flat& out) const {
  const auto& recorded = path_of(tape).plan->call();
  const auto& outputs = recorded.recording.graph.outputs;
  if (out.tensors.size() != outputs.size() || out.counts != recorded.counts) return false;
  for (std::size_t i = 0; i < outputs.size(); i++)
    if (!replayer_.stands_for(out.tensors[i], outputs[i])) return false;
  return fingerprint_of(out.tensors, call_.first_sequence(), request_.world) == recorded.autograd;
}

detail::Flat CallReplay::run() {
  detail::Flat out;
  try {
    ListenScope listen(replayer_);
    out = request_.callee(request_.inputs);
    SilenceScope quiet;
    if (!replayer_.diverged() && !replayer_.ends([&](const Tape& tape) { return fits(tape, out); }))
      replayer_.diverge("the function returned something else than in the recorded calls, or its backward would run something else");
  } catch (const std::exception& e) {
    if (refused_) put_back();
    if (replayer_.diverged() || replayer_.failed() || refused_) throw;
    if (is_placeholder_read(e)) return read_raw();
    replayer_.diverge("the function threw");
    throw;
  }
  if (!followed()) return out;
  out.tensors.clear();  // the plan's take their place
  replayer_.unveil();
  put_back();
  call_.lift({});
  return out;
}

/// It cannot be gone on with: the function is called once more, where nothing has been computed yet.
detail::Flat CallReplay::read_raw() {
  raw_ = true;
  raw_why_ = "the function reads the memory of a tensor that it computes (data_ptr, accessor)";
  replayer_.unveil();
  if (!undo_.take_back()) {
    replayer_.diverge(raw_why_);
    throw Error("compile: " + raw_why_ + ", expected ops, item() or to(): this call ended there");
  }
  raw_why_ += ": it was called a second time, eager";
  put_back();
  call_.lift({});
  return request_.callee(request_.inputs);
}

bool CallReplay::fill_kept() {
  const auto held = replayer_.held();
  const auto& g = path().plan->captured();
  auto delivered = [&](StorageId s) {
    auto on = [&](ValueId v) { return v >= 0 && g.values[std::size_t(v)].storage == s; };
    const auto& alive = path().plan->parts().alive;
    return std::any_of(g.outputs.begin(), g.outputs.end(), on) || std::any_of(alive.begin(), alive.end(), on);
  };
  if (std::all_of(held.begin(), held.end(), delivered)) return false;
  GeneratorScope generator(g, generator_state());
  replayer_.run_nodes(path().plan->tape().length(), private_copy(g, replayer_.inputs()));
  return true;
}

}  // namespace tandem
