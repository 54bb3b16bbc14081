#include "codegen/jit/elf_object.h"

#include "autograd/support/error.h"

#include <fmt/format.h>

#include <cstring>

namespace tandem::jit {

namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> found, Args&&... args) {
  throw Error("jit: expected a whole x86-64 ELF object, found " + fmt::format(found, std::forward<Args>(args)...));
}

}  // namespace

template <typename T>
std::vector<T> ElfObject::table(std::uint64_t offset, std::uint64_t count, const char* what) const {
  if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) {
    refuse("{} of {} entries at byte {} of {}", what, count, offset, bytes_.size());
  }
  std::vector<T> result(count);
  if (count > 0) std::memcpy(result.data(), bytes_.data() + offset, count * sizeof(T));  // copied, since a wrong offset need not be aligned
  return result;
}

template <typename T>
std::vector<T> ElfObject::entries(const Elf64_Shdr& section, const char* what) const {
  if (section.sh_entsize != sizeof(T)) refuse("{} with entries of {} bytes", what, section.sh_entsize);
  return table<T>(section.sh_offset, section.sh_size / sizeof(T), what);
}

ElfObject::ElfObject(const std::vector<char>& bytes) : bytes_(bytes) {
  const Elf64_Ehdr header = table<Elf64_Ehdr>(0, 1, "a header")[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) refuse("{} bytes without the ELF mark", bytes.size());
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64) {
    refuse("one for machine {}", header.e_machine);
  }
  if (header.e_type != ET_REL) refuse("file type {}, which is not relocatable", header.e_type);
  if (header.e_shentsize != sizeof(Elf64_Shdr)) refuse("section headers of {} bytes", header.e_shentsize);
  sections_ = table<Elf64_Shdr>(header.e_shoff, header.e_shnum, "a section table");
  read_symbols();
}

void ElfObject::read_symbols() {
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    if (sections_[i].sh_type != SHT_SYMTAB) continue;
    if (symbol_table_ != 0) refuse("two symbol tables");
    symbol_table_ = i;
    symbols_ = entries<Elf64_Sym>(sections_[i], "a symbol table");
    if (sections_[i].sh_link >= sections_.size()) refuse("a symbol table without names");
    strings_ = sections_[sections_[i].sh_link];
    content(strings_);  // within the object
  }
}

std::string ElfObject::name(const Elf64_Sym& symbol) const {
  if (symbol.st_name >= strings_.sh_size) refuse("a name at byte {} of {}", symbol.st_name, strings_.sh_size);
  const char* begin = content(strings_) + symbol.st_name;
  const std::size_t most = strings_.sh_size - symbol.st_name, size = strnlen(begin, most);
  if (size == most) refuse("a name without an end");
  return {begin, size};
}

std::vector<Elf64_Rela> ElfObject::relocations(const Elf64_Shdr& section) const {
  if (symbol_table_ == 0 || section.sh_link != symbol_table_) refuse("relocations without their symbol table");
  auto result = entries<Elf64_Rela>(section, "a relocation table");
  for (const Elf64_Rela& relocation : result) {
    if (ELF64_R_SYM(relocation.r_info) >= symbols_.size())
      refuse("a relocation to symbol {} of {}", ELF64_R_SYM(relocation.r_info), symbols_.size());
  }
  return result;
}

const char* ElfObject::content(const Elf64_Shdr& section) const {
  if (section.sh_type == SHT_NOBITS) refuse("names or content in a section that has none");
  if (section.sh_offset > bytes_.size() || section.sh_size > bytes_.size() - section.sh_offset) {
    refuse("a section of {} bytes at byte {} of {}", section.sh_size, section.sh_offset, bytes_.size());
  }
  return bytes_.data() + section.sh_offset;
}

}  // namespace tandem::jit
