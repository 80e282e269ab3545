#include "clocked.hpp"
#include "image.hpp"

#include <map>

#include "Vdut___024root.h"

using namespace bench;

namespace {

constexpr size_t regions = 4, beat_bytes = W / 8;
using Data = std::conditional_t<W == 32, uint32_t, uint64_t>;

enum Kernel { Echo, Upper, Stuck };

struct Request {
    uint32_t function = 0, cost = 100, timeout = 0;
    Bytes body;
};

struct Answer {
    bool granted = false, killed = false, marked = false, loaded = false;
    int load = 0;
    Bytes out;
    uint64_t requested_at = 0, granted_at = 0, first_out = 0, finished_at = 0;
};

// A shell in software: requests with their bodies, connected to the granted regions.
struct Engine : Clocked {
    unsigned idle = 0, stall = 0;
    uint32_t swaps = 0;
    std::map<uint32_t, uint32_t> image_of;  // function -> address

    explicit Engine(unsigned policy = 1) {
        auto &dut = *this;
        dut->policy = policy;
        dut->patience = 255;
        dut->load_cost = 1000;
        dut->request_valid = dut->finish_ready = dut->s_valid = dut->m_ready = 0;
        dut->icap_ready = 1;
        reset();
    }

    void define(uint32_t function, Kernel kernel, size_t words, uint32_t damage = 0) {
        Image image;
        image.kernel = kernel;
        image.body.assign(words, 0x1000 + function);
        auto all = image.words();
        if (damage) all[damage] ^= 0x10;
        uint32_t address = next_address_;
        next_address_ += static_cast<uint32_t>((4 * all.size() + 255) / 256 * 256);
        bench::store((*this)->rootp->fn_engine_top__DOT__u_dram__DOT__memory, address, all);
        image_of[function] = address;
    }

