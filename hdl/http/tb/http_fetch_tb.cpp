// Files of any size from a server that replies in any pieces, and malformed replies: the body is
// passed on completely or the result has the error,
// and the connection is closed and released each time.
#include "store_server.hpp"

using namespace bench;

namespace {

enum Result { Ok, Missing, Broken, Silent };
constexpr uint8_t kRefused = 1;  // connect_result_t

struct Fetch : Clocked {
    StoreServer<Vdut> server;
    Bytes body;
    unsigned ready = 70, ticks = 0;  // of a hundred cycles

    Fetch() : server(*operator->(), random) {
        auto &dut = *this;
        dut->tick = dut->start = dut->connect_done = dut->open = dut->rcv_notify = dut->notify_dead = 0;
        dut->app_ready = dut->release_ready = dut->rx_may = dut->tx_may = dut->m_ready = 0;
        dut->rx_word_valid = 0;
        dut->server_ip = 0x0a630001;
        dut->server_port = 8000;
        dut->most = 1u << 20;
        put(dut->path, "/images/");
        reset();
    }

    void step() {
        auto &dut = *this;
        dut->tick = random.percent(ticks);
        dut->m_ready = random.percent(ready);
        server.drive();
        settle();
        server.grant();
        settle();
        server.observe();
        if (dut->m_valid && dut->m_ready) {
            check(!last_, "a beat behind the last");
            for (unsigned i = 0; i < 8; i++) body.push_back(static_cast<uint8_t>(dut->m_data >> (8 * i)));
            last_ = dut->m_last;
        }
        rise();
        server.follow();
    }

    // Fetches NAME.img; it is closed and released when this returns.
    Result fetch(const std::string &name, const Answer &answer) {
        auto &dut = *this;
        server.answers = [&](const std::string &) { return answer; };
        server.words.jitter = random.percent(50) ? 0 : random.below(60);
        body.clear();
        last_ = false;
        put(dut->file, name);
        uint64_t released = server.released, began = cycles;
        size_t requests_before = server.requests.size();
        dut->start = 1;
        step();
        dut->start = 0;
        int result = -1;
        do {
            step();
            if (dut->done) {
                check(result < 0, "ends twice");
                result = dut->result;
            }
            // While a reply is awaited, the session must not count as idle; a connection being
            // closed may be closed as idle.
            if (result >= 0) check(!dut->working, "is working after its result");
            else if (server.requests.size() > requests_before) check(dut->working, "is idle while its server has a request");
            check(cycles - began < 400000, "hangs");
        } while (result < 0 || !dut->ready);
        check(server.released == released + (answer.connect == 0), "the connection is not released");
        return static_cast<Result>(result);
    }

    bool whole() const { return last_; }

private:
    bool last_ = false;
};

}  // namespace

TEST(a_file_arrives_complete) {
    Fetch fetch;
    for (int i = 0; i < 200; i++) {
        fetch.ready = 20 + fetch.random.below(81);
        fetch.server.may = 20 + fetch.random.below(81);
        fetch.server.pieces = fetch.random.percent(30) ? 3 : 1000;
        Bytes want = fetch.random.bytes(1 + fetch.random.below(fetch.random.percent(20) ? 5000 : 100));
        const char *const heads[] = {"Content-Length: ", "content-length:", "CONTENT-LENGTH: \t"};
        std::string head = std::string("HTTP/1.") + "01"[fetch.random.below(2)] + " 200 " + (fetch.random.percent(50) ? "OK" : "") + "\r\n" +
            (fetch.random.percent(50) ? "Server: a store\r\nContent-Lengthy: 3\r\n" : "") + heads[fetch.random.below(3)] +
            std::to_string(want.size()) + (fetch.random.percent(30) ? " " : "") + "\r\n" + (fetch.random.percent(50) ? "Accept-Ranges: bytes\r\n" : "") + "\r\n";
        Answer answer = file(want, head);
        answer.closes = fetch.random.percent(70);
        check(fetch.fetch("sobel", answer) == Ok, "is refused: " + head);
        check(fetch.whole(), "does not end");
        want.resize((want.size() + 7) / 8 * 8);  // padded with zeros
        expect(fetch.body, want, "the body");
        check(fetch.server.requests.back() == "GET /images/sobel.img HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n",
              "requests " + fetch.server.requests.back());
    }
}

