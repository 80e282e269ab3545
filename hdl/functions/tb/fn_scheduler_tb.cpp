#include "clocked.hpp"

#include <algorithm>
#include <deque>

using namespace bench;

namespace {

enum Policy { Fifo, Affinity, Shortest };
constexpr size_t regions = 4, queue = 16;

struct Decision {
    uint32_t region, function, tag;
    bool load;
    uint64_t cycle;
};

// The scheduler with regions that run each request for its stated cost.
struct Scheduler : Clocked {
    struct Request {
        uint32_t function, tag, cost, may = 0;  // `may`: its regions, a bit each
    };
    uint32_t load_cost = 100;

    explicit Scheduler(Policy policy, uint8_t patience = 255) {
        auto &dut = *this;
        dut->policy = policy;
        dut->patience = patience;
        dut->load_cost = load_cost;
        dut->request_valid = dut->run_ready = 0;
        dut->region_free = dut->region_lost = dut->forget = 0;
        reset();
    }

    // Offers `requests` as fast as they are accepted; returns all decisions when all have run.
    std::vector<Decision> serve(const std::vector<Request> &requests, unsigned idle = 0) {
        auto &dut = *this;
        std::vector<Decision> decisions;
        size_t at = 0, ended = 0;
        uint64_t quiet = 0;
        while (ended < requests.size()) {
            bool offer = at < requests.size() && !random.percent(idle);
            dut->request_valid = offer;
            if (offer) {
                dut->request_function = static_cast<uint8_t>(requests[at].function);
                dut->request_tag = static_cast<uint8_t>(requests[at].tag);
                dut->request_cost = requests[at].cost;
                dut->request_regions = static_cast<uint8_t>(requests[at].may);
            }
            dut->run_ready = !random.percent(idle);
            uint8_t free = 0;
            for (size_t r = 0; r < regions; r++)
                if (left_[r] && --left_[r] == 0) {
                    free |= static_cast<uint8_t>(1 << r);
                    freed_[r] = cycles;
                }
            dut->region_free = free;
            ended += static_cast<size_t>(__builtin_popcount(free));
            settle();
            if (offer && dut->request_ready) at++;
            if (!dut->run_valid) offered_ = cycles + 1;
            if (dut->run_valid && dut->run_ready) {
                Decision d{dut->run_region, dut->run_function, dut->run_tag, static_cast<bool>(dut->run_load), cycles};
                check(d.tag < requests.size(), "a tag that was never given");
                auto &r = requests[d.tag];
                check(d.function == r.function, "a tag with another function");
                check(!left_[d.region], "a region that runs gets another request");
                check(dut->region_busy >> d.region & 1, "a region that was chosen is not busy");
                check(d.load == (holds_[d.region] != static_cast<int>(d.function)), "load is wrong");
                const uint32_t may = r.may ? r.may : (1u << regions) - 1;
                check(may >> d.region & 1, "a request gets region " + std::to_string(d.region) + " of regions " + std::to_string(may));
                for (size_t o = 0; o < regions; o++)
                    check(!d.load || !(may >> o & 1) || holds_[o] != static_cast<int>(d.function) || left_[o] || freed_[o] + 2 > offered_,
                          "loads what an idle region has");
                holds_[d.region] = static_cast<int>(d.function);
                left_[d.region] = 1 + r.cost + (d.load ? load_cost : 0);
                decisions.push_back(d);
                quiet = 0;
            }
            check(++quiet < 100000, "hangs");
            rise();
        }
        dut->region_free = 0;
        std::vector<bool> seen(requests.size());
        for (auto &d : decisions) {
            check(!seen[d.tag], "a request runs twice");
            seen[d.tag] = true;
        }
        check(decisions.size() == requests.size(), "a request is lost");
        return decisions;
    }

    void forget(size_t region) { holds_[region] = -1; }
    uint64_t left_[regions] = {};

private:
    int holds_[regions] = {-1, -1, -1, -1};
    uint64_t freed_[regions] = {};
    uint64_t offered_ = 0;  // cycle in which the decision was offered
};

size_t loads(const std::vector<Decision> &all) {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](auto &d) { return d.load; }));
}

