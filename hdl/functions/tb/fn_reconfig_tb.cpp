#include "clocked.hpp"
#include "image.hpp"

#include "Vdut___024root.h"

using namespace bench;

namespace {

enum Result { Ok, Magic, Version, HeaderCrc, Shell, Region, Length, Memory, BodyCrc, Alignment };

constexpr uint32_t shell_id = 0xBA17, memory_bytes = 1 << 21;

struct ShellImage : Image {
    ShellImage() { shell = shell_id; }
};

struct Controller : Clocked {
    unsigned stall = 0;
    int waited = 0;                 // cycles until the last load could begin
    uint64_t first = 0, took = 0;   // cycles of the last load to its first word and to its end
    std::vector<uint32_t> port;     // words at the configuration port
    uint32_t coupled_early = 0;     // a region was coupled while its words arrived

    Controller() {
        auto &dut = *this;
        dut->load_valid = 0;
        reset();
    }

    void store(uint32_t address, const std::vector<uint32_t> &words) {
        bench::store((*this)->rootp->fn_reconfig_top__DOT__u_dram__DOT__memory, address, words);
    }

    Result load(uint32_t address, uint32_t region) {
        auto &dut = *this;
        port.clear();
        first = 0;
        waited = 0;
        while (settle(), !dut->load_ready) {
            rise();
            check(++waited < 10000, "never ready again");
        }
        dut->load_valid = 1;
        dut->load_address = address;
        dut->load_region = static_cast<uint8_t>(region);
        uint64_t from = cycles;
        settle();
        rise();
        dut->load_valid = 0;
        for (;;) {
            dut->icap_ready = !random.percent(stall);
            settle();
            if (dut->icap_valid && dut->icap_ready) {
                if (port.empty()) first = cycles - from;
                port.push_back(dut->icap_data);
                check(dut->icap_region == region, "another region's words");
                check(dut->decouple >> region & 1, "a region gets words while it is coupled");
            }
            if (dut->done) break;
            rise();
            check(cycles - from < 20 * memory_bytes / 4 + 10000, "hangs");
        }
        took = cycles - from;
        return static_cast<Result>(dut->result);
    }
};

std::vector<uint32_t> random_words(Random &random, size_t count) {
    std::vector<uint32_t> w(count);
    for (auto &x : w) x = static_cast<uint32_t>(random.next());
    return w;
}

}  // namespace

TEST(any_length_arrives_whole) {
    Controller dut;
    check(dut->decouple == 15, "regions are coupled before anything is loaded");
    for (unsigned stall : {0, 50, 90})
        for (size_t words : {1, 2, 7, 55, 56, 57, 63, 64, 119, 120, 121, 500, 1000}) {
            ShellImage image;
            image.body = random_words(dut.random, words);
            image.kernel = dut.random.below(1000);
            uint32_t region = dut.random.below(4), address = 256 * dut.random.below(1000);
            dut.stall = stall;
            dut.store(address, image.words());
            check(dut.load(address, region) == Ok, "a good image is refused");
            check(dut.port == image.body, std::to_string(words) + " words: other words arrive");
            check(dut->kernel == image.kernel && dut->checksum == image.words()[7], "another kernel's number or checksum");
            dut.rise();
            dut.settle();
            check(!(dut->decouple >> region & 1), "is not coupled after its load");
            check(!dut->done, "done is longer than a cycle");
        }
}

