// Callables of tensors, with their types erased.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem {

namespace detail {
using Inputs = std::vector<at::Tensor>;
using LossFunction = std::function<std::vector<at::Tensor>(const Inputs&)>;
inline constexpr std::size_t max_inputs = 8;

template <class F, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void(I), std::declval<const at::Tensor&>()))...>;
}

inline std::vector<at::Tensor> as_list(at::Tensor loss) { return {std::move(loss)}; }
template <class... T>
std::vector<at::Tensor> as_list(std::tuple<T...> t) {
  return std::apply([](auto&&... v) { return std::vector<at::Tensor>{at::Tensor(v)...}; }, std::move(t));
}
inline std::vector<at::Tensor> as_list(std::pair<at::Tensor, at::Tensor> p) { return {std::move(p.first), std::move(p.second)}; }
inline std::vector<at::Tensor> as_list(std::vector<at::Tensor> v) { return v; }

/// Erases the loss function's type; `arities` gets bit n for each number n of tensors that it can be called with.
template <std::size_t N = 0, class F>
void add_arities(const std::shared_ptr<F>& f, std::vector<LossFunction>& table) {
  if constexpr (takes<F>(std::make_index_sequence<N>())) {
    table.push_back([f](const Inputs& in) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        if constexpr (std::is_void_v<decltype((*f)(in[I]...))>) {
          (*f)(in[I]...);
          return Inputs{};
        } else {
          return as_list((*f)(in[I]...));
        }
      }
      (std::make_index_sequence<N>());
    });
  } else {
    table.emplace_back();
  }
  if constexpr (N < max_inputs) add_arities<N + 1>(f, table);
}

/// A callable of 0 to max_inputs tensors.
template <class F, std::size_t N = 0>
constexpr bool takes_tensors() {
  if constexpr (takes<F>(std::make_index_sequence<N>()))
    return true;
  else if constexpr (N < max_inputs)
    return takes_tensors<F, N + 1>();
  else
    return false;
}
template <class F>
concept is_body = takes_tensors<F>();

template <class F>
std::vector<LossFunction> erase(F f) {
  std::vector<LossFunction> table;
  add_arities(std::make_shared<F>(std::move(f)), table);
  return table;
}

template <class M>
std::shared_ptr<torch::nn::Module> module_of(M& model) {
  if constexpr (requires { model.ptr(); }) {  // a ModuleHolder such as torch::nn::Sequential
    return model.is_empty() ? std::shared_ptr<torch::nn::Module>() : std::shared_ptr<torch::nn::Module>(model.ptr());
  } else if constexpr (std::is_base_of_v<torch::nn::Module, M>) {
    return std::shared_ptr<torch::nn::Module>(std::shared_ptr<void>(), &model);  // the caller keeps it alive
  } else {
    return model;
  }
}
}  // namespace detail

}  // namespace tandem