std::vector<Scheduler::Request> mixture(Random &random, size_t count, uint32_t functions, uint32_t cost) {
    std::vector<Scheduler::Request> all;
    for (uint32_t i = 0; i < count; i++) all.push_back({random.below(functions), i, 1 + random.below(cost)});
    return all;
}

}  // namespace

TEST(fifo_keeps_the_order) {
    for (unsigned idle : {0, 50}) {
        Scheduler s(Fifo);
        auto all = s.serve(mixture(s.random, 250, 10, 50), idle);
        for (size_t i = 0; i < all.size(); i++) check(all[i].tag == i, "decision " + std::to_string(i) + " is out of order");
    }
}

TEST(four_functions_in_four_regions_load_once) {
    for (Policy p : {Fifo, Affinity, Shortest}) {
        Scheduler s(p);
        std::vector<Scheduler::Request> requests;
        // One at a time in flight: no policy has a reason to load again.
        for (uint32_t i = 0; i < 4; i++) requests.push_back({i * 7, i, 1});
        check(loads(s.serve(requests)) == 4, "does not load four times");
        for (int round = 0; round < 20; round++) {
            uint32_t f = 7 * s.random.below(4);
            auto all = s.serve({{f, 0, 5}});
            check(loads(all) == 0, "loads a function that is loaded");
        }
    }
}

TEST(the_least_recently_used_region_is_loaded) {
    Scheduler s(Fifo);
    uint32_t where[6];
    for (uint32_t f = 0; f < 4; f++) where[f] = s.serve({{f, 0, 1}})[0].region;
    s.serve({{0, 0, 1}});
    s.serve({{2, 0, 1}});
    check(s.serve({{9, 0, 1}})[0].region == where[1], "not that of function 1");
    check(s.serve({{10, 0, 1}})[0].region == where[3], "not that of function 3");
    check(s.serve({{11, 0, 1}})[0].region == where[0], "not that of function 0");
}

TEST(affinity_loads_least) {
    Random random(seed());
    auto requests = mixture(random, 250, 8, 30);
    size_t counts[3];
    for (Policy p : {Fifo, Affinity, Shortest}) {
        Scheduler s(p);
        counts[p] = loads(s.serve(requests));
    }
    std::printf("    loads of 250 requests of 8 functions: fifo %zu, affinity %zu, shortest %zu\n", counts[0], counts[1], counts[2]);
    check(counts[Affinity] < counts[Fifo] / 2, "affinity does not load less than half as often as fifo");
    check(counts[Affinity] <= counts[Shortest], "affinity loads more often than shortest");
}

TEST(shortest_goes_first) {
    Scheduler s(Shortest);
    s->load_cost = s.load_cost = 10;
    // The regions are in use; then requests of one function arrive, the longest first.
    std::vector<Scheduler::Request> requests;
    for (uint32_t i = 0; i < 4; i++) requests.push_back({i, i, 500});
    for (uint32_t i = 4; i < 14; i++) requests.push_back({20, i, 3000 - 100 * i});
    auto all = s.serve(requests);
    for (size_t i = 4; i < 14; i++)
        check(all[i].tag == 13 - (i - 4), "decision " + std::to_string(i) + " is request " + std::to_string(all[i].tag));
}

TEST(shortest_counts_the_load) {
    Scheduler s(Shortest);
    s->load_cost = s.load_cost = 1000;
    s.serve({{1, 0, 1}, {2, 1, 1}, {3, 2, 1}, {4, 3, 1}});
    std::vector<Scheduler::Request> requests;
    for (uint32_t i = 0; i < 4; i++) requests.push_back({i + 1, i, 200});  // occupies all regions
    // Short, but must be loaded.
    requests.push_back({9, 4, 10});
    requests.push_back({1, 5, 500});
    auto all = s.serve(requests);
    check(all[4].tag == 5 && all[5].tag == 4, "the load is not counted");
}

