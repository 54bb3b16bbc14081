// A relocatable object for x86-64 as it stands in memory. Nothing in it is believed: each read is checked against the bytes that are there.
#pragma once

#include <elf.h>

#include <string>
#include <vector>

namespace tandem::jit {

class ElfObject {
 public:
  /// Keeps a reference to the bytes. Throws Error when the headers or tables do not hold.
  explicit ElfObject(const std::vector<char>& bytes);

  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  const std::vector<Elf64_Sym>& symbols() const { return symbols_; }

  std::string name(const Elf64_Sym& symbol) const;
  std::vector<Elf64_Rela> relocations(const Elf64_Shdr& section) const;
  const char* content(const Elf64_Shdr& section) const;

 private:
  template <typename T>
  std::vector<T> table(std::uint64_t offset, std::uint64_t count, const char* what) const;
  template <typename T>
  std::vector<T> entries(const Elf64_Shdr& section, const char* what) const;
  void read_symbols();

  const std::vector<char>& bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::size_t symbol_table_ = 0;  // its section; 0: none
  Elf64_Shdr strings_{};
};

}  // namespace tandem::jit
