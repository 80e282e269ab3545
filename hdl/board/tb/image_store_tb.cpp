// Calls of functions whose images are in a store, with models of a stack, a server, board memory
// and a function engine: a call continues with its complete image in memory or ends with the error,
// and other calls pass at once.
#include <set>

#include "../../http/tb/store_server.hpp"

using namespace bench;

namespace {

enum Fetched { Ok, Missing, Broken, Silent };
constexpr uint32_t kRemote = 1, kBase = 0x400000, kSlotBytes = 1u << 21, kSlots = 8;

struct Call {
    uint8_t function;
    uint32_t image;  // kRemote, or an address
    bool ended = false, forwarded = false, passed = false;
    uint32_t at = 0;          // the image with which it continues
    int fetched = -1;         // and its result
};

struct Store : Clocked {
    StoreServer<Vdut> server;
    std::map<uint32_t, uint8_t> memory;
    std::map<uint8_t, std::string> names;    // by function
    std::map<std::string, Bytes> files;      // files of the server
    bool down = false;
    std::map<uint8_t, Call> calls;           // by tag: calls that have not ended
    std::map<uint8_t, bool> in_engine;       // tags with the function engine, and whether they may
                                             // end
    unsigned ends = 30;                      // of a hundred cycles
    std::set<uint8_t> refuses;               // functions whose image the engine refuses

    Store() : server(*operator->(), random) {
        auto &dut = *this;
        dut->tick = dut->connect_done = dut->open = dut->rcv_notify = dut->notify_dead = dut->app_ready = dut->release_ready = 0;
        dut->rx_word_valid = 0;
        dut->rx_may = dut->tx_may = dut->request_valid = dut->finish_ready = dut->e_request_ready = dut->e_finish_valid = 0;
        dut->awready = dut->wready = dut->bvalid = dut->bresp = dut->change_taken = dut->changed = 0;
        dut->server_ip = 0x0a630001;
        dut->server_port = 8000;
        dut->base = kBase;
        put(dut->path, "/");
        server.answers = [this](const std::string &request) { return answer(request); };
        server.words.jitter = random.percent(50) ? 0 : 40;
        reset();
    }

    void name(uint8_t function, const std::string &as) {
        auto &dut = *this;
        put(dut->change_name, as);
        dut->change_taken = 1;
        step();
        dut->change_taken = 0;
        dut->changed = 1;
        dut->changed_function = function;
        step();
        dut->changed = 0;
        names[function] = as;
    }

    // A function of that name whose image is in the store.
    void stored(uint8_t function, const std::string &as) {
        files[as] = random.bytes(8 * (1 + random.below(200)));
        name(function, as);
    }

    // Makes a request, and waits until it is accepted.
    void ask(uint8_t tag, uint8_t function, uint32_t image) {
        auto &dut = *this;
        check(!calls.count(tag), "the test uses a tag twice");
        dut->request_valid = 1;
        dut->request_tag = tag;
        dut->request_function = function;
        dut->request_cost = 100u + tag;
        dut->request_timeout = 200u + tag;
        dut->request_image = image;
        for (int k = 0; k < 4; k++) dut->request_params[k] = 1000u * tag + static_cast<uint32_t>(k);
        asked_ = {function, image};
        uint64_t began = cycles;
        do {
            taken_ = false;
            step();
            check(cycles - began < 20000, "does not take a call");
        } while (!taken_);
        dut->request_valid = 0;
    }