TEST(patience_bounds_how_often_one_is_overtaken) {
    for (uint8_t patience : {0, 3, 10})
        for (Policy p : {Affinity, Shortest}) {
            Scheduler s(p, patience);
            auto requests = mixture(s.random, 250, 12, 40);
            auto all = s.serve(requests);
            // A request can be overtaken once more for each earlier request that has priority for
            // the same reason.
            size_t worst = 0;
            for (size_t i = 0; i < all.size(); i++) {
                size_t overtaken = 0;
                for (size_t j = 0; j < i; j++) overtaken += all[j].tag > all[i].tag;
                worst = std::max(worst, overtaken);
            }
            check(worst <= patience + queue, "one is overtaken " + std::to_string(worst) + " times");
            if (patience == 0) check(worst == 0, "patience 0 is not fifo");
        }
}

TEST(a_region_that_lost_its_function_is_loaded_again) {
    Scheduler s(Affinity);
    auto region = s.serve({{5, 0, 1}})[0].region;
    s->region_lost = static_cast<uint8_t>(1 << region);
    s.settle();
    s.rise();
    s->region_lost = 0;
    s.forget(region);
    check(loads(s.serve({{5, 0, 1}})) == 1, "is not loaded again");
}

TEST(affinity_waits_for_a_region_that_has_the_function) {
    Scheduler s(Affinity);
    std::vector<Scheduler::Request> requests;
    for (uint32_t i = 0; i < 10; i++) requests.push_back({3, i, 20});
    check(loads(s.serve(requests)) == 1, "loads a second copy");
}

TEST(affinity_loads_no_second_copy_however_often_one_is_overtaken) {
    Scheduler s(Affinity, 2);
    s.serve({{1, 0, 1}, {2, 1, 1}, {3, 2, 1}, {4, 3, 1}});
    std::vector<Scheduler::Request> requests = {{1, 0, 400}, {1, 1, 400}};
    for (uint32_t i = 2; i < 200; i++) requests.push_back({2 + i % 3, i, 1});
    check(loads(s.serve(requests)) == 0, "takes another function's region");
}

TEST(an_outdated_function_is_loaded_again) {
    Scheduler s(Affinity);
    auto region = s.serve({{5, 0, 1}})[0].region;
    auto other = s.serve({{6, 0, 1}})[0].region;
    s->forget = 1;
    s->forget_function = 5;
    s.settle();
    s.rise();
    s->forget = 0;
    s.forget(region);
    check(loads(s.serve({{6, 0, 1}})) == 0, "another one is forgotten too");
    check(region != other && loads(s.serve({{5, 0, 1}})) == 1, "is not loaded again");
}

TEST(a_load_from_before_a_change_serves_no_later_request) {
    for (unsigned when = 0; when < 8; when++) {
        Scheduler s(Affinity);
        int changed = -1;
        auto run = [&](uint8_t tag) {
            s->request_valid = s->run_ready = 1;
            s->request_function = 9;
            s->request_tag = tag;
            s->request_cost = 1;
            int load = -1;
            for (unsigned cycle = 0; cycle < 20; cycle++) {
                s->forget = tag == 0 && cycle == when;
                s->forget_function = 9;
                s.settle();
                const bool taken = s->request_valid && s->request_ready;
                if (s->run_valid) load = s->run_load;
                const uint8_t region = s->run_region;
                const bool ends = s->run_valid;
                if (s->forget) changed = static_cast<int>(cycle);
                s.rise();
                if (taken) s->request_valid = 0;
                s->region_free = ends ? static_cast<uint8_t>(1 << region) : 0;
            }
            return load;
        };
        check(run(0) == 1 && changed >= 0, "the first one is not loaded");
        check(run(1) == 1, "the old image answers after a change in cycle " + std::to_string(when));
        check(run(2) == 0, "the new image is loaded twice");
    }
}

TEST(a_request_runs_only_in_its_regions) {
    for (Policy p : {Fifo, Affinity, Shortest})
        for (uint8_t patience : {0, 3, 255})
            for (unsigned idle : {0, 50}) {
                Scheduler s(p, patience);
                auto requests = mixture(s.random, 250, 10, 60);
                // A function's requests have the same regions: the function's number, and for some any.
                for (auto &r : requests) r.may = r.function < 8 ? r.function : 0;
                s.serve(requests, idle);
            }
}