    // Serves up to 64 requests; the tag of each is its index.
    std::vector<Answer> serve(const std::vector<Request> &requests) {
        auto &dut = *this;
        check(requests.size() <= 64, "too many");
        std::vector<Answer> answers(requests.size());
        struct Port {
            int tag = -1;
            size_t sent = 0;
            bool offered = false, in_ended = false;
            int out_tag = -1;
        } ports[regions];
        size_t at = 0, finished = 0;
        uint64_t quiet = 0;
        bool draining = true;
        while (finished < requests.size() || draining) {
            bool offer = at < requests.size() && !random.percent(idle);
            dut->request_valid = offer;
            if (offer) {
                auto &q = requests[at];
                dut->request_tag = static_cast<uint8_t>(at);
                dut->request_function = static_cast<uint8_t>(q.function);
                dut->request_cost = q.cost;
                dut->request_timeout = q.timeout;
                dut->request_image = image_of[q.function];
            }
            dut->finish_ready = !random.percent(stall);
            dut->s_valid = 0;
            dut->s_last = 0;
            uint8_t ready = 0;
            for (size_t r = 0; r < regions; r++) {
                auto &p = ports[r];
                if (p.tag >= 0 && !p.in_ended && !p.offered && !random.percent(idle)) p.offered = true;
                if (p.offered) {
                    auto &body = requests[static_cast<size_t>(p.tag)].body;
                    size_t count = std::min(beat_bytes, body.size() - p.sent);
                    uint64_t data = 0;
                    for (size_t i = 0; i < count; i++) data |= static_cast<uint64_t>(body[p.sent + i]) << (8 * i);
                    dut->s_data[r] = static_cast<Data>(data);
                    dut->s_keep[r] = static_cast<uint8_t>((1u << count) - 1);
                    dut->s_valid |= static_cast<uint8_t>(1 << r);
                    if (p.sent + count == body.size()) dut->s_last |= static_cast<uint8_t>(1 << r);
                }
                if (!random.percent(stall)) ready |= static_cast<uint8_t>(1 << r);
            }
            dut->m_ready = ready;
            settle();
            swaps += dut->swap;
            if (offer && dut->request_ready) answers[at++].requested_at = cycles;
            for (size_t r = 0; r < regions; r++) {
                auto &p = ports[r];
                if (dut->m_valid >> r & ready >> r & 1) {
                    check(p.out_tag >= 0, "output of a region that was not granted");
                    auto &a = answers[static_cast<size_t>(p.out_tag)];
                    if (!a.first_out) a.first_out = cycles;
                    for (size_t i = 0; i < beat_bytes; i++)
                        if (dut->m_keep[r] >> i & 1) a.out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(dut->m_data[r]) >> (8 * i)));
                    if (dut->m_last >> r & 1) {
                        a.marked = dut->m_failed >> r & 1;
                        p.out_tag = -1;
                    }
                }
                if (p.offered && dut->s_ready >> r & 1) {
                    p.offered = false;
                    p.sent += beat_bytes;
                    if (dut->s_last >> r & 1) p.in_ended = true, p.tag = -1;
                }
            }
            if (dut->grant) {
                auto &p = ports[dut->grant_region];
                check(p.tag < 0, "a region is granted twice");
                check(dut->next_valid >> dut->grant_region & 1 && dut->next_tag[dut->grant_region] == dut->grant_tag,
                      "the grant differs from the announced one");
                pending_[dut->grant_region].push_back(dut->grant_tag);
                auto &a = answers[dut->grant_tag];
                a.granted = true;
                a.granted_at = cycles;
                p.tag = dut->grant_tag;
                p.sent = 0;
                p.in_ended = false;
                quiet = 0;
            }
            // A reply's last beats may still be in the boundary when its region is granted again.
            for (size_t r = 0; r < regions; r++)
                if (ports[r].out_tag < 0 && !pending_[r].empty()) {
                    ports[r].out_tag = pending_[r].front();
                    pending_[r].erase(pending_[r].begin());
                }
            if (dut->finish_valid && dut->finish_ready) {
                auto &a = answers[dut->finish_tag];
                check(!a.finished_at, "a request is finished twice");
                a.finished_at = cycles;
                a.killed = dut->finish_killed;
                a.load = dut->finish_load;
                a.loaded = dut->finish_loaded;
                finished++;
                quiet = 0;
            }
            draining = false;
            for (size_t r = 0; r < regions; r++) draining = draining || ports[r].out_tag >= 0 || ports[r].offered;
            check(++quiet < 100000, "hangs");
            rise();
        }
        dut->request_valid = dut->s_valid = 0;
        return answers;
    }

private:
    uint32_t next_address_ = 0;
    std::vector<int> pending_[regions];
};

Bytes upper(Bytes b) {
    for (auto &c : b) c = c >= 'a' && c <= 'z' ? c - 32 : c;
    return b;
}

}  // namespace

TEST(a_function_is_loaded_once_and_then_answers_at_once) {
    Engine engine;
    engine.define(3, Upper, 1000);
    auto cold = engine.serve({{3, 100, 0, text("hello")}})[0];
    expect(cold.out, text("HELLO"), "cold");
    check(cold.loaded && engine.swaps == 1, "is not loaded");
    for (int i = 0; i < 20; i++) {
        auto warm = engine.serve({{3, 100, 0, text("again")}})[0];
        expect(warm.out, text("AGAIN"), "warm");
        check(!warm.loaded, "is loaded again");
        check(warm.granted_at - warm.requested_at == 6, "granted after " + std::to_string(warm.granted_at - warm.requested_at));
        if (i == 0)
            std::printf("    cold, 4,000 bytes of image: %llu cycles to the answer; warm: %llu\n",
                        (unsigned long long)(cold.first_out - cold.requested_at), (unsigned long long)(warm.first_out - warm.requested_at));
    }
    check(engine.swaps == 1, "is loaded again");
}

