#include "clocked.hpp"

#include <deque>
#include <map>

using namespace bench;

namespace {

enum At { Magic, Version, Shell, Sizes, Image, Cycles, CyclesUp, Decouple, Policy, LoadCost, PostLow, PostHigh, Ended, Forget, Change, Abort, Name = 16, Entry = 20, Loads = 32, Busy = 48, Held = 16 };
enum Status { Ok, Killed, Room, HostError, BoardError, Malformed, ImageRefused = 16 };

constexpr size_t kHostBytes = 1 << 16, kBoardBytes = 1 << 14;
constexpr uint64_t kDescriptor = 0x100;

struct Descriptor {
    uint8_t kind = 2, function = 3;
    uint32_t bytes = 0;
    uint64_t source = 0x1000;
    uint32_t board = 0x200, timeout = 77;
    uint64_t answer = 0x8000;
    uint32_t room = 0x4000, cost = 55;
    uint32_t params[4] = {1, 2, 3, 0xffffffff};
    uint16_t regions = 0x8001;
    Bytes bytes_of() const {
        Bytes b(64);
        auto put = [&](size_t at, uint64_t v, size_t n) {
            for (size_t i = 0; i < n; i++) b[at + i] = static_cast<uint8_t>(v >> (8 * i));
        };
        put(0, kind, 1), put(1, function, 1), put(2, regions, 2), put(4, bytes, 4), put(8, source, 8), put(16, board, 4), put(20, timeout, 4);
        put(24, answer, 8), put(32, room, 4), put(36, cost, 4);
        for (size_t i = 0; i < 4; i++) put(40 + 4 * i, params[i], 4);
        return b;
    }
};

struct Report {
    unsigned status, loaded, region;
    uint32_t bytes, kernel_cycles, cycles;
};

// The port with models of its environment: host memory behind a slow bus, board memory, a function
// table, a function engine and regions whose kernels return their input.
struct Port : Clocked {
    Bytes host = Bytes(kHostBytes), board = Bytes(kBoardBytes);
    unsigned idle = 0, stall = 0, latency = 0;
    // The outcome of the next call; `region`: the first one that it may have.
    unsigned load_result = 0, grant_delay = 3, region = 2, ended = 0;
    bool killed = false, room_in_table = true;
    bool endless = false;  // kernels of function 9 have no end of their own
    unsigned most_at_once = 0;
    uint32_t kernel_cycles = 1234;
    uint64_t granted_at = 0, first_in = 0;
    // Observations of the call.
    struct {
        unsigned function = 999, count = 0;
        uint32_t regions = 0, cost = 0, timeout = 0, image = 0, params[4] = {};
        Bytes body;
    } requested;
    struct {
        Bytes name, entry;
        bool remove = false;
        unsigned count = 0;
    } change;
    std::vector<unsigned> forgotten;

    Port() {
        for (auto &x : host) x = static_cast<uint8_t>(random.next());
        auto &d = *this;
        d->host_write = d->dma_data_valid = d->bvalid = d->rvalid = d->changed_valid = d->grant = d->finish_valid = d->m_valid = 0;
        d->decouple = 5;
        for (int i = 0; i < 4; i++) d->region_loads[i] = 10u + static_cast<uint32_t>(i), d->region_busy[i] = (7ull << 32) + 20u + static_cast<uint32_t>(i), d->region_image[i] = 0xabcd0000 + static_cast<uint32_t>(i);
        reset();
    }

    uint64_t word(const Bytes &from, uint64_t at) {
        uint64_t v = 0;
        for (size_t i = 0; i < 8; i++) v |= static_cast<uint64_t>(from[at + i]) << (8 * i);
        return v;
    }

