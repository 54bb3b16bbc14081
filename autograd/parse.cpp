// The parser of a Graph's text form. It never recurses on what the text says and takes memory only for what it has read. What it accepts
// beyond print()'s own form (order, spelling of numbers) is refused by one comparison at the end.
#include "autograd/cursor.h"
#include "autograd/text.h"

namespace tandem {

namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser : Cursor {
 public:
  using Cursor::Cursor;

  Graph run() && {
    expect("tandem graph 1");
    expect("\n");
    if (accept("made_by ")) {
      g_.made_by = string();
      expect("\n");
    }
    while (!done()) {
      line();
      expect("\n");
    }
    return std::move(g_);
  }

 private:
  /// The number of the thing that is declared here: dense and in order, so a number never makes a list longer than the text does.
  void next_id(std::string_view sigil, std::size_t next) {
    std::size_t from = at();
    expect(sigil);
    if (integer<std::int64_t>() != static_cast<std::int64_t>(next)) fail_at(from, fmt::format("{}{}", sigil, next));
  }

  std::int32_t reference(std::string_view sigil, std::size_t declared, std::string_view what) {
    std::size_t from = at();
    if (!accept(sigil)) fail(what);
    auto id = integer<std::int64_t>();
    if (id < 0 || id >= static_cast<std::int64_t>(declared)) fail_at(from, fmt::format("{} that is declared above", what));
    return static_cast<std::int32_t>(id);
  }

  StorageId storage_id() { return reference("s", g_.storages.size(), "a storage"); }
  ValueId value_id() { return accept("undefined") ? -1 : reference("%", g_.values.size(), "a value"); }
  std::int32_t scalar_id() { return reference("$", g_.scalars.size(), "a scalar"); }

  Argument argument() {
    Argument a;
    if (peek() == '%' || peek() == 'u') {
      a.kind = Argument::Kind::tensor;
      a.values.push_back(value_id());
    } else if (accept("{")) {
      a.kind = Argument::Kind::tensors;
      elements("}", [&] { a.values.push_back(value_id()); });
    } else {
      a.wrapped = accept("wrapped ");
      if (peek() == '$') {
        a.scalar = scalar_id();
        expect("=");
      }
      a.constant = constant();
    }
    return a;
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> list;
    expect("(");
    elements(")", [&] { list.push_back(argument()); });
    return list;
  }

  void line() {
    if (accept("loss "))
      g_.loss = value_id();
    else if (accept("output "))
      g_.outputs.push_back(value_id());
    else if (accept("gradient "))
      gradient();
    else if (accept("norm "))
      g_.grad_norm = value_id();
    else if (accept("storage "))
      storage();
    else if (accept("scalar "))
      scalar();
    else if (peek() == '%')
      value();
    else if (accept("n"))
      node();
    else
      fail("a storage, a scalar, a value, a node, a loss, an output, a gradient or a norm");
  }

  Role role() {
    std::size_t from = at();
    std::string_view name = word([](char c) { return is_lower(c) || c == '_'; });
    for (Role r :
         {Role::internal, Role::input, Role::parameter, Role::gradient, Role::buffer, Role::optimizer_state, Role::captured, Role::carried})
      if (name == name_of(r)) return r;
    fail_at(from, "a role (internal, input, parameter, gradient, buffer, optimizer_state, captured or carried)");
  }

  Side side() {
    std::size_t from = at();
    std::string_view name = word(is_lower);
    for (Side s : {Side::forward, Side::backward, Side::update})
      if (name == name_of(s)) return s;
    fail_at(from, "forward, backward or update");
  }

  void storage() {
    Storage s;
    next_id("s", g_.storages.size());
    expect(" ");
    s.role = role();
    expect(" ");
    if (is_digit(peek()) || peek() == '-') {
      s.index = integer<std::int32_t>();
      expect(" ");
      s.name = string();
      expect(" ");
    }
    s.device = device();
    expect(" ");
    s.bytes = integer<std::int64_t>();
    g_.storages.push_back(std::move(s));
  }

  void scalar() {
    RuntimeScalar s;
    next_id("$", g_.scalars.size());
    expect(" ");
    s.name = string();
    expect(" ");
    s.recorded = floating();
    s.integral = accept(" integral");
    g_.scalars.push_back(std::move(s));
  }

  void value() {
    Value v;
    next_id("%", g_.values.size());
    expect(" = ");
    v.storage = storage_id();
    expect("@");
    v.version = integer<std::int32_t>();
    expect(" ");
    std::size_t from = at();
    std::string_view type = word([](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
    if (!parse_dtype(type, v.dtype)) fail_at(from, "a dtype");
    expect(" ");
    v.sizes = integers();
    expect(" ");
    v.strides = integers();
    expect(" +");
    v.offset = integer<std::int64_t>();
    v.conj = accept(" conj");
    v.neg = accept(" neg");
    v.zero = accept(" zero");
    g_.values.push_back(std::move(v));
  }

  void mark(Node& n) {
    if (accept("writes"))
      while (accept(" ")) n.writes.push_back(storage_id());
    else if (accept("random"))
      n.effects.random = true;
    else if (accept("collective"))
      n.effects.collective = true;
    else if (accept("opaque"))
      n.effects.opaque = true;
    else if (accept("host_read"))
      n.effects.host_read = true;
    else if (accept("folded"))
      n.folded = true;
    else if (accept("stream "))
      n.stream = integer<std::int32_t>();
    else if (accept("workspace "))
      n.workspace = integer<std::int64_t>();
    else if (accept("for "))
      n.ran_for = string();
    else if (accept("made"))
      while (accept(" ")) n.created.push_back(string());
    else
      fail("a mark (writes, random, collective, opaque, host_read, folded, stream, workspace, for or made)");
  }

  void node() {
    Node n;
    n.id = integer<std::int32_t>();
    expect(" ");
    n.side = side();
    expect(" ");
    n.results = arguments();
    expect(" = ");
    if (peek() == '"') {
      n.op = string();
    } else {
      n.op = word(is_op_char);
      if (n.op.empty()) fail("the name of an op");
    }
    n.args = arguments();
    if (accept(" {")) {
      do mark(n);
      while (accept("; "));
      expect("}");
    }
    g_.nodes.push_back(std::move(n));
  }

  void gradient() {
    Gradient x;
    x.leaf = integer<std::int32_t>();
    expect(" ");
    x.name = string();
    expect(" ");
    x.value = value_id();
    if (accept(" before ")) x.before = value_id();
    g_.gradients.push_back(std::move(x));
  }

  Graph g_;
};

}  // namespace

Graph parse_graph(std::string_view text) {
  Graph g = Parser(text).run();
  expect_printed_form(text, print(g));
  return g;
}

}  // namespace tandem
