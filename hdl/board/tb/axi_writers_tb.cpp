// Bursts of two writers, at any pace of the writers and of the memory: each burst arrives whole, in
// its writer's order, without beats of the other's in between, gets its own response, and a writer
// waits for at most one burst of the other.
#include <deque>

#include "clocked.hpp"

using namespace bench;

namespace {

struct Burst {
    uint32_t address;
    uint8_t beats;  // less one, as awlen
    std::vector<uint64_t> data;
    std::vector<uint8_t> strobes;
};

struct Writer {
    std::deque<Burst> given;   // in the order of its requests
    bool address_up = false, address_taken = false, data_up = false;
    size_t beat = 0, done = 0;
};

}  // namespace

TEST(bursts_arrive_whole_and_in_order) {
    Clocked dut;
    dut->s_awvalid = dut->s_wvalid = dut->s_wlast = dut->awready = dut->wready = dut->bvalid = 0;
    dut->s_bready = 3;
    dut.reset();
    Writer writers[2];
    uint32_t number = 0;
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < 300; i++) {
            Burst b{0x1000u * number++, static_cast<uint8_t>(dut.random.below(32)), {}, {}};
            for (int k = 0; k <= b.beats; k++) {
                b.data.push_back(dut.random.next());
                b.strobes.push_back(static_cast<uint8_t>(dut.random.next()));
            }
            writers[w].given.push_back(b);
        }
    int owner = -1, waited[2] = {};  // owner of the burst in progress; bursts of the other since
                                     // one began to wait
    size_t beat = 0;
    bool answering = false;
    while (writers[0].done + writers[1].done < 600) {
        check(dut.cycles < 200000, "hangs");
        unsigned awvalid = 0, wvalid = 0, wlast = 0;
        for (int w = 0; w < 2; w++) {
            Writer &x = writers[w];
            if (x.given.empty()) continue;
            // An offered beat stays until it is accepted.
            if (!x.address_taken && !x.address_up && dut.random.percent(30)) x.address_up = true;
            if (x.address_taken && !x.data_up && x.beat <= x.given[0].beats && dut.random.percent(70)) x.data_up = true;
            awvalid |= static_cast<unsigned>(x.address_up) << w;
            wvalid |= static_cast<unsigned>(x.data_up) << w;
            dut->s_awaddr[w] = x.given[0].address;
            dut->s_awlen[w] = x.given[0].beats;
            size_t k = std::min<size_t>(x.beat, x.given[0].beats);
            dut->s_wdata[w] = x.given[0].data[k];
            dut->s_wstrb[w] = x.given[0].strobes[k];
            wlast |= static_cast<unsigned>(k == x.given[0].beats) << w;
        }
        dut->s_awvalid = static_cast<uint8_t>(awvalid);
        dut->s_wvalid = static_cast<uint8_t>(wvalid);
        dut->s_wlast = static_cast<uint8_t>(wlast);
        dut->awready = dut.random.percent(50);
        dut->wready = dut.random.percent(70);
        dut->bvalid = answering && dut.random.percent(30);
        dut.settle();
        check((dut->s_awready & (dut->s_awready - 1)) == 0 && (dut->s_wready & (dut->s_wready - 1)) == 0, "the port is given to two");
        bool aw = dut->awvalid && dut->awready, w_moves = dut->wvalid && dut->wready, b = dut->bvalid && dut->bready;
        if (aw) {
            check(owner < 0, "an address within a burst");
            for (int w = 0; w < 2; w++)
                if (dut->s_awready >> w & awvalid >> w & 1) owner = w;
            check(owner >= 0, "an address of no writer's");
            Writer &x = writers[owner];
            check(dut->awaddr == x.given[0].address && dut->awlen == x.given[0].beats, "another address");
            check(dut->awsize == 3 && dut->awburst == 1, "not a burst of whole beats");
            x.address_up = false;
            x.address_taken = true;
            beat = 0;
            waited[owner] = 0;
            if (awvalid >> !owner & 1) check(++waited[!owner] <= 2, "one waits for more than two bursts of the other");
        } else {
            check(!(dut->s_awready & awvalid), "an address is taken that is not shown");
        }
        if (w_moves) {
            check(owner >= 0 && !answering, "data outside a burst");
            Writer &x = writers[owner];
            check(dut->s_wready & wvalid & 1u << owner, "the other's data");
            check(dut->wdata == x.given[0].data[beat] && dut->wstrb == x.given[0].strobes[beat], "other data");
            check(dut->wlast == (beat == x.given[0].beats), "the end is elsewhere");
            beat++;
            x.beat++;
            x.data_up = false;
            if (dut->wlast) answering = true;
        } else {
            check(!(dut->s_wready & wvalid), "data are taken that are not shown");
        }
        if (b) {
            check(dut->s_bvalid == 1u << owner, "an answer to another");
            Writer &x = writers[owner];
            x.given.pop_front();
            x.address_taken = false;
            x.beat = 0;
            x.done++;
            owner = -1;
            answering = false;
        }
        dut.rise();
    }
}

BENCH_MAIN()
