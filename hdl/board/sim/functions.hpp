// Provisioning by the host: loads a directory of functions into board memory and the function
// table.
//
// DIR/functions.conf has a line for each function:
//   NAME IMAGE [timeout=CYCLES] [speed=N] [region=N] [scalars=NAME[,NAME…]]
// NAME consists of letters, digits, - and _; IMAGE is a file of that directory (format in
// hdl/functions/README.md), or @store: then the board fetches NAME.img from its store when the
// function is called. The calls of a function whose image is made for one region run in that one; for
// an image in the store, region= selects it. A call that exceeds CYCLES of its kernel is stopped
// (16777216; 0: unlimited); speed is log2 of the cycles for eight bytes (0); scalars are the query
// parameters that become the kernel's scalars. # begins a comment. An intact image for another
// shell or a missing region is refused here; the board checks the content of every image when it is
// loaded.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "board.hpp"

namespace functions {

[[noreturn]] inline void wrong(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + what);
}

inline uint32_t number(const std::string& where, const std::string& text, uint64_t most) {
  char* end = nullptr;
  errno = 0;
  unsigned long long value = strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end || errno || value > most)
    wrong(where, "'" + text + "' is not a number up to " + std::to_string(most));
  return static_cast<uint32_t>(value);
}

inline bool plain(const std::string& name) {
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) return false;
  return !name.empty();
}

inline std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The header of an image; none: it is not intact.
inline std::optional<image_header::Header> header_of(const std::vector<char>& image) {
  if (image.size() < image_header::kBytes) return {};
  return image_header::read(reinterpret_cast<const uint8_t*>(image.data()));
}

// Content of board memory: images, each at a multiple of their alignment.
class Store {
 public:
  explicit Store(Board& board) : board_(board) {}

  // Allocates this number of bytes; none if there is no space.
  std::optional<uint32_t> take(size_t bytes) {
    // Empty images have an address, too.
    const size_t rounded = (std::max<size_t>(bytes, 1) + Board::kImageAlignment - 1) / Board::kImageAlignment * Board::kImageAlignment;
    size_t at = 0;
    for (const auto& [address, size] : held_) {
      if (address - at >= rounded) break;
      at = address + size;
    }
    if (rounded > board_.memory_bytes() || at > board_.memory_bytes() - rounded) return {};
    held_[static_cast<uint32_t>(at)] = rounded;
    return static_cast<uint32_t>(at);
  }
  void release(uint32_t address) { held_.erase(address); }
  size_t free_bytes() const {
    size_t used = 0;
    for (const auto& [address, size] : held_) used += size;
    return board_.memory_bytes() - used;
  }

  // The address of the image, which may be invalid:
  // an image without a header must not overlap a previous one's header.
  uint32_t add(const std::string& where, std::vector<char> image) {
    image.resize(std::max<size_t>(image.size(), Board::kImageAlignment));
    const auto address = take(image.size());
    if (!address || !board_.write(*address, image.data(), image.size()))
      wrong(where, "board memory (" + std::to_string(board_.memory_bytes()) + " bytes) is full");
    return *address;
  }

  std::map<std::string, uint32_t> images;  // of the functions in the table

 private:
  Board& board_;
  std::map<uint32_t, size_t> held_;
};

inline bool is_function(const std::string& name) { return plain(name) && name.size() <= Board::kNameBytes; }
inline bool is_scalar(const std::string& name) { return plain(name) && name.size() <= Board::kScalarBytes; }

// Returns the number of functions. Throws std::runtime_error with file and line.
inline int provision(Board& board, Store& store, const std::string& directory, bool with_store) {
  const std::string path = directory + "/functions.conf";
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::string line;
  int count = 0;
  for (int n = 1; std::getline(file, line); n++) {
    const std::string where = path + ":" + std::to_string(n);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, image, word;
    if (!(words >> name)) continue;
    if (!is_function(name))
      wrong(where, "'" + name + "' is not a valid function name (letters, digits, - and _, up to " + std::to_string(Board::kNameBytes) + ")");
    if (!(words >> image) || image.find('/') != std::string::npos) wrong(where, "'" + image + "' is not a file of this directory");
    FunctionEntry entry;
    entry.timeout = 1 << 24;
    while (words >> word) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
      if (key == "timeout") entry.timeout = number(where, value, UINT32_MAX);
      else if (key == "speed") entry.speed = static_cast<uint16_t>(number(where, value, 7));
      else if (key == "region") entry.regions = image_header::regions(number(where, value, Board::kRegions - 1));
      else if (key == "scalars") {
        std::istringstream names(value);
        std::string scalar;
        for (int i = 0; std::getline(names, scalar, ','); i++) {
          if (i == 4) wrong(where, "a kernel has at most four scalars");
          if (!is_scalar(scalar))
            wrong(where, "'" + scalar + "' is not a valid scalar name (letters, digits, - and _, up to " + std::to_string(Board::kScalarBytes) + ")");
          entry.scalars[i] = scalar;
        }
      } else wrong(where, "'" + word + "' is unknown (expected timeout=, speed=, region= or scalars=)");
    }
    if (image == "@store" && !with_store) wrong(where, "@store needs a store (--store)");
    if (image == "@store") {
      entry.image = Board::kRemote;
    } else {
      auto content = bytes_of(directory + "/" + image);
      if (const auto header = header_of(content)) {
        if (const auto why = image_header::obstacle(*header, Board::kShell, Board::kRegions); !why.empty()) wrong(where, why);
        if (header->region != image_header::kAnyRegion) entry.regions = image_header::regions(header->region);
      }
      entry.image = store.add(where, std::move(content));
    }
    if (!board.define(name, entry)) wrong(where, "the function table has no space for " + name);
    if (auto before = store.images.find(name); before != store.images.end()) store.release(before->second);
    if (entry.image == Board::kRemote) store.images.erase(name);
    else store.images[name] = entry.image;
    count++;
  }
  if (count == 0) wrong(path, "the file has no functions");
  return count;
}

}  // namespace functions
