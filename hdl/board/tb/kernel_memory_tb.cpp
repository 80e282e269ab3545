// Two kernels with ports to board memory, each of which is stopped at any moment: what a kernel has
// written is there when its response has come; a stopped one writes nothing more, its port is soon
// idle, and the next run sees no reply of the last one; the other kernel's bursts are unaffected.
#include "clocked.hpp"

using namespace bench;

namespace {

constexpr uint32_t kBase = 0x40000000, kBytes = 1 << 14, kWords = kBytes / 8;

// A kernel that writes bursts into its half of memory and reads them again.
struct Kernel {
    bool reading = false, asking = false, in_flight = false;
    uint32_t at = 0;      // word of the burst
    unsigned length = 0;  // less one
    unsigned sent = 0, got = 0;
    std::vector<uint64_t> data;
    unsigned bursts = 0;
    void stop() { reading = asking = in_flight = false; }
};

}  // namespace

TEST(stopped_kernels_leave_memory_whole) {
    Clocked dut;
    dut->off = dut->pause = 0;
    dut->k_arvalid = dut->k_awvalid = dut->k_wvalid = 0;
    dut.reset();
    Kernel kernels[2];
    // The possible contents of each word: the last certain one, and those of stopped writes.
    std::vector<std::vector<uint64_t>> words(kWords);
    std::vector<bool> known(kWords);
    unsigned stops = 0, waits[2] = {}, off_for[2] = {};
    while (kernels[0].bursts < 3000 || kernels[1].bursts < 3000) {
        check(dut.cycles < 2000000, "hangs");
        unsigned off = 0, arvalid = 0, awvalid = 0, wvalid = 0;
        for (int k = 0; k < 2; k++) {
            Kernel &x = kernels[k];
            // A stop holds for some cycles; then the next run waits until the port is idle.
            if (off_for[k] == 0 && waits[k] == 0 && dut.random.percent(1)) {
                off_for[k] = 1 + dut.random.below(6);
                stops++;
            }
            if (off_for[k] > 0) {
                off |= 1u << k;
                // A kernel in reset or being loaded has any outputs.
                if (dut.random.percent(50)) arvalid |= 1u << k;
                if (dut.random.percent(50)) awvalid |= 1u << k;
                if (dut.random.percent(50)) wvalid |= 1u << k;
                dut->k_wdata[k] = 0xdeadbeef;
                dut->k_araddr[k] = dut->k_awaddr[k] = static_cast<uint32_t>(dut.random.next());
                dut->k_length[k] = static_cast<uint8_t>(dut.random.next());
                continue;
            }
            if (waits[k] > 0) continue;
            if (!x.asking && !x.in_flight && dut.random.percent(40)) {
                x.reading = dut.random.percent(50);
                x.length = dut.random.below(32);
                x.at = static_cast<uint32_t>(k) * kWords / 2 + dut.random.below(kWords / 2 - x.length);
                x.sent = x.got = 0;
                x.data.clear();
                for (unsigned i = 0; i <= x.length; i++) x.data.push_back(dut.random.next());
                x.asking = true;
            }
            // Upper bits of an address lead nowhere else.
            dut->k_araddr[k] = dut->k_awaddr[k] = (kBase ^ (dut.random.percent(20) ? 0xc0000000 : 0)) + 8 * x.at;
            dut->k_length[k] = static_cast<uint8_t>(x.length);
            if (x.asking) (x.reading ? arvalid : awvalid) |= 1u << k;
            if (x.in_flight && !x.reading && x.sent <= x.length && dut.random.percent(70)) {
                wvalid |= 1u << k;
                dut->k_wdata[k] = x.data[x.sent];
            }
        }
        dut->pause = dut.random.percent(30);
        dut->off = static_cast<uint8_t>(off);
        dut->k_arvalid = static_cast<uint8_t>(arvalid);
        dut->k_awvalid = static_cast<uint8_t>(awvalid);
        dut->k_wvalid = static_cast<uint8_t>(wvalid);
        dut.settle();
        for (int k = 0; k < 2; k++) {
            Kernel &x = kernels[k];
            const auto is = [k](auto bits) { return (bits >> k & 1) != 0; };
            if (is(dut->off)) {
                check(!is(dut->k_arready) && !is(dut->k_awready) && !is(dut->k_wready) && !is(dut->k_rvalid) && !is(dut->k_bvalid), "a stopped kernel is served");
                if (x.in_flight && !x.reading)
                    for (unsigned i = 0; i < x.sent; i++) words[x.at + i].push_back(x.data[i]);
                x.stop();
                if (--off_for[k] == 0) waits[k] = 1;
                continue;
            }
            if (waits[k] > 0) {
                check(!is(dut->k_rvalid) && !is(dut->k_bvalid), "a reply of the last run");
                check(++waits[k] < 400, "the port is not idle");
                if (waits[k] > 3 && is(dut->idle)) waits[k] = 0;
                continue;
            }
            if (is(dut->k_rvalid)) {
                check(x.in_flight && x.reading && x.got <= x.length, "a beat that was not asked for");
                const uint32_t word = x.at + x.got;
                bool found = !known[word];
                for (uint64_t value : words[word]) found |= value == dut->k_rdata[k];
                check(found, "a word that nobody has written");
                known[word] = true;
                words[word] = {dut->k_rdata[k]};
                check(is(dut->k_rlast) == (x.got == x.length), "the last beat");
                if (x.got++ == x.length) x.in_flight = false, x.bursts++;
            }
            if (is(dut->k_wvalid) && is(dut->k_wready)) x.sent++;
            if (is(dut->k_bvalid)) {
                check(x.in_flight && !x.reading && x.sent == x.length + 1, "a response that is too early");
                for (unsigned i = 0; i <= x.length; i++) {
                    words[x.at + i] = {x.data[i]};
                    known[x.at + i] = true;
                }
                x.in_flight = false;
                x.bursts++;
            }
            if (x.asking && is(x.reading ? dut->k_arready : dut->k_awready)) {
                x.asking = false;
                x.in_flight = true;
            }
        }
        dut.rise();
    }
    check(stops > 100, "too few stops");
}

BENCH_MAIN()