TEST(many_functions_under_any_policy_and_traffic) {
    for (unsigned policy : {0, 1, 2})
        for (unsigned traffic : {0, 50}) {
            Engine engine(policy);
            engine.idle = engine.stall = traffic;
            for (uint32_t f = 0; f < 8; f++) engine.define(f, f & 1 ? Upper : Echo, 50 + 20 * f);
            for (int round = 0; round < 6; round++) {
                std::vector<Request> requests;
                for (int i = 0; i < 64; i++) {
                    Bytes body = engine.random.bytes(engine.random.below(200));
                    requests.push_back({engine.random.below(8), 1 + engine.random.below(100), 5000, body});
                }
                auto answers = engine.serve(requests);
                for (size_t i = 0; i < answers.size(); i++) {
                    check(!answers[i].killed && !answers[i].marked && answers[i].load == 0, "fails");
                    expect(answers[i].out, requests[i].function & 1 ? upper(requests[i].body) : requests[i].body,
                           "request " + std::to_string(i) + " under policy " + std::to_string(policy));
                }
            }
            if (!traffic) std::printf("    policy %u: %u loads for 384 requests of 8 functions\n", policy, engine.swaps);
        }
}

TEST(stuck_kernels_and_bad_images_affect_no_other_calls) {
    Engine engine;
    engine.define(0, Echo, 100);
    engine.define(1, Upper, 100);
    engine.define(2, Stuck, 100);
    engine.define(3, Echo, 100, 2);    // apparently for another shell
    engine.define(4, Echo, 100, 40);   // its body is damaged
    for (int round = 0; round < 5; round++) {
        std::vector<Request> requests;
        for (int i = 0; i < 64; i++)
            requests.push_back({engine.random.below(5), 100, 300, engine.random.bytes(engine.random.below(300))});
        auto answers = engine.serve(requests);
        for (size_t i = 0; i < answers.size(); i++) {
            auto &a = answers[i];
            switch (requests[i].function) {
                case 2: check(a.granted && a.killed && a.marked && a.load == 0, "a stuck kernel is not killed"); break;
                case 3: check(!a.granted && !a.killed && a.load == 3, "a damaged header is taken"); break;
                case 4: check(!a.granted && !a.killed && a.load == 8, "a damaged body is taken"); break;
                default:
                    check(!a.killed && a.load == 0, "a good function fails");
                    expect(a.out, requests[i].function ? upper(requests[i].body) : requests[i].body, "a good function");
            }
        }
    }
}

TEST(loading_one_region_does_not_slow_the_others) {
    Engine engine;
    engine.define(0, Echo, 100);
    engine.define(1, Upper, 20000);
    engine.serve({{0, 100, 0, text("x")}});
    std::vector<Request> requests = {{1, 100, 0, text("y")}};
    for (int i = 0; i < 40; i++) requests.push_back({0, 100, 0, Bytes(64, 'x')});
    auto answers = engine.serve(requests);
    uint64_t load = answers[0].granted_at - answers[0].requested_at;
    check(load < 20000 + 100, "the load takes " + std::to_string(load) + " cycles under load");
    for (size_t i = 1; i < answers.size(); i++) {
        check(answers[i].finished_at < answers[0].granted_at, "one waits for the load");
        check(i == 1 || answers[i].granted_at > answers[i - 1].granted_at, "one function's requests change places");
    }
}

TEST(statistics_agree) {
    Engine engine;
    engine.define(5, Echo, 10);
    engine.define(6, Stuck, 10);
    std::vector<Request> requests;
    for (int i = 0; i < 30; i++) requests.push_back({5, 1, 0, Bytes(100, 'x')});
    for (int i = 0; i < 5; i++) requests.push_back({6, 1, 50, Bytes(100, 'x')});
    engine.serve(requests);
    for (uint8_t f : {5, 6}) {
        for (int i = 0; i < 3; i++) {
            engine->read_function = f;
            engine.settle();
            engine.rise();
        }
        engine.settle();
        check(engine->calls == (f == 5 ? 30 : 5), "calls " + std::to_string(engine->calls));
        check(engine->failures == (f == 5 ? 0 : 5), "failures " + std::to_string(engine->failures));
        check(engine->loads == 1, "loads " + std::to_string(engine->loads));
        check(engine->cycles >= engine->calls * 13, "cycles " + std::to_string(engine->cycles));
    }
}

BENCH_MAIN()