    void step() {
        auto &dut = *this;
        server.drive();
        dut->e_request_ready = random.percent(70);
        dut->finish_ready = random.percent(60);
        dut->awready = random.percent(50);
        dut->wready = random.percent(80);
        dut->bvalid = answer_owed_ && random.percent(50);
        if (ending_ < 0)
            for (auto &[tag, may] : in_engine)
                if (may && random.percent(ends)) ending_ = tag;
        dut->e_finish_valid = ending_ >= 0;
        if (ending_ >= 0) {
            dut->e_finish_tag = static_cast<uint8_t>(ending_);
            dut->e_finish_refused = refuses.count(calls.at(static_cast<uint8_t>(ending_)).function);
        }
        settle();
        server.grant();
        settle();
        server.observe();
        bool request = dut->request_valid && dut->request_ready;
        if (request) {
            taken_ = true;
            calls[dut->request_tag] = asked_;
        }
        if (dut->e_request_valid && dut->e_request_ready) forward();
        else if (request) check(asked_.image == kRemote, "a call is lost");
        if (dut->finish_valid && dut->finish_ready) finish();
        write();
        rise();
        server.follow();
    }

    // Runs until no call is left, except those held by the engine.
    void settle_all() {
        uint64_t began = cycles;
        auto left = [&] {
            for (auto &[tag, call] : calls)
                if (!in_engine.count(tag) || in_engine[tag]) return true;
            return false;
        };
        while (left()) {
            step();
            check(cycles - began < 400000, "hangs");
        }
    }

    // Runs one call to its end; returns how its image was found,
    // and the number of requests to the server.
    std::pair<int, size_t> call(uint8_t function) {
        size_t before = server.requests.size();
        last_ = {};
        uint8_t tag = 0;
        while (calls.count(tag)) tag++;
        ask(tag, function, kRemote);
        settle_all();
        return {last_.fetched, server.requests.size() - before};
    }