TEST(the_longest_name_and_path_are_requested) {
    Fetch fetch;
    std::string path = "/" + std::string(62, 'p') + "/";
    put(fetch->path, path);
    check(fetch.fetch("fifteen-letters", file(text("x"))) == Ok, "is refused");
    check(fetch.server.requests.back().rfind("GET " + path + "fifteen-letters.img HTTP/1.1\r\n", 0) == 0, "requests " + fetch.server.requests.back());
}

TEST(replies_without_a_file_are_refused) {
    Fetch fetch;
    const Bytes body = text("0123456789");
    const std::pair<const char *, Result> heads[] = {
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n", Missing},
        {"HTTP/1.1 301 Moved\r\nContent-Length: 10\r\n\r\n", Missing},
        {"HTTP/1.1 200 OK\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 4294967306\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1 0\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 10\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n", Broken},
        {"HTTP/2 200 OK\r\nContent-Length: 10\r\n\r\n", Broken},
        {"HTTP/1.1 2x0 OK\r\nContent-Length: 10\r\n\r\n", Broken},
        {"HTTP/1.1\r\nContent-Length: 10\r\n\r\n", Broken},
        {"\r\n\r\n", Broken},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n", Broken},
    };
    for (auto &[head, want] : heads) {
        Result got = fetch.fetch("sobel", file(body, head));
        check(got == want, "result " + std::to_string(got) + " for " + head);
        check(fetch.body.empty(), std::string("a body with ") + head);
    }
    std::string endless = "HTTP/1.1 200 OK\r\n";
    while (endless.size() < 9000) endless += "X-More: of the same\r\n";
    check(fetch.fetch("sobel", file(body, endless)) == Broken, "a head without an end is taken");
    check(fetch.fetch("sobel", file(body)) == Ok, "takes nothing afterwards");
}

TEST(a_body_that_is_cut_off_is_broken) {
    Fetch fetch;
    for (int i = 0; i < 60; i++) {
        Answer answer = file(fetch.random.bytes(200 + fetch.random.below(300)));
        answer.bytes.resize(fetch.random.below(static_cast<uint32_t>(answer.bytes.size())));
        answer.closes = fetch.random.percent(50);
        answer.resets = !answer.closes;
        check(fetch.fetch("sobel", answer) == Broken, "is taken for whole");
        check(!fetch.whole(), "a file without its last beat is reported as complete");
    }
    check(fetch.fetch("sobel", file(text("whole"))) == Ok, "takes nothing afterwards");
}

TEST(an_absent_or_mute_store_is_silent) {
    Fetch fetch;
    Answer refused;
    refused.connect = kRefused;
    check(fetch.fetch("sobel", refused) == Silent, "a refused connection is something else");
    fetch.ticks = 100;  // a millisecond per cycle
    Answer nothing;
    nothing.closes = false;
    uint64_t began = fetch.cycles;
    check(fetch.fetch("sobel", nothing) == Silent, "silence is something else");
    check(fetch.cycles - began >= 5000 && fetch.cycles - began < 6000, "waits for " + std::to_string(fetch.cycles - began) + " ms");
    fetch.ticks = 0;
    check(fetch.fetch("sobel", file(text("there"))) == Ok, "takes nothing afterwards");
}

// Board memory that is busy has been offered a word (`body_stays`): the word stays, although the connection has ended.
TEST(an_offered_word_stays_when_the_connection_ends) {
    Fetch fetch;
    for (int i = 0; i < 60; i++) {
        fetch.ready = 5;
        fetch.server.pieces = 3;
        Answer answer = file(fetch.random.bytes(200));
        answer.bytes.resize(answer.bytes.size() - 8 - fetch.random.below(100));
        answer.closes = false;
        answer.resets = true;
        check(fetch.fetch("sobel", answer) == Broken, "is taken for whole");
    }
}

BENCH_MAIN()
