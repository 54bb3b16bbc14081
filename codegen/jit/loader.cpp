#include "codegen/jit/loader.h"

#include "autograd/support/error.h"
#include "codegen/jit/elf_object.h"
#include "codegen/jit/memory_image.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

namespace tandem::jit {

namespace {

constexpr std::uint64_t stub_bytes = 16;

class LoadedModule final : public Module {
 public:
  explicit LoadedModule(const std::array<std::uint64_t, region_count>& bytes) : image(bytes) {}

  void* find(const std::string& symbol) const override {
    const auto found = functions.find(symbol);
    return found == functions.end() ? nullptr : found->second;
  }

  MemoryImage image;
  std::unordered_map<std::string, void*> functions;
};

struct Place {
  Region region;
  std::uint64_t offset;
};

/// One object on its way into memory. Code calls what lies outside through stubs, as that may be out of reach of a 32-bit offset.
class Loading {
 public:
  explicit Loading(const std::vector<char>& bytes) : object_(bytes), places_(object_.sections().size()) {}

  std::unique_ptr<Module> run() {
    place_sections();
    copy_sections();
    for (const Elf64_Shdr& section : object_.sections()) {
      if (section.sh_type == SHT_RELA && target_of(section)) relocate(section);
      if (section.sh_type == SHT_REL && target_of(section)) throw Error("jit: expected relocations with addends, found some without");
    }
    export_functions();
    module_->image.seal();
    return std::move(module_);
  }

 private:
  void place_sections();
  void copy_sections();
  void relocate(const Elf64_Shdr& section);
  void apply(const Elf64_Rela& relocation, char* where);
  void export_functions();
  std::optional<std::size_t> target_of(const Elf64_Shdr& relocations) const;
  std::uint64_t address_of(std::size_t symbol);
  std::uint64_t external(const std::string& name);
  std::uint64_t stub(std::size_t symbol);
  std::uint64_t table_entry(std::size_t symbol);
  bool outside(std::size_t symbol) const { return object_.symbols()[symbol].st_shndx == SHN_UNDEF; }

  ElfObject object_;
  std::vector<std::optional<Place>> places_;  // of each section that is loaded
  std::uint64_t stubs_ = 0, table_ = 0;       // offsets of the stubs in the code, of the table of addresses in the constants
  std::unique_ptr<LoadedModule> module_;
  std::unordered_map<std::string, std::uint64_t> externals_;
};

Region region_of(const Elf64_Shdr& section) {
  const bool code = section.sh_flags & SHF_EXECINSTR, writable = section.sh_flags & SHF_WRITE;
  if (code && writable) throw Error("jit: expected code that is not writable, found a section that is both");
  if (section.sh_flags & SHF_TLS) throw Error("jit: expected code without thread-local variables, found some");
  return code ? Region::code : writable ? Region::data : Region::constants;
}

void Loading::place_sections() {
  std::array<std::uint64_t, region_count> bytes{};
  const auto grow = [&](Region region, std::uint64_t size, std::uint64_t align) {
    std::uint64_t& end = bytes[static_cast<std::size_t>(region)];
    const std::uint64_t begin = round_up(end, align);
    if (size > largest_image - begin)
      throw Error(fmt::format("jit: expected at most {} bytes of code and data, found more", largest_image));
    end = begin + size;
    return begin;
  };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Elf64_Shdr& section = object_.sections()[i];
    if (!(section.sh_flags & SHF_ALLOC)) continue;
    const std::uint64_t align = std::max<std::uint64_t>(section.sh_addralign, 1);
    if (!std::has_single_bit(align) || align > page)
      throw Error(fmt::format("jit: expected an alignment of at most {}, found {}", page, align));
    const Region region = region_of(section);
    places_[i] = Place{region, grow(region, section.sh_size, align)};
  }
  const std::size_t code_bytes = bytes[static_cast<std::size_t>(Region::code)], symbols = object_.symbols().size();
  stubs_ = grow(Region::code, stub_bytes * symbols, stub_bytes);
  table_ = grow(Region::constants, sizeof(std::uint64_t) * symbols, sizeof(std::uint64_t));
  module_ = std::make_unique<LoadedModule>(bytes);
  module_->code_bytes = code_bytes;
}

void Loading::copy_sections() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Elf64_Shdr& section = object_.sections()[i];
    if (!places_[i] || section.sh_type == SHT_NOBITS || section.sh_size == 0) continue;
    std::memcpy(module_->image.at(places_[i]->region, places_[i]->offset), object_.content(section), section.sh_size);
  }
}

/// The loaded section that the relocations change, if it is one.
std::optional<std::size_t> Loading::target_of(const Elf64_Shdr& relocations) const {
  if (relocations.sh_info >= places_.size())
    throw Error(fmt::format("jit: expected relocations of a section, found those of section {}", relocations.sh_info));
  return places_[relocations.sh_info] ? std::optional<std::size_t>(relocations.sh_info) : std::nullopt;
}