    void step() {
        auto &d = *this;
        // Host memory: replies to reads are late and in order.
        d->dma_read_ready = !random.percent(stall);
        d->dma_data_valid = 0;
        if (!reads_.empty() && reads_.front().due <= cycles && !random.percent(idle)) {
            const auto r = reads_.front();
            reads_.pop_front();
            d->dma_data_valid = 1;
            d->dma_data_error = r.address + 8 > kHostBytes;
            d->dma_data = d->dma_data_error ? 0 : word(host, r.address);
        }
        d->dma_write_ready = !random.percent(stall);
        // Board memory: one burst at a time.
        d->awready = burst_left_ == 0 && !answering_ && !random.percent(stall);
        d->wready = burst_left_ > 0 && !random.percent(stall);
        d->bvalid = answering_ && !random.percent(idle);
        d->bresp = burst_fails_ ? 2 : 0;
        // And reads of it.
        d->arready = read_left_ == 0 && !random.percent(stall);
        d->rvalid = read_left_ > 0 && (read_offered_ || !random.percent(idle));  // until it is accepted
        d->rresp = read_fails_ ? 2 : 0;
        d->rdata = d->rvalid && !read_fails_ ? word(board, read_at_) : 0;
        d->rlast = read_left_ == 1;
        // The table.
        d->change_ready = !changing_ && !random.percent(stall);
        d->changed_valid = changing_ && cycles >= changed_at_;
        d->changed = room_in_table;
        d->changed_function = 9;
        // The function engine and its regions.
        d->request_ready = !random.percent(stall);
        d->grant = d->finish_valid = 0;
        for (unsigned e = 0; e < kCalls; e++) {
            Run &run = runs_[e];
            const bool due = run.state == 1 && cycles >= run.grant_at;
            if (due && load_result == 0 && !d->grant && !granted_last_) {
                unsigned r = region;
                while (r < 4 && taken(r)) r++;
                if (r < 4) {
                    d->grant = 1;
                    d->grant_engine = static_cast<uint8_t>(e);
                    d->grant_region = static_cast<uint8_t>(r);
                }
            }
            if (((due && load_result != 0) || (run.state == 2 && run.in_ended && run.out_ended)) && !d->finish_valid) {
                d->finish_valid = 1;
                d->finish_engine = static_cast<uint8_t>(e);
                d->finish_region = static_cast<uint8_t>(load_result != 0 ? region : run.region);
                d->finish_load = static_cast<uint8_t>(load_result);
                d->finish_killed = run.killed;
                d->finish_loaded = 1;
                d->finish_cycles = kernel_cycles;
            }
        }
        granted_last_ = d->grant;
        d->s_ready = d->m_valid = d->m_last = 0;
        for (Run &run : runs_) {
            if (run.state != 2) continue;
            const unsigned r = run.region, bit = 1u << r;
            if (!run.in_ended && !random.percent(stall)) d->s_ready |= bit;
            if (!run.out_ended && !run.offered && (!run.endless || run.killed) && !random.percent(idle) && (!run.out.empty() || run.in_ended)) run.offered = true;
            if (!run.offered) continue;
            const size_t n = std::min<size_t>(8, run.out.size());
            uint64_t v = 0;
            for (size_t i = 0; i < n; i++) v |= static_cast<uint64_t>(run.out[i]) << (8 * i);
            d->m_data[r] = v;
            d->m_keep[r] = static_cast<uint8_t>((1u << n) - 1);
            const bool last = run.in_ended && run.out.size() <= 8;
            // More bytes may follow an incomplete beat.
            if (!last && n < 8) {
                run.offered = false;
            } else {
                d->m_valid |= bit;
                if (last) d->m_last |= bit;
            }
        }
        settle();
        if (d->host_ended) ended++;
        if (d->dma_read_valid && d->dma_read_ready) {
            check(d->dma_read_beats >= 1 && d->dma_read_beats <= 32, "a read of " + std::to_string(d->dma_read_beats) + " beats");
            for (unsigned i = 0; i < d->dma_read_beats; i++) reads_.push_back({d->dma_read_address + 8 * i, cycles + latency});
        }
        if (d->dma_write_valid && d->dma_write_ready)
            for (size_t i = 0; i < 8; i++)
                if (d->dma_write_keep >> i & 1) {
                    check(d->dma_write_address + i < kHostBytes, "a write beyond host memory");
                    host[d->dma_write_address + i] = static_cast<uint8_t>(d->dma_write_data >> (8 * i));
                }
        if (d->awvalid && d->awready) {
            check(d->awaddr % 256 == 0, "a burst that is not aligned");
            burst_at_ = d->awaddr;
            burst_fails_ = d->awaddr + 256 > kBoardBytes;
            burst_left_ = 32;
        } else if (d->wvalid && d->wready) {
            for (size_t i = 0; i < 8 && !burst_fails_; i++) board[burst_at_ + i] = static_cast<uint8_t>(d->wdata >> (8 * i));
            burst_at_ += 8;
            check(d->wlast == (burst_left_ == 1), "the last beat of a burst is not marked");
            if (--burst_left_ == 0) answering_ = true;
        } else if (d->bvalid) {
            answering_ = false;
        }
        if (d->arvalid && d->arready) {
            check(d->araddr % 256 == 0 && d->arlen == 31, "a read that is not an aligned burst");
            read_at_ = d->araddr;
            read_fails_ = d->araddr + 256 > kBoardBytes;
            read_left_ = 32;
        } else if (d->rvalid && d->rready) {
            read_at_ += 8;
            read_left_--;
        }
        read_offered_ = d->rvalid && !d->rready;
        if (d->change_valid && d->change_ready) {
            changing_ = true;
            changed_at_ = cycles + 20;
            change.count++;
            change.remove = d->change_remove;
            auto wide = [](auto &w, size_t words) {
                Bytes b;
                for (size_t i = 0; i < words; i++)
                    for (int k = 0; k < 4; k++) b.push_back(static_cast<uint8_t>(w[i] >> (8 * k)));
                return b;
            };
            change.name = wide(d->change_name, 4);
            change.entry = wide(d->change_entry, 11);
        } else if (d->changed_valid) {
            changing_ = false;
        }
        if (d->forget) forgotten.push_back(d->forget_function);
        unsigned on = 0, own = 0;
        for (Run &run : runs_)
            if (run.state == 2) own |= 1u << run.region;
        for (unsigned r = 0; r < 4; r++) on |= (d->region_on >> r & 1) << r;
        check((on & ~own) == 0, "a region without a call is connected");
        for (Run &run : runs_) {
            if (run.state != 2) continue;
            const unsigned r = run.region;
            if (d->region_kill >> r & 1) {
                run.killed = true;
                run.out.clear();
            }
            if (d->s_valid >> r & 1 && d->s_ready >> r & 1) {
                check(on >> r & 1, "body has its region");
                if (!first_in) first_in = cycles;
                for (size_t i = 0; i < 8; i++)
                    if (d->s_keep[r] >> i & 1) {
                        const auto byte = static_cast<uint8_t>(d->s_data[r] >> (8 * i));
                        requested.body.push_back(byte);
                        if (!run.killed) run.out.push_back(byte);
                    }
                check((d->s_last >> r & 1) || d->s_keep[r] == 0xff, "a beat that is not full");
                if (d->s_last >> r & 1) run.in_ended = true;
            }
            if (d->m_valid >> r & 1 && d->m_ready >> r & 1) {
                run.out.erase(run.out.begin(), run.out.begin() + std::min<long>(8, static_cast<long>(run.out.size())));
                run.out_ended = d->m_last >> r & 1;
                run.offered = false;
            }
        }
        if (d->request_valid && d->request_ready) {
            check(d->request_engine < kCalls && runs_[d->request_engine].state == 0, "a second request of a call");
            requested.function = d->request_function;
            requested.regions = d->request_regions;
            requested.cost = d->request_cost;
            requested.timeout = d->request_timeout;
            requested.image = d->request_image;
            for (int i = 0; i < 4; i++) requested.params[i] = d->request_params[i];
            requested.count++;
            requested.body.clear();
            Run &run = runs_[d->request_engine];
            run = Run();
            run.state = 1;
            run.killed = killed;
            run.endless = endless && d->request_function == 9;
            run.grant_at = cycles + grant_delay;
        }
        if (d->grant) {
            Run &run = runs_[d->grant_engine];
            run.state = 2;
            run.region = d->grant_region;
            granted_at = cycles;
            first_in = 0;
            unsigned count = 0;
            for (const Run &any : runs_) count += any.state == 2;
            most_at_once = std::max(most_at_once, count);
        }
        if (d->finish_valid && d->finish_ready) runs_[d->finish_engine].state = 0;
        rise();
    }