TEST(a_wrong_header_leaves_the_region_unchanged) {
    Controller dut;
    ShellImage good;
    good.body = random_words(dut.random, 100);
    dut.store(0, good.words());
    check(dut.load(0, 2) == Ok, "a good image is refused");
    auto refused = [&](const ShellImage &image, Result why, const char *what) {
        dut.store(4096, image.words());
        Result got = dut.load(4096, 2);
        check(got == why, std::string(what) + ": result " + std::to_string(got));
        check(dut.port.empty(), std::string(what) + ": reaches the port");
        check(dut->decouple == 0b1011, std::string(what) + ": the region is lost");
        check(dut.load(0, 2) == Ok && dut.port == good.body, std::string(what) + ": the next load is refused");
    };
    ShellImage image = good;
    image.magic++;
    refused(image, Magic, "magic");
    image = good;
    image.version = 2;
    refused(image, Version, "version");
    image = good;
    image.shell++;
    refused(image, Shell, "shell");
    image = good;
    image.region = 1;
    refused(image, Region, "region");
    for (uint32_t length : {0u, 2u, 401u, (1u << 20) + 4, 0xfffffffcu}) {
        image = good;
        image.length = length;
        refused(image, Length, "length");
    }
    check(dut.load(128, 2) == Alignment && dut.port.empty(), "an address within a burst");
    check(dut.load(memory_bytes, 2) == Memory && dut.port.empty(), "an address outside of memory");
    check(dut->decouple == 0b1011, "the region is lost");
    image = good;
    image.region = 2;
    dut.store(4096, image.words());
    check(dut.load(4096, 2) == Ok, "an image for its own region is refused");
}

TEST(any_flipped_bit_is_found) {
    Controller dut;
    ShellImage image;
    image.body = random_words(dut.random, 80);
    auto words = image.words();
    for (int i = 0; i < 400; i++) {
        auto damaged = words;
        size_t at = dut.random.below(static_cast<uint32_t>(words.size()));
        damaged[at] ^= 1u << dut.random.below(32);
        dut.store(0, words);
        check(dut.load(0, 1) == Ok, "a good image is refused");
        dut.store(0, damaged);
        Result got = dut.load(0, 1);
        dut.rise();
        dut.settle();
        bool coupled = !(dut->decouple >> 1 & 1);
        if (at >= 8) {
            check(got == BodyCrc, "a damaged body: result " + std::to_string(got));
            check(!coupled, "a region with a damaged image is coupled");
        } else {
            Result want = at == 0 ? Magic : at == 1 ? Version : HeaderCrc;
            check(got == want, "a damaged header: result " + std::to_string(got));
            check(dut.port.empty() && coupled, "a damaged header touches the region");
        }
    }
}

TEST(memory_that_ends_within_the_body) {
    Controller dut;
    ShellImage image;
    image.body = random_words(dut.random, 2000);
    auto beginning = image.words();
    beginning.resize(256);
    dut.store(memory_bytes - 1024, beginning);
    for (unsigned stall : {0, 70}) {
        dut.stall = stall;
        check(dut.load(memory_bytes - 1024, 0) == Memory, "is not refused");
        check(dut.port.size() == 248, std::to_string(dut.port.size()) + " words arrive");
        check(dut->decouple & 1, "a region with half an image is coupled");
        image.body.resize(300);
        dut.store(0, image.words());
        check(dut.load(0, 0) == Ok && dut.port == image.body, "the next load is refused");
        check(dut.waited < 300, "reads on for " + std::to_string(dut.waited) + " cycles after an error");
        image.body.resize(2000);
    }
}

TEST(a_word_a_cycle) {
    Controller dut;
    for (uint32_t bytes : {4096u, 65536u, 1u << 20}) {
        ShellImage image;
        image.body = random_words(dut.random, bytes / 4);
        dut.store(0, image.words());
        check(dut.load(0, 0) == Ok && dut.port == image.body, "a good image is refused");
        std::printf("    %u bytes: %llu cycles, the first word after %llu, %lld beyond the port's own\n", bytes,
                    (unsigned long long)dut.took, (unsigned long long)dut.first, (long long)(dut.took - bytes / 4));
        // At 32 bits the memory delivers one word per cycle itself, and its latency varies here.
        check(dut.took <= bytes / 4 + (W == 64 ? 60 : 120 + bytes / 64), "is slower");
    }
}

BENCH_MAIN()
