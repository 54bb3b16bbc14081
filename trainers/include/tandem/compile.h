// Any function of tensors, or the forward of a module, as plans behind an ordinary autograd edge.
#pragma once

#include "tandem/function.h"
#include "tandem/options.h"
#include "tandem/report.h"

#include <concepts>

namespace tandem {

namespace detail {

/// What a function returned: the tensors of nested tuples, pairs and vectors in order, and the length of each vector.
struct Flat {
  std::vector<at::Tensor> tensors;
  std::vector<std::size_t> counts;
};
class Unpacker {
 public:
  explicit Unpacker(const Flat& flat) : flat_(flat) {}
  at::Tensor tensor() { return flat_.tensors[tensor_++]; }
  std::size_t count() { return flat_.counts[count_++]; }

 private:
  const Flat& flat_;
  std::size_t tensor_ = 0, count_ = 0;
};

template <class T>
struct Packing {
  static_assert(std::same_as<T, at::Tensor>, "tandem::compile: the function returns a tensor, or a tuple, pair or vector of such");
  static void flatten(const at::Tensor& t, Flat& out) { out.tensors.push_back(t); }
  static at::Tensor rebuild(Unpacker& from) { return from.tensor(); }
};
template <class... T>
struct Packing<std::tuple<T...>> {
  static void flatten(const std::tuple<T...>& t, Flat& out) {
    std::apply([&](const auto&... x) { (Packing<std::decay_t<decltype(x)>>::flatten(x, out), ...); }, t);
  }
  static std::tuple<T...> rebuild(Unpacker& from) { return std::tuple<T...>{Packing<T>::rebuild(from)...}; }
};
template <class A, class B>
struct Packing<std::pair<A, B>> {
  static void flatten(const std::pair<A, B>& p, Flat& out) {
    Packing<A>::flatten(p.first, out);
    Packing<B>::flatten(p.second, out);
  }
  static std::pair<A, B> rebuild(Unpacker& from) { return {Packing<A>::rebuild(from), Packing<B>::rebuild(from)}; }
};
template <class T>
struct Packing<std::vector<T>> {
  static void flatten(const std::vector<T>& v, Flat& out) {
    out.counts.push_back(v.size());
    for (const auto& x : v) Packing<T>::flatten(x, out);
  }
  static std::vector<T> rebuild(Unpacker& from) {
    std::vector<T> v;
    for (auto n = from.count(); n > 0; n--) v.push_back(Packing<T>::rebuild(from));
    return v;
  }
};

/// A function with its type erased, for one number of tensors.
struct Callee {
  std::shared_ptr<void> function;
  Flat (*invoke)(void* function, const Inputs& inputs);
  Flat operator()(const Inputs& inputs) const { return invoke(function.get(), inputs); }
};

template <class F, std::size_t N>
Flat invoke(void* function, const Inputs& in) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    Flat out;
    decltype(auto) result = (*static_cast<F*>(function))(in[I]...);
    Packing<std::decay_t<decltype(result)>>::flatten(result, out);
    return out;
  }
  (std::make_index_sequence<N>());
}

template <class T>
using AsTensor = const at::Tensor&;

/// What all copies of a Compiled share.
class CompiledFunction {
 public:
  CompiledFunction(std::shared_ptr<torch::nn::Module> module, Options options);
  Flat run(const Callee& callee, const Inputs& inputs);
  Report report() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Calls the forward of what `module` points to.
template <class Pointer>
struct Forward {
  Pointer module;
  template <class... T>
  auto operator()(const T&... inputs) -> decltype(module->forward(inputs...)) {
    return module->forward(inputs...);
  }
};

}  // namespace detail

/// A function that runs as plans: what compile() returns. Copies share their plans. Calls from several threads take turns.
template <class F>
class Compiled {
 public:
  Compiled(F function, std::shared_ptr<torch::nn::Module> module, Options options)
      : function_(std::make_shared<F>(std::move(function))), shared_(std::move(module), std::move(options)) {}

  /// Returns what the function returns. Throws what it throws.
  template <class... T>
  requires(std::convertible_to<const T&, at::Tensor>&&...) && std::invocable<F&, detail::AsTensor<T>...> auto operator()(
                                                                  const T&... inputs) {
    using Result = std::decay_t<std::invoke_result_t<F&, detail::AsTensor<T>...>>;
    const auto flat = shared_.run({function_, &detail::invoke<F, sizeof...(T)>}, detail::Inputs{at::Tensor(inputs)...});
    detail::Unpacker from(flat);
    return detail::Packing<Result>::rebuild(from);
  }

  Report report() const { return shared_.report(); }

 private:
  std::shared_ptr<F> function_;
  detail::CompiledFunction shared_;
};

/// Makes `fn` a function that runs as a forward plan and, behind an ordinary autograd edge, backward plans: backward(), autograd::grad, hooks,
/// retain_graph and gradient accumulation work as in eager, and so do its place in a larger model and inference under NoGradGuard.
///
/// `fn`: a callable of tensors that returns a tensor, or a tuple, pair or vector of such; a ModuleHolder or a shared_ptr to a module, or a module by
/// reference, which the caller keeps alive: then its forward(). The first calls run eager and are recorded; once two recordings agree and the
/// recorded graph was proved equal to eager, forward and backward, plans take over; otherwise calls stay eager and `report()` says why.
///
/// `fn` is called each time: its ops are compared with the recorded ones and not computed. Numbers that change are read in each call; a branch, or
/// another number of turns in a loop, goes on in eager and gets a plan of its own (Options::max_paths); a host read of what `fn` computes is a graph
/// break: the plan up to there runs first. Where a backward has to run `fn` again (create_graph), it must do what it did in the forward: else Error.
/// Of the options those of the loss, the gradients and the update have no meaning here. Throws Error for options that make no sense.
template <class F>
auto compile(F&& fn, Options options = {}) {
  using T = std::decay_t<F>;
  if constexpr (std::is_base_of_v<torch::nn::Module, T>) {
    static_assert(std::is_lvalue_reference_v<F>, "tandem::compile: a module by reference is not copied, the caller keeps it alive");
    return Compiled<detail::Forward<std::remove_reference_t<F>*>>({&fn}, detail::module_of(fn), std::move(options));
  } else if constexpr (
      requires { fn.ptr(); } || requires { typename T::element_type; }) {
    auto module = detail::module_of(fn);
    if (!module) throw Error("compile: expected a module, found an empty holder");
    return Compiled<detail::Forward<T>>({fn}, std::move(module), std::move(options));
  } else {
    return Compiled<T>(T(std::forward<F>(fn)), nullptr, std::move(options));
  }
}

}  // namespace tandem