    void write(unsigned at, uint32_t value) {
        (*this)->host_write = 1;
        (*this)->host_address = static_cast<uint8_t>(at);
        (*this)->host_data = value;
        step();
        (*this)->host_write = 0;
    }
    uint32_t read(unsigned at) {
        (*this)->host_address = static_cast<uint8_t>(at);
        step();
        return (*this)->host_read_data;
    }
    // Copies and reads have a queue of their own.
    void post(const Descriptor &d, uint64_t at = kDescriptor) {
        const Bytes b = d.bytes_of();
        std::copy(b.begin(), b.end(), host.begin() + static_cast<long>(at));
        write(PostLow, static_cast<uint32_t>(at) | (d.kind == 1 || d.kind == 3));
        write(PostHigh, 0);
    }
    Report report(uint64_t at = kDescriptor) {
        const uint64_t a = word(host, at + 64), b = word(host, at + 72);
        return {static_cast<unsigned>(a & 255), static_cast<unsigned>(a >> 8 & 255), static_cast<unsigned>(a >> 16 & 255),
                static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
    }
    Report run(const Descriptor &d) {
        const unsigned before = ended;
        post(d);
        for (int i = 0; ended == before; i++) {
            check(i < 200000, "hangs");
            step();
        }
        return report();
    }
    Bytes part(uint64_t at, size_t count) { return Bytes(host.begin() + static_cast<long>(at), host.begin() + static_cast<long>(at + count)); }

private:
    struct Read {
        uint64_t address, due;
    };
    std::deque<Read> reads_;
    // A call at the function engine.
    struct Run {
        int state = 0;  // 1: requested, 2: granted
        unsigned region = 0;
        uint64_t grant_at = 0;
        bool in_ended = false, out_ended = false, offered = false, killed = false, endless = false;
        std::deque<uint8_t> out;
    };
    static constexpr unsigned kCalls = 3;
    bool taken(unsigned region) const {
        for (const Run &run : runs_)
            if (run.state == 2 && run.region == region) return true;
        return false;
    }
    Run runs_[kCalls];
    bool granted_last_ = false;
    int burst_left_ = 0;
    int read_left_ = 0;
    bool read_offered_ = false;
    bool read_fails_ = false;
    uint64_t read_at_ = 0, burst_at_ = 0, changed_at_ = 0;
    bool burst_fails_ = false, answering_ = false, changing_ = false;
};

void is_well(Port &port, const std::string &after) {
    port.load_result = 0;
    port.killed = port.endless = false;
    port.region = 2;
    Descriptor d;
    d.bytes = 100;
    const Report r = port.run(d);
    check(r.status == Ok && r.bytes == 100, "status " + std::to_string(r.status) + " after " + after);
    expect(port.part(d.answer, 100), port.part(d.source, 100), "the call after " + after);
}

}  // namespace

TEST(registers_describe_the_board) {
    Port port;
    check(port.read(Magic) == 0x50484C42 && port.read(Version) == 1, "magic and version");
    check(port.read(Shell) == 1 && port.read(Sizes) == (64u << 16 | 3 << 8 | 4) && port.read(Image) == 1 << 26, "shell and sizes");
    check(port.read(Decouple) == 5 && port.read(Loads + 3) == 13 && port.read(Busy + 1) == 21 && port.read(CyclesUp) == 7, "the regions");
    check(port.read(Held) == 0xabcd0000 && port.read(Held + 3) == 0xabcd0003 && port.read(Held + 4) == 0, "the regions' images");
    check(port.read(Loads + 4) == 0 && port.read(Busy + 15) == 0, "regions that are not there");
    port.write(Policy, 2 | 99 << 8);
    port.write(LoadCost, 12345);
    check(port.read(Policy) == (2 | 99 << 8) && port.read(LoadCost) == 12345 && port->policy == 2 && port->patience == 99, "settings");
    const uint64_t low = port.read(Cycles), high = port.read(CyclesUp);
    for (int i = 0; i < 100; i++) port.step();
    check((high << 32 | low) + 102 == (static_cast<uint64_t>(port.read(Cycles)) | high << 32), "cycles");
}

TEST(the_table_gets_the_written_entry) {
    Port port;
    for (unsigned traffic : {0, 60}) {
        port.stall = traffic;
        Bytes name = port.random.bytes(16), entry = port.random.bytes(44);
        for (unsigned i = 0; i < 4; i++) port.write(Name + i, static_cast<uint32_t>(port.word(name, 4 * (i & ~1u)) >> (32 * (i & 1))));
        for (unsigned i = 0; i < 11; i++) {
            Bytes padded = entry;
            padded.resize(48);
            port.write(Entry + i, static_cast<uint32_t>(port.word(padded, 4 * (i & ~1u)) >> (32 * (i & 1))));
        }
        const bool remove = traffic;
        port.room_in_table = !remove;
        const unsigned before = port.change.count;
        port.write(Change, remove ? 2 : 1);
        port.write(Name, 0xdeadbeef);       // too early: the change keeps what it was made of
        port.write(Change, remove ? 1 : 2);
        uint32_t value;
        for (int i = 0; (value = port.read(Change)) & 1; i++) check(i < 1000, "a change hangs");
        check((value >> 16) == 9 && (value >> 1 & 1) == !remove, "its answer is " + std::to_string(value));
        check(port.change.count == before + 1 && port.change.remove == remove, "another change");
        expect(port.change.name, name, "the name");
        expect(port.change.entry, entry, "the entry");
        check(port.forgotten.size() == 1, "regions of the function are not forgotten");
    }
    port.write(Forget, 7);
    port.step();
    check(port.forgotten.back() == 64 + 7, "a program is not forgotten");
}

TEST(board_memory_comes_back_under_any_traffic) {
    Port port;
    for (auto &x : port.board) x = static_cast<uint8_t>(port.random.next());
    for (unsigned traffic : {0, 10, 60})
        for (uint32_t bytes : {256, 512, 4096}) {
            port.idle = port.stall = traffic;
            for (auto &x : port.host) x = static_cast<uint8_t>(port.random.next());
            const Bytes before = port.host;
            Descriptor d;
            d.kind = 3;
            d.bytes = bytes;
            d.board = 0x400;
            const Report r = port.run(d);
            check(r.status == Ok && r.bytes == 0 && r.kernel_cycles == 0, "status " + std::to_string(r.status));
            expect(port.part(d.answer, bytes), Bytes(port.board.begin() + 0x400, port.board.begin() + 0x400 + bytes), "what was read");
            expect(port.part(0, kDescriptor), Bytes(before.begin(), before.begin() + kDescriptor), "what is before");
            expect(port.part(d.answer + bytes, 256), Bytes(before.begin() + static_cast<long>(d.answer + bytes), before.begin() + static_cast<long>(d.answer + bytes + 256)), "what is behind");
        }
    is_well(port, "reads");
}

TEST(reads_are_checked) {
    Port port;
    Descriptor good;
    good.kind = 3;
    good.bytes = 256;
    for (unsigned wrong = 0; wrong < 4; wrong++) {
        Descriptor d = good;
        if (wrong == 0) d.bytes = 0;
        if (wrong == 1) d.bytes = 100;
        if (wrong == 2) d.board = 0x404;
        if (wrong == 3) d.answer += 4;
        check(port.run(d).status == Malformed, "a malformed read " + std::to_string(wrong));
        is_well(port, "a malformed read");
    }
    Descriptor beyond = good;
    beyond.board = kBoardBytes;
    check(port.run(beyond).status == BoardError, "a read beyond memory");
    is_well(port, "a failed read");
}

TEST(calls_of_any_length_under_any_traffic) {
    Port port;
    for (unsigned traffic : {0, 10, 60})
        for (unsigned late : {1, 40, 300}) {
            port.idle = port.stall = traffic;
            port.latency = late;
            for (uint32_t bytes : {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 2047, 2048, 2049, 6000}) {
                Descriptor d;
                d.bytes = bytes;
                d.function = static_cast<uint8_t>(port.random.percent(50) ? 5 : 128 + 6);
                d.room = bytes + 8;
                port.region = port.random.below(4);
                port.grant_delay = port.random.below(50);
                for (auto &x : port.host) x = static_cast<uint8_t>(port.random.next());
                const Bytes before = port.host;
                const Report r = port.run(d);
                check(r.status == Ok && r.bytes == bytes && r.loaded == 1 && r.region == port.region && r.kernel_cycles == 1234,
                      "the report of " + std::to_string(bytes) + " bytes: status " + std::to_string(r.status));
                check(port.requested.function == (d.function == 5 ? 5 : 64 + 6) && port.requested.image == d.board && port.requested.timeout == 77 &&
                          port.requested.cost == 55 && port.requested.regions == 0x8001 && port.requested.params[0] == 1 && port.requested.params[3] == 0xffffffff,
                      "the request's operands");
                expect(port.part(d.answer, bytes), port.part(d.source, bytes), "the answer");
                // No other memory is written.
                Bytes rest = port.host;
                std::copy(before.begin() + 0x8000, before.begin() + 0x8000 + bytes, rest.begin() + 0x8000);
                std::copy(before.begin() + kDescriptor, before.begin() + kDescriptor + 80, rest.begin() + kDescriptor);
                expect(rest, before, "host memory elsewhere");
            }
        }
}

TEST(copies_reach_board_memory) {
    Port port;
    for (unsigned traffic : {0, 50})
        for (uint32_t bytes : {256, 512, 8192}) {
            port.idle = port.stall = traffic;
            port.latency = traffic;
            Descriptor d;
            d.kind = 1;
            d.bytes = bytes;
            d.board = 0x300;
            Bytes before = port.board;
            const Report r = port.run(d);
            check(r.status == Ok, "status " + std::to_string(r.status));
            const Bytes from = port.part(d.source, bytes);
            std::copy(from.begin(), from.end(), before.begin() + 0x300);
            expect(port.board, before, "board memory");
        }
}

TEST(failures_are_reported_and_affect_no_later_calls) {
    Port port;
    for (unsigned traffic : {0, 40}) {
        port.idle = port.stall = traffic;
        port.latency = 30;
        Descriptor d;
        d.bytes = 3000;
        for (unsigned refusal = 1; refusal <= 9; refusal++) {
            port.load_result = refusal;
            port.region = refusal % 4;
            const Bytes before = port.part(d.answer, 3000);
            const Report r = port.run(d);
            check(r.status == ImageRefused + refusal && r.bytes == 0 && r.region == port.region, "status " + std::to_string(r.status) + " of a refused image");
            expect(port.part(d.answer, 3000), before, "a refused image leaves the answer unchanged");
            is_well(port, "a refused image");
        }
        port.killed = true;
        check(port.run(d).status == Killed, "a killed call");
        is_well(port, "a killed call");
        d.room = 2997;
        const Bytes behind = port.part(d.answer + 2997, 100);
        const Report r = port.run(d);
        check(r.status == Room && r.bytes == 3000, "an answer that is too long");
        expect(port.part(d.answer + 2997, 100), behind, "bytes behind the room");
        is_well(port, "an answer that was too long");
        d.room = 4000;
        d.source = kHostBytes - 1000;
        check(port.run(d).status == HostError, "a body beyond host memory");
        is_well(port, "a body beyond host memory");
        Descriptor copy;
        copy.kind = 1;
        copy.bytes = 1024;
        copy.board = kBoardBytes - 512;
        check(port.run(copy).status == BoardError, "a copy beyond board memory");
        is_well(port, "a copy beyond board memory");
        copy.board = 0;
        copy.source = kHostBytes - 512;
        check(port.run(copy).status == HostError, "a copy from beyond host memory");
        is_well(port, "a copy from beyond host memory");
        const unsigned requested = port.requested.count;
        std::vector<Descriptor> wrong(8);
        wrong[0].kind = 0, wrong[1].kind = 3, wrong[2].source = 0x1004, wrong[3].answer = 0x8001;
        for (int i = 4; i < 8; i++) wrong[i].kind = 1, wrong[i].bytes = 256;
        wrong[4].bytes = 0, wrong[5].bytes = 255, wrong[6].board = 128, wrong[7].source = 0x1002;
        for (size_t i = 0; i < wrong.size(); i++) check(port.run(wrong[i]).status == Malformed, "descriptor " + std::to_string(i) + " is taken");
        check(port.requested.count == requested, "a malformed call is requested");
        is_well(port, "malformed descriptors");
    }
}

// Repeats the abort until the report is there, as a host does.
Report aborted(Port &port, const Descriptor &d, unsigned after, uint64_t address = kDescriptor) {
    const unsigned before = port.ended;
    port.post(d);
    for (unsigned i = 0; i < after; i++) port.step();
    for (int i = 0; port.ended == before; i++) {
        check(i < 20000, "hangs");
        port.write(Abort, static_cast<uint32_t>(address));
    }
    return port.report();
}

TEST(an_abort_ends_its_call_at_any_time_and_no_other) {
    Port port;
    for (unsigned traffic : {0, 40})
        for (unsigned after = 0; after < 400; after += 1 + port.random.below(9)) {
            port.idle = port.stall = traffic;
            port.latency = 20;
            port.grant_delay = 100;
            port.killed = false;
            port.endless = true;
            Descriptor d;
            d.bytes = port.random.below(2000);
            d.function = 9;
            const Report r = aborted(port, d, after);
            check(r.status == Killed && r.bytes == 0, "status " + std::to_string(r.status) + " of an aborted call");
            is_well(port, "an abort");
            // The kernel has ended before, or the abort is for another descriptor.
            check(aborted(port, d, 6000).status == Ok && aborted(port, d, after, kDescriptor + 8).status == Ok, "a call is stopped by another's abort");
            Descriptor copy;
            copy.kind = 1;
            copy.bytes = 512;
            check(aborted(port, copy, after % 100).status == Ok, "a copy is stopped");
        }
    is_well(port, "aborts of nothing");
}

TEST(calls_and_copies_are_in_progress_at_once) {
    for (unsigned traffic : {0, 30, 60}) {
        Port port;
        port.idle = port.stall = traffic;
        port.region = 0;
        port.latency = 40;
        port.endless = true;
        // One call does not end; calls and a copy continue beside it, whatever their order.
        Descriptor endless;
        endless.function = 9;
        endless.bytes = 500;
        endless.answer = 0x7000;
        port.post(endless, 0x80);
        struct Posted {
            Descriptor d;
            uint64_t at;
        };
        std::vector<Posted> posted;
        unsigned calls = 0, next = 0;
        const auto go_on = [&](unsigned most) {
            for (int i = 0; posted.size() >= most && !posted.empty(); i++) {
                check(i < 200000, "hangs");
                port.step();
                for (auto it = posted.begin(); it != posted.end();) {
                    const Report r = port.report(it->at);
                    if (r.cycles == 0) {
                        it++;
                        continue;
                    }
                    check(r.status == Ok, "status " + std::to_string(r.status));
                    const Bytes from = port.part(it->d.source, it->d.bytes);
                    if (it->d.kind == 2) expect(port.part(it->d.answer, it->d.bytes), from, "an answer");
                    if (it->d.kind == 1) expect(Bytes(port.board.begin() + it->d.board, port.board.begin() + it->d.board + it->d.bytes), from, "board memory");
                    if (it->d.kind == 3) expect(port.part(it->d.answer, it->d.bytes), Bytes(port.board.begin() + it->d.board, port.board.begin() + it->d.board + it->d.bytes), "a read");
                    it = posted.erase(it);
                }
            }
        };
        for (; next < 120; next++) {
            Descriptor d;
            const unsigned slot = next % 8;
            d.kind = port.random.percent(60) ? 2 : port.random.percent(50) ? 1 : 3;
            if (d.kind == 2) calls++;
            d.bytes = d.kind == 2 ? port.random.below(600) : 256 * (1 + port.random.below(2));
            d.source = 0x1000 + 0x400 * slot;
            d.answer = 0x8000 + 0x400 * slot;
            d.board = 0x400 * slot;
            const uint64_t at = 0x100 + 0x80 * slot;
            // A place is used again when its descriptor has ended.
            for (int i = 0; std::any_of(posted.begin(), posted.end(), [&](const Posted &p) { return p.at == at; }); i++) go_on(static_cast<unsigned>(posted.size()));
            std::fill(port.host.begin() + static_cast<long>(at) + 64, port.host.begin() + static_cast<long>(at) + 80, 0);
            port.post(d, at);
            posted.push_back({d, at});
        }
        go_on(1);
        check(port.most_at_once == 3, std::to_string(port.most_at_once) + " calls at once");
        check(port.ended == 120 && port.read(Ended) == 120, "they are not counted");
        for (int i = 0; port.ended == 120; i++) {
            check(i < 20000, "hangs");
            port.write(Abort, 0x80);
        }
        check(port.report(0x80).status == Killed, "the call that does not end");
        is_well(port, "many calls");
    }
}

TEST(descriptors_wait_in_order) {
    Port port;
    port.latency = 100;
    std::vector<uint64_t> places;
    for (unsigned i = 0; i < 8; i++) {
        Descriptor d;
        d.bytes = 64;
        d.answer = 0x8000 + 0x100 * i;
        places.push_back(0x100 + 0x80 * i);
        for (int k = 0; (port.read(PostHigh) & 2) == 0; k++) check(k < 5, "there is no room for " + std::to_string(i));
        port.post(d, places.back());
    }
    for (int i = 0; port.ended < 8; i++) {
        check(i < 100000, "hangs");
        port.step();
    }
    check(port.read(Ended) == 8, "they are not counted");
    for (unsigned i = 0; i < 8; i++) {
        check(port.report(places[i]).status == Ok, "one fails");
        expect(port.part(0x8000 + 0x100 * i, 64), port.part(0x1000, 64), "an answer");
    }
}

TEST(a_call_takes_the_documented_cycles) {
    Port port;
    Descriptor d;
    d.bytes = 8;
    const Report r = port.run(d);
    const uint64_t wait = port.first_in - port.granted_at;
    std::printf("    8 bytes, a bus that answers at once, a grant after 3 cycles: %u cycles; granted to first beat %llu\n", r.cycles,
                (unsigned long long)wait);
    check(wait == 1, "the body waits for " + std::to_string(wait) + " cycles after the grant");
    d.bytes = 16384;
    d.answer = 0x8000;
    d.room = 0x8000;
    port.latency = 200;
    const Report long_one = port.run(d);
    std::printf("    16 KB at a latency of 200 cycles: %u cycles, %u of them beats\n", long_one.cycles, 16384 / 8);
    check(long_one.cycles < 2048 + 2 * 200 + 60, "the bus's latency is not covered");
}

BENCH_MAIN()