TEST(four_functions_each_with_a_region_load_once) {
    for (Policy p : {Fifo, Affinity, Shortest}) {
        Scheduler s(p);
        std::vector<Scheduler::Request> requests;
        for (uint32_t i = 0; i < 60; i++) {
            const uint32_t f = s.random.below(4);
            requests.push_back({f, i, 5 + s.random.below(20), 8u >> f});
        }
        for (auto &d : s.serve(requests)) check(d.region == 3 - d.function, "in the region of another one");
        for (int round = 0; round < 20; round++) {
            const uint32_t f = s.random.below(4);
            check(loads(s.serve({{f, 0, 5, 8u >> f}})) == 0, "loads a function that is loaded");
        }
    }
}

// Requests that wait for their region do not keep others from idle regions.
TEST(a_busy_region_delays_only_its_own_requests) {
    for (Policy p : {Fifo, Affinity, Shortest})
        for (uint8_t patience : {0, 3, 255}) {
            Scheduler s(p, patience);
            // The region of the first is busy for long; others of it wait.
            std::vector<Scheduler::Request> requests = {{1, 0, 20000, 2}, {1, 1, 20001, 2}, {2, 2, 20001, 2}};
            for (uint32_t i = 3; i < 100; i++) requests.push_back({3 + i % 3, i, 10, i % 2 ? 13u : 12u});
            const auto all = s.serve(requests);
            const uint64_t from = all[0].cycle;
            for (size_t i = 0; i < all.size(); i++)
                check((all[i].cycle - from < 20000) == (all[i].tag == 0 || all[i].tag > 2), "request " + std::to_string(all[i].tag) + " runs at the wrong time");
        }
}

// A request whose region others may use, too, is overtaken at most as often as any other.
TEST(patience_holds_for_a_request_with_one_region) {
    for (uint8_t patience : {0, 3, 10}) {
        Scheduler s(Affinity, patience);
        auto requests = mixture(s.random, 250, 3, 40);
        for (uint32_t i = 0; i < requests.size(); i += 25) requests[i].function = 9, requests[i].may = 1;
        const auto all = s.serve(requests);
        // It waits for the run in its region; meanwhile each of three other regions begins at most a run per 3 cycles.
        for (size_t i = 0; i < all.size(); i++) {
            if (all[i].function != 9) continue;
            size_t overtaken = 0;
            for (size_t j = 0; j < i; j++) overtaken += all[j].tag > all[i].tag && all[j].region == 0;
            check(overtaken <= patience + queue, "overtaken " + std::to_string(overtaken) + " times in its region");
        }
    }
}

TEST(decides_in_four_cycles) {
    Scheduler s(Affinity);
    s.serve({{5, 0, 1}});
    for (int i = 0; i < 50; i++) {
        for (int n = static_cast<int>(s.random.below(5)); n > 0; n--) {
            s->request_valid = 0;
            s.settle();
            s.rise();
        }
        uint64_t from = s.cycles;
        auto all = s.serve({{5, 0, 1}});
        check(all[0].cycle - from == 4, "decides after " + std::to_string(all[0].cycle - from));
    }
}

// The number of requests that wait for a region does not delay the next one when the region's run
// ends, although other regions are idle.
TEST(decides_at_once_when_a_run_ends) {
    Scheduler s(Affinity);
    s.serve({{5, 0, 1}});
    for (int i = 0; i < 50; i++) {
        std::vector<Scheduler::Request> all;
        for (uint32_t tag = 0; tag < queue; tag++) all.push_back({5, tag, 40 + s.random.below(40)});
        const auto decisions = s.serve(all);
        for (size_t k = 3; k < decisions.size(); k++) {  // all wait, and have been examined once
            const uint64_t ended = decisions[k - 1].cycle + 1 + all[decisions[k - 1].tag].cost;
            check(decisions[k].cycle - ended <= 4, "decides " + std::to_string(decisions[k].cycle - ended) + " cycles after a run");
        }
    }
}

BENCH_MAIN()
