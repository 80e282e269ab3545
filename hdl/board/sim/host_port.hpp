// The host's side of the live board's host port: a Unix socket for programs that use the board
// (host_protocol.h), a window of shared memory for each,
// and the driver between these programs and the registers.
//
// Input from programs is untrusted: packets are copied once and checked, a window cannot shrink
// under the mapping, a program can access only its own window, and the board reads and writes host
// memory only within the window of the program that made the call. A program that sends malformed
// requests, or does not read its replies, is disconnected. A call ends with its program, or when the
// program cancels it.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "board.hpp"
#include "functions.hpp"
#include "host_protocol.h"
#include "host_socket.hpp"
#include "program_memory.hpp"
#include "region_frame.hpp"
#include "sealed_file.hpp"
#include "stand_in.hpp"

class HostPort : HostMemory {
 public:
  // An empty path: for ranks alone, without a socket.
  HostPort(Board& board, functions::Store& store, const std::string& path) : board_(board), store_(store), path_(path), memory_(Board::kKernelBase, board.kernel_memory_bytes()) {
    calls_ = board_.read_register(Register::Sizes) >> 8 & 0xff;
    jobs_.resize(calls_ + 1);
    ended_ = board_.host_ended;
    board_.host_memory = this;
    if (path.empty()) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error("--host-port " + path + ": the path is too long");
    memcpy(address.sun_path, path.data(), path.size());
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener_ < 0) failed("socket");
    // The socket of a killed board is removed; one that accepts connections is not.
    struct stat about {};
    if (lstat(path.c_str(), &about) == 0 && S_ISSOCK(about.st_mode)) {
      const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      const bool dead = connect(probe, name, sizeof address) < 0 && errno == ECONNREFUSED;
      close(probe);
      if (dead) unlink(path.c_str());
    }
    const mode_t before = umask(0177);  // accessible only to this user
    const bool bound = bind(listener_, name, sizeof address) == 0;
    umask(before);
    if (!bound || listen(listener_, 16) < 0) failed("bind");
  }
  ~HostPort() override {
    board_.host_memory = nullptr;
    if (listener_ < 0) return;
    close(listener_);
    unlink(path_.c_str());
  }
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;

  // Begins the run of a kernel that is a rank (msg_region), in this region, with zeroed memory.
  // `program` is the run's body. Throws std::runtime_error if board memory has no space.
  void start_rank(const region_api* api, uint32_t region, uint32_t rank, uint32_t ranks, uint64_t bytes, std::vector<uint64_t> program) {
    const uint32_t kernel = board_.libraries().add(api);
    const std::vector<uint64_t> words = stand_in::image(kernel, kRankConfiguration, Board::kShell, region);
    const char* const image = reinterpret_cast<const char*>(words.data());
    Job job{&ranks_, {}, Call, store_.add("a rank's kernel", {image, image + 8 * words.size()})};
    host_request& request = job.request;
    request.op = HOST_CALL;
    host_reply reply{};
    load(job, reply, kernel);
    request.number = reply.number;
    request.cost = UINT32_MAX;
    request.bytes = 8 * program.size();
    request.room = 8;
    request.params[0] = rank | ranks << 8;
    if (bytes != 0) {
      const auto address = memory_.take(bytes);
      if (!address) throw std::runtime_error("board memory has no space for the " + std::to_string(bytes) + " bytes of rank " + std::to_string(rank));
      board_.clear(*address, memory_.bytes(*address));
      request.params[1] = *address;
      request.params[2] = static_cast<uint32_t>(bytes);
    }
    job.body = std::move(program);
    job.answer.assign(1, 0);
    start(std::move(job));
  }
  // Whether the calls in progress are ranks' alone.
  bool has_only_ranks() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [this](const auto& job) { return !job || job->program == &ranks_; });
  }

  // Receives requests, sends replies, and submits descriptors to the board; true if there was work.
  bool run() {
    bool did = finish();
    // Sockets are polled less often while the board works.
    if (!did && ++rest_ % kLook != 0 && is_busy()) return false;
    for (const auto& job : jobs_)
      if (job && (job->cancelled || job->program->gone)) abort(*job);
    while (programs_.size() < kProgramsMost) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) break;
      ucred peer{};
      socklen_t length = sizeof peer;
      if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || (peer.uid != 0 && peer.uid != geteuid())) {
        close(fd);
        continue;
      }
      programs_.push_back(std::make_unique<Program>(fd));
      did = true;
    }
    for (auto& program : programs_) did |= receive(*program);
    programs_.remove_if([this](const auto& program) {
      const bool over = program->gone && std::none_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job && job->program == program.get(); });
      if (over) {
        for (unsigned number : program->own) drop(number);
        for (const auto& [address, bytes] : program->memory) memory_.release(address);
      }
      return over;
    });
    for (size_t i = 0; i < jobs_.size() && next(); i++) did = true;
    return did;
  }

  void wait_for(std::vector<pollfd>& waits) const {
    if (programs_.size() < kProgramsMost) waits.push_back({listener_, POLLIN, 0});
    for (const auto& program : programs_)
      if (program->waiting.size() < kWaitingMost) waits.push_back({program->fd, POLLIN, 0});
  }

 private:
  static constexpr size_t kProgramsMost = 64, kWaitingMost = 16;
  static constexpr uint64_t kWindowMost = 1 << 28, kWindowsMost = 1ull << 32;
  static constexpr unsigned kOwnPrograms = 64;         // of all programs together; their numbers
                                                       // begin after the table's
  static constexpr uint32_t kOwnFrom = 128;
  // Host memory: each job has a part, and in it the window, its descriptor, its body and its answer.
  static constexpr unsigned kJobAt = 48, kAreaAt = 40;
  static constexpr uint64_t kDescriptorBytes = 256;  // the lower halves of all jobs' addresses differ
  enum Area : uint64_t { Window, Descriptor, Body, Answer };
  static constexpr uint32_t kClockKhz = 156250;
  static constexpr unsigned kLook = 8;
  static constexpr uint32_t kKilled = 1;  // host_pkg::EndKilled
  static constexpr uint32_t kRefused = 2;  // and after it those of calls that did not run
  static constexpr uint32_t kTimeoutMost = 1 << 26;  // maximum cycles of a call
  static constexpr size_t kAnswerBeats = 8192;
  static constexpr size_t kBindingMost = sizeof(host_binding) + 8 * (region_frame::kWords + region_frame::kBuffers) + 8;
  static constexpr size_t kConfigurationMost = 4 << 20;
  static constexpr uint32_t kRankConfiguration = 4096;  // bytes that stand for a rank's bitstream
  enum Kind : uint8_t { Copy = 1, Call = 2, Read = 3 };

  struct Waiting {
    host_request request;
    File file;
  };
  // A program of the host: its image, and the number of the kernel that it brought, or 0.
  struct ProgramImage {
    uint32_t image, kernel;
  };
  struct Program {
    explicit Program(int socket) : fd(socket) {}
    ~Program() {
      if (window) munmap(window, bytes);
      close(fd);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    int fd;
    uint8_t* window = nullptr;
    uint64_t bytes = 0;
    bool gone = false;
    std::deque<Waiting> waiting;
    std::set<unsigned> own;
    std::map<uint32_t, uint64_t> memory;  // of its buffers, by address
  };
  // A descriptor in progress.
  struct Job {
    Program* program;
    host_request request;
    Kind kind;
    uint32_t image = 0;                  // of a call or an upload; the place of a copy
    std::vector<uint64_t> body = {}, answer = {};  // of a launch; the body is also that of an image
    uint64_t text_at = 0, text_room = 0;  // of a launch's text in the window
    uint32_t brought = 0;                 // kernel whose image is being copied
    std::vector<uint8_t> binding = {};
    std::vector<uint32_t> memory = {};    // buffers in use
    uint64_t descriptor[10] = {};
    bool cancelled = false;
  };

  [[noreturn]] void failed(const char* what) {
    throw std::runtime_error("--host-port " + path_ + ": " + what + ": " + strerror(errno));
  }

  bool receive(Program& program) {
    bool did = false;
    // The end of a program is noticed even if it has sent more than is read.
    if (program.waiting.size() == kWaitingMost) {
      pollfd about{program.fd, 0, 0};
      if (poll(&about, 1, 0) == 1 && about.revents & (POLLHUP | POLLERR)) program.gone = did = true;
    }
    for (size_t n = 0; n < kWaitingMost && !program.gone && program.waiting.size() < kWaitingMost; n++) {
      host_request request;
      File file;
      const ssize_t got = host_socket::receive(program.fd, request, file);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
      did = true;
      if (got != sizeof request) {
        if (got > 0) fprintf(stderr, "warning: a program at the host port sent %zd bytes, which is not the size of a request\n", got);
        program.gone = true;
      } else if ((request.op == HOST_HELLO) == (program.window != nullptr)) {
        fprintf(stderr, "warning: a program at the host port sent its hello too late or twice\n");
        program.gone = true;
      } else if (request.op == HOST_HELLO) {
        welcome(program, request);
      } else if (request.op == HOST_CANCEL) {
        cancel(program, request.number);
      } else {
        program.waiting.push_back({request, std::move(file)});
      }
    }
    return did;
  }

  void welcome(Program& program, const host_request& request) {
    host_reply reply = to(request);
    uint64_t all = 0;
    for (const auto& other : programs_) all += other->bytes;
    const uint64_t bytes = (request.bytes + 4095) / 4096 * 4096;
    int fd = -1;
    if (request.bytes == 0 || request.bytes > kWindowMost || all + bytes > kWindowsMost) {
      say(reply, request.bytes == 0 || request.bytes > kWindowMost ? HOST_WRONG : HOST_FULL, "a window has 1 to 268435456 bytes");
    } else if ((fd = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0 || ftruncate(fd, static_cast<off_t>(bytes)) < 0 ||
               fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
      say(reply, HOST_FULL, "no shared memory");
    } else {
      void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at == MAP_FAILED) {
        say(reply, HOST_FULL, "no shared memory");
      } else {
        program.window = static_cast<uint8_t*>(at);
        program.bytes = bytes;
        reply.bytes = bytes;
        reply.version = HOST_PROTOCOL;
        reply.shell = board_.read_register(Register::Shell);
        reply.regions = board_.read_register(Register::Sizes) & 0xff;
        reply.clock_khz = kClockKhz;
        reply.memory_free = store_.free_bytes();
      }
    }
    answer(program, reply, reply.status == HOST_OK ? fd : -1);
    if (reply.status != HOST_OK) program.gone = true;
    if (fd >= 0) close(fd);
  }

  void cancel(Program& program, uint32_t id) {
    for (const auto& job : jobs_)
      if (job && job->program == &program && job->request.id == id) job->cancelled = true;
    const auto is_it = [id](const Waiting& waiting) { return waiting.request.id == id && (waiting.request.op == HOST_CALL || waiting.request.op == HOST_LAUNCH); };
    const auto found = std::find_if(program.waiting.begin(), program.waiting.end(), is_it);
    if (found == program.waiting.end()) return;
    host_reply reply = to(found->request);
    reply.status = kKilled;
    program.waiting.erase(found);
    answer(program, reply);
  }

  // Stops the board's call; repeated until the call has ended, because the board may not have read
  // its descriptor yet.
  void abort(const Job& job) {
    if (job.kind == Call) board_.write_register(Register::Abort, static_cast<uint32_t>(place_of(job, Descriptor)));
  }

  static host_reply to(const host_request& request) {
    host_reply reply{};
    reply.op = request.op;
    reply.id = request.id;
    return reply;
  }
  static void say(host_reply& reply, uint32_t status, const std::string& text) {
    reply.status = status;
    snprintf(reply.text, sizeof reply.text, "%s", text.c_str());
  }
  void answer(Program& program, const host_reply& reply, int fd = -1) {
    if (&program == &ranks_) {
      if (reply.status >= kRefused) throw std::runtime_error("the board has refused a rank's kernel (status " + std::to_string(reply.status) + ")");
      return;
    }
    if (!host_socket::send(program.fd, reply, fd)) program.gone = true;
  }

  // ---- requests, of the programs in turn; each in order, but those that wait for the board are
  // passed by those that do not ----
  bool is_busy() const {
    return std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job != nullptr; });
  }
  // A place for a copy, or for a call; none: the request waits. One program leaves a place for the
  // calls of others.
  std::optional<size_t> free_job(const Program& program, Kind kind) const {
    if (kind != Call || calls_ == 0) return jobs_[0] ? std::nullopt : std::optional<size_t>(0);
    std::optional<size_t> free;
    size_t own = 0;
    for (size_t i = calls_; i >= 1; i--) {
      if (!jobs_[i]) free = i;
      else own += jobs_[i]->program == &program;
    }
    return own + 1 < calls_ || own == 0 || &program == &ranks_ ? free : std::nullopt;
  }
  static std::optional<Kind> kind_of(const host_request& request) {
    switch (request.op) {
      case HOST_DEFINE:
      case HOST_LOAD:
      case HOST_BRING:
      case HOST_BIND:
      case HOST_PUT: return Copy;
      case HOST_GET: return Read;
      case HOST_CALL:
      case HOST_LAUNCH: return Call;
      default: return {};
    }
  }
  bool next() {
    for (size_t i = 0; i < programs_.size(); i++) {
      programs_.splice(programs_.end(), programs_, programs_.begin());
      Program& program = *programs_.back();
      if (program.gone) continue;
      const auto may = [&](const Waiting& waiting) {
        const auto kind = kind_of(waiting.request);
        return !kind || free_job(program, *kind);
      };
      const auto found = std::find_if(program.waiting.begin(), program.waiting.end(), may);
      if (found == program.waiting.end()) continue;
      const Waiting first = std::move(*found);
      program.waiting.erase(found);
      begin(program, first.request, first.file);
      return true;
    }
    return false;
  }

  void begin(Program& program, const host_request& request, const File& file) {
    host_reply reply = to(request);
    switch (request.op) {
      case HOST_DEFINE:
        if (!is_named(request)) say(reply, HOST_WRONG, "a name consists of letters, digits, - and _");
        else if (request.speed > 7) say(reply, HOST_WRONG, "speed is at most 7");
        else return bring(program, request, reply);
        break;
      case HOST_LOAD: return bring(program, request, reply);
      case HOST_REMOVE: {
        const std::string name = text_of(request.name);
        const auto number = is_named(request) ? board_.remove(name) : std::nullopt;
        if (!number) {
          say(reply, HOST_UNKNOWN, "the function does not exist");
        } else {
          reply.number = *number;
          release(name);
          bindings_.remove(name);
        }
        break;
      }
      case HOST_UNLOAD:
        if (program.own.erase(request.number)) left_.numbers.insert(request.number), clear();
        else say(reply, HOST_UNKNOWN, "the program does not exist");
        break;
      case HOST_CALL: {
        const auto image = image_of(program, request.number);
        if (!image) say(reply, HOST_UNKNOWN, "the function or program does not exist");
        else if (is_brought(request.number)) say(reply, HOST_WRONG, "this kernel is launched, not called");
        else if (!within(program, request.offset, request.bytes) || !within(program, request.answer, request.room))
          say(reply, HOST_WRONG, "body and reply must be in the window, at multiples of 8");
        else return start({&program, request, Call, *image});
        break;
      }
      case HOST_BRING: return bring_kernel(program, request, reply, file);
      case HOST_BIND:
        if (!is_named(request) || request.scalars[3][0]) say(reply, HOST_WRONG, "names have letters, digits, - and _; up to 3 scalars");
        else if (request.speed > 7) say(reply, HOST_WRONG, "speed is at most 7");
        else if (!within(program, request.offset, request.room)) say(reply, HOST_WRONG, "the binding must be in the window");
        else return bring_kernel(program, request, reply, file);
        break;
      case HOST_REGION:
        if (request.number < Board::kRegions) region(request.number, reply);
        else say(reply, HOST_UNKNOWN, "the board has " + std::to_string(Board::kRegions) + " regions");
        break;
      case HOST_TAKE:
        if (const auto address = memory_.take(request.bytes)) {
          const uint64_t bytes = memory_.bytes(*address);
          board_.clear(*address, bytes);
          program.memory[*address] = bytes;
          reply.place = *address;
        } else {
          say(reply, HOST_FULL, "board memory has no space for this buffer");
        }
        break;
      case HOST_GIVE:
        if (request.answer <= UINT32_MAX && program.memory.erase(static_cast<uint32_t>(request.answer))) left_.memory.insert(static_cast<uint32_t>(request.answer)), clear();
        else say(reply, HOST_UNKNOWN, "the program has no such memory");
        break;
      case HOST_PUT:
      case HOST_GET:
        if (request.bytes == 0 || request.bytes % Board::kImageAlignment != 0 || request.answer % Board::kImageAlignment != 0 ||
            !within(program, request.offset, request.bytes) || !owner(program, request.answer, request.bytes))
          say(reply, HOST_WRONG, "a copy is from or to the window and the program's memory, in multiples of 256 bytes");
        else return copy(program, request);
        break;
      case HOST_LAUNCH:
        if (launch(program, request, reply)) return;
        break;
      default: say(reply, HOST_WRONG, "unknown request");
    }
    answer(program, reply);
  }

  // Copies an image into board memory, by DMA, in whole bursts.
  void bring(Program& program, const host_request& request, host_reply& reply) {
    const uint32_t most = board_.read_register(Register::Image);
    if (request.bytes == 0 || request.bytes % Board::kImageAlignment != 0 || request.bytes > most ||
        !within(program, request.offset, request.bytes)) {
      say(reply, HOST_WRONG, "an image must be in the window and have a multiple of 256 bytes");
    } else if (request.op == HOST_LOAD && own_.size() >= kOwnPrograms) {
      say(reply, HOST_FULL, "the board has " + std::to_string(kOwnPrograms) + " programs already");
    } else if (const auto image = store_.take(request.bytes)) {
      return start({&program, request, Copy, *image});
    } else {
      say(reply, HOST_FULL, "board memory has " + std::to_string(store_.free_bytes()) + " bytes left");
    }
    answer(program, reply);
  }

  // Loads a kernel from a library. The image stands for the bitstream that a placed kernel would have:
  // its body is arbitrary, and the model finds the kernel by its number.
  void bring_kernel(Program& program, const host_request& request, host_reply& reply, const File& file) {
    std::string error;
    if (file.fd < 0 || request.bytes < 4 || request.bytes % 4 != 0 || request.bytes > kConfigurationMost) {
      say(reply, HOST_WRONG, "a kernel needs a library, and 4 bytes to 4 MiB of configuration");
    } else if (request.op == HOST_BRING && own_.size() >= kOwnPrograms) {
      say(reply, HOST_FULL, "the board has " + std::to_string(kOwnPrograms) + " programs already");
    } else if (const auto copy = sealed_copy(file.fd); copy.fd < 0) {
      say(reply, HOST_WRONG, "the library cannot be read");
    } else if (const auto kernel = board_.libraries().bring(copy.fd, request.number, error); !kernel) {
      say(reply, HOST_WRONG, error);
    } else {
      Job job{&program, request, Copy};
      if (request.op == HOST_BIND) job.binding.assign(program.window + request.offset, program.window + request.offset + std::min<uint64_t>(request.room, kBindingMost));
      job.body = stand_in::image(*kernel, static_cast<uint32_t>(request.bytes), Board::kShell);
      job.request.bytes = 8 * job.body.size();
      job.brought = *kernel;
      if (const auto image = store_.take(job.request.bytes)) {
        job.image = *image;
        return start(std::move(job));
      }
      board_.libraries().drop(*kernel);
      say(reply, HOST_FULL, "board memory has " + std::to_string(store_.free_bytes()) + " bytes left");
    }
    answer(program, reply);
  }

  // The body has the buffers' bounds: it is made here, of memory that the program has.
  bool launch(Program& program, const host_request& request, host_reply& reply) {
    host_launch head{};
    const auto image = image_of(program, request.number);
    const bool there = within(program, request.offset, request.bytes) && request.bytes >= sizeof head;
    if (there) memcpy(&head, program.window + request.offset, sizeof head);
    const uint64_t bytes = sizeof head + 8ull * head.words + sizeof(host_buffer) * head.buffers;
    if (!image || !is_brought(request.number)) {
      say(reply, HOST_UNKNOWN, "the kernel does not exist");
    } else if (!there || head.words > region_frame::kWords || head.buffers > region_frame::kBuffers || bytes > request.bytes) {
      say(reply, HOST_WRONG, "a launch has up to 1034 words and 15 buffers, in the window");
    } else if (!within(program, request.answer, request.room)) {
      say(reply, HOST_WRONG, "the text must be in the window, at a multiple of 8");
    } else {
      const uint8_t* at = program.window + request.offset + sizeof head;
      Job job{&program, request, Call, *image};
      job.body.assign(1 + head.words, region_frame::head(head.words, head.buffers, kAnswerBeats - region_frame::kEndBeats));
      memcpy(job.body.data() + 1, at, 8ull * head.words);
      at += 8ull * head.words;
      for (unsigned i = 0; i < head.buffers; i++, at += sizeof(host_buffer)) {
        host_buffer buffer;
        memcpy(&buffer, at, sizeof buffer);
        const auto base = owner(program, buffer.address, buffer.bytes);
        if (buffer.bytes != 0 && (buffer.address % 8 != 0 || !base)) {
          say(reply, HOST_WRONG, "buffer " + std::to_string(i + 1) + " is not in the program's memory");
          return false;
        }
        if (buffer.bytes != 0) job.memory.push_back(*base);
        job.body.push_back(region_frame::buffer(buffer.address, buffer.bytes, buffer.writable != 0));
      }
      job.answer.assign(kAnswerBeats, 0);
      job.request.bytes = 8 * job.body.size();
      job.request.room = 8 * kAnswerBeats;
      job.request.cost = UINT32_MAX;
      job.text_at = request.answer;
      job.text_room = request.room;
      start(std::move(job));
      return true;
    }
    return false;
  }

  // A launch has ended.
  static void landed(const Job& job, host_reply& reply) {
    const size_t beats = std::min<size_t>(reply.bytes / 8, kAnswerBeats);
    std::string text;
    size_t at = 0;
    while (at < beats && region_frame::text(job.answer[at], text)) at++;
    reply.bytes = std::min<uint64_t>(text.size(), job.text_room);
    memcpy(job.program->window + job.text_at, text.data(), reply.bytes);
    if (reply.status != HOST_OK) return;
    if (at + region_frame::kEndBeats != beats) return say(reply, HOST_FAILED, "the kernel's answer has no end");
    const region_frame::End end = region_frame::end(job.answer[at]);
    reply.kernel_cycles = static_cast<uint32_t>(std::min<uint64_t>(job.answer[at + 1], UINT32_MAX));
    reply.kernel_status = end.status;
    if (end.fault) {
      say(reply, HOST_FAULT, "a kernel's access to memory was refused");
      reply.buffer = end.buffer;
      reply.write = end.write;
      reply.place = end.offset;
    } else if (end.status != 0) {
      say(reply, HOST_FAILED, "the kernel has failed");
    }
  }

  // The address of the program's memory that has this part.
  static std::optional<uint32_t> owner(const Program& program, uint64_t address, uint64_t bytes) {
    auto next = program.memory.upper_bound(static_cast<uint32_t>(std::min<uint64_t>(address, UINT32_MAX)));
    if (next == program.memory.begin()) return {};
    const auto& [start, size] = *std::prev(next);
    return address - start <= size && bytes <= size - (address - start) ? std::optional<uint32_t>(start) : std::nullopt;
  }
  // Between the window and the program's memory.
  void copy(Program& program, const host_request& request) {
    Job job{&program, request, request.op == HOST_PUT ? Copy : Read, static_cast<uint32_t>(request.answer)};
    job.memory = {*owner(program, request.answer, request.bytes)};
    start(std::move(job));
  }
  bool is_brought(uint32_t number) const {
    const auto own = own_.find(number - kOwnFrom);
    return number >= kOwnFrom && own != own_.end() && own->second.kernel != 0;
  }

  uint64_t place_of(const Job& job, Area area, uint64_t offset = 0) const {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& other) { return other.get() == &job; });
    const auto number = static_cast<uint64_t>(found - jobs_.begin());
    return number << kJobAt | area << kAreaAt | (area == Descriptor ? number * kDescriptorBytes : offset);
  }

  // The descriptor is private: no program can access it.
  void start(Job&& begun) {
    auto& place = jobs_[*free_job(*begun.program, begun.kind)];
    place = std::make_unique<Job>(std::move(begun));
    Job& job = *place;
    const host_request& request = job.request;
    auto put = [&job](size_t at, uint64_t value, size_t bytes) { memcpy(reinterpret_cast<char*>(job.descriptor) + at, &value, bytes); };
    const uint64_t window = place_of(job, Window, request.offset);
    const uint64_t answer = place_of(job, Window, request.answer);
    put(0, job.kind, 1);
    put(1, request.number, 1);
    put(2, job.kind == Call ? regions_of(job.image) : 0, 2);
    put(4, request.bytes, 4);
    put(8, job.body.empty() ? window : place_of(job, Body), 8);
    put(16, job.image, 4);
    // A rank runs as long as its job.
    put(20, job.program == &ranks_ ? 0 : request.timeout == 0 ? kTimeoutMost : std::min(request.timeout, kTimeoutMost), 4);
    put(24, !job.answer.empty() ? place_of(job, Answer) : job.kind == Read ? window : answer, 8);
    put(32, std::min<uint64_t>(request.room, UINT32_MAX), 4);
    put(36, request.cost, 4);
    // The operands of a launch are zero: otherwise they would name a binding (region_call).
    for (size_t i = 0; i < 4; i++) put(40 + 4 * i, request.op == HOST_CALL ? request.params[i] : 0, 4);
    const uint64_t descriptor = place_of(job, Descriptor);
    board_.write_register(Register::PostLow, static_cast<uint32_t>(descriptor) | (job.kind != Call));
    board_.write_register(Register::PostHigh, static_cast<uint32_t>(descriptor >> 32));
  }

  // Replies to the requests whose descriptors have ended; true if there were some.
  bool finish() {
    if (board_.host_ended == ended_) return false;
    ended_ = board_.host_ended;
    bool did = false;
    for (auto& place : jobs_) {
      // The report's last word has the cycles, at least 1.
      if (!place || place->descriptor[9] >> 32 == 0) continue;
      const std::unique_ptr<Job> job = std::move(place);
      did = true;
      host_reply reply = to(job->request);
      reply.status = static_cast<uint32_t>(job->descriptor[8] & 0xff);
      reply.loaded = static_cast<uint32_t>(job->descriptor[8] >> 8 & 0xff);
      reply.region = static_cast<uint32_t>(job->descriptor[8] >> 16 & 0xff);
      reply.bytes = job->descriptor[8] >> 32;
      reply.kernel_cycles = static_cast<uint32_t>(job->descriptor[9]);
      reply.cycles = static_cast<uint32_t>(job->descriptor[9] >> 32);
      const auto op = job->request.op;
      if (op == HOST_LAUNCH) landed(*job, reply);
      else if (op == HOST_BRING || op == HOST_BIND || op == HOST_LOAD || op == HOST_DEFINE) placed(*job, reply);
      answer(*job->program, reply);
    }
    clear();
    return did;
  }

  // Frees what programs have left, unless a descriptor in progress uses it.
  void clear() {
    const auto in_use = [this](const auto& uses) { return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job && uses(*job); }); };
    for (auto i = left_.memory.begin(); i != left_.memory.end();) {
      const bool used = in_use([&](const Job& job) { return std::count(job.memory.begin(), job.memory.end(), *i) != 0; });
      if (!used) memory_.release(*i);
      i = used ? std::next(i) : left_.memory.erase(i);
    }
    for (auto i = left_.numbers.begin(); i != left_.numbers.end();) {
      const bool used = in_use([&](const Job& job) { return job.kind == Call && job.request.number == *i; });
      if (!used) drop(*i);
      i = used ? std::next(i) : left_.numbers.erase(i);
    }
  }

  // An image is in board memory.
  void placed(const Job& job, host_reply& reply) {
    const uint32_t brought = job.brought;
    // Other defects of an image are found by the board, when it is loaded.
    const auto header = board_.image_at(job.image);
    if (reply.status == HOST_OK && brought == 0 && header) {
      // A kernel that a program brought is reached by its launches alone, which check its buffers.
      if (header->kernel >= KernelLibraries::kBroughtFrom) say(reply, HOST_WRONG, "the image's kernel number is reserved");
      else if (const auto why = image_header::obstacle(*header, Board::kShell, Board::kRegions); !why.empty()) say(reply, HOST_WRONG, why);
    }
    if (reply.status != HOST_OK) {
      store_.release(job.image);
      if (brought) board_.libraries().drop(brought);
    } else if (job.request.op == HOST_DEFINE || job.request.op == HOST_BIND) {
      define(job, reply);
    } else {
      load(job, reply, brought);
    }
  }

  void define(const Job& job, host_reply& reply) {
    FunctionEntry entry;
    entry.image = job.image;
    entry.timeout = job.request.timeout;
    entry.speed = static_cast<uint16_t>(job.request.speed);
    entry.regions = regions_of(job.image);
    for (size_t i = 0; i < 4; i++) entry.scalars[i] = text_of(job.request.scalars[i]);
    const std::string name = text_of(job.request.name);
    const bool binds = job.request.op == HOST_BIND;
    std::string why = binds ? Bindings::wrong(job.binding.data(), job.binding.size()) : "";
    const auto place = binds && why.empty() ? bindings_.place(name) : std::nullopt;
    if (binds && why.empty() && !place) why = "board memory has no space for the function's buffers";
    if (place) {
      bindings_.write(*place, job.binding.data());
      entry.binding = place->address;
      entry.regions = static_cast<uint16_t>(1u << place->region);
    }
    const auto number = why.empty() ? board_.define(name, entry) : std::nullopt;
    if (number) {
      release(name);
      if (!binds) bindings_.remove(name);
      store_.images[name] = job.image;
      // A bound function's operands are those of its entry, so that only HTTP can call it.
      if (binds) numbers_.erase(*number), kernels_[name] = job.brought;
      else numbers_[*number] = job.image;
      reply.number = *number;
    } else {
      store_.release(job.image);
      if (job.brought) board_.libraries().drop(job.brought);
      if (!kernels_.count(name)) bindings_.remove(name);
      say(reply, why.empty() ? HOST_FULL : HOST_WRONG, why.empty() ? "the function table has no space for this name" : why);
    }
  }

  // The regions in which an image may run, a bit each; 0: any.
  uint16_t regions_of(uint32_t image) const {
    const auto header = board_.image_at(image);
    return header ? image_header::regions(header->region) : 0;
  }

  // The image that a region holds, as the board's registers have it, and the function whose image it is.
  void region(uint32_t number, host_reply& reply) {
    if (board_.read_register(Register::Decouple) >> number & 1) return;
    const uint32_t checksum = board_.read_register(Register::Held, number);
    reply.region = number;
    reply.loaded = 1;
    reply.place = checksum;
    for (const auto& [name, image] : store_.images)
      if (const auto header = board_.image_at(image); header && header->checksum == checksum) return say(reply, HOST_OK, name);
  }

  void load(const Job& job, host_reply& reply, uint32_t brought) {
    unsigned number = 0;
    while (own_.count(number)) number++;
    board_.write_register(Register::Forget, number);
    own_[number] = {job.image, brought};
    reply.number = kOwnFrom + number;
    job.program->own.insert(reply.number);
  }

  // The name now has another image, or none.
  void release(const std::string& name) {
    const auto before = store_.images.find(name);
    if (before == store_.images.end()) return;
    store_.release(before->second);
    for (auto i = numbers_.begin(); i != numbers_.end();) i = i->second == before->second ? numbers_.erase(i) : std::next(i);
    store_.images.erase(before);
    if (const auto kernel = kernels_.find(name); kernel != kernels_.end()) board_.libraries().drop(kernel->second), kernels_.erase(kernel);
  }
  void drop(unsigned number) {
    const auto own = own_.find(number - kOwnFrom);
    store_.release(own->second.image);
    if (own->second.kernel) board_.libraries().drop(own->second.kernel);
    own_.erase(own);
  }

  std::optional<uint32_t> image_of(const Program& program, uint32_t number) const {
    if (program.own.count(number)) return own_.at(number - kOwnFrom).image;
    const auto known = numbers_.find(number);
    return known == numbers_.end() ? std::nullopt : std::optional<uint32_t>(known->second);
  }

  static bool within(const Program& program, uint64_t offset, uint64_t bytes) {
    return offset % 8 == 0 && offset <= program.bytes && bytes <= program.bytes - offset;
  }
  template <size_t N>
  static std::string text_of(const char (&text)[N]) {
    return std::string(text, strnlen(text, N));
  }
  static bool is_named(const host_request& request) {
    for (const auto& scalar : request.scalars)
      if (const std::string name = text_of(scalar); !name.empty() && !functions::is_scalar(name)) return false;
    return functions::is_function(text_of(request.name));
  }

  // ---- host memory for the board: each job's private words, and the window of its program ----
  uint8_t* place(uint64_t address) {
    const uint64_t number = address >> kJobAt, at = address & ((1ull << kAreaAt) - 1);
    if (number >= jobs_.size() || !jobs_[number]) return nullptr;
    Job& job = *jobs_[number];
    const auto in = [at](void* words, uint64_t bytes, uint64_t from = 0) { return at >= from && at - from < bytes && bytes - (at - from) >= 8 ? static_cast<uint8_t*>(words) + (at - from) : nullptr; };
    switch (address >> kAreaAt & 0xff) {
      case Window: return in(job.program->window, job.program->bytes);
      case Descriptor: return in(job.descriptor, sizeof job.descriptor, number * kDescriptorBytes);
      case Body: return in(job.body.data(), 8 * job.body.size());
      case Answer: return in(job.answer.data(), 8 * job.answer.size());
      default: return nullptr;
    }
  }
  bool read(uint64_t address, uint64_t& data) override {
    const uint8_t* const from = place(address);
    if (from) memcpy(&data, from, 8);
    return from != nullptr;
  }
  void write(uint64_t address, uint64_t data, uint8_t keep) override {
    uint8_t* const to = place(address);
    for (int i = 0; to && i < 8; i++)
      if (keep >> i & 1) to[i] = static_cast<uint8_t>(data >> (8 * i));
  }

  Board& board_;
  functions::Store& store_;
  std::string path_;
  int listener_ = -1;
  std::list<std::unique_ptr<Program>> programs_;
  Program ranks_{-1};                       // starts the kernels that are ranks
  unsigned calls_ = 0;                      // that the board carries out at once
  std::vector<std::unique_ptr<Job>> jobs_;  // the first place is for copies
  uint64_t ended_ = 0;                      // descriptors, when they were last looked at
  // Freed by programs, but still in use.
  struct {
    std::set<uint32_t> memory, numbers;
  } left_;
  ProgramMemory memory_;
  Bindings bindings_{board_, memory_};
  std::map<std::string, uint32_t> kernels_;  // of bound functions
  std::map<unsigned, ProgramImage> own_;             // programs, from 0 on
  std::map<unsigned, uint32_t> numbers_;    // images of functions uploaded over this port
  unsigned rest_ = 0;
};
