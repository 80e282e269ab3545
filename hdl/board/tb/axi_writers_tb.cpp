// Bursts of two writers, at any pace of the writers and of the memory: each burst arrives whole, in
// its writer's order, without beats of the other's in between, gets its own response, and a writer
// waits for at most one burst of the other. Bursts follow before the responses to earlier ones.
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
    std::deque<Burst> given;  // in the order of its requests, without those that have ended
    bool address_up = false, address_taken = false, data_up = false;
    size_t beat = 0, owed = 0, done = 0;  // owed: bursts without a response
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
    std::deque<int> answers;         // writers of the bursts without a response
    size_t most = 0;
    unsigned pace = 30;  // of responses, percent
    while (writers[0].done + writers[1].done < 600) {
        check(dut.cycles < 200000, "hangs");
        if (dut.cycles % 1000 == 0) pace = 2 + dut.random.below(50);
        unsigned awvalid = 0, wvalid = 0, wlast = 0;
        for (int w = 0; w < 2; w++) {
            Writer &x = writers[w];
            if (x.given.empty()) continue;
            // An offered beat stays until it is accepted. Data may be offered before the address.
            const bool has_data = x.beat <= x.given[0].beats;
            if (!x.address_taken && !x.address_up && dut.random.percent(30)) x.address_up = true;
            if (!x.data_up && has_data && dut.random.percent(70)) x.data_up = true;
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
        dut->bvalid = !answers.empty() && dut.random.percent(pace);
        dut.settle();
        const unsigned given = dut->s_awready & awvalid, fed = dut->s_wready & wvalid;
        check((given & (given - 1)) == 0 && (fed & (fed - 1)) == 0, "the port is given to two");
        check((given != 0) == (dut->awvalid && dut->awready), "an address is taken that is not shown");
        check((fed != 0) == (dut->wvalid && dut->wready), "data are taken that are not shown");
        // The burst in progress, or the one that begins.
        if (owner < 0 && (given | fed)) {
            owner = (given | fed) >> 1 & 1;
            waited[owner] = 0;
            if (awvalid >> !owner & 1) check(++waited[!owner] <= 2, "one waits for more than two bursts of the other");
        }
        check(((given | fed) & ~(1u << std::max(owner, 0))) == 0, "beats of another within a burst");
        if (dut->bvalid && dut->bready) {
            check(dut->s_bvalid == 1u << answers.front(), "a response to another");
            Writer &x = writers[answers.front()];
            answers.pop_front();
            x.owed--;
            x.done++;
        } else {
            check(dut->s_bvalid == 0 || dut->bvalid, "a response that memory did not give");
        }
        if (owner >= 0) {
            Writer &x = writers[owner];
            if (given) {
                check(!x.address_taken, "an address within a burst");
                check(dut->awaddr == x.given[0].address && dut->awlen == x.given[0].beats, "another address");
                check(dut->awsize == 3 && dut->awburst == 1, "not a burst of whole beats");
                x.address_up = false;
                x.address_taken = true;
            }
            if (fed) {
                const Burst &burst = x.given[0];
                check(dut->wdata == burst.data[x.beat] && dut->wstrb == burst.strobes[x.beat],
                      "other data");
                check(dut->wlast == (x.beat == burst.beats), "the end is elsewhere");
                x.beat++;
                x.data_up = false;
            }
            if (x.address_taken && x.beat > x.given[0].beats) {
                x.given.pop_front();
                x.address_taken = x.address_up = x.data_up = false;
                x.beat = 0;
                x.owed++;
                answers.push_back(owner);
                most = std::max(most, answers.size());
                owner = -1;
            }
        }
        dut.rise();
    }
    check(most > 4 && most <= 8, std::to_string(most) + " bursts at once without a response");
}

BENCH_MAIN()