    Call last_;

private:
    Answer answer(const std::string &request) {
        Answer answer;
        answer.connect = down;
        if (request.empty()) return answer;
        std::string name = request.substr(5, request.find(".img") - 5);
        if (!files.count(name)) return file({}, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return file(files[name]);
    }

    void forward() {
        auto &dut = *this;
        uint8_t tag = dut->e_request_tag;
        check(calls.count(tag), "forwards a call that was not requested");
        Call &call = calls[tag];
        check(!call.forwarded, "forwards a call twice");
        call.forwarded = true;
        call.at = dut->e_request_image;
        check(dut->e_request_function == call.function && dut->e_request_cost == 100u + tag && dut->e_request_timeout == 200u + tag, "another call's");
        for (int k = 0; k < 4; k++) check(dut->e_request_params[k] == 1000u * tag + static_cast<uint32_t>(k), "another call's scalars");
        in_engine[tag] = !held_.count(call.function);
        if (call.image != kRemote) {
            check(call.at == call.image, "another image");
            return;
        }
        check(call.at >= kBase && call.at < kBase + kSlots * kSlotBytes && call.at % kSlotBytes == 0, "no slot");
        right(call);
        for (auto &[other, used] : calls)
            if (other != tag && used.forwarded && used.image == kRemote && used.at == call.at)
                check(used.function == call.function, "a slot that another function's call may be loaded from");
    }

    // Its image lies there.
    void right(const Call &call) {
        const Bytes &want = files.at(names.at(call.function));
        for (uint32_t k = 0; k < want.size(); k++) {
            auto found = memory.find(call.at + k);
            check(found != memory.end() && found->second == want[k], "the image of " + names[call.function] + " is wrong at " + std::to_string(k));
        }
    }

    void finish() {
        auto &dut = *this;
        uint8_t tag = dut->finish_tag;
        check(calls.count(tag), "ends a call that was not requested");
        Call &call = calls[tag];
        call.fetched = dut->finish_fetch;
        if (dut->e_finish_valid && ending_ == tag) {
            check(dut->e_finish_ready, "ends it here and not there");
            check(call.fetched == Ok && dut->finish_refused == dut->e_finish_refused, "ends otherwise");
            if (call.image == kRemote && !refuses.count(call.function) && files.count(names[call.function])) right(call);  // until now
            in_engine.erase(tag);
            ending_ = -1;
        } else {
            check(!call.forwarded && call.image == kRemote && call.fetched != Ok && dut->finish_refused, "ends a forwarded call");
        }
        last_ = call;
        calls.erase(tag);
    }

    // Board memory: one burst at a time, as from axi_writers.
    void write() {
        auto &dut = *this;
        if (dut->awvalid && dut->awready) {
            check(!bursting_, "an address within a burst");
            check(dut->awlen == 31 && dut->awaddr % 256 == 0, "not a burst of 256 bytes");
            bursting_ = true;
            burst_at_ = dut->awaddr;
            beat_ = 0;
        }
        if (dut->wvalid && dut->wready) {
            check(bursting_ && beat_ < 32, "data outside a burst");
            uint32_t at = burst_at_ + 8 * beat_;
            for (unsigned i = 0; i < 8; i++)
                if (dut->wstrb >> i & 1) memory[at + i] = static_cast<uint8_t>(dut->wdata >> (8 * i));
            check(dut->wlast == (beat_ == 31), "the end is elsewhere");
            if (++beat_ == 32) answer_owed_ = true;
        }
        if (dut->bvalid && dut->bready) {
            answer_owed_ = bursting_ = false;
        }
    }

    Call asked_{};
    bool taken_ = false, bursting_ = false, answer_owed_ = false;
    uint32_t burst_at_ = 0, beat_ = 0;
    int ending_ = -1;

public:
    std::set<uint8_t> held_;  // functions whose calls do not end yet
};

}  // namespace

TEST(an_image_is_fetched_once) {
    Store store;
    store.stored(3, "sobel");
    auto first = store.call(3), second = store.call(3);
    check(first.first == Ok && first.second == 1, "the first call does not fetch it");
    check(second.first == Ok && second.second == 0, "the second call fetches it again");
    check(store.server.requests[0].rfind("GET /sobel.img ", 0) == 0, "requests " + store.server.requests[0]);
}

TEST(other_calls_pass_while_one_is_fetched) {
    Store store;
    store.stored(3, "sobel");
    store.server.pieces = 2;
    store.ask(15, 3, kRemote);
    for (int i = 0; i < 200; i++) {
        uint64_t before = store.cycles;
        while (store.calls.count(static_cast<uint8_t>(i % 15))) store.step();
        store.ask(static_cast<uint8_t>(i % 15), 7, 0x10000u);
        check(store.calls.count(15) == 0 || !store.calls[15].forwarded || i > 10, "is not being fetched at all");
        check(store.cycles - before < 200, "a call waits for another one's image");
    }
    store.settle_all();
}

TEST(the_least_recently_used_image_is_evicted) {
    Store store;
    for (uint8_t f = 0; f < 9; f++) store.stored(f, "function" + std::to_string(f));
    for (uint8_t f = 0; f < 8; f++) check(store.call(f).second == 1, "is there already");
    check(store.call(0).second == 0, "is gone although there is room");  // now 1 is the oldest
    check(store.call(8).second == 1, "the ninth is there already");
    check(store.call(0).second == 0 && store.call(2).second == 0, "another one than the oldest made room");
    check(store.call(1).second == 1, "the oldest is still there");
}

TEST(an_image_in_use_stays) {
    Store store;
    for (uint8_t f = 0; f < 12; f++) store.stored(f, "function" + std::to_string(f));
    for (uint8_t f = 0; f < 7; f++) store.held_.insert(f);
    for (uint8_t f = 0; f < 7; f++) store.ask(f, f, kRemote);
    // One slot is left for all others; forward() checks that no slot of a call is reused.
    for (uint8_t f = 7; f < 12; f++) check(store.call(f).first == Ok, "finds no room");
    for (auto &[tag, may] : store.in_engine) may = true;
    store.settle_all();
    store.held_.clear();
    check(store.calls.empty(), "a call is left");
}

TEST(a_call_waits_while_all_images_are_in_use) {
    Store store;
    for (uint8_t f = 0; f < 9; f++) store.stored(f, "function" + std::to_string(f));
    for (uint8_t f = 0; f < 8; f++) store.held_.insert(f);
    for (uint8_t f = 0; f < 9; f++) store.ask(f, f, kRemote);
    for (int i = 0; i < 60000; i++) store.step();
    check(store.in_engine.size() == 8 && store.calls.count(8) && !store.calls[8].forwarded, "does not wait");
    store.in_engine.at(5) = true;
    for (int i = 0; i < 60000 && store.calls.count(8); i++) store.step();
    check(!store.calls.count(8) && store.last_.fetched == Ok, "does not go on when there is room");
}

TEST(an_image_that_is_refused_is_fetched_anew) {
    Store store;
    store.stored(3, "sobel");
    store.refuses = {3};
    check(store.call(3) == std::make_pair(int(Ok), size_t(1)), "is not fetched");
    store.refuses = {};
    check(store.call(3).second == 1, "a refused image is kept");
    check(store.call(3).second == 0, "an accepted image is not kept");
}

TEST(a_function_that_changes_is_fetched_anew) {
    Store store;
    store.stored(3, "sobel");
    check(store.call(3).second == 1, "is there already");
    store.stored(3, "edges");
    check(store.call(3).second == 1 && store.server.requests.back().rfind("GET /edges.img ", 0) == 0, "the old image is taken");
}

TEST(a_missing_file_ends_only_the_calls_of_its_function) {
    Store store;
    store.stored(2, "there");
    store.name(3, "missing");
    store.ask(0, 3, kRemote);
    store.ask(1, 3, kRemote);
    store.ask(2, 2, kRemote);
    store.settle_all();
    check(store.last_.function == 2 && store.last_.fetched == Ok, "the other function's call ends too");
    size_t requests = store.server.requests.size();
    check(requests == 2, "waiting calls cause " + std::to_string(requests) + " requests");
    check(store.call(3) == std::make_pair(int(Missing), size_t(1)), "a missing image is not requested again later");
}

TEST(a_store_that_is_down_ends_all_that_wait) {
    Store store;
    for (uint8_t f = 0; f < 5; f++) store.stored(f, "function" + std::to_string(f));
    store.down = true;
    for (uint8_t f = 0; f < 5; f++) store.ask(f, f, kRemote);
    store.settle_all();
    check(store.last_.fetched == Silent && store.server.requests.empty(), "a call is forwarded without an image");
    store.down = false;
    check(store.call(4).first == Ok, "nothing is fetched afterwards");
    store->server_ip = 0;
    check(store.call(3).first == Silent, "a request is sent without a store");
}

TEST(every_call_ends_once_whatever_the_store_does) {
    Store store;
    for (uint8_t f = 0; f < 14; f++) store.stored(f, "function" + std::to_string(f));
    for (uint8_t f = 14; f < 18; f++) store.name(f, "missing" + std::to_string(f));
    store.ends = 3;
    unsigned made = 0;
    for (int i = 0; i < 600; i++) {
        store.down = store.random.percent(10);
        store.refuses.clear();
        if (store.random.percent(20)) store.refuses.insert(static_cast<uint8_t>(store.random.below(14)));
        uint8_t tag = static_cast<uint8_t>(store.random.below(16));
        if (!store.calls.count(tag)) {
            bool remote = store.random.percent(80);
            uint8_t function = static_cast<uint8_t>(remote ? store.random.below(18) : 40);
            store.ask(tag, function, remote ? kRemote : 0x20000u);
            made++;
        }
        for (uint32_t wait = store.random.below(600); wait; wait--) store.step();
    }
    store.down = false;
    store.settle_all();
    check(store.calls.empty() && made > 300, "a call is left");
    check(store.server.connected == store.server.released || store.server.connected == store.server.released + 1, "connections are left");
}

BENCH_MAIN()