std::uint64_t Loading::external(const std::string& name) {
  std::uint64_t& address = externals_[name];
  if (address == 0) address = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, name.c_str()));
  if (address == 0) throw Error(fmt::format("jit: expected the functions that the code calls in this process, found no \"{}\"", name));
  return address;
}

std::uint64_t Loading::address_of(std::size_t index) {
  const Elf64_Sym& symbol = object_.symbols()[index];
  if (symbol.st_shndx == SHN_UNDEF) return external(object_.name(symbol));
  if (symbol.st_shndx == SHN_ABS) return symbol.st_value;
  if (symbol.st_shndx >= places_.size() || !places_[symbol.st_shndx] || ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC) {
    throw Error(fmt::format("jit: expected \"{}\" in a section that is loaded, found section {}", object_.name(symbol), symbol.st_shndx));
  }
  if (symbol.st_value > object_.sections()[symbol.st_shndx].sh_size) {
    throw Error(fmt::format("jit: expected \"{}\" within its section, found it at byte {}", object_.name(symbol), symbol.st_value));
  }
  const Place& place = *places_[symbol.st_shndx];
  return reinterpret_cast<std::uint64_t>(module_->image.at(place.region, place.offset + symbol.st_value));
}

std::uint64_t Loading::stub(std::size_t symbol) {
  char* code = module_->image.at(Region::code, stubs_ + stub_bytes * symbol);
  const std::uint64_t target = address_of(symbol);
  const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};  // jmp *(%rip): to the address behind it
  std::memcpy(code, jump, sizeof jump);
  std::memcpy(code + sizeof jump, &target, sizeof target);
  return reinterpret_cast<std::uint64_t>(code);
}

std::uint64_t Loading::table_entry(std::size_t symbol) {
  char* entry = module_->image.at(Region::constants, table_ + sizeof(std::uint64_t) * symbol);
  const std::uint64_t target = address_of(symbol);
  std::memcpy(entry, &target, sizeof target);
  return reinterpret_cast<std::uint64_t>(entry);
}

std::uint64_t width_of(std::uint32_t type) {
  switch (type) {
    case R_X86_64_NONE: return 0;
    case R_X86_64_64:
    case R_X86_64_PC64: return 8;
    case R_X86_64_32:
    case R_X86_64_32S:
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return 4;
    default: throw Error(fmt::format("jit: expected relocations of position-independent code, found type {}", type));
  }
}

void Loading::relocate(const Elf64_Shdr& section) {
  const std::size_t target = *target_of(section);
  const std::uint64_t bytes = object_.sections()[target].sh_size;
  for (const Elf64_Rela& relocation : object_.relocations(section)) {
    const std::uint64_t width = width_of(ELF64_R_TYPE(relocation.r_info));
    if (width == 0) continue;
    if (relocation.r_offset > bytes || width > bytes - relocation.r_offset) {
      throw Error(fmt::format("jit: expected relocations within their section of {} bytes, found one at {}", bytes, relocation.r_offset));
    }
    apply(relocation, module_->image.at(places_[target]->region, places_[target]->offset + relocation.r_offset));
  }
}

template <typename Narrow>
void store(char* where, std::uint64_t value) {
  const auto narrow = static_cast<Narrow>(value);
  if (static_cast<std::uint64_t>(static_cast<std::int64_t>(narrow)) != value)
    throw Error("jit: expected addresses within reach, found one that needs more than 32 bits");
  std::memcpy(where, &narrow, sizeof narrow);
}

void Loading::apply(const Elf64_Rela& relocation, char* where) {
  const std::size_t symbol = ELF64_R_SYM(relocation.r_info);
  // Unsigned throughout: a damaged addend wraps around and is then out of reach.
  const auto addend = static_cast<std::uint64_t>(relocation.r_addend), here = reinterpret_cast<std::uint64_t>(where);
  switch (ELF64_R_TYPE(relocation.r_info)) {
    case R_X86_64_64: return store<std::int64_t>(where, address_of(symbol) + addend);
    case R_X86_64_PC64: return store<std::int64_t>(where, address_of(symbol) + addend - here);
    case R_X86_64_32: return store<std::uint32_t>(where, address_of(symbol) + addend);
    case R_X86_64_32S: return store<std::int32_t>(where, address_of(symbol) + addend);
    case R_X86_64_PC32: return store<std::int32_t>(where, address_of(symbol) + addend - here);
    case R_X86_64_PLT32: return store<std::int32_t>(where, (outside(symbol) ? stub(symbol) : address_of(symbol)) + addend - here);
    default: return store<std::int32_t>(where, table_entry(symbol) + addend - here);
  }
}

void Loading::export_functions() {
  for (std::size_t i = 0; i < object_.symbols().size(); ++i) {
    const Elf64_Sym& symbol = object_.symbols()[i];
    if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || outside(i)) continue;
    module_->functions[object_.name(symbol)] = reinterpret_cast<void*>(address_of(i));
  }
}

}  // namespace

std::unique_ptr<Module> load_object(const std::vector<char>& object) { return Loading(object).run(); }

}  // namespace tandem::jit
